//! Which parts of a request's credit have come back?

use crate::wire::Credit;
use std::collections::BTreeMap;

/// Disjoint parts of a request's credit that came back, by start.
#[derive(Debug, Default)]
pub struct CreditCoverage(BTreeMap<u64, u64>);

impl CreditCoverage {
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
        let mut covered = CreditCoverage::default();
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
        let mut covered = CreditCoverage::default();
        assert!(!covered.cuts(part(1, 3)));
        covered.add(part(1, 3));
        assert!(!covered.cuts(part(1, 3)) && !covered.cuts(part(0, 3)) && !covered.cuts(part(2, 3)));
        assert!(covered.cuts(part(0, 2)) && covered.cuts(part(1, 2)) && covered.cuts(Credit::WHOLE));
        assert!(!covered.cuts(part(4, 9)), "inside what is there");
    }

    #[test]
    fn a_part_cut_differently_still_completes() {
        let mut covered = CreditCoverage::default();
        for (i, n) in [(0, 3), (0, 2), (1, 3), (1, 2)] {
            assert!(covered.add(Credit::WHOLE.part(i, n).expect("enough")), "{i}/{n}");
        }
        assert!(covered.is_whole());
    }
}
