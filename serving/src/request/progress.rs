//! One request in the task graph: how much of it is still in flight, and its outcome so far.
//!
//! Termination is detected by credit (the weight-throwing scheme for diffusing computations). The root query carries all
//! credit. A query that makes children divides its credit among them, and a query that makes none gives its credit back.
//! The request has ended exactly when all credit is back, in any order of arrival, so only leaves report.

use crate::station::dropper::DropReason;
use apportion_domain::{Moment, Partial};

/// Credit of a whole request.
pub const CREDIT_ROOT: u64 = 1 << 62;

/// The parts of a credit, the first ones one larger where it does not divide evenly.
#[derive(Clone, Debug)]
pub struct CreditSplit {
    part: u64,
    larger: u64,
    left: u64,
}

impl Iterator for CreditSplit {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        if self.larger > 0 {
            self.larger -= 1;
            return Some(self.part + 1);
        }
        Some(self.part)
    }
}

/// Example: a credit of 10 for three children is split into 4, 3 and 3.
///
/// Splits a query's credit among its `children` (at least one). `None` if there are more children than credit: then the
/// query must fail, because nothing would wait for a child without credit.
#[must_use]
pub fn split(credit: u64, children: u64) -> Option<CreditSplit> {
    assert!(children > 0, "a query without children gives its credit back");
    (credit >= children).then(|| CreditSplit { part: credit / children, larger: credit % children, left: children })
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestOutcome {
    /// Its last leaf ended by the deadline.
    Ok,
    /// Its last leaf ended after the deadline.
    Late,
    /// A part of it was dropped, and the pipeline does not answer in part.
    Dropped,
    /// Something broke.
    Failed,
}

impl RequestOutcome {
    /// The name in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Late => "late",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }

    /// Whether the client got a result.
    #[must_use]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Ok | Self::Late)
    }
}

/// The progress of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProgress {
    out: u64,
    end: Moment,
    leaves: u32,
    dropped: Option<DropReason>,
    failed: bool,
}

impl RequestProgress {
    /// A request with this much credit out.
    #[inline]
    #[must_use]
    pub const fn new(credit: u64) -> Self {
        Self { out: credit, end: Moment::ZERO, leaves: 0, dropped: None, failed: false }
    }

    /// A query gives its own credit back and its children take new credit. Only the holder of the `RequestProgress` can do
    /// this; it spares a driver that sees every query the splitting: each query counts 1.
    #[inline]
    pub fn pass(&mut self, credit: u64, to_children: u64) {
        debug_assert!(to_children > 0, "a query without children is a leaf");
        self.give_back(credit);
        self.out += to_children;
    }

    /// A leaf ended at `end`.
    #[inline]
    pub fn leaf(&mut self, end: Moment, credit: u64) {
        self.give_back(credit);
        self.end = self.end.max(end);
        self.leaves += 1;
    }

    /// A query was dropped at `end`. The first reason is kept.
    pub fn dropped(&mut self, end: Moment, credit: u64, reason: DropReason) {
        self.give_back(credit);
        self.end = self.end.max(end);
        self.dropped.get_or_insert(reason);
    }

    /// Nobody waits for the answer any more. A reason that was there before is kept. Queries that are out still give their
    /// credit back.
    pub fn give_up(&mut self, reason: DropReason) {
        self.dropped.get_or_insert(reason);
    }

    /// A query failed at `end`.
    pub fn failed(&mut self, end: Moment, credit: u64) {
        self.give_back(credit);
        self.end = self.end.max(end);
        self.failed = true;
    }

    /// Whether all credit is back.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.out == 0
    }

    /// Credit that is still out.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.out
    }

    /// End of the last part so far.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> Moment {
        self.end
    }

    /// Why a part was dropped, if one was.
    #[must_use]
    pub const fn drop_reason(&self) -> Option<DropReason> {
        self.dropped
    }

    /// The outcome of the request if nothing more happens. Under [`Partial::Allow`] dropped parts are left out of the
    /// answer, and the request counts as dropped only if no part is left.
    #[inline]
    #[must_use]
    pub fn outcome(&self, deadline: Moment, partial: Partial) -> RequestOutcome {
        if self.failed {
            RequestOutcome::Failed
        } else if self.dropped.is_some() && !(partial == Partial::Allow && self.leaves > 0) {
            RequestOutcome::Dropped
        } else if self.end <= deadline {
            RequestOutcome::Ok
        } else {
            RequestOutcome::Late
        }
    }

    /// More than is out can come back only through our own fault or a forged message; drivers refuse the latter with
    /// [`RequestProgress::outstanding`] before they call.
    #[inline]
    fn give_back(&mut self, credit: u64) {
        assert!(credit <= self.out, "{credit} of credit came back, only {} is out", self.out);
        self.out -= credit;
    }
}
