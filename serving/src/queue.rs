//! A bounded first-in first-out queue in front of one or several servers.

use apportion_domain::Moment;
use std::collections::VecDeque;

/// A query that waits or runs at one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<Q> {
    /// The driver's handle.
    pub query: Q,
    /// When it joined the queue.
    pub arrived: Moment,
    /// When its request should have been answered.
    pub deadline: Moment,
}

/// First in, first out; its buffer is reused, so that a query costs no allocation once it has grown.
#[derive(Clone, Debug)]
pub struct Queue<Q> {
    waiting: VecDeque<Waiting<Q>>,
    len_max: usize,
}

impl<Q: Copy + PartialEq> Queue<Q> {
    /// An empty queue that holds at most `len_max` queries.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self { waiting: VecDeque::new(), len_max }
    }

    /// Queries that wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Appends a query; `false` if the queue is full and the query was not taken.
    #[inline]
    #[must_use]
    pub fn push(&mut self, waiting: Waiting<Q>) -> bool {
        if self.waiting.len() >= self.len_max {
            return false;
        }
        self.waiting.push_back(waiting);
        true
    }

    /// Takes the oldest query.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting<Q>> {
        self.waiting.pop_front()
    }

    /// Takes the `count` oldest queries, or all, to the end of `into`.
    #[inline]
    pub fn take(&mut self, count: usize, into: &mut Vec<Waiting<Q>>) {
        if count == 1 {
            into.extend(self.waiting.pop_front());
        } else {
            let count = count.min(self.waiting.len());
            into.extend(self.waiting.drain(..count));
        }
    }

    /// Removes a query wherever it waits, from the youngest on; `false` if it does not.
    pub fn remove(&mut self, query: Q) -> bool {
        match self.waiting.iter().rposition(|w| w.query == query) {
            Some(at) => self.waiting.remove(at).is_some(),
            None => false,
        }
    }
}
