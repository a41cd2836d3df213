//! Problems under rule `path` with a task that only idle replicas can have: no query reaches it in time.

use apportion_domain::{
    Edge, Hardware, HardwareIndex, LatencyRule, Mode, Objective, Pipeline, PipelineDraft, Problem, ProblemDraft, Profile,
    ProfileRow, Route, Share, Task, TaskIndex, TaskKind, Variant,
};
use std::collections::BTreeMap;

/// One problem of this kind.
#[derive(Clone, Copy, Debug)]
pub struct IdleCase {
    pub mode: Mode,
    /// Devices of the dear type.
    pub devices: u32,
    /// `min_replicas` of the task without queries.
    pub min_replicas: u32,
    pub survive: u32,
    /// One or two. A single one may also hold idle replicas on a cheap type, with two batch sizes.
    pub pipelines: usize,
}

impl IdleCase {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let modes = [Mode::HardwareThenAccuracy, Mode::MinCost, Mode::MaxAccuracy].into_iter();
        let with_devices = modes.flat_map(|mode| [2, 3, 6].map(|devices| (mode, devices)));
        let with_replicas = with_devices.flat_map(|of| [0, 1, 2].map(|min_replicas| (of, min_replicas)));
        let with_losses = with_replicas.flat_map(|of| [0, 1].map(|survive| (of, survive)));
        with_losses.flat_map(|(((mode, devices), min_replicas), survive)| {
            [1, 2].map(|pipelines| Self { mode, devices, min_replicas, survive, pipelines })
        })
    }

    /// `find` has a variant that makes no queries for `read`, and one that makes them. `read` is too slow after both.
    pub fn problem(self) -> Problem {
        let device = |name: &str, price_per_hour: f64, count| Hardware {
            name: name.into(),
            price_per_hour,
            count,
            memory_mib: None,
        };
        let hardware = vec![device("dear", 1.0, Some(self.devices)), device("cheap", 0.25, Some(2))];
        let draft = |p: usize| self.pipeline(format!("p{p}"));
        let pipelines = (0..self.pipelines)
            .map(|p| Pipeline::new(draft(p), &hardware, &format!("/pipelines/{p}")).expect("a valid pipeline"));
        let objective = Objective { mode: self.mode, latency_rule: LatencyRule::Path, ..Objective::default() };
        let pipelines = pipelines.collect();
        Problem::new(ProblemDraft { objective, hardware, pipelines, ..ProblemDraft::default() }).expect("a valid problem")
    }

    fn pipeline(self, name: String) -> PipelineDraft {
        let mut blind = variant("blind", 1.0, &[(0, 1, 20.0), (0, 4, 40.0)]);
        blind.fanout_to.insert(TaskIndex(1), 0.0);
        let find = vec![blind, variant("small", 0.8, &[(0, 1, 10.0)])];
        let slow = [(0, 1, 45.0), (1, 1, 60.0), (1, 4, 90.0)];
        let read = vec![variant("read", 0.9, &slow[..if self.pipelines == 1 { 3 } else { 1 }])];
        let task = |name: &str, min_replicas, variants| Task {
            name: name.into(),
            kind: TaskKind::Batch,
            route: Route::All,
            min_replicas,
            variants,
        };
        PipelineDraft {
            name,
            demand_qps: 60.0,
            slo_ms: 50.0,
            queue_factor: 1.0,
            survive: self.survive,
            tasks: vec![task("find", 1, find), task("read", self.min_replicas, read)],
            edges: vec![Edge::between(TaskIndex(0), TaskIndex(1))],
            ..PipelineDraft::default()
        }
    }
}

/// `rows`: hardware, batch, latency in milliseconds.
fn variant(name: &str, accuracy: f64, rows: &[(usize, u32, f64)]) -> Variant {
    let row = |&(hardware, batch, latency_ms): &(usize, u32, f64)| {
        ProfileRow::of_median(HardwareIndex(hardware), Share::WHOLE, batch, latency_ms)
    };
    Variant {
        name: name.into(),
        accuracy,
        fanout: 1.0,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new(rows.iter().map(row).collect()),
    }
}
