//! Algorithm 2: of the feasible actions the one that saves most, until none is left.
//!
//! Actions are tried in the order of what they can save at most, ties in the order of tasks and actions, so that the first
//! feasible one is the one that judging all of them would choose.

use super::search::{GreedySearch, TaskSetting};
use crate::replay::Verdict;
use apportion_domain::{SLACK, StopReason};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that may be done, next to be judged.
struct Action {
    /// What it saves: exactly, if these settings are feasible, and at most, if `moved` goes on.
    saving: f64,
    /// Its place among the actions of a round.
    order: usize,
    settings: Vec<TaskSetting>,
    /// The task that changes its hardware, and the batch that it starts with there.
    moved: Option<(usize, u32)>,
}

impl Ord for Action {
    fn cmp(&self, other: &Self) -> Ordering {
        self.saving.total_cmp(&other.saving).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Action {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Action {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Action {}

impl GreedySearch<'_> {
    /// Algorithm 2.
    pub(super) fn minimise(&self, mut settings: Vec<TaskSetting>) -> (Vec<TaskSetting>, StopReason) {
        loop {
            match self.best_action(&settings) {
                Ok(Some(better)) => settings = better,
                Ok(None) => return (settings, StopReason::Finished),
                Err(reason) => return (settings, reason),
            }
        }
    }

    fn best_action(&self, settings: &[TaskSetting]) -> Result<Option<Vec<TaskSetting>>, StopReason> {
        let before = self.cost(settings);
        let mut actions = self.actions(settings);
        while let Some(action) = actions.pop() {
            if let Some(reason) = self.limits.stop_reason() {
                return Err(reason);
            }
            match self.check_settings_before(&action.settings, actions.peek().map(|next| next.settings.as_slice())) {
                Verdict::Holds => return Ok(Some(action.settings)),
                Verdict::Misses => {}
                Verdict::Unknown(reason) => return Err(reason),
            }
            actions.extend(self.after(before, action));
        }
        Ok(None)
    }

    /// What may be done: remove a replica, change the hardware, double the batch, of each task.
    fn actions(&self, settings: &[TaskSetting]) -> BinaryHeap<Action> {
        let mut actions = BinaryHeap::new();
        let before = self.cost(settings);
        let mut order = 0;
        let mut next = || {
            order += 1;
            order
        };
        for (i, s) in settings.iter().enumerate() {
            let with = |changed: TaskSetting| {
                let mut all = settings.to_vec();
                all[i] = changed;
                all
            };
            let at_once = |settings: Vec<TaskSetting>, order: usize| {
                let saving = before - self.cost(&settings);
                (saving >= 0.0).then_some(Action { saving, order, settings, moved: None })
            };
            actions.extend(self.fewer(s).and_then(|fewer| at_once(with(fewer), next())));
            for start in self.elsewhere(s) {
                let moved = Some((i, start.batch));
                let action = Action { saving: 0.0, order: next(), settings: with(start), moved };
                actions.extend(self.worth_judging(before, action));
            }
            actions.extend(self.doubled(s).and_then(|larger| at_once(with(larger), next())));
        }
        actions
    }

    fn fewer(&self, s: &TaskSetting) -> Option<TaskSetting> {
        (s.replicas > self.least(s)).then(|| TaskSetting { replicas: s.replicas - 1, ..s.clone() })
    }

    /// The largest measured batch of at most twice the present one.
    fn doubled(&self, s: &TaskSetting) -> Option<TaskSetting> {
        let profile = &self.problem.pipeline(s.pipeline).variant(s.task, s.variant).profile;
        let rows = profile.on(s.hardware, s.share);
        let larger = rows.iter().rev().find(|r| r.batch <= s.batch.saturating_mul(2))?;
        (larger.batch > s.batch).then(|| TaskSetting { batch: larger.batch, ..s.clone() })
    }

    /// The task initialised on every other place: its smallest batch, fewest replicas.
    fn elsewhere(&self, s: &TaskSetting) -> Vec<TaskSetting> {
        let variant = self.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        let others = variant.profile.places().filter(|&place| place != (s.hardware, s.share));
        let fitting = others.filter(|&(hardware, share)| self.problem.fits_memory(variant.memory_mib, hardware, share));
        fitting
            .map(|(hardware, share)| {
                let batch = variant.profile.on(hardware, share)[0].batch;
                TaskSetting { hardware, share, batch, replicas: self.least(s), ..s.clone() }
            })
            .collect()
    }

    /// A move on from these settings, themselves included, until there is enough capacity to be worth a simulation; `None` once it
    /// costs as much as staying. The task is minimised where it goes, all else frozen: the batch grows as long as the service time
    /// allows, then a replica is added.
    fn worth_judging(&self, before: f64, mut action: Action) -> Option<Action> {
        let (i, _) = action.moved?;
        loop {
            action.saving = before - self.cost(&action.settings);
            if action.saving <= 0.0 || !self.within_devices(&action.settings) || self.limits.exceeded() {
                return None;
            }
            let s = &action.settings[i];
            let survive = self.problem.pipeline(s.pipeline).survive;
            let capacity = f64::from(s.replicas - survive) * self.row(s).throughput_qps();
            if capacity + SLACK >= self.load(s, &action.settings) {
                return Some(action);
            }
            action = self.step(action)?;
        }
    }

    /// What a move tries after settings that do not hold.
    fn step(&self, mut action: Action) -> Option<Action> {
        let (i, smallest) = action.moved?;
        let doubled = self.doubled(&action.settings[i]).map(|larger| {
            let mut all = action.settings.clone();
            all[i] = larger;
            all
        });
        let pipeline = action.settings[i].pipeline;
        let fits = |all: &Vec<TaskSetting>| self.service_ms(pipeline, all) <= self.problem.pipeline(pipeline).slo_ms;
        match doubled.filter(fits) {
            Some(all) => action.settings = all,
            None => {
                action.settings[i].batch = smallest;
                action.settings[i].replicas += 1;
            }
        }
        Some(action)
    }

    /// The rest of a move whose settings do not hold; `None` of any other action.
    fn after(&self, before: f64, action: Action) -> Option<Action> {
        self.step(action).and_then(|action| self.worth_judging(before, action))
    }
}
