//! What is known of machines and hardware types, and what may be decided about them?

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use utoipa::ToSchema;

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineStage {
    /// It was asked for, and its agent has not come: it is a wish.
    Coming,
    /// Its agent has come.
    Alive,
    /// It gets no replica any more, and goes back when it has none.
    Cordoned,
    /// It was told to end.
    Ending,
    /// It is gone.
    Ended,
}

impl MachineStage {
    /// All stages, in their order.
    pub const ALL: [Self; 5] = [Self::Coming, Self::Alive, Self::Cordoned, Self::Ending, Self::Ended];

    /// Its name in rows and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coming => "coming",
            Self::Alive => "alive",
            Self::Cordoned => "cordoned",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }

    /// The stage with this name in a row. The service wrote it. A name that this release does not know counts as ending:
    /// such a machine gets no replica, and is watched until it is gone.
    #[must_use]
    pub fn stored(name: &str) -> Self {
        Self::ALL.into_iter().find(|stage| stage.name() == name).unwrap_or(Self::Ending)
    }
}

/// A machine as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRecord {
    /// Its name, which is its agent's too.
    pub name: String,
    /// The hardware type that was asked for.
    pub hardware: String,
    /// Its devices: as asked for, and as its agent says once that has come.
    pub devices: u32,
    /// Its stage.
    pub stage: MachineStage,
    /// When the stage began.
    pub since: Duration,
}

/// The agent with a machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineAgent {
    /// The hardware type that it has.
    pub hardware: String,
    /// Its devices.
    pub devices: u32,
    /// Whether it is live.
    pub is_live: bool,
    /// Time since its last heartbeat.
    pub silent_for: Duration,
    /// Whether the target in force or its last acknowledgement has replicas on it.
    pub is_used: bool,
}

/// A machine with everything that a decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMachine {
    /// Its row.
    pub record: MachineRecord,
    /// Whether its agent is live.
    pub is_live: bool,
    /// Whether it has replicas.
    pub is_used: bool,
    /// How long it may still run; `None`: no end is known.
    pub left: Option<Duration>,
    /// How long it may run in all; `None`: no limit is known.
    pub limit: Option<Duration>,
}

/// A hardware type that a substrate has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareFacts {
    /// Its name.
    pub hardware: String,
    /// Devices that the plans want: those of the plan with everything that may be had, or of the plan in force if it has
    /// more. For spot machines, with those that make up for expected losses.
    pub wanted: u32,
    /// Devices of live agents that no substrate runs.
    pub others: u32,
    /// Most devices of all agents together.
    pub count_max: u32,
    /// Devices of one machine, at least 1.
    pub devices_each: u32,
    /// The expected time from the wish for a machine to its agent.
    pub provision: Duration,
    /// No machine is asked for before this moment, because the last ones did not come.
    pub retry_at: Option<Duration>,
}

/// The limits of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// A machine goes back after it had no replica, and its type too many devices, for this time.
    pub idle: Duration,
    /// Changes that the budget of this hour still allows.
    pub changes_left: u32,
}

/// Why machines are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskReason {
    /// The plans want more devices than there are.
    Wanted,
    /// The time of a machine is almost over.
    Renewed,
}

impl AskReason {
    /// Its name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Renewed => "renewed",
        }
    }
}

/// Why a machine goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnReason {
    /// No plan wants it, and it has no replicas.
    Idle,
    /// No plan wants so many devices, and its replicas have room on the others.
    Spare,
    /// Its time is almost over, and the other machines are enough.
    EndsSoon,
    /// It had not come when no plan wanted it any more.
    Withdrawn,
}

impl ReturnReason {
    /// Its name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Spare => "spare",
            Self::EndsSoon => "ends_soon",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineChange {
    /// Machines of a type are asked for.
    Ask {
        /// The type.
        hardware: String,
        /// How many.
        count: u32,
        /// Why.
        why: AskReason,
    },
    /// A cordoned machine gets replicas again.
    Reclaim {
        /// Its name.
        name: String,
    },
    /// A machine gets no replica any more.
    Cordon {
        /// Its name.
        name: String,
        /// Why.
        why: ReturnReason,
    },
    /// A machine is told to end: it is cordoned and has no replica.
    Release {
        /// Its name.
        name: String,
    },
    /// A wish is taken back.
    Withdraw {
        /// Its name.
        name: String,
    },
    /// A machine that was told to end does not: it is ended.
    Kill {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for MachineChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { hardware, count, why } => write!(f, "ask for {count} of {hardware} ({})", why.name()),
            Self::Reclaim { name } => write!(f, "use {name} again"),
            Self::Cordon { name, why } => write!(f, "cordon {name} ({})", why.name()),
            Self::Release { name } => write!(f, "give {name} back"),
            Self::Withdraw { name } => write!(f, "take back the wish {name}"),
            Self::Kill { name } => write!(f, "end {name}, which does not end by itself"),
        }
    }
}

/// Why a type has fewer devices than the plans want.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineObstacle {
    /// `count_max` allows no more.
    #[error("{hardware}: {missing} devices are missing, and count_max allows {count_max} in all")]
    CountMax {
        /// The type.
        hardware: String,
        /// Missing devices.
        missing: u32,
        /// Most devices.
        count_max: u32,
    },
    /// The budget of this hour is spent.
    #[error("{hardware}: {missing} devices are missing, and this hour has no more changes (changes_per_hour_max)")]
    BudgetSpent {
        /// The type.
        hardware: String,
        /// Missing devices.
        missing: u32,
    },
    /// The last wishes did not come true.
    #[error("{hardware}: {missing} devices are missing, and the next wish waits because the last one expired")]
    Waits {
        /// The type.
        hardware: String,
        /// Missing devices.
        missing: u32,
    },
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTurn {
    /// The changes, asks first.
    pub changes: Vec<MachineChange>,
    /// Why devices stay missing.
    pub obstacles: Vec<MachineObstacle>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_documents_name_a_stage_alike() {
        for stage in MachineStage::ALL {
            assert_eq!(MachineStage::stored(stage.name()), stage);
            assert_eq!(serde_json::to_value(stage).expect("a text"), stage.name());
        }
        assert_eq!(MachineStage::stored("asleep"), MachineStage::Ending, "a name of another release");
    }
}
