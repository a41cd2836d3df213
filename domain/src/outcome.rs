//! What does a planner answer? A plan with its proofs, or the reasons why there is no plan.

use crate::serving::named;
use crate::{Estimate, JudgedOn, Plan};

named! {
    /// Which step of a mode gave the objective's value.
    ObjectiveStep default Hardware {
        /// Fewest replicas with the most accurate variants.
        Hardware = "hardware",
        /// Highest accuracy within the counts.
        Accuracy = "accuracy",
    }
}

named! {
    /// How a plan file summarises an outcome.
    PlanStatus default Unknown {
        /// Proven within the gap.
        Optimal = "optimal",
        /// Valid, not proven.
        Feasible = "feasible",
        /// Proven that there is no plan.
        Infeasible = "infeasible",
        /// Neither plan nor proof.
        Unknown = "unknown",
    }
}

named! {
    /// Why a planner stopped before a proof.
    StopReason default Finished {
        /// It makes no proofs (greedy).
        Finished = "finished",
        /// Its time was up.
        TimeLimit = "time_limit",
        /// The caller cancelled it.
        Cancelled = "cancelled",
        /// The caller stopped it, and kept the best plan so far.
        Stopped = "stopped",
        /// No plan held on the trace within the rounds of the check loop.
        TraceNotMet = "trace_not_met",
        /// The fresh samples that were allowed do not decide whether the plan holds.
        TraceUndecided = "trace_undecided",
        /// The devices are too few for the rate that a baseline plans for. Its plan serves the largest part that fits.
        DemandNotMet = "demand_not_met",
        /// This planner proves nothing about problems of this kind.
        Unsupported = "unsupported",
        /// The solver failed numerically.
        Numerics = "numerics",
        /// The replay of a plan would be too large, so the plan was not replayed.
        ReplayTooLarge = "replay_too_large",
    }
}

named! {
    /// The constraint of a shortfall or a binding.
    Constraint default Latency {
        /// No number of replicas can fix it: the fastest way is slower than the SLO.
        Latency = "latency",
        /// Not enough devices.
        Capacity = "capacity",
        /// The accuracy floor.
        Accuracy = "accuracy",
        /// The budget.
        Budget = "budget",
        /// Device memory.
        Memory = "memory",
        /// The load of a scaling problem.
        Load = "load",
    }
}

impl StopReason {
    /// Whether a limit of the run or its caller ended it, so that more time could have found a better plan.
    #[must_use]
    pub const fn is_limit(self) -> bool {
        matches!(self, Self::TimeLimit | Self::Cancelled | Self::Stopped)
    }
}

/// Value of the objective with its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveValue {
    /// The step of `hardware_then_accuracy`; `None` in other modes.
    pub step: Option<ObjectiveStep>,
    /// Replicas in step `hardware`, accuracy in step `accuracy`, else cost or accuracy by mode; `None` without a plan.
    pub value: Option<f64>,
    /// No plan has a better value; `None` if the planner proves nothing.
    pub bound: Option<f64>,
}

impl ObjectiveValue {
    /// `|value - bound| / max(1e-9, |value|)`; `None` unless both are known.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        let (value, bound) = (self.value?, self.bound?);
        Some((value - bound).abs() / value.abs().max(1e-9))
    }
}

/// The smallest single change of the problem file that makes it feasible.
#[derive(Clone, Debug, PartialEq)]
pub struct Relaxation {
    /// JSON pointer of the value to change.
    pub pointer: String,
    /// The present value.
    pub from: f64,
    /// The value that makes the problem feasible.
    pub to: f64,
}

/// A constraint that cannot be met, and by how much it must be relaxed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortfall {
    /// Which kind.
    pub constraint: Constraint,
    /// Of which pipeline, task or hardware.
    pub place: String,
    /// The requested value.
    pub asked: f64,
    /// The best possible value.
    pub best: f64,
    /// A single change that makes the problem feasible; `None` if there is none.
    pub relax: Option<Relaxation>,
}

