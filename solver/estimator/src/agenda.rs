//! What will happen: batches that run, and queries on their way.

use crate::fleet::Query;
use apportion_domain::{Moment, Span};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A batch that runs. Ordered by its end, then by the order in which batches started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Running {
    /// When it ends.
    pub end: Moment,
    sequence: u64,
    /// Where.
    pub station: u32,
    /// On which of its servers.
    pub server: u32,
}

/// The running batches, earliest end first.
#[derive(Debug, Default)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<Running>>,
    sequence: u64,
}

impl Agenda {
    /// A batch started and will end at `end`.
    #[inline]
    pub fn start(&mut self, end: Moment, station: u32, server: u32) {
        self.sequence += 1;
        self.heap.push(Reverse(Running { end, sequence: self.sequence, station, server }));
    }

    /// When the next batch ends; `NEVER` if none runs.
    #[inline]
    pub fn next_end(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |r| r.0.end)
    }

    /// The next batch, if it ends by `now`.
    #[inline]
    pub fn ended(&mut self, now: Moment) -> Option<Running> {
        if self.next_end() > now {
            return None;
        }
        self.heap.pop().map(|r| r.0)
    }
}

/// A query on its way to a station.
#[derive(Clone, Copy, Debug)]
pub struct Transit {
    /// When it arrives.
    pub due: Moment,
    /// Where.
    pub station: u32,
    /// The query.
    pub query: Query,
    /// When its request should be answered.
    pub deadline: Moment,
}

/// Network hops. Each delay is constant, so that what was sent first arrives first and a queue does for a heap.
#[derive(Debug, Default)]
pub struct Network {
    lines: Vec<(Span, VecDeque<Transit>)>,
    next: Moment,
}

impl Network {
    /// The line of this delay, which is not 0.
    pub fn line(&mut self, delay: Span) -> usize {
        self.next = Moment::NEVER;
        self.lines.iter().position(|l| l.0 == delay).unwrap_or_else(|| {
            self.lines.push((delay, VecDeque::new()));
            self.lines.len() - 1
        })
    }

    /// Sends a query at `now`.
    pub fn send(&mut self, line: usize, now: Moment, station: u32, query: Query, deadline: Moment) {
        let (delay, queue) = &mut self.lines[line];
        let due = now + *delay;
        queue.push_back(Transit { due, station, query, deadline });
        self.next = self.next.min(due);
    }

    /// When the next query arrives; `NEVER` if none is on its way.
    #[inline]
    pub fn next_due(&self) -> Moment {
        if self.lines.is_empty() { Moment::NEVER } else { self.next }
    }

    /// The next query, if it arrives by `now`.
    #[inline]
    pub fn arrived(&mut self, now: Moment) -> Option<Transit> {
        if self.next_due() > now {
            return None;
        }
        let due = |l: &(Span, VecDeque<Transit>)| l.1.front().map_or(Moment::NEVER, |t| t.due);
        let line = self.lines.iter_mut().min_by_key(|l| due(l))?;
        let transit = line.1.pop_front();
        self.next = self.lines.iter().map(due).min().unwrap_or(Moment::NEVER);
        transit
    }
}
