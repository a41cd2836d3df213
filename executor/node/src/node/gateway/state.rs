//! What does a gateway hold?

use super::choosers::Choosers;
use super::requests::{AttemptInput, PendingRequests};
use super::suspects::SuspectedAgents;
use super::waiting::WaitingRequests;
use crate::node::fleet::FleetState;
use crate::node::replicas::LocalReplicas;
use crate::node::site::Site;

/// After the loss of an agent, a request runs again when it stays unanswered for this part of its SLO. The time is long
/// enough for most requests that never touched the lost agent. It is short enough that most second runs are in time.
pub(super) const AGAIN_SLO_PARTS: u64 = 4;

/// The requests of this agent's clients.
pub struct GatewayState {
    pub(super) requests: PendingRequests,
    pub(super) suspects: SuspectedAgents,
    pub(super) choosers: Choosers,
    pub(super) waiting: WaitingRequests,
}

impl GatewayState {
    /// A gateway without requests, whose numbers follow `last_number`.
    pub fn after(last_number: u64) -> Self {
        let (requests, suspects) = (PendingRequests::after(last_number), SuspectedAgents::default());
        Self { requests, suspects, choosers: Choosers::default(), waiting: WaitingRequests::default() }
    }

    /// Requests that have no answer yet.
    pub fn len(&self) -> usize {
        self.requests.len() + self.waiting.len()
    }

    /// Whether all requests have their answers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a request is of this gateway. A request that began under an earlier number of the agent comes back here.
    pub fn owns(&self, site: &Site, origin: u64, request: u64) -> bool {
        origin == site.agent() || (site.had_number(origin) && self.requests.get(request).is_some())
    }

    /// Begins a run of a request that waits for its answer.
    pub fn begin_run(&mut self, request: u64) -> AttemptInput {
        self.requests.begin_run(request).expect("it is pending")
    }

    /// The value of `apart` in the queries of a sender.
    pub fn apart(&self, site: &Site, sender: u64) -> u64 {
        self.suspects.apart(sender, site.now_ns())
    }

    /// A new target is in force: its requests choose among its variants.
    pub fn forget_choosers(&mut self) {
        self.choosers.clear();
    }

    /// A pipeline has other replicas or tables: its requests choose among them.
    pub fn forget_chooser(&mut self, pipeline: &str) {
        self.choosers.forget(pipeline);
    }

    /// Tells the choosers how the replicas are used now.
    pub fn report_loads(&mut self, site: &Site, fleet: &FleetState, replicas: &LocalReplicas) {
        self.choosers.report(site.now(), fleet, replicas);
    }
}