/// A constraint with no room left in a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Which kind.
    pub constraint: Constraint,
    /// Of which pipeline, task or hardware.
    pub place: String,
    /// The used amount.
    pub used: f64,
    /// The available amount.
    pub limit: f64,
}

named! {
    /// What an alternative changes about a group.
    AlternativeKind default Batch {
        /// The group runs another batch size, everything else stays.
        Batch = "batch",
        /// All of the task's queries go to one other variant, everything else is planned again.
        Variant = "variant",
        /// All of the task runs on one other hardware type, everything else is planned again.
        Hardware = "hardware",
    }
}

/// By how much a plan differs from the one that was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Replicas more, or fewer where negative.
    pub replicas: i64,
    /// Cost more.
    pub cost_per_hour: f64,
    /// Accuracy more: of one pipeline, or the mean by weight over all where all are planned again.
    pub accuracy: f64,
}

impl Change {
    /// Differences of accuracy and cost below this are the solver's tolerance.
    pub const NOISE: f64 = 1e-6;

    /// Whether it is no change.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.replicas == 0 && self.cost_per_hour.abs() < Self::NOISE && self.accuracy.abs() < Self::NOISE
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if self.replicas != 0 {
            let noun = if self.replicas.abs() == 1 { "replica" } else { "replicas" };
            parts.push(format!("{:+} {noun}", self.replicas));
        }
        if self.cost_per_hour.abs() >= Self::NOISE {
            parts.push(format!("{:+.2} per hour", self.cost_per_hour));
        }
        if self.accuracy.abs() >= Self::NOISE {
            parts.push(format!("{:+.4} accuracy", self.accuracy));
        }
        if parts.is_empty() { f.write_str("no change") } else { f.write_str(&parts.join(", ")) }
    }
}

/// The consequence of an alternative.
#[derive(Clone, Debug, PartialEq)]
pub enum Consequence {
    /// A plan with it exists.
    Plan(Change),
    /// The SLO is missed with any number of replicas.
    MissesSlo {
        /// By this much.
        by_ms: f64,
    },
    /// More devices would be needed than there are.
    TooFewDevices {
        /// Of this hardware type.
        hardware: String,
        /// How many more.
        missing: u64,
    },
    /// It fits into no device's memory.
    TooLittleMemory,
    /// There is no plan with it within devices, floors and budget.
    NoPlan,
}

impl std::fmt::Display for Consequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(change) => change.fmt(f),
            Self::MissesSlo { by_ms } => write!(f, "misses the SLO by {by_ms:.1} ms"),
            Self::TooFewDevices { hardware, missing } => write!(f, "needs {missing} more of {hardware} than there are"),
            Self::TooLittleMemory => f.write_str("does not fit into the memory of any device"),
            Self::NoPlan => f.write_str("no plan within devices, floors and budget"),
        }
    }
}

/// Another way to run a group, and its consequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// What it changes.
    pub kind: AlternativeKind,
    /// The new batch size, variant or hardware type.
    pub to: String,
    /// The consequence.
    pub consequence: Consequence,
}

/// Why one group is as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Pipeline and group.
    pub what: String,
    /// In a sentence.
    pub why: String,
    /// The constraints that exclude other choices.
    pub binding: Vec<Binding>,
    /// Other choices.
    pub alternatives: Vec<Alternative>,
}

/// The value of one more unit of a resource: a finite difference, found by planning again.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Hardware type, `budget`, or pipeline.
    pub place: String,
    /// The unit: `1 device`, `1 per hour`, `10 ms`.
    pub unit: String,
    /// The change of the problem file.
    pub change: Relaxation,
    /// The improvement of the objective's value; `None` if another step of the mode is reached.
    pub gain: Option<f64>,
    /// How the best plan differs then.
    pub buys: Change,
}

/// A planner's explanation of its plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// One for each group.
    pub decisions: Vec<Decision>,
    /// Constraints without room.
    pub binding: Vec<Binding>,
    /// Constraints that cannot be met.
    pub shortfalls: Vec<Shortfall>,
    /// The value of one more unit of each resource.
    pub prices: Vec<Price>,
    /// Parts that were not computed, and why: one sentence each.
    pub left_out: Vec<String>,
}

