//! A bounded first-in first-out queue in front of one or several servers.

use apportion_domain::Moment;

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
///
/// A vector with a moving front instead of a ring: what waits is one slice, so a batch is taken by one copy. The part in front
/// is given up when it is longer than what waits, which costs at most one move per query.
#[derive(Clone, Debug)]
pub struct Queue<Q> {
    buffer: Vec<Waiting<Q>>,
    front: usize,
    len_max: usize,
}

impl<Q: Copy + PartialEq> Queue<Q> {
    /// An empty queue that holds at most `len_max` queries.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self { buffer: Vec::new(), front: 0, len_max }
    }

    /// Queries that wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() - self.front
    }

    /// Whether none waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a query; `false` if the queue is full and the query was not taken.
    #[inline]
    #[must_use]
    pub fn push(&mut self, waiting: Waiting<Q>) -> bool {
        if self.len() >= self.len_max {
            return false;
        }
        self.buffer.push(waiting);
        true
    }

    /// Takes the oldest query.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting<Q>> {
        let first = self.buffer.get(self.front).copied();
        if first.is_some() {
            self.advance(1);
        }
        first
    }

    /// Takes the `count` oldest queries, or all, to the end of `into`.
    #[inline]
    pub fn take(&mut self, count: usize, into: &mut Vec<Waiting<Q>>) {
        let count = count.min(self.len());
        into.extend_from_slice(&self.buffer[self.front..][..count]);
        self.advance(count);
    }

    /// Removes a query wherever it waits, from the youngest on; `false` if it does not.
    pub fn remove(&mut self, query: Q) -> bool {
        match self.buffer[self.front..].iter().rposition(|w| w.query == query) {
            Some(at) => {
                self.buffer.remove(self.front + at);
                true
            }
            None => false,
        }
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        /// Too short a front to be worth a move.
        const FRONT_MIN: usize = 64;
        self.front += count;
        if self.front == self.buffer.len() {
            self.buffer.clear();
            self.front = 0;
        } else if self.front >= FRONT_MIN && self.front > self.len() {
            self.buffer.copy_within(self.front.., 0);
            self.buffer.truncate(self.len());
            self.front = 0;
        }
    }
}
