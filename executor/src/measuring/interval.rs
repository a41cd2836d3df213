//! Between which bounds is a quantile of the times, and are there enough runs?
//!
//! The bounds are two of the measured times themselves (the order-statistic interval; Conover, Practical Nonparametric
//! Statistics, section 3.2). The number of times below a quantile has a binomial distribution, whatever the distribution of
//! the times is. Example: of 20 times in ascending order, the median is between the 6th and the 15th with 95 %.

use super::percentiles::percentile;

/// Probability that a quantile is below the interval, and the same above it.
const TAIL: f64 = 0.025;
/// Widest interval of a median that counts as narrow, as a part of the median. Plans are made with 20 % of headroom.
pub const MEDIAN_WIDTH_MAX: f64 = 0.05;
/// Widest interval of a 99th percentile that counts as narrow, as a part of the percentile.
pub const TAIL_WIDTH_MAX: f64 = 0.25;
/// Fewest runs of which the interval of the 99th percentile is closed: the first number `n` with `0.99^n <= 0.025`.
pub const TAIL_RUNS_MIN: usize = 368;

/// The bounds of a quantile with a probability of at least 95 %. A side without a bound has too few runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuantileInterval {
    /// The lower bound.
    pub low: Option<f64>,
    /// The upper bound.
    pub high: Option<f64>,
}

impl QuantileInterval {
    /// The interval of a multiple of the times.
    #[must_use]
    pub fn times(self, multiple: f64) -> Self {
        Self { low: self.low.map(|ms| ms * multiple), high: self.high.map(|ms| ms * multiple) }
    }

    /// Its width as a part of a value; `None` if a side is open.
    #[must_use]
    pub fn width(&self, of: f64) -> Option<f64> {
        Some((self.high? - self.low?) / of)
    }
}

/// The ranks, from 1, of the two times that bound a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoundRanks {
    low: Option<usize>,
    high: Option<usize>,
}

/// The bounding ranks of `count` times: the highest low rank and the lowest high rank that each leave out at most [`TAIL`].
fn bound_ranks(count: usize, quantile: f64) -> BoundRanks {
    let n = count as f64;
    // The logarithm of the probability that `k` times are below the quantile, and the sum up to `k`.
    let (mut log_part, mut below) = (n * (1.0 - quantile).ln(), 0.0);
    let mut ranks = BoundRanks { low: None, high: None };
    for k in 0..count {
        below += log_part.exp();
        // With at most `k` times below it, the quantile is at most the time of rank `k + 1`.
        if below <= TAIL {
            ranks.low = Some(k + 1);
        }
        if below >= 1.0 - TAIL {
            ranks.high = Some(k + 1);
            break;
        }
        log_part += ((n - k as f64) / (k as f64 + 1.0)).ln() + (quantile / (1.0 - quantile)).ln();
    }
    ranks
}

/// The interval of a quantile above 0 and below 1 of these times, in any order.
#[must_use]
pub fn quantile_interval(times_ms: &[f64], quantile: f64) -> QuantileInterval {
    assert!(quantile > 0.0 && quantile < 1.0, "a quantile inside");
    let mut sorted = times_ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let BoundRanks { low, high } = bound_ranks(sorted.len(), quantile);
    let at = |rank: Option<usize>| sorted.get(rank?.checked_sub(1)?).copied();
    QuantileInterval { low: at(low), high: at(high) }
}

/// Whether the median and the 99th percentile of these times are known well enough.
#[must_use]
pub fn is_narrow(times_ms: &[f64]) -> bool {
    let is_within = |quantile, width_max| {
        let width = quantile_interval(times_ms, quantile).width(percentile(times_ms, quantile));
        width.is_some_and(|width| width <= width_max)
    };
    times_ms.len() >= TAIL_RUNS_MIN && is_within(0.5, MEDIAN_WIDTH_MAX) && is_within(0.99, TAIL_WIDTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability that `k` of `n` times are below the quantile, by the formula with whole numbers.
    fn part(n: u32, k: u32, quantile: f64) -> f64 {
        let choose = (0..u128::from(k)).fold(1_u128, |all, i| all * (u128::from(n) - i) / (i + 1));
        choose as f64 * quantile.powi(k as i32) * (1.0 - quantile).powi((n - k) as i32)
    }

    #[test]
    fn ranks_leave_out_no_more_than_they_may() {
        for n in 1..=40_u32 {
            for quantile in [0.1, 0.5, 0.9] {
                let up_to = |k: u32| (0..=k).map(|k| part(n, k, quantile)).sum::<f64>();
                let low = (1..=n).rev().find(|rank| up_to(rank - 1) <= TAIL).map(|rank| rank as usize);
                let high = (1..=n).find(|rank| up_to(rank - 1) >= 1.0 - TAIL).map(|rank| rank as usize);
                assert_eq!(bound_ranks(n as usize, quantile), BoundRanks { low, high }, "{quantile} of {n}");
            }
        }
        assert_eq!(bound_ranks(5, 0.5), BoundRanks { low: None, high: None }, "five times are too few");
        assert_eq!(bound_ranks(20, 0.5), BoundRanks { low: Some(6), high: Some(15) });
        assert_eq!(bound_ranks(0, 0.5), BoundRanks { low: None, high: None });
    }

    #[test]
    fn a_tail_needs_many_runs() {
        assert_eq!(bound_ranks(TAIL_RUNS_MIN - 1, 0.99).high, None);
        assert_eq!(bound_ranks(TAIL_RUNS_MIN, 0.99).high, Some(TAIL_RUNS_MIN));
        let many = bound_ranks(100_000, 0.5);
        assert!(many.low > Some(49_000) && many.high < Some(51_000), "no number is too small to add: {many:?}");
    }

    #[test]
    fn equal_times_are_narrow_and_scattered_ones_are_not() {
        assert!(!is_narrow(&[3.0; TAIL_RUNS_MIN - 1]));
        assert!(is_narrow(&[3.0; TAIL_RUNS_MIN]));
        let scattered: Vec<f64> = (0..400).map(|i| f64::from(i * 7 % 400)).collect();
        assert!(!is_narrow(&scattered));
        let interval = quantile_interval(&scattered, 0.5);
        assert!(interval.low > Some(170.0) && interval.high < Some(230.0), "{interval:?}");
        assert!(interval.times(2.0).low > Some(340.0));
    }
}
