//! How many queries does a query make?

use crate::random::RandomStream;
use apportion_domain::{Edge, FanoutCounts, Pipeline, Route, Variant};

/// Most queries that one query may make at one child in a run: a guard of memory, far above any real detector.
pub const CHILDREN_MAX: f64 = 1_000_000.0;

/// One possible number of children, with the probability of at most this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CumulatedCount {
    /// The probability in 2^-64.
    pub threshold: u64,
    /// The number.
    pub count: u32,
}

/// The distribution of the children of one query at one child task.
#[derive(Clone, Debug, PartialEq)]
pub enum Fanout {
    /// Always this many.
    Fixed(u32),
    /// `floor`, and one more with a probability of `threshold / 2^64`.
    Mean {
        /// Whole part of the mean.
        floor: u32,
        /// Fractional part of the mean in 2^-64.
        threshold: u64,
    },
    /// The first count whose cumulated probability exceeds a draw.
    Counts(Vec<CumulatedCount>),
}

/// A probability in parts of 2^64, so that draws are compared as whole numbers.
pub fn threshold(probability: f64) -> u64 {
    (probability * (1u128 << 64) as f64) as u64
}

impl Fanout {
    /// With this mean: `floor(mean)` plus one with the probability of the rest.
    #[must_use]
    pub fn mean(mean: f64) -> Self {
        let floor = mean.floor();
        match threshold(mean - floor) {
            0 => Self::Fixed(floor as u32),
            threshold => Self::Mean { floor: floor as u32, threshold },
        }
    }

    /// With this distribution.
    #[must_use]
    pub fn counts(counts: &FanoutCounts) -> Self {
        let possible: Vec<_> = counts.0.iter().filter(|&&(_, p)| p > 0.0).collect();
        let total: f64 = possible.iter().map(|&&(_, p)| p).sum();
        let mut sum = 0.0;
        let mut cumulated: Vec<CumulatedCount> = Vec::with_capacity(possible.len());
        for &&(count, probability) in &possible {
            sum += probability;
            cumulated.push(CumulatedCount { threshold: threshold(sum / total), count });
        }
        match cumulated.as_mut_slice() {
            [only] => Self::Fixed(only.count),
            [.., last] => {
                last.threshold = u64::MAX;
                Self::Counts(cumulated)
            }
            [] => Self::Fixed(0),
        }
    }

    /// Of one variant over one edge; under `one_of`, given that the edge was chosen. The error is the mean that is too
    /// large.
    pub fn of(pipeline: &Pipeline, edge: &Edge, variant: &Variant) -> Result<Self, f64> {
        if let Some(counts) = variant.fanout_counts.get(&edge.to) {
            let most = counts.0.iter().map(|&(count, _)| count).max().unwrap_or(0);
            return if f64::from(most) > CHILDREN_MAX { Err(f64::from(most)) } else { Ok(Self::counts(counts)) };
        }
        let chosen = match pipeline.task(edge.from).route {
            Route::All => 1.0,
            Route::OneOf => edge.ratio,
        };
        let unconditional = variant.fanout_to.get(&edge.to).copied().unwrap_or(variant.fanout * edge.ratio);
        let mean = if chosen > 0.0 { unconditional / chosen } else { 0.0 };
        if mean > CHILDREN_MAX { Err(mean) } else { Ok(Self::mean(mean)) }
    }

    /// Whether it never makes a query.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::Fixed(0)
    }

    /// One draw.
    #[inline]
    pub fn draw(&self, stream: &mut RandomStream) -> u32 {
        match self {
            Self::Fixed(count) => *count,
            Self::Mean { floor, threshold } => floor + u32::from(stream.bits() < *threshold),
            Self::Counts(cumulated) => {
                let bits = stream.bits();
                let at = cumulated.partition_point(|c| c.threshold <= bits).min(cumulated.len() - 1);
                cumulated[at].count
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(fanout: &Fanout) -> f64 {
        const DRAWS: u32 = 100_000;
        let mut stream = RandomStream::new(5, "fanout");
        (0..DRAWS).map(|_| f64::from(fanout.draw(&mut stream))).sum::<f64>() / f64::from(DRAWS)
    }

    #[test]
    fn draws_have_the_mean_of_their_distribution() {
        let counts = Fanout::counts(&FanoutCounts(vec![(0, 0.1), (12, 0.5), (26, 0.4)]));
        assert!((mean_of(&counts) - 16.4).abs() < 0.1, "{}", mean_of(&counts));
        assert!((mean_of(&Fanout::mean(2.25)) - 2.25).abs() < 0.01, "{}", mean_of(&Fanout::mean(2.25)));
    }

    #[test]
    fn whole_means_and_single_counts_need_no_draw() {
        assert_eq!(Fanout::mean(3.0), Fanout::Fixed(3));
        assert_eq!(Fanout::counts(&FanoutCounts(vec![(0, 0.0), (7, 1.0)])), Fanout::Fixed(7));
        assert!(Fanout::mean(0.0).is_zero() && !Fanout::mean(0.5).is_zero());
    }
}
