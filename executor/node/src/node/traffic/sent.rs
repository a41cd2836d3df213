//! Which queries were sent to other agents that have not yet taken them?

use crate::node::queues::QueueServer;
use crate::node::spans::Hop;
use crate::node::work::QuerySender;
use crate::wire::RoutedQuery;
use std::collections::BTreeMap;

/// A query that was sent to another agent, or from a central queue to a replica here. The sender keeps it, to send it
/// elsewhere if that agent is lost.
pub struct SentQuery {
    /// The other agent.
    pub agent: u64,
    /// The query.
    pub query: RoutedQuery,
    /// Its deadline on this agent's clock, in nanoseconds.
    pub deadline_ns: i64,
    /// Who is told when the hop has ended: the router that has made the choice, or the sender of a query that waited in a
    /// central queue here.
    pub from: QuerySender,
    /// The server of a central queue whose batch it belongs to.
    pub server: Option<QueueServer>,
    /// The span of the hop, if the request is traced.
    pub span: Option<Hop>,
}

/// Queries under way to other agents, by hop. A hop's number is unique in the life of a node.
#[derive(Default)]
pub struct SentQueries {
    by_hop: BTreeMap<u64, SentQuery>,
    last_hop: u64,
}

impl SentQueries {
    /// Keeps a query until its receiver has taken it; its hop.
    pub fn insert(&mut self, sent: SentQuery) -> u64 {
        self.last_hop += 1;
        self.by_hop.insert(self.last_hop, sent);
        self.last_hop
    }

    /// Takes out the query of a hop.
    pub fn remove(&mut self, hop: u64) -> Option<SentQuery> {
        self.by_hop.remove(&hop)
    }

    /// Takes out all queries that were sent to an agent, in the order of their hops.
    pub fn remove_to(&mut self, agent: u64) -> Vec<SentQuery> {
        self.by_hop.extract_if(.., |_, sent| sent.agent == agent).map(|(_, sent)| sent).collect()
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.by_hop.len()
    }
}
