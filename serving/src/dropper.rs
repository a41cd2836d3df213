//! Which queries are not worth serving.

use crate::queue::Waiting;
use apportion_domain::Moment;

/// Why a query was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue held as many queries as it may.
    QueueFull,
    /// Its deadline had passed before it could start.
    Deadline,
    /// Its request no longer needs it: another part of it was dropped, or the client has gone.
    Cancelled,
    /// No replica serves its task.
    NoReplica,
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
        }
    }
}

/// A dropping policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropper {
    /// Every query is served, however late (`naive`).
    #[default]
    Never,
    /// A query whose deadline has passed when it would start is dropped instead.
    Expired,
}

impl Dropper {
    /// Whether it may ever drop a query that is about to start.
    #[inline]
    #[must_use]
    pub fn inspects(self) -> bool {
        self != Self::Never
    }

    /// Why a query that could start now should not, if so.
    #[inline]
    #[must_use]
    pub fn verdict<Q>(self, now: Moment, waiting: &Waiting<Q>) -> Option<DropReason> {
        match self {
            Self::Never => None,
            Self::Expired => (waiting.deadline < now).then_some(DropReason::Deadline),
        }
    }
}
