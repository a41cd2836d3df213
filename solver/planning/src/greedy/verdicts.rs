//! Which settings were judged already, and what was the verdict?

use apportion_domain::{HardwareIndex, Share};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The key of settings in one search: hardware, share, batch and replicas of each task. The variants are fixed.
pub(super) type SettingsKey = Vec<(HardwareIndex, Share, u32, u32)>;

/// Most verdicts that are remembered: some hundred bytes each. One search asks for some thousands.
const VERDICTS_MAX: usize = 1 << 16;

/// The verdicts of one search, by settings: whether they are feasible.
#[derive(Default)]
pub(super) struct VerdictCache {
    known: Mutex<BTreeMap<SettingsKey, bool>>,
}

impl VerdictCache {
    /// The verdict on settings; `None` if they were not judged yet.
    pub fn get(&self, key: &SettingsKey) -> Option<bool> {
        self.lock().get(key).copied()
    }

    /// Remembers a verdict, unless there are too many.
    pub fn insert(&self, key: SettingsKey, is_feasible: bool) {
        let mut known = self.lock();
        if known.len() < VERDICTS_MAX {
            known.insert(key, is_feasible);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SettingsKey, bool>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
