//! Small problems for the tests of several modules.

use apportion_domain::{
    AccuracyModel, Edge, Hardware, HardwareIndex, LatencyRule, Mode, Partial, Pipeline, PipelineDraft, Problem,
    ProblemDraft, Profile, ProfileRow, Route, ServingWishes, Share, Task, TaskIndex, TaskKind, Variant,
};
use std::collections::BTreeMap;

/// `rows`: hardware, batch, latency in milliseconds.
pub(crate) fn variant(name: &str, accuracy: f64, fanout: f64, rows: &[(usize, u32, f64)]) -> Variant {
    let row = |&(hardware, batch, latency_ms): &(usize, u32, f64)| {
        ProfileRow::of_median(HardwareIndex(hardware), Share::WHOLE, batch, latency_ms)
    };
    Variant {
        name: name.into(),
        accuracy,
        fanout,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new(rows.iter().map(row).collect()),
    }
}

/// A task that needs one replica.
pub(crate) fn task(name: &str, variants: Vec<Variant>) -> Task {
    Task { name: name.into(), kind: TaskKind::Batch, route: Route::All, min_replicas: 1, variants }
}

/// A pipeline `p` of 300 queries per second.
pub(crate) fn draft(slo_ms: f64, tasks: Vec<Task>, edges: &[(usize, usize)]) -> PipelineDraft {
    let edge = |&(from, to): &(usize, usize)| Edge::between(TaskIndex(from), TaskIndex(to));
    PipelineDraft {
        name: "p".into(),
        demand_qps: 300.0,
        slo_ms,
        percentile: 99.0,
        queue_factor: 2.0,
        network_ms: 0.0,
        weight: 1.0,
        min_accuracy: None,
        accuracy_model: AccuracyModel::Product,
        path_accuracy: Vec::new(),
        leaf_weights: BTreeMap::new(),
        survive: 0,
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks,
        edges: edges.iter().map(edge).collect(),
        ..PipelineDraft::default()
    }
}

/// With unlimited devices at a price of 1 (gpu) and 0.1 (cpu), for least cost.
pub(crate) fn problem(draft: PipelineDraft) -> Problem {
    let device =
        |name: &str, price_per_hour: f64| Hardware { name: name.into(), price_per_hour, count: None, memory_mib: None };
    let hardware = vec![device("gpu", 1.0), device("cpu", 0.1)];
    let pipelines = vec![Pipeline::new(draft, &hardware, "/pipelines/0").expect("a valid pipeline")];
    let mut all = ProblemDraft { hardware, pipelines, ..ProblemDraft::default() };
    all.objective.mode = Mode::MinCost;
    Problem::new(all).expect("a valid problem")
}

/// Task a (2 queries each), then task b; a also has a variant that is less accurate.
pub(crate) fn chain(slo_ms: f64) -> PipelineDraft {
    let a = task(
        "a",
        vec![
            variant("a-s", 0.8, 1.0, &[(0, 1, 4.0), (0, 4, 10.0)]),
            variant("a-l", 1.0, 2.0, &[(0, 1, 10.0), (0, 2, 16.0), (0, 4, 30.0)]),
        ],
    );
    let b = task("b", vec![variant("b-l", 1.0, 1.0, &[(0, 1, 5.0), (0, 2, 8.0), (0, 4, 14.0), (1, 1, 20.0)])]);
    draft(slo_ms, vec![a, b], &[(0, 1)])
}

/// Rule `path`: task a, whose accurate variant makes no queries for task b. After the other variant, b is too slow. The
/// least cost is 2.1: two replicas of `a-l` with batch 4, and an idle one of b on a cpu.
pub(crate) fn idle_task() -> Problem {
    let mut blind = variant("a-l", 1.0, 1.0, &[(0, 1, 10.0), (0, 4, 20.0)]);
    blind.fanout_to.insert(TaskIndex(1), 0.0);
    let a = task("a", vec![blind, variant("a-s", 0.8, 1.0, &[(0, 1, 5.0)])]);
    let b = task("b", vec![variant("b-l", 1.0, 1.0, &[(0, 1, 60.0), (1, 1, 80.0)])]);
    let problem = problem(draft(100.0, vec![a, b], &[(0, 1)]));
    problem.changed(|d| d.objective.latency_rule = LatencyRule::Path).expect("still valid")
}
