//! Algorithm 2: which feasible action saves most? It is taken, until no action is left.
//!
//! Actions are tried in the order of their largest possible saving, ties in the order of tasks and actions. So the first
//! feasible action is the one that a verdict on all of them would choose.

use super::search::{GreedySearch, TaskSetting};
use crate::replay::Verdict;
use apportion_domain::{SLACK, StopReason};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// An action that waits for its verdict.
struct Action {
    /// Its saving: exact if these settings are feasible, an upper bound if the move must continue.
    saving: f64,
    /// Its place among the actions of a round.
    order: usize,
    settings: Vec<TaskSetting>,
    /// For a change of hardware: the task, and its first batch there.
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
            actions.extend(self.continue_move(before, action));
        }
        Ok(None)
    }

    /// All actions: for each task remove a replica, change the hardware, double the batch.
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
            actions.extend(self.with_one_replica_fewer(s).and_then(|fewer| at_once(with(fewer), next())));
            for start in self.on_other_hardware(s) {
                let moved = Some((i, start.batch));
                let action = Action { saving: 0.0, order: next(), settings: with(start), moved };
                actions.extend(self.first_with_capacity(before, action));
            }
            actions.extend(self.with_doubled_batch(s).and_then(|larger| at_once(with(larger), next())));
        }
        actions
    }

    fn with_one_replica_fewer(&self, s: &TaskSetting) -> Option<TaskSetting> {
        (s.replicas > self.least(s)).then(|| TaskSetting { replicas: s.replicas - 1, ..s.clone() })
    }

    /// The setting with the largest measured batch of at most twice the present one.
    fn with_doubled_batch(&self, s: &TaskSetting) -> Option<TaskSetting> {
        let profile = &self.problem.pipeline(s.pipeline).variant(s.task, s.variant).profile;
        let rows = profile.on(s.hardware, s.share);
        let larger = rows.iter().rev().find(|r| r.batch <= s.batch.saturating_mul(2))?;
        (larger.batch > s.batch).then(|| TaskSetting { batch: larger.batch, ..s.clone() })
    }

    /// The task on every other hardware and share: its smallest batch, fewest replicas.
    fn on_other_hardware(&self, s: &TaskSetting) -> Vec<TaskSetting> {
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

    /// The first settings of a move, from these on, that have enough capacity for a simulation. `None` once the move
    /// costs as much as staying. Only the moved task changes: its batch grows as long as the service time allows, and
    /// then it gets another replica.
    fn first_with_capacity(&self, before: f64, mut action: Action) -> Option<Action> {
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
            action = self.next_of_move(action)?;
        }
    }

    /// The next settings of a move, after settings that do not hold.
    fn next_of_move(&self, mut action: Action) -> Option<Action> {
        let (i, smallest) = action.moved?;
        let doubled = self.with_doubled_batch(&action.settings[i]).map(|larger| {
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

    /// The rest of a move after settings that do not hold; `None` for any other action.
    fn continue_move(&self, before: f64, action: Action) -> Option<Action> {
        self.next_of_move(action).and_then(|action| self.first_with_capacity(before, action))
    }
}
