//! Is the measurement of an agent plausible, and which row of a profile does it make?

use super::profile_job::{NOISE_MAX, PointFailure, PointOrder};
use apportion_domain::pipeline::NUMBER_MAX;
use apportion_protocol::TEXT_BYTES_MAX;
use apportion_protocol::v1;
use apportion_wire::{MeasuredRow, RowMeasurement, utc_text};
use chrono::{DateTime, Utc};

/// Longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// Where and when something was measured.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredAt<'a> {
    /// The hardware type.
    pub hardware: &'a str,
    /// Name of the agent.
    pub agent: &'a str,
    /// When the measurement came.
    pub at: DateTime<Utc>,
}

/// What happens to a measurement of a noisy machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoisyMeasurement {
    /// It counts, and its row says how noisy it was.
    Counts,
    /// It is refused.
    Refused,
}

/// The row of a measurement.
///
/// # Errors
/// Why there is none: the agent could not measure, its numbers are impossible, or the machine was too noisy.
pub fn row_of(
    told: &v1::Measurement,
    order: &PointOrder,
    place: MeasuredAt<'_>,
    noisy: NoisyMeasurement,
) -> Result<MeasuredRow, PointFailure> {
    if !told.error.is_empty() {
        return Err(PointFailure(reason(&told.error)));
    }
    let is_time = |ms: f64| ms > 0.0 && ms <= NUMBER_MAX;
    let are_rising =
        told.median_ms <= told.p99_ms && is_time(told.median_ms) && is_time(told.p95_ms) && is_time(told.p99_ms);
    if !are_rising || told.runs == 0 || !(0.0..=NUMBER_MAX).contains(&told.noise) {
        let v1::Measurement { median_ms, p95_ms, p99_ms, runs, noise, .. } = told;
        return Err(PointFailure(format!(
            "the agent told impossible numbers: median {median_ms} ms, 95th percentile {p95_ms} ms, 99th {p99_ms} ms, \
             {runs} runs, noise {noise}"
        )));
    }
    if noisy == NoisyMeasurement::Refused && told.noise > NOISE_MAX {
        let noise = told.noise;
        return Err(PointFailure(format!("the machine is noisy: noise {noise:.2}, expected at most {NOISE_MAX}")));
    }
    let time = |ms: Option<f64>| ms.filter(|ms| is_time(*ms));
    let measured = RowMeasurement {
        at: Some(utc_text(place.at.timestamp())),
        runs: Some(told.runs),
        warm_up_runs: Some(told.warm_up_runs),
        steady: Some(told.steady),
        noise: Some(told.noise),
        // Devices are measured as a whole.
        interference: None,
        p95_ms: Some(told.p95_ms),
        median_low_ms: time(told.median_low_ms),
        median_high_ms: time(told.median_high_ms),
        p99_low_ms: time(told.p99_low_ms),
        p99_high_ms: time(told.p99_high_ms),
        agent: Some(place.agent.to_owned()),
        device: known(&told.device),
        software: known(&told.software),
        version: known(&told.version),
        by_shape: Vec::new(),
        drift: None,
    };
    Ok(MeasuredRow {
        task: order.task.clone(),
        variant: order.variant.clone(),
        hardware: place.hardware.to_owned(),
        share: 1.0,
        batch: order.batch,
        latency_ms: told.median_ms,
        p99_ms: Some(told.p99_ms),
        measured: Some(measured),
    })
}

/// A text of an agent within its bounds; `None` if it is empty.
fn known(text: &str) -> Option<String> {
    Some(text.replace('\0', "").chars().take(TEXT_BYTES_MAX).collect()).filter(|text: &String| !text.is_empty())
}

/// A reason of an agent within its bounds.
#[must_use]
pub fn reason(text: &str) -> String {
    text.replace('\0', "").chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> v1::Measurement {
        v1::Measurement {
            median_ms: 10.0,
            p95_ms: 11.0,
            p99_ms: 12.0,
            runs: 400,
            noise: 0.2,
            median_low_ms: Some(9.9),
            median_high_ms: Some(f64::NAN),
            device: "T4\0".into(),
            ..Default::default()
        }
    }

    fn row(told: &v1::Measurement, noisy: NoisyMeasurement) -> Result<MeasuredRow, PointFailure> {
        let order = PointOrder { task: "t".into(), variant: "v".into(), batch: 4 };
        let at = DateTime::from_timestamp(1_772_366_400, 0).expect("a moment");
        row_of(told, &order, MeasuredAt { hardware: "h", agent: "a", at }, noisy)
    }

    #[test]
    fn a_row_says_when_and_where_it_was_measured() {
        let row = row(&told(), NoisyMeasurement::Counts).expect("a row");
        assert_eq!((row.batch, row.latency_ms, row.p99_ms, row.hardware.as_str()), (4, 10.0, Some(12.0), "h"));
        let measured = row.measured.expect("how it was measured");
        assert_eq!(measured.at.as_deref(), Some("2026-03-01T12:00:00Z"));
        assert_eq!((measured.agent.as_deref(), measured.device.as_deref()), (Some("a"), Some("T4")));
        assert_eq!((measured.median_low_ms, measured.median_high_ms), (Some(9.9), None));
    }

    #[test]
    fn impossible_numbers_and_noise_are_refused() {
        let refused = |told: &v1::Measurement, noisy| row(told, noisy).expect_err("refused").0;
        let counts = NoisyMeasurement::Counts;
        for wrong in [
            v1::Measurement { median_ms: f64::NAN, ..told() },
            v1::Measurement { median_ms: 0.0, ..told() },
            v1::Measurement { p99_ms: 9.0, ..told() },
            v1::Measurement { p95_ms: f64::INFINITY, ..told() },
            v1::Measurement { runs: 0, ..told() },
            v1::Measurement { noise: -1.0, ..told() },
        ] {
            assert!(refused(&wrong, counts).contains("impossible numbers"), "{wrong:?}");
        }
        assert!(refused(&told(), NoisyMeasurement::Refused).contains("noise 0.20"));
        let failed = v1::Measurement { error: "x\0".repeat(2 * REASON_CHARS_MAX), ..told() };
        assert_eq!(refused(&failed, counts).len(), REASON_CHARS_MAX);
    }
}
