//! Which problems are drawn from a seed? Benchmarks without real profiles plan them, and tests compare planners on them.

use apportion_domain::{
    AccuracyModel, Edge, Hardware, HardwareIndex, Objective, Partial, Pipeline, PipelineDraft, Problem, ProblemDraft,
    Profile, ProfileRow, Route, ServingWishes, Share, Task, TaskIndex, TaskKind, Variant,
};
use std::collections::BTreeMap;

/// The kinds of problems that can be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemShape {
    /// How many pipelines.
    pub pipelines: usize,
    /// Most tasks of a pipeline; each has between one and this many, as a chain or a star.
    pub tasks_max: usize,
    /// Most variants of a task, at least two of each.
    pub variants_max: usize,
    /// Batch sizes 1, 2, 4, ...: how many of them.
    pub batches: u32,
    /// Hardware types, at least one.
    pub hardware: Vec<ShapeHardware>,
    /// Whether every variant also runs on half a device.
    pub halves: bool,
    /// Mean demand in queries per second.
    pub demand_qps: f64,
    /// Floor on the accuracy of every pipeline.
    pub min_accuracy: Option<f64>,
    /// Mode, rule and budget.
    pub objective: Objective,
}

/// A hardware type of drawn problems.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapeHardware {
    /// Price of a device per hour.
    pub price_per_hour: f64,
    /// Devices that exist; `None` is unlimited.
    pub count: Option<u32>,
    /// Factor on the speed of all variants.
    pub speed: f64,
}

/// A small generator of numbers (a linear congruence; Knuth's constants), so that a failure is repeated from its seed.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut draw = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        draw.next();
        draw
    }

    /// The next 31 bits of the stream.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A whole number below `n`, at least 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A number of this range, in thousandths of it.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1_001) as f64 / 1_000.0
    }
}

/// Draws a problem.
///
/// # Panics
/// If no valid problem has the shape: no pipelines, no hardware, or an accuracy above 1.
#[must_use]
pub fn problem(seed: u64, shape: &ProblemShape) -> Problem {
    let mut draw = Draw::new(seed);
    let hardware: Vec<Hardware> = shape
        .hardware
        .iter()
        .enumerate()
        .map(|(h, shape)| Hardware {
            name: format!("hardware{h}"),
            price_per_hour: shape.price_per_hour,
            count: shape.count,
            memory_mib: None,
        })
        .collect();
    let pipelines = (0..shape.pipelines).map(|p| pipeline(&mut draw, p, shape, &hardware)).collect();
    let draft = ProblemDraft { objective: shape.objective, hardware, pipelines, ..ProblemDraft::default() };
    Problem::new(draft).expect("a shape within the ranges of problems")
}

fn pipeline(draw: &mut Draw, index: usize, shape: &ProblemShape, hardware: &[Hardware]) -> Pipeline {
    let tasks = 1 + draw.below(shape.tasks_max);
    let star = draw.below(2) == 0;
    let tasks: Vec<Task> = (0..tasks).map(|t| task(draw, t, shape)).collect();
    let slowest: f64 = tasks.iter().map(|t| t.variants[0].profile.rows()[0].latency_ms).sum();
    let edges = (1..tasks.len()).map(|t| edge(if star { 0 } else { t - 1 }, t)).collect();
    let draft = PipelineDraft {
        demand_qps: shape.demand_qps * draw.between(0.4, 1.6),
        slo_ms: slowest * draw.between(2.5, 6.0),
        weight: 1.0 + draw.below(3) as f64,
        min_accuracy: shape.min_accuracy,
        ..draft(index, edges, tasks)
    };
    Pipeline::new(draft, hardware, "").expect("a pipeline within the ranges")
}

/// A pipeline of plain wishes. The caller sets its demand and its SLO.
pub(super) fn draft(index: usize, edges: Vec<Edge>, tasks: Vec<Task>) -> PipelineDraft {
    PipelineDraft {
        name: format!("pipeline{index}"),
        edges,
        tasks,
        demand_qps: 100.0,
        weight: 1.0,
        slo_ms: 1_000.0,
        network_ms: 0.0,
        percentile: 99.0,
        min_accuracy: None,
        queue_factor: 2.0,
        survive: 0,
        path_accuracy: Vec::new(),
        accuracy_model: AccuracyModel::Product,
        serving: ServingWishes::default(),
        leaf_weights: BTreeMap::new(),
        partial: Partial::Deny,
        ..PipelineDraft::default()
    }
}

/// An edge that makes queries.
pub(super) fn edge(from: usize, to: usize) -> Edge {
    Edge::between(TaskIndex(from), TaskIndex(to))
}

/// A measured point.
pub(super) fn row(hardware: HardwareIndex, share: Share, batch: u32, latency_ms: f64) -> ProfileRow {
    ProfileRow::of_median(hardware, share, batch, latency_ms)
}

/// Variants by falling accuracy, each faster than the one before and with a fan-out of its own.
pub(super) fn task(draw: &mut Draw, index: usize, shape: &ProblemShape) -> Task {
    let count = 2 + draw.below(shape.variants_max.max(2) - 1);
    let mut accuracy = 1.0;
    let mut latency = draw.between(8.0, 40.0);
    let mut variants = Vec::with_capacity(count);
    for v in 0..count {
        let rows = rows(draw, latency, shape);
        variants.push(Variant {
            name: format!("v{v}"),
            accuracy,
            fanout: draw.between(0.6, 2.4),
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: 1_000.0,
            memory_mib: None,
            profile: Profile::new(rows),
        });
        accuracy *= draw.between(0.86, 0.98);
        latency *= draw.between(0.35, 0.8);
    }
    Task { name: format!("t{index}"), kind: TaskKind::Batch, route: Route::All, min_replicas: 0, variants }
}

/// A batch of b takes `latency * (a + (1 - a) b)`, with a device's own a.
fn rows(draw: &mut Draw, latency: f64, shape: &ProblemShape) -> Vec<ProfileRow> {
    let mut rows = Vec::new();
    for (h, hardware) in shape.hardware.iter().enumerate() {
        let fixed = draw.between(0.2, 0.6);
        for b in 0..shape.batches {
            let batch = 1_u32 << b;
            let latency_ms = latency / hardware.speed * (fixed + (1.0 - fixed) * f64::from(batch));
            rows.push(row(HardwareIndex(h), Share::WHOLE, batch, latency_ms));
            if shape.halves {
                let half = Share::new(0.5).expect("a half is a share");
                rows.push(row(HardwareIndex(h), half, batch, 1.7 * latency_ms));
            }
        }
    }
    rows
}
