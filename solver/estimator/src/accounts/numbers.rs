//! Which requests are open, by number?

/// A request of which no query has ended.
const UNSEEN: u32 = u32::MAX;
/// A request that is complete.
const COMPLETE: u32 = u32::MAX - 1;
/// Places at first.
const PLACES_MIN: usize = 1 << 10;

/// The slots of open requests, by their numbers. Numbers begin again at 0 after 2^32 requests. Memory follows the distance
/// from the oldest open request to the newest.
#[derive(Debug)]
pub struct OpenNumbers {
    /// A ring: the place of a number is its last bits.
    places: Vec<u32>,
    /// No request before this one is open.
    oldest: u32,
}

impl Default for OpenNumbers {
    fn default() -> Self {
        Self { places: vec![UNSEEN; PLACES_MIN], oldest: 0 }
    }
}

impl OpenNumbers {
    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.places.len() - 1)
    }

    /// The slot of a request. `open` gives one if this is the first that is heard of it.
    #[inline]
    pub fn slot(&mut self, number: u32, open: impl FnOnce() -> u32) -> u32 {
        let ahead = number.wrapping_sub(self.oldest) as usize;
        if ahead >= self.places.len() {
            self.grow(ahead);
        }
        let at = self.place(number);
        if self.places[at] == UNSEEN {
            self.places[at] = open();
        }
        debug_assert!(self.places[at] != COMPLETE, "a query of request {number}, which is complete");
        self.places[at]
    }

    /// A request is complete.
    #[inline]
    pub fn complete(&mut self, number: u32) {
        let at = self.place(number);
        self.places[at] = COMPLETE;
        while self.places[self.place(self.oldest)] == COMPLETE {
            let at = self.place(self.oldest);
            self.places[at] = UNSEEN;
            self.oldest = self.oldest.wrapping_add(1);
        }
    }

    /// Makes room for a number that is this far ahead of the oldest.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, ahead: usize) {
        let longer = vec![UNSEEN; (ahead + 1).next_power_of_two()];
        let shorter = std::mem::replace(&mut self.places, longer);
        for distance in 0..shorter.len() as u32 {
            let number = self.oldest.wrapping_add(distance);
            let at = self.place(number);
            self.places[at] = shorter[number as usize & (shorter.len() - 1)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_keep_their_slots_until_they_are_complete() {
        let mut stream = RandomStream::new(1, "numbers");
        // Near the end of the numbers, so that they begin again.
        let mut open = OpenNumbers { oldest: u32::MAX - 2_000, ..OpenNumbers::default() };
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        let mut next = u64::from(open.oldest);
        for round in 0..60_000 {
            // Few are open, then many, then few.
            let opens = if (round / 5_000) % 2 == 0 { stream.below(20) < 13 } else { stream.below(20) < 8 };
            if expected.is_empty() || opens {
                let slot = stream.below(1 << 20) as u32;
                assert_eq!(open.slot(next as u32, || slot), slot);
                expected.insert(next, slot);
                next += 1;
                continue;
            }
            let at = stream.below(expected.len() as u64) as usize;
            let (&number, &slot) = expected.iter().nth(at).expect("one of them");
            assert_eq!(open.slot(number as u32, || panic!("{number} is open")), slot);
            open.complete(number as u32);
            expected.remove(&number);
        }
        for (number, slot) in expected {
            assert_eq!(open.slot(number as u32, || panic!("{number} is open")), slot);
            open.complete(number as u32);
        }
        assert_eq!(open.oldest, next as u32);
        assert!(open.places.iter().all(|&place| place == UNSEEN) && open.places.len() > PLACES_MIN);
    }

    #[test]
    fn numbers_may_be_heard_of_in_any_order() {
        let mut open = OpenNumbers::default();
        let far = 5 * PLACES_MIN as u32;
        assert_eq!(open.slot(far, || 1), 1);
        assert_eq!(open.slot(3, || 2), 2);
        open.complete(far);
        open.complete(3);
        assert_eq!(open.oldest, 0, "the numbers before were never heard of");
        (0..far).filter(|&n| n != 3).for_each(|n| {
            assert_eq!(open.slot(n, || n), n);
            open.complete(n);
        });
        assert_eq!(open.oldest, far + 1);
    }
}
