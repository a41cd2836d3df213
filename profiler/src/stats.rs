//! How do samples become profile rows? Pure functions.

use apportion_domain::nearest_rank;

/// Latency of a variant at one batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfilePoint {
    /// Queries in the batch.
    pub batch: u32,
    /// Median time of the batch.
    pub latency_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// Number of runs. Below 100 runs, the 99th percentile is the slowest of them.
    pub repeats: u32,
}

/// The measured times of batches of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTimes {
    /// Queries in the batch.
    pub batch: u32,
    /// The time of each run, in milliseconds; at least one.
    pub times_ms: Vec<f64>,
}

/// Turns measured times, by increasing batch size, into profile rows.
///
/// A larger batch cannot take less time. Where noise says so, the medians are replaced by the nearest non-decreasing
/// sequence in the sense of least squares (isotonic regression by pooling adjacent violators; Barlow and others, 1972). The
/// same is done with the 99th percentiles, which are then raised to at least the median. Times are multiplied by
/// `multiple`: 1 for measured times, more for a device that holds its slot for a multiple of them.
#[must_use]
pub fn fit_profile(samples: &[BatchTimes], multiple: f64) -> Vec<ProfilePoint> {
    assert!(multiple > 0.0 && multiple.is_finite(), "a multiple above 0");
    let medians: Vec<f64> = samples.iter().map(|s| percentile(&s.times_ms, 0.5) * multiple).collect();
    let tails: Vec<f64> = samples.iter().map(|s| percentile(&s.times_ms, 0.99) * multiple).collect();
    let (medians, tails) = (isotonic(&medians), isotonic(&tails));
    let rows = samples.iter().zip(medians.iter().zip(&tails));
    rows.map(|(BatchTimes { batch, times_ms }, (&latency_ms, &tail_ms))| {
        let repeats = u32::try_from(times_ms.len()).expect("repeats are bounded");
        ProfilePoint { batch: *batch, latency_ms, p99_ms: tail_ms.max(latency_ms), repeats }
    })
    .collect()
}

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

/// Neighbours with one value.
#[derive(Clone, Copy)]
struct Pool {
    mean: f64,
    count: usize,
}

impl Pool {
    /// The pool of the members of both.
    fn merge(left: Self, right: Self) -> Self {
        let count = left.count + right.count;
        let mean = (left.mean * left.count as f64 + right.mean * right.count as f64) / count as f64;
        Self { mean, count }
    }
}

/// The non-decreasing sequence nearest to `values` by least squares: neighbours that fall are pooled into their mean.
#[must_use]
pub fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<Pool> = Vec::with_capacity(values.len());
    for &value in values {
        pools.push(Pool { mean: value, count: 1 });
        while let [.., left, right] = pools[..]
            && left.mean > right.mean
        {
            pools.truncate(pools.len() - 2);
            pools.push(Pool::merge(left, right));
        }
    }
    pools.into_iter().flat_map(|Pool { mean, count }| std::iter::repeat_n(mean, count)).collect()
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

    #[test]
    fn falling_neighbours_are_pooled() {
        assert_eq!(isotonic(&[1.0, 2.0, 4.0]), [1.0, 2.0, 4.0]);
        assert_eq!(isotonic(&[1.0, 4.0, 2.0, 5.0]), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(isotonic(&[4.0, 3.0, 2.0]), [3.0, 3.0, 3.0]);
        assert_eq!(isotonic(&[2.0, 4.0, 3.0, 1.0]), [2.0, 8.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0]);
        assert_eq!(isotonic(&[]), [0.0; 0]);
    }

    #[test]
    fn the_isotonic_sequence_is_the_nearest_on_a_grid() {
        let grid = |i: usize| [(i / 125) % 5, (i / 25) % 5, (i / 5) % 5, i % 5].map(|x| x as f64);
        let error = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>();
        for i in 0..625 {
            let values = grid(i);
            let fitted = isotonic(&values);
            assert!(fitted.is_sorted(), "{values:?} -> {fitted:?}");
            let best =
                (0..625).map(grid).filter(|g| g.is_sorted()).map(|g| error(&g, &values)).fold(f64::INFINITY, f64::min);
            assert!(error(&fitted, &values) <= best + 1e-12, "{values:?} -> {fitted:?}");
        }
    }

    #[test]
    fn rows_never_fall_and_tails_exceed_medians() {
        let samples = [(1, [4.0, 5.0, 9.0]), (2, [3.0, 3.0, 3.0]), (4, [8.0, 8.0, 8.0])];
        let samples = samples.map(|(batch, times_ms)| BatchTimes { batch, times_ms: times_ms.into() });
        let rows = fit_profile(&samples, 10.0);
        let row = |batch, latency_ms, p99_ms| ProfilePoint { batch, latency_ms, p99_ms, repeats: 3 };
        assert_eq!(rows, [row(1, 40.0, 60.0), row(2, 40.0, 60.0), row(4, 80.0, 80.0)]);
    }
}
