//! Which state does an agent keep between two events?

use super::cancelled::Cancelled;
use super::counts::Counts;
use super::event::Action;
use super::meetings::Meetings;
use super::parked::ParkedQueries;
use super::peers::Peers;
use super::replica::Replica;
use super::requests::Requests;
use super::route::Routes;
use super::sent::SentQueries;
use super::steers::Steers;
use super::suspects::Suspects;
use crate::chooser::Chooser;
use crate::layout::Layout;
use crate::trace::SpanIds;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Shortest time after which a request is given up.
pub(super) const GIVE_UP_NS_MIN: u64 = 2_000_000_000;
/// How long queries of a task wait for a plan with replicas of it after its last one was lost.
pub(super) const REPAIR_NS: u64 = GIVE_UP_NS_MIN;
/// Times the SLO after which a request is given up.
pub(super) const GIVE_UP_SLOS: u64 = 10;

/// What an agent remembers of a change of plan.
#[derive(Debug, Default)]
pub(super) struct Swap {
    /// Ready replicas of each (pipeline, task) when the target came, at most as many as it wants.
    pub(super) had: BTreeMap<(String, String), usize>,
    /// Since when a replica here would yield.
    pub(super) yields: BTreeMap<u64, u64>,
    /// When what is ready last changed.
    pub(super) changed_ns: u64,
}

/// The state of one agent.
pub struct Node {
    pub(super) agent: u64,
    /// Numbers that it had before.
    pub(super) former: BTreeSet<u64>,
    /// Replicas that were set aside under numbers of this agent's own.
    pub(super) last_former: u64,
    pub(super) now_ns: u64,
    /// When the replicas here were last announced.
    pub(super) announced_ns: u64,
    pub(super) layout: Arc<Layout>,
    pub(super) replicas: BTreeMap<u64, Replica>,
    pub(super) peers: Peers,
    pub(super) routes: Routes,
    pub(super) sent: SentQueries,
    pub(super) span_ids: SpanIds,
    pub(super) requests: Requests,
    pub(super) counts: Counts,
    pub(super) actions: Vec<Action>,
    /// The last handle given to a station.
    pub(super) key: u64,
    /// Replicas whose station may start a batch.
    pub(super) touched: BTreeSet<u64>,
    /// Replicas whose batch cannot be run.
    pub(super) misfits: Vec<u64>,
    /// The agent is about to stop.
    pub(super) leaving: bool,
    /// Joins whose parts meet here.
    pub(super) meetings: Meetings,
    pub(super) cancelled: Cancelled,
    /// Queries that wait for any replica of their task.
    pub(super) parked: ParkedQueries,
    pub(super) swap: Swap,
    pub(super) steers: Steers,
    pub(super) suspects: Suspects,
    /// Of the pipelines whose requests have said what they need.
    pub(super) choosers: BTreeMap<String, Chooser>,
    /// When the replicas' loads were last measured.
    pub(super) rolled_ns: u64,
}

impl Node {
    /// An agent without a target. `first_request` must differ between the lives of an agent, so that an answer to an
    /// earlier life's request is not taken for one of this life's.
    #[must_use]
    pub fn new(agent: u64, first_request: u64) -> Self {
        Self {
            agent,
            former: BTreeSet::new(),
            last_former: 0,
            now_ns: 0,
            announced_ns: 0,
            layout: Arc::default(),
            replicas: BTreeMap::new(),
            peers: Peers::default(),
            routes: Routes::of(agent),
            sent: SentQueries::default(),
            span_ids: SpanIds::new(agent ^ first_request.rotate_left(32)),
            requests: Requests::after(first_request),
            counts: Counts::default(),
            actions: Vec::new(),
            key: 0,
            touched: BTreeSet::new(),
            misfits: Vec::new(),
            leaving: false,
            meetings: Meetings::default(),
            cancelled: Cancelled::default(),
            parked: ParkedQueries::default(),
            swap: Swap::default(),
            steers: Steers::default(),
            suspects: Suspects::default(),
            choosers: BTreeMap::new(),
            rolled_ns: 0,
        }
    }

    /// The target in force.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Requests that are not yet answered, queries that wait or run here, and those whose next agent has not yet finished
    /// them.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let waiting = self.meetings.len() + self.parked.len();
        waiting + self.requests.len() + self.sent.len() + self.replicas.values().map(Replica::len).sum::<usize>()
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}
