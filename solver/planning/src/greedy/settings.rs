//! Which cost, load and time follow from the settings of all tasks? By arithmetic, without simulation.

use crate::exact::model::latency::{finish_times, makes_no_queries};
use apportion_domain::{HardwareIndex, LatencyRule, PipelineIndex, Problem, ProfileRow, Share, TaskIndex, VariantIndex};

/// The setting of one task of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskSetting {
    pub pipeline: PipelineIndex,
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    pub batch: u32,
    pub replicas: u32,
}

/// The numbers that follow from settings of one problem.
#[derive(Clone, Copy)]
pub(super) struct SettingArithmetic<'a> {
    pub problem: &'a Problem,
}

impl SettingArithmetic<'_> {
    /// Fewest replicas of a task.
    pub fn replicas_min(&self, s: &TaskSetting) -> u32 {
        let pipeline = self.problem.pipeline(s.pipeline);
        pipeline.task(s.task).min_replicas.max(1 + pipeline.survive)
    }

    /// The most accurate variant of a task on the hardware and share that run its smallest batch fastest.
    pub fn fastest_setting(&self, p: PipelineIndex, t: TaskIndex) -> Option<TaskSetting> {
        let pipeline = self.problem.pipeline(p);
        let mut best: Option<(f64, TaskSetting)> = None;
        for v in pipeline.most_accurate(t) {
            let variant = pipeline.variant(t, v);
            for (hardware, share) in variant.profile.places() {
                let exists = self.problem.hardware_at(hardware).count != Some(0);
                let row = &variant.profile.on(hardware, share)[0];
                let fits = exists && self.problem.fits_memory(variant.memory_mib, hardware, share);
                if fits && best.as_ref().is_none_or(|(latency, _)| row.latency_ms < *latency) {
                    let replicas = pipeline.task(t).min_replicas.max(1 + pipeline.survive);
                    let setting =
                        TaskSetting { pipeline: p, task: t, variant: v, hardware, share, batch: row.batch, replicas };
                    best = Some((row.latency_ms, setting));
                }
            }
        }
        best.map(|(_, setting)| setting)
    }

    /// The measured row of a setting.
    pub fn profile_row(&self, s: &TaskSetting) -> &ProfileRow {
        let variant = self.problem.pipeline(s.pipeline).variant(s.task, s.variant);
        variant.profile.row(s.hardware, s.share, s.batch).expect("settings hold measured batches only")
    }

    /// Time of the longest path through the graph, in milliseconds: one batch at every task, with the waiting of the queue
    /// factor. Under rule `path` a task without queries takes no time.
    pub fn service_ms(&self, p: PipelineIndex, settings: &[TaskSetting]) -> f64 {
        let pipeline = self.problem.pipeline(p);
        let mut charges = vec![0.0; pipeline.tasks.len()];
        let is_path = self.problem.objective.latency_rule == LatencyRule::Path;
        for s in settings.iter().filter(|s| s.pipeline == p && !(is_path && self.is_skipped(s, settings))) {
            charges[s.task.get()] = pipeline.hop_charge_ms(s.task, self.profile_row(s).latency_ms);
        }
        finish_times(pipeline, LatencyRule::TaskBudget, &charges).into_iter().fold(0.0, f64::max)
    }

    /// Whether a variant above a setting makes no queries for it.
    fn is_skipped(&self, s: &TaskSetting, settings: &[TaskSetting]) -> bool {
        let pipeline = self.problem.pipeline(s.pipeline);
        let mut above = std::iter::successors(pipeline.primary_parent(s.task), |edge| pipeline.primary_parent(edge.from));
        above.any(|edge| {
            let parent = settings.iter().find(|o| o.pipeline == s.pipeline && o.task == edge.from);
            parent.is_some_and(|parent| makes_no_queries(pipeline, edge, parent.variant))
        })
    }

    /// Queries per second at a setting.
    pub fn load_qps(&self, s: &TaskSetting, settings: &[TaskSetting]) -> f64 {
        let pipeline = self.problem.pipeline(s.pipeline);
        let mut load = pipeline.demand_qps;
        let mut task = s.task;
        while let Some(edge) = pipeline.primary_parent(task) {
            let parent = settings.iter().find(|o| o.pipeline == s.pipeline && o.task == edge.from);
            load *= parent.map_or(0.0, |o| pipeline.fanout(edge, o.variant));
            task = edge.from;
        }
        load
    }

    /// Whether there are enough devices of each type.
    pub fn within_devices(&self, settings: &[TaskSetting]) -> bool {
        let mut eighths = vec![0_u64; self.problem.hardware.len()];
        for s in settings {
            eighths[s.hardware.get()] += u64::from(s.replicas) * u64::from(s.share.eighths());
        }
        let counts = self.problem.hardware.iter().zip(&eighths);
        counts.into_iter().all(|(h, e)| h.count.is_none_or(|count| e.div_ceil(8) <= u64::from(count)))
    }

    /// Price of the used shares of devices, per hour.
    pub fn cost_per_hour(&self, settings: &[TaskSetting]) -> f64 {
        let mut eighths = vec![0_u64; self.problem.hardware.len()];
        for s in settings {
            eighths[s.hardware.get()] += u64::from(s.replicas) * u64::from(s.share.eighths());
        }
        // fractions of a device count, because whole devices would hide small savings
        self.problem.hardware.iter().zip(eighths).map(|(h, e)| h.price_per_hour * e as f64 / 8.0).sum()
    }
}
