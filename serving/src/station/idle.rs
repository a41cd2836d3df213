//! The set of idle servers.

/// A set of small numbers, smallest first, as bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdleSet {
    words: Vec<u64>,
    count: u32,
}

impl IdleSet {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        if self.words[0] != 0 {
            return Some(self.words[0].trailing_zeros());
        }
        let at = self.words.iter().position(|&w| w != 0)?;
        Some(at as u32 * 64 + self.words[at].trailing_zeros())
    }

    /// The smallest that is at least `from`.
    pub(crate) fn first_from(&self, from: u32) -> Option<u32> {
        let word = (from / 64) as usize;
        let rest = self.words.get(word)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word as u32 * 64 + rest.trailing_zeros());
        }
        let at = word + 1 + self.words[word + 1..].iter().position(|&w| w != 0)?;
        Some(at as u32 * 64 + self.words[at].trailing_zeros())
    }

    #[inline]
    pub(crate) fn insert(&mut self, server: u32) {
        let at = (server / 64) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (server % 64);
        self.count += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, server: u32) {
        self.words[(server / 64) as usize] &= !(1 << (server % 64));
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::IdleSet;

    #[test]
    fn numbers_come_back_in_order_from_any_place() {
        let mut set = IdleSet::default();
        let all = [3, 63, 64, 130, 200];
        all.iter().for_each(|&n| set.insert(n));
        for from in 0..300 {
            assert_eq!(set.first_from(from), all.iter().copied().find(|&n| n >= from), "{from}");
        }
        set.remove(3);
        assert_eq!((set.first(), set.first_from(0)), (Some(63), Some(63)));
    }
}
