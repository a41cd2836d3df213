//! Are settings feasible? With as little simulation as the answer needs, and always the answer of a whole run.
//!
//! A run ends once more requests have missed than may. No settings are simulated twice, and two are simulated at once. All
//! runs meet the same arrivals (common random numbers), because they share the workload and its seed.

use super::assemble::assemble;
use super::settings::{SettingArithmetic, TaskSetting};
use super::verdicts::{VerdictCache, key_of};
use crate::replay::{self, ReplayVerdict};
use apportion_domain::{Problem, StopReason};
use apportion_estimator::Workload;
use apportion_mip::RunLimits;

/// Gives verdicts on settings of one problem under one load.
pub(super) struct SettingJudge<'a> {
    pub arithmetic: SettingArithmetic<'a>,
    workload: &'a Workload,
    pub limits: &'a RunLimits,
    /// Requests that may miss, over all pipelines. If more do, at least one pipeline misses its percentile.
    misses_max: u64,
    verdicts: VerdictCache,
}

impl<'a> SettingJudge<'a> {
    /// The error is why the workload cannot be judged on.
    pub fn new(problem: &'a Problem, workload: &'a Workload, limits: &'a RunLimits) -> Result<Self, StopReason> {
        let misses_max = replay::misses_max(problem, workload, limits)?;
        let arithmetic = SettingArithmetic { problem };
        Ok(Self { arithmetic, workload, limits, misses_max, verdicts: VerdictCache::default() })
    }
}

impl SettingJudge<'_> {
    /// Whether the checker accepts the plan and the estimator meets every percentile.
    pub fn check_settings(&self, settings: &[TaskSetting]) -> ReplayVerdict {
        let key = key_of(settings);
        if let Some(verdict) = self.verdicts.get(&key) {
            return verdict;
        }
        if let Some(stopped) = self.limits.stop_reason() {
            return ReplayVerdict::Unknown(stopped);
        }
        let fits = self.arithmetic.within_devices(settings);
        let plan = fits.then(|| assemble(&self.arithmetic, settings)).flatten();
        let verdict = plan.map_or(ReplayVerdict::Misses, |plan| {
            replay::check_percentiles(self.arithmetic.problem, &plan, self.workload, self.misses_max, self.limits)
        });
        self.verdicts.insert(key, verdict);
        verdict
    }

    /// Judges settings. At the same time a second thread judges `next`, the settings that follow if these are infeasible.
    pub fn check_settings_before(&self, settings: &[TaskSetting], next: Option<&[TaskSetting]>) -> ReplayVerdict {
        match next {
            Some(next) if rayon::current_num_threads() > 1 => {
                rayon::join(|| self.check_settings(settings), || self.check_settings(next)).0
            }
            _ => self.check_settings(settings),
        }
    }
}
