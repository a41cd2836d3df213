//! What is a percentile of some times, and do times still change?

use apportion_domain::nearest_rank;

/// The percentile by nearest rank: the smallest sample that at least the share `quantile` of the samples does not exceed.
/// The median of an even number of samples is the mean of the middle two.
#[must_use]
pub fn percentile(samples: &[f64], quantile: f64) -> f64 {
    assert!(!samples.is_empty() && (0.0..=1.0).contains(&quantile), "samples and a share");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    if quantile == 0.5 && sorted.len().is_multiple_of(2) {
        let middle = sorted.len() / 2;
        return f64::midpoint(sorted[middle - 1], sorted[middle]);
    }
    nearest_rank(&sorted, quantile).expect("samples")
}

/// Runs of which a median counts as the time at that moment.
pub const STEADY_RUNS: usize = 5;
/// The largest change between two such medians, as a part of the earlier one.
const STEADY_CHANGE_MAX: f64 = 0.1;

/// Whether the last times of a warm-up no longer change: the median of the last [`STEADY_RUNS`] is within 10 % of the
/// median of those before. With fewer than twice as many runs they are not steady yet.
#[must_use]
pub fn is_steady(times_ms: &[f64]) -> bool {
    let Some(earlier) = times_ms.len().checked_sub(2 * STEADY_RUNS) else { return false };
    let (before, last) = times_ms[earlier..].split_at(STEADY_RUNS);
    let (before, last) = (percentile(before, 0.5), percentile(last, 0.5));
    (last - before).abs() <= STEADY_CHANGE_MAX * before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&samples, 0.99), 198.0);
        assert_eq!(percentile(&samples, 0.5), 100.5);
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(percentile(&[3.0, 1.0, 2.0], 0.99), 3.0);
        assert_eq!(percentile(&[5.0], 0.0), 5.0);
    }

    #[test]
    fn times_are_steady_once_two_medians_agree() {
        let warm = [90.0, 60.0, 40.0, 30.0, 25.0, 20.0, 20.0, 21.0, 20.0, 19.0];
        assert!(!is_steady(&warm), "the median falls from 40 to 20");
        let more = [&warm[..], &[20.0, 20.0, 500.0, 20.0, 20.0]].concat();
        assert!(is_steady(&more), "one slow run changes no median");
        assert!(!is_steady(&[20.0; 9]), "there are too few runs");
    }
}
