//! What do queries meet on their way through an agent?

use super::batch_runs::BatchRuns;
use super::joins::JoinMeetings;
use super::parked::ParkedQueries;
use super::sent::SentQueries;
use crate::node::cancelled::CancelledRequests;
use crate::node::fleet::FleetState;
use crate::node::gateway::GatewayState;
use crate::node::queues::GroupQueues;
use crate::node::replicas::LocalReplicas;
use crate::node::site::Site;
use crate::node::spans::Tracing;
use crate::node::tallies::Tallies;

/// The concerns that a query meets, from its gateway to its last replica.
pub struct TrafficState {
    /// The agent: its number, its clock, its actions.
    pub site: Site,
    /// The target, the other agents and their replicas.
    pub fleet: FleetState,
    /// The replicas here.
    pub replicas: LocalReplicas,
    /// The central queues here.
    pub queues: GroupQueues,
    /// The requests of clients here.
    pub gateway: GatewayState,
    /// Everything that is counted.
    pub tallies: Tallies,
    /// Requests whose queries are not wanted any more.
    pub(super) cancelled: CancelledRequests,
    /// Stations that may start a batch.
    pub(super) batch_runs: BatchRuns,
    /// Queries that wait for others.
    pub(super) joins: JoinMeetings,
    /// Queries that wait for any replica of their task.
    pub(super) parked: ParkedQueries,
    /// Queries under way to other agents, or from central queues to replicas here.
    pub(super) sent: SentQueries,
    pub(super) tracing: Tracing,
}

impl TrafficState {
    /// An agent without a target. The numbers of its requests follow `last_request`.
    pub fn new(agent: u64, last_request: u64) -> Self {
        Self {
            site: Site::new(agent),
            fleet: FleetState::new(agent),
            replicas: LocalReplicas::default(),
            queues: GroupQueues::default(),
            gateway: GatewayState::after(last_request),
            tallies: Tallies::of_session(last_request),
            cancelled: CancelledRequests::default(),
            batch_runs: BatchRuns::default(),
            joins: JoinMeetings::default(),
            parked: ParkedQueries::default(),
            sent: SentQueries::default(),
            tracing: Tracing::new(agent ^ last_request.rotate_left(32)),
        }
    }

    /// Requests that are not yet answered, queries that wait or run here, and those whose next agent has not yet finished
    /// them.
    pub fn unfinished(&self) -> usize {
        let waiting = self.joins.len() + self.parked.len() + self.queues.waiting();
        waiting + self.gateway.len() + self.sent.len() + self.replicas.queries()
    }
}
