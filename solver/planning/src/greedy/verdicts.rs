//! Which settings were judged already, and what was the verdict?

use super::settings::TaskSetting;
use crate::replay::ReplayVerdict;
use apportion_domain::{HardwareIndex, Share};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The part of a task's setting that changes during one search. The variants are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SettingKey {
    hardware: HardwareIndex,
    share: Share,
    batch: u32,
    replicas: u32,
}

/// The key of settings in one search: one entry for each task.
pub(super) type SettingsKey = Vec<SettingKey>;

/// The key of these settings.
pub(super) fn key_of(settings: &[TaskSetting]) -> SettingsKey {
    let key = |s: &TaskSetting| SettingKey { hardware: s.hardware, share: s.share, batch: s.batch, replicas: s.replicas };
    settings.iter().map(key).collect()
}

/// Most verdicts that are remembered: some hundred bytes each. One search asks for some thousands.
const VERDICTS_MAX: usize = 1 << 16;

/// The verdicts of one search, by settings. An unknown verdict is not stored.
#[derive(Default)]
pub(super) struct VerdictCache {
    known: Mutex<BTreeMap<SettingsKey, ReplayVerdict>>,
}

impl VerdictCache {
    /// The verdict on settings; `None` if they were not judged yet.
    pub fn get(&self, key: &SettingsKey) -> Option<ReplayVerdict> {
        self.lock().get(key).copied()
    }

    /// Stores a verdict, unless it is unknown or [`VERDICTS_MAX`] verdicts are stored.
    pub fn insert(&self, key: SettingsKey, verdict: ReplayVerdict) {
        if matches!(verdict, ReplayVerdict::Unknown(_)) {
            return;
        }
        let mut known = self.lock();
        if known.len() < VERDICTS_MAX {
            known.insert(key, verdict);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SettingsKey, ReplayVerdict>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
