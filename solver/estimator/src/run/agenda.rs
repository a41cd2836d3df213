//! The batches that run, by the moment at which they end.

use apportion_domain::Moment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A batch that runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningBatch {
    /// When it ends.
    pub end: Moment,
    /// Where.
    pub station: u32,
    /// On which of its servers.
    pub server: u32,
}

/// A running batch that ends late, with its order among batches that end at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Far {
    end: Moment,
    order: i64,
    station: u32,
    server: u32,
}

impl Far {
    fn of(running: RunningBatch, order: i64) -> Self {
        Self { end: running.end, order, station: running.station, server: running.server }
    }
}

/// Number of running batches that are kept sorted.
const NEAR_MAX: usize = 64;
/// Room for them to move in, so that taking the first moves none.
const NEAR_ROOM: usize = 4 * NEAR_MAX;

/// The running batches by their end, then by the order in which they started. The batches that end next are in an array,
/// the others in a heap.
///
/// Example: four batches run and end at 10, 12, 15 and 19 ms; a batch that starts and ends at 17 ms passes one of them. A
/// batch that starts usually ends after most running ones, so its place is found from the back of the array within a few
/// steps. The next batch is taken from the front. This costs less than a heap while few batches run, and no more when many
/// run.
#[derive(Debug)]
pub struct Agenda {
    /// The batches in `front..back` come before all batches in `far`.
    near: Box<[RunningBatch; NEAR_ROOM]>,
    front: usize,
    back: usize,
    far: BinaryHeap<Reverse<Far>>,
    /// Counts batches that moved from near to far. They come before far batches that end at the same moment.
    moved: i64,
    /// Counts batches that started as far ones. They come after far batches that end at the same moment.
    pushed: i64,
    /// When the first one ends; `NEVER` if none runs.
    next: Moment,
}

impl Default for Agenda {
    fn default() -> Self {
        let none = RunningBatch { end: Moment::NEVER, station: 0, server: 0 };
        let near = vec![none; NEAR_ROOM].into_boxed_slice().try_into().expect("NEAR_ROOM places");
        Self { near, front: 0, back: 0, far: BinaryHeap::new(), moved: 0, pushed: 0, next: Moment::NEVER }
    }
}

impl Agenda {
    /// A batch started and will end at `end`.
    #[inline]
    pub fn start(&mut self, end: Moment, station: u32, server: u32) {
        let running = RunningBatch { end, station, server };
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
    fn insert(&mut self, running: RunningBatch) {
        let mut at = self.back;
        while at > self.front && self.near[at - 1].end > running.end {
            self.near[at] = self.near[at - 1];
            at -= 1;
        }
        // Field by field: a whole struct would be read again before it has arrived in memory.
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
    fn start_among_many(&mut self, running: RunningBatch) {
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
    pub fn pop_ended(&mut self, now: Moment) -> Option<RunningBatch> {
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

    /// The batch of a server does not come to its end: its query has left. Returns when it would have ended.
    #[cold]
    pub fn remove(&mut self, station: u32, server: u32) -> Option<Moment> {
        let is_its = |running: &RunningBatch| (running.station, running.server) == (station, server);
        let mut end = None;
        match self.near[self.front..self.back].iter().position(is_its) {
            Some(at) => {
                end = Some(self.near[self.front + at].end);
                self.near.copy_within(self.front + at + 1..self.back, self.front + at);
                self.back -= 1;
                if self.front == self.back {
                    (self.front, self.back) = (0, 0);
                    self.refill();
                }
            }
            None => self.far.retain(|Reverse(far)| {
                let is_kept = (far.station, far.server) != (station, server);
                end = if is_kept { end } else { Some(far.end) };
                is_kept
            }),
        }
        self.next = if self.front < self.back { self.near[self.front].end } else { Moment::NEVER };
        end
    }

    /// The first of the far ones become near.
    fn refill(&mut self) {
        while self.back < NEAR_MAX / 2
            && let Some(Reverse(Far { end, station, server, .. })) = self.far.pop()
        {
            self.near[self.back] = RunningBatch { end, station, server };
            self.back += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    #[test]
    fn batches_end_in_start_order_and_removed_ones_never() {
        let mut stream = RandomStream::new(1, "agenda");
        let mut agenda = Agenda::default();
        let mut expected = std::collections::BTreeSet::new();
        let mut started = 0;
        for round in 0..200_000 {
            // Few run, then many, then few.
            let ends = if (round / 2_000) % 2 == 0 { stream.bits() % 20 < 9 } else { stream.bits() % 20 < 11 };
            if !expected.is_empty() && ends {
                let (end, station) = expected.pop_first().expect("not empty");
                let ended = agenda.pop_ended(Moment::NEVER).expect("one runs");
                assert_eq!((ended.end, ended.station), (end, station));
            } else if !expected.is_empty() && stream.bits().is_multiple_of(7) {
                let at = stream.bits() as usize % expected.len();
                let (end, station) = *expected.iter().nth(at).expect("one of them");
                assert_eq!(agenda.remove(station, 0), Some(end));
                expected.remove(&(end, station));
            } else {
                let end = Moment::from_nanos(stream.bits() % if round % 3 == 0 { 50 } else { 5_000 });
                started += 1;
                agenda.start(end, started, 0);
                expected.insert((end, started));
            }
            // `next_end` must not change the next batch.
            if stream.bits().is_multiple_of(3) {
                assert_eq!(agenda.next_end(), expected.first().map_or(Moment::NEVER, |&(end, _)| end));
            }
        }
    }
}
