//! What will happen: batches that run, and queries on their way.

use crate::fleet::Query;
use apportion_domain::{Moment, Span};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A batch that runs.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// When it ends.
    pub end: Moment,
    /// Where.
    pub station: u32,
    /// On which of its servers.
    pub server: u32,
}

/// A batch that runs among those that end late, with its place among those that end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Far {
    end: Moment,
    order: i64,
    station: u32,
    server: u32,
}

impl Far {
    fn of(running: Running, order: i64) -> Self {
        Self { end: running.end, order, station: running.station, server: running.server }
    }
}

/// How many of the running batches are kept sorted.
const NEAR_MAX: usize = 64;
/// Room for them to move in, so that taking the first moves none.
const NEAR_ROOM: usize = 4 * NEAR_MAX;

/// The running batches by their end, then by the order in which they started: those that end next in an array, the others in a heap.
///
/// A batch that starts usually ends after most that run, so its place is found from the back of the array within a few steps, and
/// the next one is taken from the front: less than a heap costs as long as there are few, and no more when there are many.
#[derive(Debug)]
pub struct Agenda {
    /// What is `front..back` comes before all that is in `far`.
    near: Box<[Running; NEAR_ROOM]>,
    front: usize,
    back: usize,
    far: BinaryHeap<Reverse<Far>>,
    /// How many came to the far ones from among the near ones, before all that ends with them, and how many came at once, behind.
    moved: i64,
    pushed: i64,
    /// When the first one ends; `NEVER` if none runs.
    next: Moment,
}

impl Default for Agenda {
    fn default() -> Self {
        let none = Running { end: Moment::NEVER, station: 0, server: 0 };
        let near = vec![none; NEAR_ROOM].into_boxed_slice().try_into().expect("as many as that");
        Self { near, front: 0, back: 0, far: BinaryHeap::new(), moved: 0, pushed: 0, next: Moment::NEVER }
    }
}

impl Agenda {
    /// A batch started and will end at `end`.
    #[inline]
    pub fn start(&mut self, end: Moment, station: u32, server: u32) {
        let running = Running { end, station, server };
        self.next = self.next.min(end);
        if self.back == NEAR_ROOM {
            self.move_down();
        }
        if !self.far.is_empty() || self.back - self.front == NEAR_MAX {
            return self.start_among_many(running);
        }
        self.insert(running);
    }

    /// Puts a batch among the near ones: behind those that end no later, as it started after them.
    #[inline]
    fn insert(&mut self, running: Running) {
        let mut at = self.back;
        while at > self.front && self.near[at - 1].end > running.end {
            self.near[at] = self.near[at - 1];
            at -= 1;
        }
        // By parts: together they would be read again before they have arrived in memory.
        let place = &mut self.near[at];
        place.end = running.end;
        place.station = running.station;
        place.server = running.server;
        self.back += 1;
    }

    #[inline(never)]
    fn move_down(&mut self) {
        self.near.copy_within(self.front..self.back, 0);
        self.back -= self.front;
        self.front = 0;
    }

    #[inline(never)]
    fn start_among_many(&mut self, running: Running) {
        let ends_late = self.front == self.back || self.near[self.back - 1].end <= running.end;
        if ends_late {
            self.pushed += 1;
            return self.far.push(Reverse(Far::of(running, self.pushed)));
        }
        if self.back - self.front == NEAR_MAX {
            self.back -= 1;
            self.moved += 1;
            self.far.push(Reverse(Far::of(self.near[self.back], -self.moved)));
        }
        self.insert(running);
    }

    /// When the next batch ends; `NEVER` if none runs.
    #[inline]
    pub fn next_end(&self) -> Moment {
        self.next
    }

    /// The next batch, if it ends by `now`.
    #[inline]
    pub fn ended(&mut self, now: Moment) -> Option<Running> {
        if self.next > now || self.front == self.back {
            return None;
        }
        let first = self.near[self.front];
        self.front += 1;
        if self.front == self.back {
            (self.front, self.back) = (0, 0);
            self.refill();
        }
        self.next = if self.front < self.back { self.near[self.front].end } else { Moment::NEVER };
        Some(first)
    }

    /// The first of the far ones become near.
    fn refill(&mut self) {
        while self.back < NEAR_MAX / 2
            && let Some(Reverse(Far { end, station, server, .. })) = self.far.pop()
        {
            self.near[self.back] = Running { end, station, server };
            self.back += 1;
        }
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
#[derive(Debug)]
pub struct Network {
    lines: Vec<(Span, VecDeque<Transit>)>,
    next: Moment,
}

impl Default for Network {
    fn default() -> Self {
        Self { lines: Vec::new(), next: Moment::NEVER }
    }
}

impl Network {
    /// The line of this delay, which is not 0.
    pub fn line(&mut self, delay: Span) -> usize {
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
        self.next
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
        for round in 0..200_000 {
            // Few run, then many, then few.
            let ends = if (round / 2_000) % 2 == 0 { stream.bits() % 20 < 9 } else { stream.bits() % 20 < 11 };
            if !expected.is_empty() && ends {
                let (end, station) = expected.pop_first().expect("not empty");
                let ended = agenda.ended(Moment::NEVER).expect("one runs");
                assert_eq!((ended.end, ended.station), (end, station));
            } else {
                let end = Moment::from_nanos(stream.bits() % if round % 3 == 0 { 50 } else { 5_000 });
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
