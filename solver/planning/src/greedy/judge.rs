//! Whether settings are feasible, with as little simulation as the answer needs and never another answer than a whole run gives:
//! a run ends once more requests have missed than may, no settings are simulated twice, and two are simulated at once. All
//! runs meet the same arrivals (common random numbers), for they share the workload and its seed.

use super::{Greedy, Setting};
use crate::limits::Limits;
use crate::replay::{self, Verdict};
use apportion_domain::{HardwareIndex, Problem, Share, StopReason};
use apportion_estimator::Workload;
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
    /// The error is why the workload cannot be judged on.
    pub(super) fn new(problem: &Problem, workload: &Workload, limits: &Limits) -> Result<Self, StopReason> {
        Ok(Self { misses_max: replay::misses_max(problem, workload, limits)?, known: Mutex::default() })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, bool>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Greedy<'_> {
    /// Whether the checker accepts the plan and the estimator meets every percentile.
    pub(super) fn is_feasible(&self, settings: &[Setting]) -> Verdict {
        let key = key(settings);
        let verdict_of = |holds: bool| if holds { Verdict::Holds } else { Verdict::Misses };
        if let Some(&holds) = self.judge.known().get(&key) {
            return verdict_of(holds);
        }
        if let Some(stopped) = self.limits.reason() {
            return Verdict::Cut(stopped);
        }
        let plan = self.within_devices(settings).then(|| self.plan(settings)).flatten();
        let verdict = plan.map_or(Verdict::Misses, |plan| self.holds(&plan));
        let mut known = self.judge.known();
        if known.len() < VERDICTS_MAX && !matches!(verdict, Verdict::Cut(_)) {
            known.insert(key, verdict == Verdict::Holds);
        }
        verdict
    }

    /// The same, while a second thread, if there is one, judges what is asked for next unless this holds.
    pub(super) fn is_feasible_before(&self, settings: &[Setting], next: Option<&[Setting]>) -> Verdict {
        match next {
            Some(next) if rayon::current_num_threads() > 1 => {
                rayon::join(|| self.is_feasible(settings), || self.is_feasible(next)).0
            }
            _ => self.is_feasible(settings),
        }
    }

    fn holds(&self, plan: &apportion_domain::Plan) -> Verdict {
        replay::holds(self.problem, plan, self.workload, self.judge.misses_max, self.limits)
    }
}
