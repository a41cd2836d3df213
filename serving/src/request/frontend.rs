//! All open requests of a gateway: each gets exactly one answer, whatever happens to its queries.

use crate::request::progress::{CREDIT_ROOT, CreditSplit, RequestOutcome, RequestProgress, split};
use crate::station::dropper::DropReason;
use apportion_domain::{Moment, Partial, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An event at an ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendInput {
    /// A client's request. Its root queries carry the parts of [`Frontend::credits`].
    Request {
        /// Never used before.
        request: RequestId,
        /// By when it should be answered.
        deadline: Moment,
        /// When the client is told that the request has failed, at the latest.
        give_up: Moment,
    },
    /// A query of the request was sent to this peer, so that losing the peer fails the request.
    Sent {
        /// The request.
        request: RequestId,
        /// The driver's number of the peer.
        peer: u64,
    },
    /// A leaf of the request ended now.
    Leaf {
        /// The request.
        request: RequestId,
        /// The credit that it gives back.
        credit: u64,
    },
    /// A query of the request was dropped.
    Dropped {
        /// The request.
        request: RequestId,
        /// The credit that it gives back.
        credit: u64,
        /// Why.
        reason: DropReason,
    },
    /// A query of the request failed or was lost; the request fails at once.
    Failed {
        /// The request.
        request: RequestId,
    },
    /// A peer is gone, with all queries that it held.
    PeerLost {
        /// The driver's number of the peer.
        peer: u64,
    },
    /// The moment that [`Frontend::poll_timeout`] named has come.
    Tick,
}

/// An instruction of an ingress to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendOutput {
    /// The request was not taken: as many are open as may be.
    Refuse {
        /// The request.
        request: RequestId,
    },
    /// The request's only answer.
    Answer {
        /// The request.
        request: RequestId,
        /// Its outcome.
        outcome: RequestOutcome,
        /// Why, unless it was answered.
        cause: Option<FailureCause>,
    },
}

/// Why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A query was dropped.
    Dropped(DropReason),
    /// A query failed.
    Failed,
    /// A peer was lost that held a query of it.
    PeerLost,
    /// Not all parts had come back when it was given up.
    TimedOut,
}

/// Why an ingress wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendWakeup {
    /// A request is to be given up.
    GiveUp,
}

#[derive(Debug)]
struct Open {
    progress: RequestProgress,
    deadline: Moment,
    give_up: Moment,
    peers: Vec<u64>,
}

/// The ingress machine: open requests, their credit and their time limits.
///
/// A message about a request that has been answered, or was never admitted, is ignored: it is late or forged.
#[derive(Debug)]
pub struct Frontend {
    open: BTreeMap<RequestId, Open>,
    give_ups: BTreeSet<(Moment, RequestId)>,
    outputs: VecDeque<FrontendOutput>,
    requests_max: usize,
    partial: Partial,
    now: Moment,
}

impl Frontend {
    /// An ingress that holds at most `requests_max` open requests. Under [`Partial::Allow`] dropped parts are left out of
    /// the answer. Under [`Partial::Deny`] the first dropped part drops its request.
    #[must_use]
    pub fn new(requests_max: usize, partial: Partial) -> Self {
        let (open, give_ups) = (BTreeMap::new(), BTreeSet::new());
        Self { open, give_ups, outputs: VecDeque::new(), requests_max, partial, now: Moment::ZERO }
    }

    /// The credits of a request's root queries, one for each of its `rows`; `None` if there is not enough credit for them.
    #[must_use]
    pub fn credits(rows: u32) -> Option<CreditSplit> {
        if rows == 0 { None } else { split(CREDIT_ROOT, u64::from(rows)) }
    }

    /// Requests that have not been answered.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Takes one input; then drain [`Frontend::poll_output`].
    pub fn handle(&mut self, now: Moment, input: FrontendInput) {
        debug_assert!(now >= self.now, "time went backwards: {now} after {}", self.now);
        debug_assert!(self.outputs.is_empty(), "an input before the outputs of the last one were drained");
        self.now = now;
        match input {
            FrontendInput::Request { request, deadline, give_up } => self.admit(request, deadline, give_up),
            FrontendInput::Sent { request, peer } => {
                if let Some(open) = self.open.get_mut(&request)
                    && !open.peers.contains(&peer)
                {
                    open.peers.push(peer);
                }
            }
            FrontendInput::Leaf { request, credit } => {
                self.returned(request, credit, |p| p.leaf(now, credit));
            }
            FrontendInput::Dropped { request, credit, reason } => {
                self.returned(request, credit, |p| p.dropped(now, credit, reason));
                if self.partial == Partial::Deny && self.open.contains_key(&request) {
                    self.answer(request, RequestOutcome::Dropped, Some(FailureCause::Dropped(reason)));
                }
            }
            FrontendInput::Failed { request } => self.answer(request, RequestOutcome::Failed, Some(FailureCause::Failed)),
            FrontendInput::PeerLost { peer } => self.lose(peer),
            FrontendInput::Tick => self.give_up(),
        }
    }

    /// The next thing to do, until `None`.
    pub fn poll_output(&mut self) -> Option<FrontendOutput> {
        self.outputs.pop_front()
    }

    /// When to tick, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Moment, FrontendWakeup)> {
        self.give_ups.first().map(|&(at, _)| (at, FrontendWakeup::GiveUp))
    }

    fn admit(&mut self, request: RequestId, deadline: Moment, give_up: Moment) {
        assert!(!self.open.contains_key(&request), "request {} was admitted before", request.0);
        if self.open.len() >= self.requests_max {
            self.outputs.push_back(FrontendOutput::Refuse { request });
            return;
        }
        let progress = RequestProgress::new(CREDIT_ROOT);
        self.open.insert(request, Open { progress, deadline, give_up, peers: Vec::new() });
        self.give_ups.insert((give_up, request));
    }

    fn returned(&mut self, request: RequestId, credit: u64, apply: impl FnOnce(&mut RequestProgress)) {
        let Some(open) = self.open.get_mut(&request) else { return };
        if credit > open.progress.outstanding() {
            self.answer(request, RequestOutcome::Failed, Some(FailureCause::Failed));
            return;
        }
        apply(&mut open.progress);
        if open.progress.is_complete() {
            let outcome = open.progress.outcome(open.deadline, self.partial);
            let reason = open.progress.drop_reason().filter(|_| outcome == RequestOutcome::Dropped);
            self.answer(request, outcome, reason.map(FailureCause::Dropped));
        }
    }

    fn answer(&mut self, request: RequestId, outcome: RequestOutcome, cause: Option<FailureCause>) {
        if let Some(open) = self.open.remove(&request) {
            self.give_ups.remove(&(open.give_up, request));
            self.outputs.push_back(FrontendOutput::Answer { request, outcome, cause });
        }
    }

    fn lose(&mut self, peer: u64) {
        let lost: Vec<_> = self.open.iter().filter(|(_, o)| o.peers.contains(&peer)).map(|(&r, _)| r).collect();
        for request in lost {
            self.answer(request, RequestOutcome::Failed, Some(FailureCause::PeerLost));
        }
    }

    fn give_up(&mut self) {
        while let Some(&(at, request)) = self.give_ups.first()
            && at <= self.now
        {
            self.answer(request, RequestOutcome::Failed, Some(FailureCause::TimedOut));
        }
    }
}
