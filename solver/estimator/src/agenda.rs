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

/// The running batches, earliest end first: a binary heap whose root may be empty.
///
/// A server that ends a batch usually starts the next one at once, so the root is left empty until it is known whether
/// another batch takes its place: one sift instead of two.
#[derive(Debug, Default)]
pub struct Agenda {
    heap: Vec<Running>,
    is_root_empty: bool,
    sequence: u64,
}

impl Agenda {
    /// A batch started and will end at `end`.
    #[inline]
    pub fn start(&mut self, end: Moment, station: u32, server: u32) {
        self.sequence += 1;
        let running = Running { end, sequence: self.sequence, station, server };
        if self.is_root_empty {
            self.is_root_empty = false;
            self.sift_down(running);
        } else {
            self.heap.push(running);
            self.sift_up(running);
        }
    }

    /// When the next batch ends; `NEVER` if none runs.
    #[inline]
    pub fn next_end(&mut self) -> Moment {
        if self.is_root_empty {
            self.fill_root();
        }
        self.heap.first().map_or(Moment::NEVER, |r| r.end)
    }

    /// The next batch, if it ends by `now`.
    #[inline]
    pub fn ended(&mut self, now: Moment) -> Option<Running> {
        if self.next_end() > now {
            return None;
        }
        let first = self.heap.first().copied();
        self.is_root_empty = first.is_some();
        first
    }

    #[inline]
    fn fill_root(&mut self) {
        self.is_root_empty = false;
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(last);
        }
    }

    /// Puts `running` where it belongs, from the last place upwards.
    #[inline]
    fn sift_up(&mut self, running: Running) {
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] < running {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = running;
    }

    /// Puts `running` where it belongs, from the root downwards.
    #[inline]
    fn sift_down(&mut self, running: Running) {
        let heap = self.heap.as_mut_slice();
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && heap[child + 1] < heap[child] {
                child += 1;
            }
            if running < heap[child] {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = running;
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

    /// How long queries of a line are on their way.
    pub fn delay(&self, line: usize) -> Span {
        self.lines[line].0
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

/// Moments at which stations want to be ticked. Each has one at most; a moment that was given up is forgotten when it comes.
#[derive(Debug, Default)]
pub struct Wakes {
    heap: BinaryHeap<Reverse<(Moment, u32)>>,
    wanted: Vec<Moment>,
}

impl Wakes {
    /// A station wants to be ticked at this moment instead of whatever it wanted before.
    pub fn set(&mut self, station: u32, at: Moment) {
        let station_at = station as usize;
        if station_at >= self.wanted.len() {
            self.wanted.resize(station_at + 1, Moment::NEVER);
        }
        if at != Moment::NEVER && self.wanted[station_at] != at {
            self.wanted[station_at] = at;
            self.heap.push(Reverse((at, station)));
        }
    }

    /// The next moment, which may have been given up; `NEVER` if there is none.
    #[inline]
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |next| next.0.0)
    }

    /// Takes the next; `None` if it was given up.
    pub fn pop(&mut self) -> Option<u32> {
        let Reverse((at, station)) = self.heap.pop()?;
        let wanted = &mut self.wanted[station as usize];
        (*wanted == at).then(|| {
            *wanted = Moment::NEVER;
            station
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn batches_end_in_order_and_ties_in_the_order_of_their_start() {
        let mut stream = Stream::new(1, "agenda");
        let mut agenda = Agenda::default();
        let mut expected = std::collections::BTreeSet::new();
        let mut started = 0;
        for _ in 0..20_000 {
            if !expected.is_empty() && stream.bits().is_multiple_of(2) {
                let (end, station) = expected.pop_first().expect("not empty");
                let ended = agenda.ended(Moment::NEVER).expect("one runs");
                assert_eq!((ended.end, ended.station), (end, station));
            } else {
                let end = Moment::from_nanos(stream.bits() % 50);
                started += 1;
                agenda.start(end, started, 0);
                expected.insert((end, started));
            }
            // Looking must not change what comes next.
            if stream.bits().is_multiple_of(3) {
                assert_eq!(agenda.next_end(), expected.first().map_or(Moment::NEVER, |e| e.0));
            }
        }
    }
}
