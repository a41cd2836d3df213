//! Which workloads are scaled next, and when does that stop?
//!
//! Everything here is pure: the state of the workloads, the memory of earlier changes and the time are arguments. Growth
//! comes first. Nothing shrinks before all that grew is ready, so the pipeline has its capacity all the time.

#[cfg(test)]
mod tests;

use crate::workload::{FIELD_MANAGER, ReplicasOwner, WorkloadName, WorkloadState};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long a watch may take to show a patch. After it, the patch counts as one that never reached the API.
pub const CATCH_UP: Duration = Duration::from_secs(10);

/// The replicas that a plan has for a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadGoal {
    /// The workload.
    pub workload: WorkloadName,
    /// Its replicas.
    pub replicas: u32,
}

/// What we did with a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadMemory {
    /// The replicas that we wrote last, or found at first.
    pub applied: u32,
    /// The replicas before that, until the API shows the new ones.
    pub before: Option<u32>,
    /// When we wrote them.
    pub applied_at: Duration,
    /// The last number of replicas that were all ready.
    pub ready: u32,
    /// The goal that was rolled back because its replicas did not become ready.
    pub failed: Option<u32>,
}

/// The limits of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutLimits {
    /// Most workloads that change at a time.
    pub at_a_time_max: u32,
    /// Longest time until new replicas are ready.
    pub ready_within: Duration,
    /// Changes that the budget of this hour still allows.
    pub changes_left: u32,
}

/// Why a workload is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleReason {
    /// The plan has more replicas.
    Grow,
    /// The plan has fewer, and all that grew is ready.
    Shrink,
    /// Its replicas did not become ready.
    RollBack,
}

impl ScaleReason {
    /// Its name in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::RollBack => "roll_back",
        }
    }
}

/// A change of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleChange {
    /// The workload.
    pub workload: WorkloadName,
    /// Its replicas now.
    pub from: u32,
    /// Its new replicas.
    pub to: u32,
    /// The reason.
    pub why: ScaleReason,
    /// What is remembered once it is made.
    pub memory: WorkloadMemory,
}

impl fmt::Display for ScaleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.workload, self.from, self.to)
    }
}

/// Why the workloads of a pipeline cannot follow its plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It is not there.
    #[error("{0} does not exist: expected the workload that the pipeline's settings name")]
    Missing(WorkloadName),
    /// Another field manager owns its replicas.
    #[error("{workload} is left alone at {replicas} replicas: {} expected no other owner of spec.replicas", owned_by(.owners))]
    Owned {
        /// The workload.
        workload: WorkloadName,
        /// Its replicas.
        replicas: u32,
        /// The owners.
        owners: Vec<ReplicasOwner>,
    },
    /// A HorizontalPodAutoscaler targets it.
    #[error("{workload} is left alone at {replicas} replicas: HorizontalPodAutoscaler {autoscaler} targets it too")]
    Autoscaled {
        /// The workload.
        workload: WorkloadName,
        /// Its replicas.
        replicas: u32,
        /// The autoscaler's name.
        autoscaler: String,
    },
    /// Something else has changed its replicas.
    #[error("{workload} is left alone: something else changed its replicas from {applied} to {found}")]
    Changed {
        /// The workload.
        workload: WorkloadName,
        /// The replicas that we wrote.
        applied: u32,
        /// The replicas that it has.
        found: u32,
    },
    /// Its replicas did not become ready.
    #[error("{workload}: {wanted} replicas did not become ready within {} s, so it keeps {ready}", .within.as_secs())]
    NeverReady {
        /// The workload.
        workload: WorkloadName,
        /// The replicas that were tried.
        wanted: u32,
        /// The replicas that were ready last.
        ready: u32,
        /// The longest time.
        within: Duration,
    },
    /// The budget of this hour is spent.
    #[error("{0} waits: this hour has no more changes (changes_per_hour)")]
    BudgetSpent(ScaleChange),
}

fn owned_by(owners: &[ReplicasOwner]) -> String {
    let one = |owner: &ReplicasOwner| format!("field manager {} owns them since {};", owner.manager, owner.since);
    owners.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What is to be done in one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutTurn {
    /// What is to be remembered, whether or not a change follows.
    pub notes: Vec<(WorkloadName, WorkloadMemory)>,
    /// The changes.
    pub changes: Vec<ScaleChange>,
    /// Why the workloads do not follow the plan.
    pub obstacles: Vec<Obstacle>,
    /// Whether every workload has the replicas of the plan, all ready.
    pub is_done: bool,
}

/// One workload in a turn.
struct Member<'a> {
    goal: &'a WorkloadGoal,
    memory: WorkloadMemory,
    found: u32,
    /// A change of it is under way.
    is_moving: bool,
}

