//! Algorithm 2: which feasible action saves most? It is taken, until no action is left.
//!
//! Actions are tried in the order of their largest possible saving, ties in the order of tasks and actions. So the first
//! feasible action is the one that a verdict on all of them would choose.

use super::judge::SettingJudge;
use super::settings::{SettingArithmetic, TaskSetting};
use crate::replay::ReplayVerdict;
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
    /// For a change of hardware: how it continues.
    moved: Option<HardwareMove>,
}

/// A change of the hardware of one task.
#[derive(Clone, Copy)]
struct HardwareMove {
    /// Position of the task's setting.
    setting: usize,
    /// The smallest batch size on the new hardware.
    batch_min: u32,
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

/// Result of Algorithm 2.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MinimiseResult {
    pub settings: Vec<TaskSetting>,
    /// Why the search ended: `Finished` if no action is left.
    pub stopped: StopReason,
}

/// Algorithm 2: takes the best action until none is left.
pub(super) fn minimise(judge: &SettingJudge<'_>, mut settings: Vec<TaskSetting>) -> MinimiseResult {
    let minimiser = Minimiser { judge, arithmetic: judge.arithmetic };
    loop {
        match minimiser.best_action(&settings) {
            Ok(Some(better)) => settings = better,
            Ok(None) => return MinimiseResult { settings, stopped: StopReason::Finished },
            Err(stopped) => return MinimiseResult { settings, stopped },
        }
    }
}

struct Minimiser<'a> {
    judge: &'a SettingJudge<'a>,
    arithmetic: SettingArithmetic<'a>,
}

impl Minimiser<'_> {
    /// The settings after the feasible action that saves most; `None` if no action is feasible.
    fn best_action(&self, settings: &[TaskSetting]) -> Result<Option<Vec<TaskSetting>>, StopReason> {
        let before = self.arithmetic.cost_per_hour(settings);
        let mut actions = self.actions(settings);
        while let Some(action) = actions.pop() {
            if let Some(reason) = self.judge.limits.stop_reason() {
                return Err(reason);
            }
            match self.judge.check_settings_before(&action.settings, actions.peek().map(|next| next.settings.as_slice())) {
                ReplayVerdict::Holds => return Ok(Some(action.settings)),
                ReplayVerdict::Misses => {}
                ReplayVerdict::Unknown(reason) => return Err(reason),
            }
            actions.extend(self.continue_move(before, action));
        }
        Ok(None)
    }

    /// All actions: for each task remove a replica, change the hardware, double the batch.
    fn actions(&self, settings: &[TaskSetting]) -> BinaryHeap<Action> {
        let mut actions = BinaryHeap::new();
        let before = self.arithmetic.cost_per_hour(settings);
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
                let saving = before - self.arithmetic.cost_per_hour(&settings);
                (saving >= 0.0).then_some(Action { saving, order, settings, moved: None })
            };
            actions.extend(self.with_one_replica_fewer(s).and_then(|fewer| at_once(with(fewer), next())));
            for start in self.on_other_hardware(s) {
                let moved = Some(HardwareMove { setting: i, batch_min: start.batch });
                let action = Action { saving: 0.0, order: next(), settings: with(start), moved };
                actions.extend(self.first_with_capacity(before, action));
            }
            actions.extend(self.with_doubled_batch(s).and_then(|larger| at_once(with(larger), next())));
        }
        actions
    }

    fn with_one_replica_fewer(&self, s: &TaskSetting) -> Option<TaskSetting> {
        (s.replicas > self.arithmetic.replicas_min(s)).then(|| TaskSetting { replicas: s.replicas - 1, ..s.clone() })
    }

    /// The setting with the largest measured batch of at most twice the present one.
    fn with_doubled_batch(&self, s: &TaskSetting) -> Option<TaskSetting> {
        let profile = &self.arithmetic.problem.pipeline(s.pipeline).variant(s.task, s.variant).profile;
        let rows = profile.on(s.hardware, s.share);
        let larger = rows.iter().rev().find(|r| r.batch <= s.batch.saturating_mul(2))?;
        (larger.batch > s.batch).then(|| TaskSetting { batch: larger.batch, ..s.clone() })
    }

    /// The task on every other hardware and share: its smallest batch, fewest replicas.
    fn on_other_hardware(&self, s: &TaskSetting) -> Vec<TaskSetting> {
        let variant = self.arithmetic.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        let others = variant.profile.places().filter(|&place| place != (s.hardware, s.share));
        let fitting =
            others.filter(|&(hardware, share)| self.arithmetic.problem.fits_memory(variant.memory_mib, hardware, share));
        fitting
            .map(|(hardware, share)| {
                let batch = variant.profile.on(hardware, share)[0].batch;
                TaskSetting { hardware, share, batch, replicas: self.arithmetic.replicas_min(s), ..s.clone() }
            })
            .collect()
    }

    /// The first settings of a move, from these on, that have enough capacity for a simulation. `None` once the move
    /// costs as much as staying. Only the moved task changes: its batch grows as long as the service time allows, and
    /// then it gets another replica.
    fn first_with_capacity(&self, before: f64, mut action: Action) -> Option<Action> {
        let HardwareMove { setting: i, .. } = action.moved?;
        loop {
            action.saving = before - self.arithmetic.cost_per_hour(&action.settings);
            if action.saving <= 0.0 || !self.arithmetic.within_devices(&action.settings) || self.judge.limits.exceeded() {
                return None;
            }
            let s = &action.settings[i];
            let survive = self.arithmetic.problem.pipeline(s.pipeline).survive;
            let capacity = f64::from(s.replicas - survive) * self.arithmetic.profile_row(s).throughput_qps();
            if capacity + SLACK >= self.arithmetic.load_qps(s, &action.settings) {
                return Some(action);
            }
            action = self.next_of_move(action)?;
        }
    }

    /// The next settings of a move, after settings that do not hold.
    fn next_of_move(&self, mut action: Action) -> Option<Action> {
        let HardwareMove { setting: i, batch_min } = action.moved?;
        let doubled = self.with_doubled_batch(&action.settings[i]).map(|larger| {
            let mut all = action.settings.clone();
            all[i] = larger;
            all
        });
        let pipeline = action.settings[i].pipeline;
        let fits = |all: &Vec<TaskSetting>| {
            self.arithmetic.service_ms(pipeline, all) <= self.arithmetic.problem.pipeline(pipeline).slo_ms
        };
        match doubled.filter(fits) {
            Some(all) => action.settings = all,
            None => {
                action.settings[i].batch = batch_min;
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
