//! Tiny problems of every kind that the file formats can say, drawn from a seed.

use apportion_domain::{
    AccuracyModel, Deployed, Edge, FanoutCounts, Hardware, HardwareIndex, LatencyRule, Mode, Objective, Partial,
    PathAccuracy, Pipeline, PipelineDraft, PipelineIndex, Problem, ProblemDraft, Profile, ProfileRow, Route, ServingWishes,
    Share, Task, TaskIndex, TaskKind, Variant, VariantIndex,
};
use apportion_serving::mix::SplitMix;
use std::collections::BTreeMap;

/// A small deterministic generator, so that a failure can be repeated from its seed.
pub struct Draw(SplitMix);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// A number from 0 to `n - 1`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Where a variant may run a second group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecondPlace {
    HalfDevice,
    OtherHardware,
}

/// The problem of a seed.
pub fn problem(seed: u64, rule: LatencyRule) -> Problem {
    let mut d = Draw::new(seed);
    let mode = d.pick(&[Mode::HardwareThenAccuracy, Mode::MinCost, Mode::MaxAccuracy]);
    let pipelines = if d.once_in(4) { 2 } else { 1 };
    let hardware: Vec<Hardware> = (0..if d.once_in(2) { 2 } else { 1 })
        .map(|h| Hardware {
            name: format!("h{h}"),
            price_per_hour: d.pick(&[0.5, 1.0, 1.5, 3.0]),
            count: (!d.once_in(6)).then(|| if d.once_in(5) { 1 } else { 3 + d.below(4) as u32 }),
            memory_mib: d.once_in(3).then(|| d.pick(&[1000.0, 2000.0, 4000.0])),
        })
        .collect();
    let second = if d.once_in(4) { SecondPlace::HalfDevice } else { SecondPlace::OtherHardware };
    let mut drafts: Vec<PipelineDraft> =
        (0..pipelines).map(|p| pipeline(&mut d, p, &hardware, second, if pipelines == 2 { 3 } else { 4 })).collect();
    if seed.is_multiple_of(3) {
        // From a stream of its own: everything else of the problem is as without sizes.
        let mut sizes = Draw::new(seed ^ 0x5123);
        drafts.iter_mut().for_each(|draft| draw_sizes(&mut sizes, draft));
    }
    let pipelines: Vec<Pipeline> = drafts
        .into_iter()
        .enumerate()
        .map(|(p, draft)| {
            Pipeline::new(draft, &hardware, &format!("/pipelines/{p}")).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
        })
        .collect();
    let objective =
        Objective { mode, latency_rule: rule, budget_per_hour: d.once_in(4).then(|| 2.0 + d.below(14) as f64 / 2.0) };
    let deployed = if d.once_in(3) { deployed(&mut d, &pipelines) } else { Vec::new() };
    let switching_weight = d.pick(&[0.0, 0.0, 100.0, 1000.0]);
    let draft = ProblemDraft { objective, hardware, pipelines, deployed, switching_weight, ..ProblemDraft::default() };
    Problem::new(draft).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

/// Sizes of queries, a network that takes time for them, and an ingress that takes time for requests.
fn draw_sizes(d: &mut Draw, draft: &mut PipelineDraft) {
    draft.network_ms_per_mib = d.pick(&[4.0, 16.0]);
    draft.ingress_ms = d.pick(&[0.0, 2.5]);
    draft.ingress_kib_per_query = d.pick(&[0.0, 256.0]);
    draft.edges.iter_mut().for_each(|edge| edge.kib_per_query = d.pick(&[0.0, 128.0, 512.0]));
}

/// What runs now: any profile rows, any replicas.
fn deployed(d: &mut Draw, pipelines: &[Pipeline]) -> Vec<Deployed> {
    let mut all = Vec::new();
    for (p, pipeline) in pipelines.iter().enumerate() {
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let v = d.below(task.variants.len() as u64) as usize;
            let rows = task.variants[v].profile.rows();
            let row = &rows[d.below(rows.len() as u64) as usize];
            all.push(Deployed {
                pipeline: PipelineIndex(p),
                task: TaskIndex(t),
                variant: VariantIndex(v),
                hardware: row.hardware,
                share: row.share,
                batch: row.batch,
                replicas: d.below(3) as u32,
            });
        }
    }
    all
}

