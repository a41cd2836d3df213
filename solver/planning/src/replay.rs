//! How does a plan fare on a load, by the estimator? If there is no verdict, why?

use apportion_domain::{Estimate, Plan, Problem, StopReason};
use apportion_estimator::{
    Accounting, Arrivals, CutReason, SimulateError, SimulateOptions, Simulation, Stop, Workload, expected_requests,
    simulate,
};
use apportion_mip::RunLimits;
use std::sync::LazyLock;

/// Most queries that one replay serves, over all tasks. They take one core about a minute.
pub const REPLAY_VISITS_MAX: u64 = 1_000_000_000;
/// Arrivals that are counted between two checks of the limits.
const ARRIVALS_PER_CHECK: usize = 1 << 16;

/// Why a plan has no estimate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplayFailure {
    /// Why the replay ended early or did not begin; `None` if the estimator does not support this kind of plan.
    pub stopped: Option<StopReason>,
    /// The reason in words.
    pub why: String,
}

impl ReplayFailure {
    pub fn new(error: &SimulateError, limits: &RunLimits) -> Self {
        tracing::warn!(%error, "the plan could not be replayed");
        let stopped = match error {
            SimulateError::Cut(CutReason::Stopped) => Some(limits.stop_reason_or_time_limit()),
            SimulateError::Cut(CutReason::Visits { .. } | CutReason::Memory) | SimulateError::TooLarge { .. } => {
                Some(StopReason::ReplayTooLarge)
            }
            _ => None,
        };
        Self { stopped, why: error.to_string() }
    }

    /// The stop reason of an outcome that has no other.
    pub fn reason(&self) -> StopReason {
        self.stopped.unwrap_or(StopReason::Unsupported)
    }

    /// The sentence for the explanation.
    pub fn sentence(&self) -> String {
        format!("the estimate: {}", self.why)
    }
}

/// Does a plan meet all percentiles on a load?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayVerdict {
    Holds,
    Misses,
    /// The replay ended early.
    Unknown(StopReason),
}

/// The workload of a run without a trace.
pub(crate) fn default_workload(problem: &Problem) -> Workload {
    Workload::default_for(problem)
}

/// The stop condition of a simulation that runs within these limits.
fn stop_condition(limits: &RunLimits) -> Stop {
    let limits = limits.without_listener();
    Stop::when(move || limits.exceeded())
}

/// The options of a replay within these limits.
pub(crate) fn replay_options(limits: &RunLimits) -> SimulateOptions {
    SimulateOptions { visits_max: Some(REPLAY_VISITS_MAX), stop: stop_condition(limits), ..SimulateOptions::default() }
}

/// Replays a plan to its end while nothing else of the planner runs: a second processor keeps the accounts. The error is
/// why the replay ended early.
pub(crate) fn replay_alone(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    limits: &RunLimits,
) -> Result<Simulation, ReplayFailure> {
    static IS_ONLY_PROCESSOR: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1));
    let accounting = if *IS_ONLY_PROCESSOR { Accounting::SameThread } else { Accounting::SecondThread };
    let options = SimulateOptions { accounting, ..replay_options(limits) };
    simulate(problem, plan, workload, &options).map_err(|error| ReplayFailure::new(&error, limits))
}

/// Replays a plan to its end. The error is why the replay ended early.
pub(crate) fn replay(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    limits: &RunLimits,
) -> Result<Simulation, ReplayFailure> {
    simulate(problem, plan, workload, &replay_options(limits)).map_err(|error| ReplayFailure::new(&error, limits))
}

/// Requests of a workload that may miss, over all pipelines. If more miss, at least one pipeline misses its percentile.
///
/// The error is why they were not counted: there are too many for a replay, or the time is up.
pub(crate) fn misses_max(problem: &Problem, workload: &Workload, limits: &RunLimits) -> Result<u64, StopReason> {
    let expected: f64 = workload.traces.iter().map(expected_requests).sum();
    if expected.is_nan() || expected > REPLAY_VISITS_MAX as f64 {
        return Err(StopReason::ReplayTooLarge);
    }
    let mut sum = 0;
    for (p, trace) in problem.pipelines.iter().zip(&workload.traces) {
        let mut arrivals = Arrivals::new(trace, workload.arrivals, workload.seed, &p.name);
        let mut count = 0;
        loop {
            let more = arrivals.by_ref().take(ARRIVALS_PER_CHECK).count();
            count += more as u64;
            if more < ARRIVALS_PER_CHECK {
                break;
            }
            limits.stop_reason().map_or(Ok(()), Err)?;
        }
        sum += misses_allowed(count, p.percentile / 100.0);
    }
    Ok(sum)
}

/// How many of these requests may miss, by the comparison of [`percentile_misses`].
fn misses_allowed(requests: u64, share: f64) -> u64 {
    let holds = |misses: u64| (requests - misses) as f64 / requests as f64 >= share;
    let mut misses = (((1.0 - share) * requests as f64) as u64 + 1).min(requests);
    while misses > 0 && !holds(misses) {
        misses -= 1;
    }
    misses
}

/// Does a plan meet all percentiles on a load of which `misses_max` requests may miss ([`misses_max`])? The replay
/// stops once more have missed. A plan that the estimator refuses misses, and the refusal is logged.
pub(crate) fn check_percentiles(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    misses_max: u64,
    limits: &RunLimits,
) -> ReplayVerdict {
    let options = SimulateOptions { misses_max: Some(misses_max), ..replay_options(limits) };
    match simulate(problem, plan, workload, &options) {
        Ok(run) if percentile_misses(problem, &run.pipelines).iter().all(|&miss| miss <= 0.0) => ReplayVerdict::Holds,
        Ok(_) | Err(SimulateError::Cut(CutReason::Missed { .. })) => ReplayVerdict::Misses,
        Err(error) => ReplayFailure::new(&error, limits).stopped.map_or(ReplayVerdict::Misses, ReplayVerdict::Unknown),
    }
}

/// By how much each pipeline misses its percentile: 0 where it holds.
pub(crate) fn percentile_misses(problem: &Problem, estimates: &[Estimate]) -> Vec<f64> {
    let miss = |(p, e): (&apportion_domain::Pipeline, &Estimate)| (p.percentile / 100.0 - e.attainment).max(0.0);
    problem.pipelines.iter().zip(estimates).map(miss).collect()
}

#[cfg(test)]
mod tests {
    use super::misses_allowed;

    #[test]
    fn misses_allowed_is_the_largest_count_that_holds() {
        for (requests, share) in [(0, 0.99), (1, 0.99), (99, 0.99), (100, 0.99), (1234, 0.95), (100_000, 0.999), (7, 0.5)] {
            let most = misses_allowed(requests, share);
            let attainment = |misses: u64| if requests == 0 { 1.0 } else { (requests - misses) as f64 / requests as f64 };
            assert!(attainment(most) >= share, "{requests} {share}: {most}");
            assert!(most == requests || attainment(most + 1) < share, "{requests} {share}: {most}");
        }
    }
}
