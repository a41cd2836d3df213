//! Smooth weighted round robin.

/// Weights are counted in whole parts, so that no float orders anything and a run can go on for ever without drift.
const PARTS: f64 = (1u64 << 40) as f64;

/// Longest round: senders that are this many picks apart are far enough from each other.
const ROUND_MAX: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    target: u32,
    weight: i64,
    credit: i64,
}

/// Smooth weighted round robin: after any number of picks, each target has had its share to within one pick.
///
/// Example: with the weights 2 and 1, the picks are the first target, the second, the first, and so on from there.
#[derive(Clone, Debug)]
pub struct Stride {
    entries: Vec<Entry>,
    total: i64,
}

impl Stride {
    /// Of `(weight, target)`, in order of preference among equals; targets of weight 0 are never picked. `None` if no
    /// weight is above 0.
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = (f64, u32)>) -> Option<Self> {
        let weights: Vec<_> = weights.into_iter().filter(|&(w, _)| w > 0.0 && w.is_finite()).collect();
        let sum: f64 = weights.iter().map(|&(w, _)| w).sum();
        let parts = |w: f64| ((w / sum * PARTS).round() as i64).max(1);
        let entries: Vec<_> = weights.iter().map(|&(w, target)| Entry { target, weight: parts(w), credit: 0 }).collect();
        let total = entries.iter().map(|e| e.weight).sum();
        (!entries.is_empty()).then_some(Self { entries, total })
    }

    /// The only target that is ever picked, if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.entries.as_slice() {
            [only] => Some(only.target),
            _ => None,
        }
    }

    /// Picks until the target of the smallest weight has had about one turn, at most [`ROUND_MAX`].
    pub(super) fn round(&self) -> u32 {
        let least = self.entries.iter().map(|entry| entry.weight).min().unwrap_or(self.total);
        u32::try_from(self.total / least).map_or(ROUND_MAX, |picks| picks.min(ROUND_MAX))
    }

    /// Whether another one has the same targets with the same weights.
    pub(super) fn chooses_as(&self, other: &Self) -> bool {
        let same = |(a, b): (&Entry, &Entry)| (a.target, a.weight) == (b.target, b.weight);
        self.entries.len() == other.entries.len() && self.entries.iter().zip(&other.entries).all(same)
    }

    /// The next target.
    #[inline]
    pub fn pick(&mut self) -> u32 {
        if let [only] = self.entries.as_slice() {
            return only.target;
        }
        let mut best = 0;
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            entry.credit += entry.weight;
            if entry.credit > self.entries[best].credit {
                best = at;
            }
        }
        self.entries[best].credit -= self.total;
        self.entries[best].target
    }
}