/// Tasks with the edges between them.
struct Shape {
    tasks: usize,
    edges: &'static [ShapeEdge],
}

/// An edge between two tasks, by position.
struct ShapeEdge {
    from: usize,
    to: usize,
    role: EdgeRole,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgeRole {
    /// The edge makes queries.
    MakesQueries,
    /// The edge only delays queries.
    Delays,
}

/// An edge that makes queries.
const fn makes(from: usize, to: usize) -> ShapeEdge {
    ShapeEdge { from, to, role: EdgeRole::MakesQueries }
}

/// An edge that only delays queries.
const fn delays(from: usize, to: usize) -> ShapeEdge {
    ShapeEdge { from, to, role: EdgeRole::Delays }
}

impl Shape {
    /// The edges of a task that make queries.
    fn children(&self, task: usize) -> impl Iterator<Item = TaskIndex> {
        let edges = self.edges.iter().filter(move |e| e.role == EdgeRole::MakesQueries && e.from == task);
        edges.map(|e| TaskIndex(e.to))
    }
}

/// The ways that tasks hang together.
const SHAPES: [Shape; 6] = [
    Shape { tasks: 1, edges: &[] },
    Shape { tasks: 2, edges: &[makes(0, 1)] },
    Shape { tasks: 3, edges: &[makes(0, 1), makes(1, 2)] },
    Shape { tasks: 3, edges: &[makes(0, 1), makes(0, 2)] },
    Shape { tasks: 3, edges: &[makes(0, 1), makes(0, 2), delays(1, 2)] },
    Shape { tasks: 3, edges: &[makes(0, 1), makes(1, 2), delays(0, 2)] },
];

fn pipeline(d: &mut Draw, p: usize, hardware: &[Hardware], second: SecondPlace, groups_max: usize) -> PipelineDraft {
    let shape = &SHAPES[d.below(if groups_max < 4 { 4 } else { SHAPES.len() as u64 }) as usize];
    let one_of = d.once_in(4);
    let making = |t: usize| shape.children(t).count();
    let ratio = |d: &mut Draw, from: usize, to: usize| match (one_of && from == 0, making(from)) {
        (true, 1) => 1.0,
        (true, _) => [0.25, 0.75][to % 2],
        (false, _) => d.pick(&[0.5, 1.0, 1.5]),
    };
    let edge = |&ShapeEdge { from, to, role }: &ShapeEdge| {
        let primary = role == EdgeRole::MakesQueries;
        let ratio = if primary { ratio(d, from, to) } else { 1.0 };
        Edge { from: TaskIndex(from), to: TaskIndex(to), ratio, primary, kib_per_query: 0.0, map: BTreeMap::new() }
    };
    let edges = shape.edges.iter().map(edge).collect();
    let mut left = groups_max - shape.tasks;
    let tasks: Vec<Task> = (0..shape.tasks)
        .map(|t| Task {
            name: format!("t{t}"),
            kind: TaskKind::Batch,
            route: if t == 0 && one_of { Route::OneOf } else { Route::All },
            min_replicas: if d.once_in(6) { 2 } else { 1 },
            variants: variants(d, &shape.children(t).collect::<Vec<_>>(), hardware, second, &mut left),
        })
        .collect();
    let sinks: Vec<usize> = (0..shape.tasks).filter(|&t| making(t) == 0).collect();
    let path_accuracy = if d.once_in(5) { table(d, &tasks, shape) } else { Vec::new() };
    PipelineDraft {
        name: format!("p{p}"),
        demand_qps: 10.0 + d.below(110) as f64,
        slo_ms: slo(d, shape.tasks as f64),
        percentile: 99.0,
        queue_factor: d.pick(&[1.0, 2.0]),
        network_ms: d.pick(&[0.0, 1.5]),
        weight: d.pick(&[1.0, 1.0, 3.0]),
        min_accuracy: d.once_in(3).then(|| d.pick(&[0.5, 0.7, 0.8, 0.9])),
        accuracy_model: d.pick(&[
            AccuracyModel::Product,
            AccuracyModel::Product,
            AccuracyModel::Mean,
            AccuracyModel::TaskMean,
        ]),
        path_accuracy,
        leaf_weights: if d.once_in(3) {
            sinks.iter().map(|&t| (TaskIndex(t), 1.0 + d.below(3) as f64)).collect()
        } else {
            BTreeMap::new()
        },
        survive: u32::from(d.once_in(6)),
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks,
        edges,
        ..PipelineDraft::default()
    }
}

/// Mostly enough time, sometimes little.
fn slo(d: &mut Draw, tasks: f64) -> f64 {
    if d.once_in(4) { tasks * (15.0 + d.below(20) as f64) } else { 25.0 + 45.0 * tasks + d.below(150) as f64 }
}

/// The accuracy of one path in place of the model's.
fn table(d: &mut Draw, tasks: &[Task], shape: &Shape) -> Vec<PathAccuracy> {
    let mut variant = |t: TaskIndex| VariantIndex(d.below(tasks[t.get()].variants.len() as u64) as usize);
    let mut task = TaskIndex(0);
    let mut path = vec![(task, variant(task))];
    while let Some(child) = shape.children(task.get()).next() {
        task = child;
        path.push((task, variant(task)));
    }
    vec![PathAccuracy { path, accuracy: d.pick(&[0.55, 0.85, 1.0]) }]
}

/// One variant, and more groups while `left` allows: a second variant, a second hardware type, a share.
fn variants(
    d: &mut Draw,
    children: &[TaskIndex],
    hardware: &[Hardware],
    second: SecondPlace,
    left: &mut usize,
) -> Vec<Variant> {
    let count = if *left > 0 && !d.once_in(4) { 2 } else { 1 };
    *left -= count - 1;
    let mut all = Vec::new();
    for v in 0..count {
        let mut rows = Vec::new();
        let scale = if v == 0 { 2.0 } else { 1.0 };
        let mut place = |d: &mut Draw, h: usize, share: Share, scale: f64| {
            let one = scale * (3.0 + d.below(10) as f64);
            let row = |batch: u32, latency_ms: f64| ProfileRow::of_median(HardwareIndex(h), share, batch, latency_ms);
            rows.push(row(1, one));
            if !d.once_in(3) {
                rows.push(row(4, one * d.pick(&[1.5, 2.0, 3.0, 4.5])));
            }
        };
        let first = d.below(hardware.len() as u64) as usize;
        place(d, first, Share::WHOLE, scale);
        if *left > 0 && d.once_in(2) {
            let half = Share::new(0.5).expect("a share");
            if second == SecondPlace::HalfDevice {
                *left -= 1;
                place(d, first, half, 1.6 * scale);
            } else if hardware.len() > 1 {
                *left -= 1;
                place(d, 1 - first, Share::WHOLE, 0.7 * scale);
            }
        }
        let mut variant = Variant {
            name: format!("v{v}"),
            accuracy: if v == 0 { d.pick(&[1.0, 0.95]) } else { d.pick(&[0.95, 0.8, 0.6]) },
            fanout: d.pick(&[0.5, 1.0, 2.0]),
            fanout_to: BTreeMap::new(),
            fanout_counts: BTreeMap::new(),
            load_ms: d.pick(&[0.0, 800.0, 2400.0]),
            memory_mib: d.once_in(3).then(|| d.pick(&[500.0, 1500.0, 3000.0])),
            profile: Profile::new(rows),
        };
        for &child in children {
            match d.below(6) {
                0 => drop(variant.fanout_to.insert(child, d.pick(&[0.0, 0.7, 1.2]))),
                1 => drop(variant.fanout_counts.insert(child, FanoutCounts(vec![(0, 0.25), (1, 0.5), (3, 0.25)]))),
                _ => {}
            }
        }
        all.push(variant);
    }
    all
}