/// What is to be done next, so that the workloads follow the plan. `now` has the clock of [`WorkloadMemory::applied_at`].
#[must_use]
pub fn next_turn(
    goals: &[WorkloadGoal],
    seen: &BTreeMap<WorkloadName, WorkloadState>,
    known: &BTreeMap<WorkloadName, WorkloadMemory>,
    limits: RolloutLimits,
    now: Duration,
) -> RolloutTurn {
    let mut turn = RolloutTurn::default();
    let mut members = Vec::new();
    for goal in goals {
        let Some(state) = seen.get(&goal.workload) else {
            turn.obstacles.push(Obstacle::Missing(goal.workload.clone()));
            continue;
        };
        if let Some(conflict) = conflict(goal, state) {
            turn.obstacles.push(conflict);
            continue;
        }
        let old = known.get(&goal.workload).copied();
        let memory = remember(old, goal, state, now);
        if old != Some(memory) {
            turn.notes.push((goal.workload.clone(), memory));
        }
        let found = state.replicas;
        if found != memory.applied && Some(found) != memory.before {
            turn.obstacles.push(Obstacle::Changed { workload: goal.workload.clone(), applied: memory.applied, found });
            continue;
        }
        let is_moving = memory.before.is_some() || memory.ready != memory.applied;
        members.push(Member { goal, memory, found, is_moving });
    }
    roll_back(&mut turn, &mut members, limits, now);
    if turn.obstacles.is_empty() {
        change(&mut turn, &members, limits, now);
    }
    turn
}

fn conflict(goal: &WorkloadGoal, state: &WorkloadState) -> Option<Obstacle> {
    let (workload, replicas) = (goal.workload.clone(), state.replicas);
    if let Some(autoscaler) = state.autoscaler.clone() {
        return Some(Obstacle::Autoscaled { workload, replicas, autoscaler });
    }
    let owners: Vec<_> = state.owners.iter().filter(|owner| owner.manager != FIELD_MANAGER).cloned().collect();
    (!owners.is_empty()).then_some(Obstacle::Owned { workload, replicas, owners })
}

/// The memory of a workload after a look at it. One that is seen for the first time is taken as it is.
fn remember(old: Option<WorkloadMemory>, goal: &WorkloadGoal, state: &WorkloadState, now: Duration) -> WorkloadMemory {
    let found = state.replicas;
    let new = WorkloadMemory { applied: found, before: None, applied_at: now, ready: found, failed: None };
    let mut memory = old.unwrap_or(new);
    if found == memory.applied {
        memory.before = None;
        // What stays of ready replicas is ready.
        if state.is_ready() || found < memory.ready {
            memory.ready = found;
        }
    } else if Some(found) == memory.before && now.saturating_sub(memory.applied_at) > CATCH_UP {
        memory.applied = found;
        memory.before = None;
    }
    memory.failed = memory.failed.filter(|failed| *failed == goal.replicas);
    memory
}

/// Rolls back what has not become ready in time. What was rolled back stays so until the plan has another number.
fn roll_back(turn: &mut RolloutTurn, members: &mut [Member<'_>], limits: RolloutLimits, now: Duration) {
    for member in members {
        let Member { goal, memory, found, .. } = &*member;
        let is_late = now.saturating_sub(memory.applied_at) > limits.ready_within;
        let is_stuck = memory.before.is_none() && memory.applied > memory.ready && is_late;
        if is_stuck {
            let memory = WorkloadMemory {
                applied: memory.ready,
                before: Some(*found),
                applied_at: now,
                failed: Some(goal.replicas),
                ..*memory
            };
            turn.changes.push(ScaleChange {
                workload: goal.workload.clone(),
                from: *found,
                to: memory.ready,
                why: ScaleReason::RollBack,
                memory,
            });
        }
        if is_stuck || memory.failed.is_some() {
            turn.obstacles.push(Obstacle::NeverReady {
                workload: goal.workload.clone(),
                wanted: goal.replicas,
                ready: memory.ready,
                within: limits.ready_within,
            });
        }
    }
}

/// Grows, and shrinks once nothing is left to grow.
fn change(turn: &mut RolloutTurn, members: &[Member<'_>], limits: RolloutLimits, now: Duration) {
    let moving = members.iter().filter(|member| member.is_moving).count();
    let grows = |member: &&Member<'_>| !member.is_moving && member.goal.replicas > member.memory.applied;
    let shrinks = |member: &&Member<'_>| !member.is_moving && member.goal.replicas < member.memory.applied;
    let (growing, shrinking) = (members.iter().filter(grows), members.iter().filter(shrinks));
    let growing: Vec<_> = growing.collect();
    let (wanted, why): (Vec<_>, _) = match growing.is_empty() {
        false => (growing, ScaleReason::Grow),
        true if moving == 0 => (shrinking.collect(), ScaleReason::Shrink),
        true => (Vec::new(), ScaleReason::Shrink),
    };
    turn.is_done = wanted.is_empty() && moving == 0;
    let room = (limits.at_a_time_max as usize).saturating_sub(moving);
    let changes = wanted.into_iter().take(room).map(|member| {
        let Member { goal, memory, found, .. } = member;
        let to = goal.replicas;
        let memory = WorkloadMemory { applied: to, before: Some(*found), applied_at: now, ..*memory };
        ScaleChange { workload: goal.workload.clone(), from: *found, to, why, memory }
    });
    let mut changes: Vec<_> = changes.collect();
    let left = changes.len().min(limits.changes_left as usize);
    turn.obstacles.extend(changes.drain(left..).map(Obstacle::BudgetSpent));
    turn.changes.extend(changes);
}
