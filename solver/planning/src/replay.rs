//! Plans on a load: the estimator's verdict, or why there is none.

use apportion_domain::{Estimate, Plan, Problem, StopReason};
use apportion_estimator::{
    Arrivals, Cut, SimulateError, SimulateOptions, Simulation, Stop, Workload, expected_requests, simulate,
};
use apportion_mip::Limits;

/// Most queries that one replay serves, over all tasks: about a minute of one core.
pub const REPLAY_VISITS_MAX: u64 = 1_000_000_000;
/// Arrivals that are counted between two looks at the limits.
const COUNTED_AT_ONCE: usize = 1 << 16;

/// Why nobody has seen how a plan fares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplayFailure {
    /// Why the replay ended early, or did not begin; `None` if the estimator does not know plans of this kind.
    pub stopped: Option<StopReason>,
    /// The reason in words.
    pub why: String,
}

impl ReplayFailure {
    fn of(error: &SimulateError, limits: &Limits) -> Self {
        tracing::warn!(%error, "the plan could not be replayed");
        let stopped = match error {
            SimulateError::Cut(Cut::Stopped) => Some(limits.stop_reason_or_time_limit()),
            SimulateError::Cut(Cut::Visits { .. } | Cut::Memory) | SimulateError::TooLarge { .. } => {
                Some(StopReason::ReplayTooLarge)
            }
            _ => None,
        };
        Self { stopped, why: error.to_string() }
    }

    /// The reason for an outcome that says nothing else.
    pub fn reason(&self) -> StopReason {
        self.stopped.unwrap_or(StopReason::Unsupported)
    }

    /// What is said of it in an explanation.
    pub fn sentence(&self) -> String {
        format!("the estimate: {}", self.why)
    }
}

/// Whether a plan meets all percentiles on a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Misses,
    /// Nobody knows.
    Unknown(StopReason),
}

/// The workload that plans are judged on without a trace of one's own.
pub(crate) fn default_workload(problem: &Problem) -> Workload {
    Workload::default_for(problem)
}

/// The stop condition of a simulation that runs within these limits.
fn stop_of(limits: &Limits) -> Stop {
    let limits = limits.without_listener();
    Stop::when(move || limits.exceeded())
}

fn options(limits: &Limits) -> SimulateOptions {
    SimulateOptions { visits_max: Some(REPLAY_VISITS_MAX), stop: stop_of(limits), ..SimulateOptions::default() }
}

/// Replays a plan, or says why it was not replayed to its end.
pub(crate) fn replay(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    limits: &Limits,
) -> Result<Simulation, ReplayFailure> {
    simulate(problem, plan, workload, &options(limits)).map_err(|error| ReplayFailure::of(&error, limits))
}

/// Requests of a workload that may miss, over all pipelines: if more do, at least one pipeline misses its percentile. The error is
/// why they were not counted: too many for a replay, or out of time.
pub(crate) fn misses_max(problem: &Problem, workload: &Workload, limits: &Limits) -> Result<u64, StopReason> {
    let expected: f64 = workload.traces.iter().map(expected_requests).sum();
    if expected.is_nan() || expected > REPLAY_VISITS_MAX as f64 {
        return Err(StopReason::ReplayTooLarge);
    }
    let mut sum = 0;
    for (p, trace) in problem.pipelines.iter().zip(&workload.traces) {
        let mut arrivals = Arrivals::new(trace, workload.arrivals, workload.seed, &p.name);
        let mut count = 0;
        loop {
            let more = arrivals.by_ref().take(COUNTED_AT_ONCE).count();
            count += more as u64;
            if more < COUNTED_AT_ONCE {
                break;
            }
            limits.stop_reason().map_or(Ok(()), Err)?;
        }
        sum += misses_allowed(count, p.percentile / 100.0);
    }
    Ok(sum)
}

/// How many of so many requests may miss, by the comparison that [`misses`] makes.
fn misses_allowed(requests: u64, share: f64) -> u64 {
    let holds = |misses: u64| (requests - misses) as f64 / requests as f64 >= share;
    let mut misses = (((1.0 - share) * requests as f64) as u64 + 1).min(requests);
    while misses > 0 && !holds(misses) {
        misses -= 1;
    }
    misses
}

/// Whether a plan meets all percentiles on a load of which so many requests may miss ([`misses_max`]): stops once more have. One that the
/// estimator refuses does not, and that is logged.
pub(crate) fn check_percentiles(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    misses_max: u64,
    limits: &Limits,
) -> Verdict {
    let options = SimulateOptions { misses_max: Some(misses_max), ..options(limits) };
    match simulate(problem, plan, workload, &options) {
        Ok(run) if percentile_misses(problem, &run.pipelines).iter().all(|&miss| miss <= 0.0) => Verdict::Holds,
        Ok(_) | Err(SimulateError::Cut(Cut::Missed { .. })) => Verdict::Misses,
        Err(error) => ReplayFailure::of(&error, limits).stopped.map_or(Verdict::Misses, Verdict::Unknown),
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
    fn what_may_miss_is_the_most_that_still_holds() {
        for (requests, share) in [(0, 0.99), (1, 0.99), (99, 0.99), (100, 0.99), (1234, 0.95), (100_000, 0.999), (7, 0.5)] {
            let most = misses_allowed(requests, share);
            let attainment = |misses: u64| if requests == 0 { 1.0 } else { (requests - misses) as f64 / requests as f64 };
            assert!(attainment(most) >= share, "{requests} {share}: {most}");
            assert!(most == requests || attainment(most + 1) < share, "{requests} {share}: {most}");
        }
    }
}
