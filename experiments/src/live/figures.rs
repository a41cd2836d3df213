//! How well did a run serve its requests, measured or estimated?

use super::load::{RequestOutcome, SentRequest};
use apportion_domain::nearest_rank;
use serde::Serialize;
use std::time::Duration;

/// How long after a step of the load the steady part begins again.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Runs left out at each end: 95 % of 40 are between.
const TRIMMED: usize = 1;

/// Agents give a request up after so many times the SLO, and two seconds at least; the estimator's wait on. Both count as having
/// taken that long.
const GIVE_UP_SLOS: f64 = 10.0;

const GIVE_UP_MS_MIN: f64 = 2_000.0;

/// What a request that was given up counts as having taken.
pub fn longest_ms(slo_ms: f64) -> f64 {
    (GIVE_UP_SLOS * slo_ms).max(GIVE_UP_MS_MIN)
}

/// What is said of a run, measured or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Share of requests within the objective.
    pub attainment: f64,
    /// The same without the time after each step of the load.
    pub attainment_steady: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
}

/// One request of a run, measured or estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestResult {
    /// When it was due, from the start of the load.
    pub at: Duration,
    /// Whether it was answered within the objective.
    pub in_time: bool,
    /// Time until its answer in ms, if it was answered or given up.
    pub took_ms: Option<f64>,
}

impl RequestResult {
    /// As its client saw it.
    pub fn of(sent: &SentRequest, longest_ms: f64) -> Self {
        let took_ms = match sent.outcome {
            RequestOutcome::Ok | RequestOutcome::Late => Some((sent.latency.as_secs_f64() * 1e3).min(longest_ms)),
            RequestOutcome::GivenUp => Some(longest_ms),
            RequestOutcome::Dropped | RequestOutcome::Failed => None,
        };
        Self { at: sent.at, in_time: sent.outcome == RequestOutcome::Ok, took_ms }
    }
}

/// Whether a moment is not in the time after a step.
fn is_steady(at: Duration, steps: &[Duration]) -> bool {
    !steps.iter().any(|&step| at >= step && at < step + SETTLE)
}

impl Figures {
    /// Of these requests.
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
            p99_ms: nearest_rank(&took, 0.99).unwrap_or(0.0),
        }
    }
}

/// A figure as measured, and the interval in which the estimator's runs lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What was measured.
    pub measured: f64,
    /// The median of the runs.
    pub estimated: f64,
    /// The smallest of all runs but the outermost.
    pub from: f64,
    /// The largest of them.
    pub to: f64,
    /// Whether what was measured is between.
    pub is_inside: bool,
}

impl Compared {
    /// Beside the estimator's runs, of which there is at least one.
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
    fn the_interval_leaves_out_the_outermost_run_on_either_side() {
        let runs: Vec<f64> = (0..40).rev().map(f64::from).collect();
        let inside = Compared::new(1.0, runs.clone());
        assert_eq!((inside.from, inside.to, inside.estimated, inside.is_inside), (1.0, 38.0, 20.0, true));
        assert!(!Compared::new(0.5, runs.clone()).is_inside && !Compared::new(38.5, runs).is_inside);
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
        assert_eq!(figures, Figures { attainment: 0.4, attainment_steady: 2.0 / 3.0, p50_ms: 20.0, p99_ms: 4_000.0 });
    }
}
