//! Are settings feasible? With as little simulation as the answer needs, and always the answer of a whole run.
//!
//! A run ends once more requests have missed than may. No settings are simulated twice, and two are simulated at once. All
//! runs meet the same arrivals (common random numbers), because they share the workload and its seed.

use super::search::{GreedySearch, TaskSetting};
use super::verdicts::SettingsKey;
use crate::replay::{self, Verdict};

fn key_of(settings: &[TaskSetting]) -> SettingsKey {
    settings.iter().map(|s| (s.hardware, s.share, s.batch, s.replicas)).collect()
}

impl GreedySearch<'_> {
    /// Whether the checker accepts the plan and the estimator meets every percentile.
    pub(super) fn check_settings(&self, settings: &[TaskSetting]) -> Verdict {
        let key = key_of(settings);
        if let Some(is_feasible) = self.verdicts.get(&key) {
            return if is_feasible { Verdict::Holds } else { Verdict::Misses };
        }
        if let Some(stopped) = self.limits.stop_reason() {
            return Verdict::Unknown(stopped);
        }
        let plan = self.within_devices(settings).then(|| self.plan(settings)).flatten();
        let verdict = plan.map_or(Verdict::Misses, |plan| {
            replay::check_percentiles(self.problem, &plan, self.workload, self.misses_max, self.limits)
        });
        if !matches!(verdict, Verdict::Unknown(_)) {
            self.verdicts.insert(key, verdict == Verdict::Holds);
        }
        verdict
    }

    /// Judges settings. At the same time a second thread judges `next`, the settings that follow if these are infeasible.
    pub(super) fn check_settings_before(&self, settings: &[TaskSetting], next: Option<&[TaskSetting]>) -> Verdict {
        match next {
            Some(next) if rayon::current_num_threads() > 1 => {
                rayon::join(|| self.check_settings(settings), || self.check_settings(next)).0
            }
            _ => self.check_settings(settings),
        }
    }
}
