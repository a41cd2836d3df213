//! Which queries are not worth serving? The decision is made when a query would enter a batch.

use crate::station::queue::Waiting;
use apportion_domain::{Dropping, Moment, TimeSpan};

/// Why a query was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue held as many queries as it may.
    QueueFull,
    /// Its deadline had passed, or would have by the end of its batch.
    Deadline,
    /// Its request does not need it any more: another query of the request was dropped, or the client has gone.
    Cancelled,
    /// No replica serves its task.
    NoReplica,
    /// It has overrun the part of the SLO that its task has.
    Budget,
    /// It is expected to be late at the end of the pipeline.
    Predicted,
    /// More queries arrive than are admitted.
    Admission,
}

impl DropReason {
    /// The name in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::NoReplica => "no_replica",
            Self::Budget => "budget",
            Self::Predicted => "predicted",
            Self::Admission => "admission",
        }
    }
}

/// Which end of a queue that is kept by remaining time comes first (PARD section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// The query with the least time left: right while the load can be served.
    #[default]
    LowBudgetFirst,
    /// The query with the most time left: right while the load exceeds the capacity.
    HighBudgetFirst,
}

/// The part of the module states that one station uses. It is sent each time that module states are synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationView {
    /// The time that a query is expected to need after its batch here has ended: L_sub of PARD equation 3.
    pub forward: TimeSpan,
    /// The part of the SLO that this task has, where the SLO is split.
    pub budget: TimeSpan,
    /// Which end of the queue comes first.
    pub priority: Priority,
    /// The admitted part of the arriving queries, in 2^-16.
    pub admit: u32,
}

/// All queries are admitted.
pub const ADMIT_ALL: u32 = 1 << 16;

impl Default for StationView {
    fn default() -> Self {
        let budget = TimeSpan::from_nanos(u64::MAX);
        Self { forward: TimeSpan::ZERO, budget, priority: Priority::LowBudgetFirst, admit: ADMIT_ALL }
    }
}

/// When a query that enters a batch would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedBatch {
    /// The present.
    pub now: Moment,
    /// When its batch starts.
    pub start: Moment,
    /// How long its batch runs, at the largest size that the batch may reach.
    pub execution: TimeSpan,
}

/// A dropping policy at one station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropper {
    /// Every query is served, however late (`naive`). Also for policies that decide elsewhere: `per_task` and `reroute`
    /// decide when a query leaves its task, and `last_task` only at the last task.
    #[default]
    Never,
    /// A query whose deadline has passed when it would start is dropped instead.
    Expired,
    /// A query is dropped if its batch would end after its deadline (`last_task` at the last task; Loki section 5.2).
    OnTime,
    /// A window as long as a batch slides over the queue in order of arrival, to the first place where every query in it
    /// would end by its deadline. Queries before that place are dropped (`nexus`, as PARD section 5.1 describes it).
    Window,
    /// The same window, to the first place where every query in it would end within its task's part of the SLO
    /// (`nexus-split`; PARD section 5.1 says "the current module's latency budget").
    WindowWithin,
    /// A query that has already used up its task's part of the SLO is dropped (`clipper++`, PARD section 5.1).
    Elapsed,
    /// A query is dropped if its batch would end after its task's part of the SLO (`pard-split`, `pard-wcl`; PARD section
    /// 5.3; and `per_task-ahead`, `reroute-ahead`; Loki section 6.3).
    Within,
    /// A query is dropped if it would be late at the end of the pipeline, given the states of the later tasks (PARD
    /// equation 3).
    EndToEnd,
    /// A part of the arriving queries is refused while a queue here or at a later task is long (`pard-oc`; PARD section
    /// 5.3).
    Admission,
}

impl Dropper {
    /// The behaviour of a policy at one station. `is_last`: the station's task makes no queries.
    #[must_use]
    pub fn of(dropping: Dropping, is_last: bool) -> Self {
        match dropping {
            Dropping::Naive | Dropping::PerTask | Dropping::Reroute => Self::Never,
            Dropping::LastTask if is_last => Self::OnTime,
            Dropping::LastTask => Self::Never,
            Dropping::ClipperPlusPlus => Self::Elapsed,
            Dropping::Nexus => Self::Window,
            Dropping::NexusSplit => Self::WindowWithin,
            Dropping::PardOc => Self::Admission,
            Dropping::PardSplit | Dropping::PardWcl | Dropping::PerTaskAhead | Dropping::RerouteAhead => Self::Within,
            Dropping::Pard
            | Dropping::PardBack
            | Dropping::PardSf
            | Dropping::PardLower
            | Dropping::PardUpper
            | Dropping::PardFcfs
            | Dropping::PardHbf
            | Dropping::PardLbf
            | Dropping::PardInstant => Self::EndToEnd,
        }
    }

    /// Why the queries before its window are dropped.
    #[must_use]
    pub const fn window_reason(self) -> DropReason {
        match self {
            Self::WindowWithin => DropReason::Budget,
            _ => DropReason::Deadline,
        }
    }

    /// Whether it looks at each query that is about to enter a batch.
    #[inline]
    #[must_use]
    pub fn inspects(self) -> bool {
        !matches!(self, Self::Never | Self::Admission)
    }

    /// Whether it slides a window over the queue in order of arrival, in the place of looking at single queries.
    #[inline]
    #[must_use]
    pub fn slides(self) -> bool {
        matches!(self, Self::Window | Self::WindowWithin)
    }

    /// Why a query should not enter a batch now; `None` if it should.
    #[inline]
    #[must_use]
    pub fn verdict<Q>(self, chance: ExpectedBatch, view: &StationView, waiting: &Waiting<Q>) -> Option<DropReason> {
        let end = chance.start + chance.execution;
        let (is_dropped, reason) = match self {
            Self::Never | Self::Admission => return None,
            Self::Expired => (waiting.deadline < chance.now, DropReason::Deadline),
            Self::OnTime | Self::Window => (waiting.deadline < end, DropReason::Deadline),
            Self::Elapsed => (chance.now.since(waiting.arrived) > view.budget, DropReason::Budget),
            Self::Within | Self::WindowWithin => (end.since(waiting.arrived) > view.budget, DropReason::Budget),
            Self::EndToEnd => (waiting.deadline < end + view.forward, DropReason::Predicted),
        };
        is_dropped.then_some(reason)
    }
}