/// The answer of a planner of pipelines.
pub type PlanOutcome = PlannerAnswer<Plan>;

/// The answer of a planner with plans of type `P`.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub enum PlannerAnswer<P> {
    /// Proven within the requested gap: no plan is better.
    Optimal(P),
    /// Valid, but not proven best.
    Feasible {
        /// The plan.
        plan: P,
        /// Why there is no proof.
        stopped: StopReason,
    },
    /// Proven: no plan exists. Each shortfall names a constraint, and by how much it must be relaxed.
    Infeasible {
        /// Never empty.
        shortfalls: Vec<Shortfall>,
    },
    /// Stopped before finding either a plan or a proof.
    Unknown {
        /// Why.
        stopped: StopReason,
    },
}

impl<P> PlannerAnswer<P> {
    /// The plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&P> {
        match self {
            Self::Optimal(plan) | Self::Feasible { plan, .. } => Some(plan),
            Self::Infeasible { .. } | Self::Unknown { .. } => None,
        }
    }

    /// The same with another plan, if it has one.
    pub fn map(self, change: impl FnOnce(P) -> P) -> Self {
        match self {
            Self::Optimal(plan) => Self::Optimal(change(plan)),
            Self::Feasible { plan, stopped } => Self::Feasible { plan: change(plan), stopped },
            Self::Infeasible { .. } | Self::Unknown { .. } => self,
        }
    }

    /// Its one-word summary.
    #[must_use]
    pub fn status(&self) -> PlanStatus {
        match self {
            Self::Optimal(_) => PlanStatus::Optimal,
            Self::Feasible { .. } => PlanStatus::Feasible,
            Self::Infeasible { .. } => PlanStatus::Infeasible,
            Self::Unknown { .. } => PlanStatus::Unknown,
        }
    }

    /// Why it stopped without a proof.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        match self {
            Self::Feasible { stopped, .. } | Self::Unknown { stopped } if *stopped != StopReason::Finished => {
                Some(*stopped)
            }
            _ => None,
        }
    }
}

/// One round of the check loop: solve, replay, tighten.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRound {
    /// Counted from 1.
    pub round: u32,
    /// Headroom of this round by `pipeline/task`, at least 1.
    pub headroom: Vec<(String, f64)>,
    /// Charge in milliseconds by `pipeline/task` in addition to the queue factor's.
    pub charge_ms: Vec<(String, f64)>,
    /// Objective of the round's plan.
    pub objective: ObjectiveValue,
    /// Replicas of the round's plan.
    pub replicas: u64,
    /// Attainment on the load that the round tightens on, 0 to 1.
    pub attainment: f64,
    /// 99th percentile of the latency on the same load, in milliseconds.
    pub p99_ms: f64,
    /// What fresh samples show; `None` if the plan was not judged: it misses already where the round tightens, or a better
    /// one holds.
    pub judged_on: Option<JudgedOn>,
}

/// The time of a run by what took it, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondsOf {
    /// Formulations and searches for plans.
    pub search: f64,
    /// Simulations: of plans on the trace and on fresh samples, and of the settings that the greedy planner tries.
    pub replay: f64,
    /// The search for the changes that would make an infeasible problem feasible.
    pub shortfalls: f64,
    /// The explanation of the plan.
    pub explanation: f64,
    /// The ladders of replicas by load.
    pub ladder: f64,
}

/// How a planner came to its outcome.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct PlanningReport {
    /// Name of the planner.
    pub planner: String,
    /// Objective of the last round.
    pub objective: ObjectiveValue,
    /// Time of the whole run in seconds, by the caller's clock.
    pub seconds: f64,
    /// The same by what took it.
    pub seconds_of: SecondsOf,
    /// Rounds of the check loop; empty without a trace.
    pub rounds: Vec<CheckRound>,
    /// Why the plan is as it is.
    pub explanation: Explanation,
    /// The estimate of the plan; `None` without a plan.
    pub estimate: Option<Estimate>,
    /// Sentences about doubtful figures of the problem.
    pub warnings: Vec<String>,
}
