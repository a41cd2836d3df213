//! How well did a run serve its requests, measured or estimated?

use super::load::{ClientOutcome, SentRequest};
use apportion_domain::{TimeSpan, nearest_rank};
use apportion_serving::patience::patience;
use serde::Serialize;
use std::time::Duration;

/// The time between a step of the load and the next steady part.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The runs that are left out at each end: 95 % of 40 runs lie between.
const TRIMMED: usize = 1;

/// The latency in ms that counts for a request that was given up.
pub fn longest_ms(slo_ms: f64) -> f64 {
    patience(TimeSpan::from_millis(slo_ms)).as_millis()
}

/// The figures of a run, measured or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Share of requests within the objective.
    pub attainment: f64,
    /// The same share without the time after each step of the load.
    pub attainment_steady: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 95th percentile of these latencies.
    pub p95_ms: f64,
    /// 99th percentile of these latencies.
    pub p99_ms: f64,
}

/// One request of a run, measured or estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestResult {
    /// The moment when it was due, from the start of the load.
    pub at: Duration,
    /// Whether it was answered within the objective.
    pub in_time: bool,
    /// Time until its answer in ms, if it was answered or given up.
    pub took_ms: Option<f64>,
}

impl RequestResult {
    /// The result that its client saw.
    pub fn of(sent: &SentRequest, longest_ms: f64) -> Self {
        let took_ms = match sent.outcome {
            ClientOutcome::Ok | ClientOutcome::Late => Some((sent.latency.as_secs_f64() * 1e3).min(longest_ms)),
            ClientOutcome::GivenUp => Some(longest_ms),
            ClientOutcome::Dropped | ClientOutcome::Failed => None,
        };
        Self { at: sent.at, in_time: sent.outcome == ClientOutcome::Ok, took_ms }
    }
}

/// Whether a moment lies outside the time after each step.
fn is_steady(at: Duration, steps: &[Duration]) -> bool {
    !steps.iter().any(|&step| at >= step && at < step + SETTLE)
}

impl Figures {
    /// The figures of these requests.
    pub fn of(seen: &[RequestResult], steps: &[Duration]) -> Self {
        let share = |of: &mut dyn Iterator<Item = &RequestResult>| {
            let (ok, all) = of.fold((0, 0), |(ok, all), s| (ok + u32::from(s.in_time), all + 1));
            if all == 0 { 1.0 } else { f64::from(ok) / f64::from(all) }
        };
        let mut took: Vec<f64> = seen.iter().filter_map(|s| s.took_ms).collect();
        took.sort_by(f64::total_cmp);
        Self {
            attainment: share(&mut seen.iter()),
            attainment_steady: share(&mut seen.iter().filter(|s| is_steady(s.at, steps))),
            p50_ms: nearest_rank(&took, 0.50).unwrap_or(0.0),
            p95_ms: nearest_rank(&took, 0.95).unwrap_or(0.0),
            p99_ms: nearest_rank(&took, 0.99).unwrap_or(0.0),
        }
    }
}

/// A measured figure, and the interval of the estimator's runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedFigure {
    /// The measured value.
    pub measured: f64,
    /// The median of the runs.
    pub estimated: f64,
    /// The smallest value without the outermost run.
    pub from: f64,
    /// The largest value without the outermost run.
    pub to: f64,
    /// Whether the measured value lies in the interval.
    pub is_inside: bool,
}

impl ComparedFigure {
    /// Compares a measured value with the runs of the estimator.
    ///
    /// # Panics
    /// If there is no run.
    pub fn new(measured: f64, mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        let (from, to) = (runs[TRIMMED.min(runs.len() - 1)], runs[runs.len().saturating_sub(1 + TRIMMED)]);
        Self { measured, estimated: runs[runs.len() / 2], from, to, is_inside: (from..=to).contains(&measured) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_leaves_out_the_outermost_runs() {
        let runs: Vec<f64> = (0..40).rev().map(f64::from).collect();
        let inside = ComparedFigure::new(1.0, runs.clone());
        assert_eq!((inside.from, inside.to, inside.estimated, inside.is_inside), (1.0, 38.0, 20.0, true));
        assert!(!ComparedFigure::new(0.5, runs.clone()).is_inside && !ComparedFigure::new(38.5, runs).is_inside);
    }

    #[test]
    fn the_time_after_a_step_is_not_steady() {
        let seen = |at_s: f64, in_time, took_ms| RequestResult { at: Duration::from_secs_f64(at_s), in_time, took_ms };
        let of = [
            seen(0.0, true, Some(10.0)),
            seen(21.0, false, Some(4_000.0)),
            seen(29.9, false, None),
            seen(30.0, false, None),
            seen(31.0, true, Some(20.0)),
        ];
        let figures = Figures::of(&of, &[Duration::from_secs(20)]);
        let expected =
            Figures { attainment: 0.4, attainment_steady: 2.0 / 3.0, p50_ms: 20.0, p95_ms: 4_000.0, p99_ms: 4_000.0 };
        assert_eq!(figures, expected);
    }
}
