//! Which part of a request does a query carry?

/// A part of a request's credit: `start .. start + len` of `0 .. 2^62`. A query hands disjoint parts of its own part to its
/// children, and a leaf returns its part to the gateway. The request is complete when the parts that came back cover it
/// all. A query that ran twice (its first place was lost) covers the same part twice, which changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// First unit.
    pub start: u64,
    /// Units; at least 1.
    pub len: u64,
}

impl Credit {
    /// A whole request.
    pub const WHOLE: Credit = Credit { start: 0, len: 1 << 62 };

    /// Part `i` of `n` nearly equal parts; none if there are fewer units than parts.
    #[must_use]
    pub fn part(self, i: u64, n: u64) -> Option<Credit> {
        assert!(i < n);
        let (each, more) = (self.len / n, self.len % n);
        let start = self.start + i * each + i.min(more);
        (each > 0).then_some(Credit { start, len: each + u64::from(i < more) })
    }
}
