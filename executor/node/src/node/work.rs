//! What is a query that waits or runs at this agent?

use super::route::Ticket;
use crate::policies::{LEVEL_OFFLINE, QueryHandle};
use crate::tensor::Tensor;
use crate::wire::RoutedQuery;
use apportion_domain::{Moment, TimeSpan};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What the sender of a query adds to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendContext {
    /// When its request should be answered, on this agent's clock.
    pub deadline_ns: i64,
    /// Its maker's group; none: the gateway, or it was passed on.
    pub from: Option<u64>,
    /// By how much it overran its last task's part of the SLO.
    pub behind: TimeSpan,
}

/// A query that waits or runs at this agent.
#[derive(Debug)]
pub struct LocalQuery {
    /// The query.
    pub query: RoutedQuery,
    /// Its deadline on this agent's clock, in nanoseconds. A negative one lies before the clock's zero.
    pub deadline_ns: i64,
    /// Who sent it here.
    pub from: QuerySender,
    /// When it came here, in nanoseconds of this agent's clock. For a query of a central queue: when it came to the queue.
    pub arrived_ns: u64,
}

/// Who has sent a query to its replica. The sender is told when the query has left that replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuerySender {
    /// This agent, by this routing choice; none if a fork had chosen the replica.
    Here(Option<Ticket>),
    /// The central queue of its group, which this agent holds.
    Queue {
        /// This agent's number of the hop.
        hop: u64,
    },
    /// Another agent.
    Agent {
        /// Its number.
        agent: u64,
        /// Its number of the hop.
        hop: u64,
    },
}

impl LocalQuery {
    /// The handle by which its station knows it.
    pub(super) fn handle(&self, key: u64) -> QueryHandle {
        let RoutedQuery { origin, request, level, .. } = self.query;
        QueryHandle { key, origin, request, level, kind: batch_kind(&self.query) }
    }

    /// Whether it waits for a gap between other queries.
    pub(super) fn is_offline(&self) -> bool {
        self.query.level == LEVEL_OFFLINE
    }

    /// Whether it belongs to this request.
    pub(super) fn is_of(&self, origin: u64, request: u64) -> bool {
        (self.query.origin, self.query.request) == (origin, request)
    }

    /// When it came here, or to the queue from which it came.
    pub(super) fn arrived(&self) -> Moment {
        Moment::from_nanos(self.arrived_ns)
    }

    /// Its deadline, not before the zero of the agent's clock.
    pub(super) fn deadline(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.deadline_ns).unwrap_or(0))
    }
}

/// What a query's batch has in common: names, datatypes and shapes of the inputs' rows, in whatever order they came, and
/// whose it is if its sender is kept apart. Should two kinds have one number, their batch does not fit together, and its
/// members run alone.
fn batch_kind(query: &RoutedQuery) -> u64 {
    let one = |input: &Tensor| {
        let mut hasher = DefaultHasher::new();
        (&input.name, input.datatype, input.shape.get(1..)).hash(&mut hasher);
        hasher.finish()
    };
    query.inputs.iter().map(one).fold(query.apart, u64::wrapping_add)
}
