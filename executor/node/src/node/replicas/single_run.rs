//! Which members of a failed batch still have to run alone, and how did the others end?
//!
//! Example: a batch of queries 4, 5 and 6 fails. Query 4 runs alone and does well, and query 5 fails alone. When query 6
//! has ended too, query 5 was the one that made the batch fail.

use apportion_domain::Moment;
use std::collections::VecDeque;

/// A member of a batch, as its station knows it.
#[derive(Clone, Copy, Debug)]
pub struct QueuedMember {
    /// The key of its handle.
    pub key: u64,
    /// When it joined the queue.
    pub arrived: Moment,
}

/// A member that failed alone.
#[derive(Debug)]
pub struct FailedAlone {
    /// The key of its handle.
    pub key: u64,
    /// Why it failed.
    pub why: String,
}

/// The runs of a failed batch's members, one after the other.
#[derive(Debug)]
pub struct SingleRun {
    /// Members that have not run alone yet, in their order.
    rest: VecDeque<QueuedMember>,
    /// The member that runs.
    current: Option<QueuedMember>,
    failed: Vec<FailedAlone>,
    /// Whether one has done well alone.
    has_done_well: bool,
}

impl SingleRun {
    /// All members still have to run.
    pub fn of(rest: VecDeque<QueuedMember>) -> Self {
        Self { rest, current: None, failed: Vec::new(), has_done_well: false }
    }

    /// Takes out the member whose turn is next; none if all have run.
    pub fn next_member(&mut self) -> Option<QueuedMember> {
        self.rest.pop_front()
    }

    /// A member runs now.
    pub fn begin(&mut self, member: QueuedMember) {
        self.current = Some(member);
    }

    /// Takes out the member that ran; none if no member ran.
    pub fn end_current(&mut self) -> Option<QueuedMember> {
        self.current.take()
    }

    /// A member has done well alone.
    pub fn note_success(&mut self) {
        self.has_done_well = true;
    }

    /// A member has failed alone.
    pub fn note_failure(&mut self, key: u64, why: String) {
        self.failed.push(FailedAlone { key, why });
    }

    /// Nothing can run now: a member and all that have not run yet have failed.
    pub fn fail_rest(&mut self, key: u64, why: &str) {
        let rest = std::mem::take(&mut self.rest);
        let all = std::iter::once(key).chain(rest.into_iter().map(|member| member.key));
        self.failed.extend(all.map(|key| FailedAlone { key, why: why.to_owned() }));
    }

    /// Whether one has done well alone: then the failed ones made the batch fail.
    pub fn has_done_well(&self) -> bool {
        self.has_done_well
    }

    /// The members that failed alone.
    pub fn into_failed(self) -> Vec<FailedAlone> {
        self.failed
    }
}
