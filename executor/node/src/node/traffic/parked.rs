//! Which queries wait here because their task has no ready replica?

use crate::node::work::SendContext;
use crate::wire::RoutedQuery;

/// Most queries at one agent that wait for a replica of their task; queries beyond fail.
pub const PARKED_MAX: usize = 10_000;

/// A query that waits for any replica of its task.
#[derive(Debug)]
pub struct ParkedQuery {
    /// The query.
    pub query: RoutedQuery,
    /// How to send it on.
    pub to: SendContext,
    /// When it has waited for too long.
    pub until_ns: u64,
}

/// The parked queries, in the order in which they came.
#[derive(Debug, Default)]
pub struct ParkedQueries(Vec<ParkedQuery>);

impl ParkedQueries {
    /// Whether no more may wait.
    pub fn is_full(&self) -> bool {
        self.0.len() >= PARKED_MAX
    }

    /// Adds a query.
    pub fn push(&mut self, parked: ParkedQuery) {
        self.0.push(parked);
    }

    /// Takes all out, the most important first, and those of one level in the order in which they came.
    pub fn take_by_level(&mut self) -> Vec<ParkedQuery> {
        let mut all = std::mem::take(&mut self.0);
        all.sort_by_key(|parked| parked.query.level);
        all
    }

    /// Takes all out, in the order in which they came.
    pub fn take(&mut self) -> Vec<ParkedQuery> {
        std::mem::take(&mut self.0)
    }

    /// Puts back those that [`Self::take`] took out and that wait on.
    pub fn put_back(&mut self, waiting: Vec<ParkedQuery>) {
        self.0 = waiting;
    }

    /// Forgets the queries of a request.
    pub fn cancel(&mut self, origin: u64, request: u64) {
        self.0.retain(|parked| (parked.query.origin, parked.query.request) != (origin, request));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
