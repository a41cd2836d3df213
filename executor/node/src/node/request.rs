//! Which parts of a client's request have come back to its gateway?

use crate::chooser::{Chosen, Needs};
use crate::policies::LEVEL_DEFAULT;
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::wire::Credit;
use std::collections::BTreeMap;

/// What a request says beyond its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// After how many nanoseconds its answer is worth nothing; none if the pipeline's SLO alone says when it is late.
    pub timeout_ns: Option<u64>,
    /// How important it is: the lowest number comes first.
    pub level: u32,
    /// What it needs, if that is to decide which variants serve it.
    pub needs: Option<Needs>,
    /// The trace that it belongs to, if it is sampled.
    pub trace: Option<Trace>,
    /// Whose it is, in a number; 0 if that is not known.
    pub sender: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { timeout_ns: None, level: LEVEL_DEFAULT, needs: None, trace: None, sender: 0 }
    }
}

/// Rows that a sink made, with what orders them.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Row of the request.
    pub row: u32,
    /// Start of its credit: the order of children under their parents.
    pub order: u64,
    /// The sink.
    pub task: String,
    /// Its outputs.
    pub outputs: Vec<Tensor>,
}

/// The one answer to a request.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// All parts came back.
    Done {
        /// In the order of rows and children.
        pieces: Vec<Piece>,
        /// After the deadline.
        late: bool,
        /// From arrival to answer, in nanoseconds.
        latency_ns: u64,
        /// Parts that were dropped and are left out.
        dropped: u32,
        /// The variants that served it, if it said what it needs.
        chosen: Option<Chosen>,
    },
    /// No variants do what it needs; the nearest are named.
    Unmet(String),
    /// No replica of the root is ready.
    NotReady(String),
    /// Shed, and why.
    Dropped(String),
    /// Failed, and why.
    Failed(String),
    /// Its own timeout passed before all parts came back.
    TimedOut,
    /// Given up: parts of it never came back.
    GivenUp,
}

/// One run of a request. Parts of different runs are never put together: another run may have gone through other variants,
/// which cut the request in other parts.
#[derive(Debug, Default)]
pub struct Attempt {
    /// What came back.
    pub pieces: Vec<Piece>,
    /// Which parts came back.
    pub covered: Covered,
    /// Parts that ended at a leaf.
    pub leaves: u32,
    /// Parts that were dropped, and why the first of them was.
    pub dropped: (u32, Option<String>),
    /// A query of it ran twice and was cut differently: its pieces overlap, and it answers nothing.
    pub spoiled: bool,
}

/// A request that waits for its parts.
pub struct Pending {
    /// Its pipeline.
    pub pipeline: String,
    /// Its inputs, to run it again.
    pub inputs: Vec<Tensor>,
    /// What it said.
    pub terms: Terms,
    /// The variants of its latest run, if it said what it needs.
    pub chosen: Option<Chosen>,
    /// When it came.
    pub arrived_ns: u64,
    /// When it should be answered.
    pub deadline_ns: u64,
    /// When it is answered without its parts.
    pub give_up_ns: u64,
    /// Whether that is the timeout that it came with.
    pub timed: bool,
    /// The loop's number of the client.
    pub caller: u64,
    /// Its runs; the first to be whole answers it.
    pub attempts: Vec<Attempt>,
    /// When it is run again, if it is still unanswered: an agent was lost that may have held a part of it.
    pub again_ns: Option<u64>,
}

impl Pending {
    /// When it is given up or run again, whichever comes first.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.again_ns.map_or(self.give_up_ns, |again_ns| again_ns.min(self.give_up_ns))
    }
}

/// Disjoint parts of a request's credit that came back, by start.
#[derive(Debug, Default)]
pub struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a part; false if all of it was there already.
    pub fn add(&mut self, credit: Credit) -> bool {
        let (mut start, mut end) = (credit.start, credit.start + credit.len);
        if self.has(credit) {
            return false;
        }
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.0.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.0.insert(start, end);
        true
    }

    /// Whether some of a part was there already, but not all of it.
    #[must_use]
    pub fn cuts(&self, credit: Credit) -> bool {
        let end = credit.start + credit.len;
        let before = self.0.range(..=credit.start).next_back().map(|(_, known)| *known);
        let within = self.0.range(credit.start + 1..end).next().is_some();
        before.is_none_or(|known| known < end) && (within || before.is_some_and(|known| known > credit.start))
    }

    /// Whether all of a part was there already.
    #[must_use]
    pub fn has(&self, credit: Credit) -> bool {
        self.0.range(..=credit.start).next_back().is_some_and(|(_, end)| *end >= credit.start + credit.len)
    }

    /// Whether everything came back.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.get(&0) == Some(&Credit::WHOLE.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_complete_a_request_once_in_any_order() {
        let mut covered = Covered::default();
        let parts: Vec<_> = (0..7).map(|i| Credit::WHOLE.part(i, 7).expect("enough")).collect();
        for i in [3, 0, 6, 2, 5, 1] {
            assert!(covered.add(parts[i]));
            assert!(!covered.add(parts[i]));
            assert!(!covered.is_whole());
        }
        assert!(covered.add(parts[4]));
        assert!(covered.is_whole());
    }

    #[test]
    fn a_partly_known_part_is_recognised() {
        let part = |i, n| Credit::WHOLE.part(i, n).expect("enough");
        let mut covered = Covered::default();
        assert!(!covered.cuts(part(1, 3)));
        covered.add(part(1, 3));
        assert!(!covered.cuts(part(1, 3)) && !covered.cuts(part(0, 3)) && !covered.cuts(part(2, 3)));
        assert!(covered.cuts(part(0, 2)) && covered.cuts(part(1, 2)) && covered.cuts(Credit::WHOLE));
        assert!(!covered.cuts(part(4, 9)), "inside what is there");
    }

    #[test]
    fn a_part_cut_differently_still_completes() {
        let mut covered = Covered::default();
        for (i, n) in [(0, 3), (0, 2), (1, 3), (1, 2)] {
            assert!(covered.add(Credit::WHOLE.part(i, n).expect("enough")), "{i}/{n}");
        }
        assert!(covered.is_whole());
    }
}
