//! Problems that are too large for brute force: trees of two to four tasks with two or three variants and four batch
//! sizes each.

use crate::draw::Draw;
use apportion_domain::{
    AccuracyModel, Edge, Hardware, HardwareIndex, LatencyRule, Mode, Objective, Partial, Pipeline, PipelineDraft, Problem,
    ProblemDraft, Profile, ProfileRow, Route, ServingWishes, Share, Task, TaskIndex, TaskKind, Variant,
};
use std::collections::BTreeMap;

/// The problem of a seed.
pub fn problem(seed: u64, mode: Mode, rule: LatencyRule) -> Problem {
    let mut d = Draw::new(seed);
    let tasks = if d.once_in(5) { 4 } else { 2 + d.below(2) as usize };
    let kinds = if tasks == 2 { 2 } else { 1 };
    let hardware: Vec<Hardware> = (0..kinds)
        .map(|h| Hardware {
            name: format!("h{h}"),
            price_per_hour: [1.0, 2.6][h],
            count: Some(2 + d.below(12) as u32),
            memory_mib: None,
        })
        .collect();
    let draft = pipeline(&mut d, tasks, kinds);
    let pipeline = Pipeline::new(draft, &hardware, "/pipelines/0").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let objective = Objective { mode, latency_rule: rule, budget_per_hour: None };
    let draft = ProblemDraft { objective, hardware, pipelines: vec![pipeline], ..ProblemDraft::default() };
    Problem::new(draft).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

fn pipeline(d: &mut Draw, tasks: usize, kinds: usize) -> PipelineDraft {
    let edge = |d: &mut Draw, t: usize| Edge {
        from: TaskIndex(d.below(t as u64) as usize),
        to: TaskIndex(t),
        ratio: d.pick(&[0.5, 0.8, 1.0]),
        primary: true,
        kib_per_query: 64.0 * t as f64,
        map: BTreeMap::new(),
    };
    let edges = (1..tasks).map(|t| edge(d, t)).collect();
    PipelineDraft {
        name: "p".into(),
        demand_qps: 100.0 + d.below(1200) as f64,
        slo_ms: 60.0 * tasks as f64 + d.below(200) as f64,
        percentile: 99.0,
        queue_factor: 2.0,
        network_ms: 1.0,
        network_ms_per_mib: 8.0,
        ingress_ms: 0.5,
        ingress_kib_per_query: 128.0,
        weight: 1.0,
        min_accuracy: d.once_in(3).then(|| d.pick(&[0.6, 0.75, 0.9])),
        accuracy_model: d.pick(&[AccuracyModel::Product, AccuracyModel::Mean]),
        path_accuracy: Vec::new(),
        leaf_weights: BTreeMap::new(),
        survive: 0,
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks: (0..tasks).map(|t| task(d, t, kinds)).collect(),
        edges,
    }
}

fn task(d: &mut Draw, t: usize, kinds: usize) -> Task {
    let count = 2 + d.below(2) as usize;
    Task {
        name: format!("t{t}"),
        kind: TaskKind::Batch,
        route: Route::All,
        min_replicas: 1,
        variants: (0..count).map(|v| variant(d, v, kinds)).collect(),
    }
}

/// A later variant is faster and less accurate.
fn variant(d: &mut Draw, v: usize, kinds: usize) -> Variant {
    let mut rows = Vec::new();
    for h in 0..kinds {
        let (base, slope) = (2.0 + d.below(6) as f64, 2.0 + d.below(40) as f64 / 10.0);
        let speed = [1.0, 0.55, 0.3][v] * [1.0, 0.4][h];
        rows.extend([1_u32, 2, 4, 8].map(|batch| {
            ProfileRow::of_median(HardwareIndex(h), Share::WHOLE, batch, speed * (base + slope * f64::from(batch)))
        }));
    }
    Variant {
        name: format!("v{v}"),
        accuracy: [1.0, 0.9, 0.75][v] - d.below(40) as f64 / 1000.0,
        fanout: d.pick(&[0.8, 1.0, 1.6]),
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new(rows),
    }
}
