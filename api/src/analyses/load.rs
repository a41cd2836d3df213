//! Which load do plans serve in an analysis?

use apportion_domain::{ArrivalTrace, Invalid, Problem};
use apportion_estimator::{ArrivalProcess, DEFAULT_SECONDS, DEFAULT_SEED, Workload};

/// Largest coefficient of variation of gaps: with a larger one, a second of trace holds a single clump.
pub const CV_MAX: f64 = 100.0;

/// The default of `seed`.
#[must_use]
pub fn default_seed() -> u64 {
    DEFAULT_SEED
}

/// The default of `arrivals`.
#[must_use]
pub fn default_arrivals() -> String {
    arrivals_text(ArrivalProcess::Poisson)
}

/// The arrival process of a text: `poisson`, `uniform`, or `gamma:CV` with a coefficient of variation.
#[must_use]
pub fn arrivals_of(text: &str) -> Option<ArrivalProcess> {
    match text.split_once(':') {
        None if text == "poisson" => Some(ArrivalProcess::Poisson),
        None if text == "uniform" => Some(ArrivalProcess::Uniform),
        Some(("gamma", cv)) => cv.parse().ok().filter(|cv| *cv > 0.0 && *cv <= CV_MAX).map(ArrivalProcess::Gamma),
        _ => None,
    }
}

/// The text of an arrival process.
#[must_use]
pub fn arrivals_text(process: ArrivalProcess) -> String {
    match process {
        ArrivalProcess::Poisson => "poisson".to_owned(),
        ArrivalProcess::Uniform => "uniform".to_owned(),
        ArrivalProcess::Gamma(cv) => format!("gamma:{cv}"),
    }
}

/// The refusal of a text that is no arrival process.
pub(super) fn check_arrivals(text: &str) -> Option<Invalid> {
    let expected = format!("poisson, uniform, or gamma:CV with a number above 0 and up to {CV_MAX}");
    arrivals_of(text).is_none().then(|| Invalid::new("/arrivals", format!("{text:?}"), expected))
}

/// The load of some traces: arrivals of this process, with this root seed. An unknown process counts as Poisson.
pub(super) fn workload(traces: Vec<ArrivalTrace>, arrivals: &str, seed: u64) -> Workload {
    Workload { traces, arrivals: arrivals_of(arrivals).unwrap_or(ArrivalProcess::Poisson), seed }
}

/// The traces, and for a pipeline without one its demand for the length of the longest trace, or for 60 s.
#[must_use]
pub fn with_demand(problem: &Problem, traces: Vec<Option<ArrivalTrace>>) -> Vec<ArrivalTrace> {
    let seconds = traces.iter().flatten().map(seconds_of).max().unwrap_or(DEFAULT_SECONDS);
    let demand = |p: usize| ArrivalTrace::Rates((0..seconds).map(|s| (s, problem.pipelines[p].demand_qps)).collect());
    traces.into_iter().enumerate().map(|(p, t)| t.unwrap_or_else(|| demand(p))).collect()
}

/// The length of a trace, in whole seconds; at least one.
#[must_use]
pub fn seconds_of(trace: &ArrivalTrace) -> u64 {
    const NANOS: u64 = 1_000_000_000;
    match trace {
        ArrivalTrace::Arrivals(moments) => moments.last().map_or(1, |m| m.as_nanos().div_ceil(NANOS).max(1)),
        ArrivalTrace::Rates(rows) => rows.last().map_or(1, |(second, _)| second + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrival_processes_are_read_as_they_are_written() {
        for process in [ArrivalProcess::Poisson, ArrivalProcess::Uniform, ArrivalProcess::Gamma(2.5)] {
            assert_eq!(arrivals_of(&arrivals_text(process)), Some(process));
        }
        for wrong in ["gamma", "gamma:0", "gamma:NaN", "gamma:101", "Poisson", "uniform:1", ""] {
            assert!(check_arrivals(wrong).is_some(), "{wrong}");
        }
    }
}
