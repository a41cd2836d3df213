//! Whether settings are feasible, with as little simulation as the answer needs and never another answer than a whole run gives:
//! a run ends once more requests have missed than may, no settings are simulated twice, and two are simulated at once. All
//! runs meet the same arrivals (common random numbers), for they share the workload and its seed.

use super::{Greedy, Setting};
use crate::replay;
use apportion_domain::{HardwareIndex, Problem, Share};
use apportion_estimator::{Arrivals, SimulateOptions, Workload, simulate};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Most verdicts that are remembered: some hundred bytes each. One search asks for some thousands.
const VERDICTS_MAX: usize = 1 << 16;

/// What tells settings of one search apart: the variants are given.
type Key = Vec<(HardwareIndex, Share, u32, u32)>;

fn key(settings: &[Setting]) -> Key {
    settings.iter().map(|s| (s.hardware, s.share, s.batch, s.replicas)).collect()
}

/// What is known of a workload and of settings on it.
pub(super) struct Judge {
    /// Requests that may miss, over all pipelines: if more do, at least one pipeline misses its percentile.
    misses_max: u64,
    known: Mutex<BTreeMap<Key, bool>>,
}

impl Judge {
    pub(super) fn new(problem: &Problem, workload: &Workload) -> Self {
        let allowed = problem.pipelines.iter().zip(&workload.traces).map(|(p, trace)| {
            let arrivals = Arrivals::new(trace, workload.arrivals, workload.seed, &p.name).count() as u64;
            allowed(arrivals, p.percentile / 100.0)
        });
        Self { misses_max: allowed.sum(), known: Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, bool>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How many of so many requests may miss, by the comparison that [`replay::misses`] makes.
fn allowed(requests: u64, share: f64) -> u64 {
    let holds = |misses: u64| (requests - misses) as f64 / requests as f64 >= share;
    let mut misses = (((1.0 - share) * requests as f64) as u64 + 1).min(requests);
    while misses > 0 && !holds(misses) {
        misses -= 1;
    }
    misses
}

impl Greedy<'_> {
    /// Whether the checker accepts the plan and the estimator meets every percentile.
    pub(super) fn is_feasible(&self, settings: &[Setting]) -> bool {
        let key = key(settings);
        if let Some(&verdict) = self.judge.known().get(&key) {
            return verdict;
        }
        let verdict = self.within_devices(settings) && self.plan(settings).is_some_and(|plan| self.holds(&plan));
        let mut known = self.judge.known();
        if known.len() < VERDICTS_MAX {
            known.insert(key, verdict);
        }
        verdict
    }

    /// The same, while a second thread, if there is one, judges what is asked for next unless this holds.
    pub(super) fn is_feasible_before(&self, settings: &[Setting], next: Option<&[Setting]>) -> bool {
        match next {
            Some(next) if rayon::current_num_threads() > 1 => {
                rayon::join(|| self.is_feasible(settings), || self.is_feasible(next)).0
            }
            _ => self.is_feasible(settings),
        }
    }

    fn holds(&self, plan: &apportion_domain::Plan) -> bool {
        let misses_max = self.judge.misses_max;
        let options = SimulateOptions { misses_max: Some(misses_max), ..SimulateOptions::default() };
        match simulate(self.problem, plan, self.workload, &options) {
            Ok(run) => {
                let missed = run.total.requests - run.total.ok;
                missed <= misses_max && replay::misses(self.problem, &run.pipelines).iter().all(|&miss| miss <= 0.0)
            }
            Err(error) => {
                tracing::warn!(%error, "the plan could not be replayed");
                false
            }
        }
    }
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
