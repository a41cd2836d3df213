//! How do samples become profile rows? Pure functions.

use super::interval::{QuantileInterval, quantile_interval};
use super::percentiles::percentile;
use apportion_domain::isotonic;

/// Latency of a variant at one batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfilePoint {
    /// Queries in the batch.
    pub batch: u32,
    /// Median time of the batch.
    pub latency_ms: f64,
    /// 95th percentile of the same, as it was measured.
    pub p95_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
    /// Number of runs. Below 100 runs, the 99th percentile is the slowest of them.
    pub repeats: u32,
    /// Where the median is, as it was measured.
    pub median: QuantileInterval,
    /// Where the 99th percentile is, as it was measured.
    pub tail: QuantileInterval,
    /// What else is known of the runs.
    pub conditions: TimingConditions,
    /// On a share of a device: the latency, which is that beside neighbours, over the latency alone. `None` where no
    /// neighbours ran.
    pub interference: Option<f64>,
}

/// The measured times of batches of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTimes {
    /// Queries in the batch.
    pub batch: u32,
    /// The time of each run, in milliseconds; at least one.
    pub times_ms: Vec<f64>,
    /// What else is known of them.
    pub conditions: TimingConditions,
}

/// What is known of some runs beside their times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimingConditions {
    /// Runs before them that did not count.
    pub warm_up_runs: u32,
    /// Whether the times had stopped changing when the warm-up ended.
    pub is_steady: bool,
    /// How much the machine disturbed the runs: 0 is calm, and above [`super::noise::NOISE_MAX`] is noisy.
    pub noise: f64,
}

/// Turns measured times, by increasing batch size, into profile rows.
///
/// A larger batch cannot take less time. Where noise says so, the medians are replaced by the nearest non-decreasing
/// sequence in the sense of least squares ([`isotonic`]). The same is done with the 99th percentiles, which are then raised
/// to at least the median. Times are multiplied by `multiple`: 1 for measured times, more for a device that holds its slot
/// for a multiple of them.
#[must_use]
pub fn fit_profile(samples: &[BatchTimes], multiple: f64) -> Vec<ProfilePoint> {
    assert!(multiple > 0.0 && multiple.is_finite(), "a multiple above 0");
    let quantiles = |part| samples.iter().map(|s| percentile(&s.times_ms, part) * multiple).collect::<Vec<f64>>();
    let (medians, tails) = (isotonic(&quantiles(0.5)), isotonic(&quantiles(0.99)));
    let rows = samples.iter().zip(medians.iter().zip(&tails));
    rows.map(|(BatchTimes { batch, times_ms, conditions }, (&latency_ms, &tail_ms))| {
        let interval = |part| quantile_interval(times_ms, part).times(multiple);
        ProfilePoint {
            batch: *batch,
            latency_ms,
            p95_ms: percentile(times_ms, 0.95) * multiple,
            p99_ms: tail_ms.max(latency_ms),
            repeats: u32::try_from(times_ms.len()).expect("repeats are bounded"),
            median: interval(0.5),
            tail: interval(0.99),
            conditions: *conditions,
            interference: None,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_never_fall_and_tails_exceed_medians() {
        let samples = [(1, [4.0, 5.0, 9.0]), (2, [3.0, 3.0, 3.0]), (4, [8.0, 8.0, 8.0])];
        let conditions = TimingConditions { warm_up_runs: 3, is_steady: true, noise: 0.25 };
        let samples = samples.map(|(batch, times_ms)| BatchTimes { batch, times_ms: times_ms.into(), conditions });
        let rows = fit_profile(&samples, 10.0);
        let seen: Vec<_> = rows.iter().map(|r| (r.batch, r.latency_ms, r.p95_ms, r.p99_ms, r.repeats)).collect();
        assert_eq!(seen, [(1, 40.0, 90.0, 60.0, 3), (2, 40.0, 30.0, 60.0, 3), (4, 80.0, 80.0, 80.0, 3)]);
        assert!(rows.iter().all(|row| row.conditions == conditions && row.median == QuantileInterval::default()));
    }
}
