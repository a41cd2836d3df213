//! When stations want to be ticked.

use apportion_domain::Moment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A station that wants to be ticked. The order is by moment, then by station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: Moment,
    station: u32,
}

/// Moments at which stations want to be ticked. Each station has at most one. A moment that was replaced is ignored when it
/// comes.
#[derive(Debug, Default)]
pub struct StationTimers {
    heap: BinaryHeap<Reverse<Timer>>,
    wanted: Vec<Moment>,
}

impl StationTimers {
    /// A station wants to be ticked at this moment. The moment replaces the one that it wanted before.
    pub fn set(&mut self, station: u32, at: Moment) {
        let station_at = station as usize;
        if station_at >= self.wanted.len() {
            self.wanted.resize(station_at + 1, Moment::NEVER);
        }
        if at != Moment::NEVER && self.wanted[station_at] != at {
            self.wanted[station_at] = at;
            self.heap.push(Reverse(Timer { at, station }));
        }
    }

    /// The next moment, which may have been given up; `NEVER` if there is none.
    #[inline]
    pub fn next(&self) -> Moment {
        self.heap.peek().map_or(Moment::NEVER, |Reverse(next)| next.at)
    }

    /// Takes the next; `None` if it was given up.
    pub fn pop(&mut self) -> Option<u32> {
        let Reverse(Timer { at, station }) = self.heap.pop()?;
        let wanted = &mut self.wanted[station as usize];
        (*wanted == at).then(|| {
            *wanted = Moment::NEVER;
            station
        })
    }
}
