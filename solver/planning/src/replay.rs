//! Plans on a load: the estimator's verdict.

use apportion_domain::{Estimate, Plan, Problem};
use apportion_estimator::{Arrivals, SimulateOptions, Simulation, Workload, simulate};

/// The workload that plans are judged on without a trace of one's own.
pub(crate) fn default_workload(problem: &Problem) -> Workload {
    Workload::default_for(problem)
}

/// Replays a plan; `None`, logged, if the estimator refuses it.
pub(crate) fn replay(problem: &Problem, plan: &Plan, workload: &Workload) -> Option<Simulation> {
    match simulate(problem, plan, workload, &SimulateOptions::default()) {
        Ok(simulation) => Some(simulation),
        Err(error) => {
            tracing::warn!(%error, "the plan could not be replayed");
            None
        }
    }
}

/// Requests of a workload that may miss, over all pipelines: if more do, at least one pipeline misses its percentile.
pub(crate) fn misses_max(problem: &Problem, workload: &Workload) -> u64 {
    let allowed = problem.pipelines.iter().zip(&workload.traces).map(|(p, trace)| {
        let arrivals = Arrivals::new(trace, workload.arrivals, workload.seed, &p.name).count() as u64;
        allowed(arrivals, p.percentile / 100.0)
    });
    allowed.sum()
}

/// How many of so many requests may miss, by the comparison that [`misses`] makes.
fn allowed(requests: u64, share: f64) -> u64 {
    let holds = |misses: u64| (requests - misses) as f64 / requests as f64 >= share;
    let mut misses = (((1.0 - share) * requests as f64) as u64 + 1).min(requests);
    while misses > 0 && !holds(misses) {
        misses -= 1;
    }
    misses
}

/// Whether a plan meets all percentiles on a load of which so many requests may miss ([`misses_max`]): stops once more have. One that the
/// estimator refuses does not, and that is logged.
pub(crate) fn holds(problem: &Problem, plan: &Plan, workload: &Workload, misses_max: u64) -> bool {
    let options = SimulateOptions { misses_max: Some(misses_max), ..SimulateOptions::default() };
    match simulate(problem, plan, workload, &options) {
        Ok(run) => {
            let missed = run.total.requests - run.total.ok;
            missed <= misses_max && misses(problem, &run.pipelines).iter().all(|&miss| miss <= 0.0)
        }
        Err(error) => {
            tracing::warn!(%error, "the plan could not be replayed");
            false
        }
    }
}

/// By how much each pipeline misses its percentile: 0 where it holds.
pub(crate) fn misses(problem: &Problem, estimates: &[Estimate]) -> Vec<f64> {
    let miss = |(p, e): (&apportion_domain::Pipeline, &Estimate)| (p.percentile / 100.0 - e.attainment).max(0.0);
    problem.pipelines.iter().zip(estimates).map(miss).collect()
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn what_may_miss_is_the_most_that_still_holds() {
        for (requests, share) in [(0, 0.99), (1, 0.99), (99, 0.99), (100, 0.99), (1234, 0.95), (100_000, 0.999), (7, 0.5)] {
            let most = allowed(requests, share);
            let attainment = |misses: u64| if requests == 0 { 1.0 } else { (requests - misses) as f64 / requests as f64 };
            assert!(attainment(most) >= share, "{requests} {share}: {most}");
            assert!(most == requests || attainment(most + 1) < share, "{requests} {share}: {most}");
        }
    }
}
