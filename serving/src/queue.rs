//! A bounded queue in front of one or several servers: first in, first out, or by remaining time with both ends open.

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

/// In order of arrival or, filled by [`Queue::insert`] alone, of deadline; its buffer is reused, so that a query costs no allocation once it has grown.
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

    /// Puts a query where its deadline belongs, after equal ones; `false` if the queue is full and the query was not taken.
    ///
    /// A double-ended priority queue (PARD section 4.3) as a sorted buffer: either end costs one load, and because deadlines
    /// nearly follow arrivals, a query passes few others on its way in. The time left is the deadline less the present, so the
    /// order of deadlines is the order of remaining budgets at any moment.
    #[inline]
    #[must_use]
    pub fn insert(&mut self, waiting: Waiting<Q>) -> bool {
        if self.len() >= self.len_max {
            return false;
        }
        match self.buffer[self.front..].last() {
            Some(last) if last.deadline > waiting.deadline => {
                let at = self.buffer[self.front..].partition_point(|w| w.deadline <= waiting.deadline);
                self.buffer.insert(self.front + at, waiting);
            }
            _ => self.buffer.push(waiting),
        }
        true
    }

    /// Puts queries back in front of all others, in their order.
    pub fn put_back(&mut self, waiting: &[Waiting<Q>]) {
        self.buffer.splice(self.front..self.front, waiting.iter().copied());
    }

    /// What waits, first to last.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> &[Waiting<Q>] {
        &self.buffer[self.front..]
    }

    /// Takes the last query.
    #[inline]
    pub fn pop_last(&mut self) -> Option<Waiting<Q>> {
        if self.is_empty() {
            return None;
        }
        let last = self.buffer.pop();
        self.advance(0);
        last
    }

    /// Takes the first query.
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

    /// Removes every query that equals this one; how many there were.
    pub fn remove(&mut self, query: Q) -> usize {
        let mut kept = self.front;
        for at in self.front..self.buffer.len() {
            if self.buffer[at].query != query {
                self.buffer.swap(kept, at);
                kept += 1;
            }
        }
        let removed = self.buffer.len() - kept;
        self.buffer.truncate(kept);
        self.advance(0);
        removed
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
