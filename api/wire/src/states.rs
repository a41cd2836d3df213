//! Which states do the service's resources have, and which text does each state have?
//!
//! A state has the same text in the database, in JSON and in the OpenAPI document. `name` makes the text, and
//! `TryFrom<String>` reads it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: expected one of {expected}")]
pub struct UnknownState {
    /// The kind of state that was expected.
    pub what: &'static str,
    /// The text.
    pub text: String,
    /// The texts that would be right.
    pub expected: String,
}

/// Defines an enum of states from its variants and their texts.
macro_rules! states {
    ($(#[$about:meta])* $name:ident, $what:literal, { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All states, in the order of their life.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// Their texts.
            pub const NAMES: &[&str] = &[$($text,)*];

            /// Its text in the database and in JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = UnknownState;

            fn try_from(text: String) -> Result<Self, UnknownState> {
                let found = Self::ALL.iter().find(|state| state.name() == text);
                found.copied().ok_or_else(|| UnknownState { what: $what, text, expected: Self::NAMES.join(", ") })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

states! {
    /// The state of a schedule's firing.
    FiringState, "state of a firing", {
        /// It waits for its round of replanning.
        Pending = "pending",
        /// It had its effect: `detail` says which.
        Done = "done",
        /// It had no effect; `detail` says why.
        Failed = "failed",
        /// It came too late to have an effect; `detail` says why.
        Missed = "missed",
    }
}

states! {
    /// The state of a plan.
    PlanState, "state of a plan", {
        /// It waits for a worker.
        Queued = "queued",
        /// A worker solves it.
        Solving = "solving",
        /// There is a plan.
        Succeeded = "succeeded",
        /// No plan exists; the plan file says why.
        Infeasible = "infeasible",
        /// It could not be solved; `error` says why.
        Failed = "failed",
        /// A client cancelled it.
        Cancelled = "cancelled",
    }
}

impl PlanState {
    /// The states of plans that are not over.
    pub const OPEN: [Self; 2] = [Self::Queued, Self::Solving];

    /// Whether the plan is not over: it waits or is being solved.
    #[must_use]
    pub fn is_open(self) -> bool {
        Self::OPEN.contains(&self)
    }
}

states! {
    /// A kind of analysis.
    AnalysisKind, "kind of analysis", {
        /// One plan replays a load.
        Simulation = "simulation",
        /// Plans while one value of a problem varies.
        Frontier = "frontier",
        /// Planners side by side on one load.
        Comparison = "comparison",
    }
}

states! {
    /// The state of an analysis.
    AnalysisState, "state of an analysis", {
        /// It waits for a worker.
        Queued = "queued",
        /// A worker runs it.
        Running = "running",
        /// There is a result.
        Done = "done",
        /// It could not be made; `error` says why.
        Failed = "failed",
        /// A client cancelled it. What was ready stays.
        Cancelled = "cancelled",
    }
}

impl AnalysisState {
    /// The states of analyses that are not over.
    pub const OPEN: [Self; 2] = [Self::Queued, Self::Running];

    /// Whether the analysis is not over: it waits or runs.
    #[must_use]
    pub fn is_open(self) -> bool {
        Self::OPEN.contains(&self)
    }
}

states! {
    /// The state of a profile job.
    ProfileJobState, "state of a profile job", {
        /// No device measures for it yet.
        Queued = "queued",
        /// Devices measure, or it waits for one.
        Running = "running",
        /// All that it asked for was measured, and is in the profile.
        Done = "done",
        /// Something could not be measured; `error` says why. What was measured is in the profile.
        Failed = "failed",
        /// A client cancelled it. Variants that were complete are in the profile.
        Cancelled = "cancelled",
    }
}

impl ProfileJobState {
    /// The states of jobs that are not over.
    pub const OPEN: [Self; 2] = [Self::Queued, Self::Running];

    /// Whether the job is not over.
    #[must_use]
    pub fn is_open(self) -> bool {
        Self::OPEN.contains(&self)
    }
}

states! {
    /// The state of an agent.
    AgentState, "state of an agent", {
        /// It reports.
        Live = "live",
        /// It has not reported for some seconds.
        Lost = "lost",
        /// It left on purpose.
        Left = "left",
    }
}

states! {
    /// The decision of one round of replanning for one pipeline.
    DecisionKind, "decision", {
        /// Another plan is in force.
        Applied = "applied",
        /// The plan in force stays.
        Kept = "kept",
        /// Another plan would be better, and the pipeline's settings do not allow to deploy it.
        Advised = "advised",
        /// No plan could be made.
        Failed = "failed",
    }
}

states! {
    /// How the service replans a pipeline.
    ReplanMode, "replan mode", {
        /// Not at all.
        Off = "off",
        /// It makes plans and deploys none.
        Advisory = "advisory",
        /// It makes plans and deploys them.
        Apply = "apply",
    }
}

states! {
    /// How the scaling actions of a replanned pipeline are found.
    ScalingPlanner, "planner of scaling actions", {
        /// By the integer programme of INFaaS section 4.2.1.
        Milp = "milp",
        /// By the heuristic of INFaaS section 4.2.2.
        Greedy = "greedy",
    }
}

states! {
    /// The state of a replica, as its agent reports it.
    ReplicaState, "state of a replica", {
        /// The agent reports no state.
        Unknown = "unknown",
        /// Its model is being loaded.
        Loading = "loading",
        /// It serves.
        Ready = "ready",
        /// It could not be loaded, or died.
        Failed = "failed",
        /// It finishes its queries, and takes no new ones.
        Draining = "draining",
    }
}

states! {
    /// The rows of a trace.
    TraceKind, "kind of trace", {
        /// Moments at which a query arrives.
        Arrivals = "arrivals",
        /// A rate for each second.
        Rates = "rates",
    }
}

states! {
    /// What a token allows. `admin` allows everything, `apply` also what `plan` and `read` allow, and `plan` what `read`
    /// allows.
    Scope, "scope", {
        /// Reads everything but tokens and the audit.
        Read = "read",
        /// Asks for plans, and uploads what they need: traces, model files, observed demands.
        Plan = "plan",
        /// Changes what the fleet serves: targets, holds, pipelines, profiles.
        Apply = "apply",
        /// Everything, with hardware types, tokens and the audit.
        Admin = "admin",
        /// Fetches model files, as an agent.
        Agent = "agent",
    }
}

impl Scope {
    /// Whether a token of this scope may call an operation that needs `needed`.
    #[must_use]
    pub fn allows(self, needed: Self) -> bool {
        match (self, needed) {
            (Self::Agent, needed) => needed == Self::Agent,
            (Self::Admin, _) | (_, Self::Agent) => true,
            (own, needed) => own >= needed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_scope_allows_what_a_narrower_one_allows() {
        let allowed = |own: Scope| Scope::ALL.iter().copied().filter(|needed| own.allows(*needed)).collect::<Vec<_>>();
        assert_eq!(allowed(Scope::Agent), [Scope::Agent]);
        assert_eq!(allowed(Scope::Read), [Scope::Read, Scope::Agent]);
        assert_eq!(allowed(Scope::Plan), [Scope::Read, Scope::Plan, Scope::Agent]);
        assert_eq!(allowed(Scope::Apply), [Scope::Read, Scope::Plan, Scope::Apply, Scope::Agent]);
        assert_eq!(allowed(Scope::Admin), Scope::ALL);
    }

    #[test]
    fn a_state_has_one_text_everywhere() {
        macro_rules! check {
            ($($states:ident),*) => {$(
                for state in $states::ALL {
                    assert_eq!(serde_json::to_value(state).expect("JSON"), state.name());
                    assert_eq!($states::try_from(state.name().to_owned()), Ok(*state));
                }
                let schema = serde_json::to_value(<$states as utoipa::PartialSchema>::schema()).expect("JSON");
                assert_eq!(schema["enum"], serde_json::json!($states::NAMES));
            )*};
        }
        check!(FiringState, PlanState, AnalysisKind, AnalysisState, AgentState, DecisionKind, ReplanMode, ReplicaState);
        check!(TraceKind, Scope, ScalingPlanner);
    }

    #[test]
    fn an_unknown_state_is_refused_with_the_known_ones() {
        let error = AgentState::try_from("gone".to_owned()).expect_err("no such state");
        assert_eq!(error.to_string(), "\"gone\" is no state of an agent: expected one of live, lost, left");
    }
}
