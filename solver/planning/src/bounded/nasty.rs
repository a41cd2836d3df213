//! Problems that take long to plan.

use crate::fixtures::{draft, task, variant};
use apportion_domain::{
    Edge, Hardware, LatencyRule, Mode, Pipeline, PipelineDraft, Problem, ProblemDraft, TaskIndex, Variant,
};

/// `count` variants of growing accuracy and cost, each measured on `hardware` kinds of hardware.
fn variants(count: usize, hardware: usize) -> Vec<Variant> {
    let one = |v: usize| {
        let ms = |batch: u32| (0.3 + 0.1 * v as f64) * (1.0 + 0.6 * f64::from(batch));
        let rows: Vec<_> =
            (0..hardware).flat_map(|h| [1, 2, 4, 8].map(|b| (h, b, ms(b) / (1.0 + 0.3 * h as f64)))).collect();
        let accuracy = 0.5 + 0.5 * (v + 1) as f64 / count as f64;
        variant(&format!("v{v}"), accuracy, 1.0 + 0.01 * v as f64, &rows)
    };
    (0..count).map(one).collect()
}

/// Sizes of a pipeline.
struct Size {
    tasks: usize,
    /// Variants of each task.
    variants: usize,
}

/// A pipeline on this many kinds of hardware. `parent` gives the parent of each task but the first.
fn pipeline(size: Size, hardware: usize, parent: impl Fn(usize) -> usize) -> PipelineDraft {
    let all = (0..size.tasks).map(|t| task(&format!("t{t}"), variants(size.variants, hardware))).collect();
    let edges: Vec<_> = (1..size.tasks).map(|t| (parent(t), t)).collect();
    PipelineDraft { demand_qps: 40.0, ..draft(400.0, all, &edges) }
}

fn problem(mode: Mode, count: Option<u32>, hardware: usize, drafts: Vec<PipelineDraft>) -> Problem {
    let device =
        |h: usize| Hardware { name: format!("h{h}"), price_per_hour: 0.5 + 0.3 * h as f64, count, memory_mib: None };
    let hardware: Vec<Hardware> = (0..hardware).map(device).collect();
    let named = |(p, d): (usize, PipelineDraft)| PipelineDraft { name: format!("p{p}"), ..d };
    let pipelines = drafts.into_iter().enumerate().map(named);
    let pipelines = pipelines.map(|d| Pipeline::new(d, &hardware, "").expect("a valid pipeline")).collect();
    let mut all = ProblemDraft { hardware, pipelines, ..ProblemDraft::default() };
    all.objective.mode = mode;
    Problem::new(all).expect("a valid problem")
}

fn min_cost(draft: PipelineDraft) -> Problem {
    problem(Mode::MinCost, None, 3, vec![draft])
}

fn by_path(draft: PipelineDraft) -> Problem {
    let rule = |d: &mut ProblemDraft| d.objective.latency_rule = LatencyRule::Path;
    problem(Mode::MaxAccuracy, Some(50), 3, vec![draft]).changed(rule).expect("a valid problem")
}

/// Detector, cars, faces. The detector's best variant makes `fanout` queries for each query.
fn traffic(fanout: f64) -> Problem {
    let mut draft = pipeline(Size { tasks: 3, variants: 2 }, 1, |_| 0);
    draft.tasks[0].variants[1].fanout = fanout;
    problem(Mode::HardwareThenAccuracy, Some(12), 1, vec![draft])
}

/// A graph in which every task waits for all tasks before it.
fn all_joins(tasks: usize) -> PipelineDraft {
    let mut draft = pipeline(Size { tasks, variants: 2 }, 1, |_| 0);
    let join =
        |(s, t): (usize, usize)| Edge { from: TaskIndex(s), to: TaskIndex(t), primary: false, ..draft.edges[0].clone() };
    let joins: Vec<Edge> = (1..tasks).flat_map(|t| (1..t).map(move |s| (s, t))).map(join).collect();
    draft.edges.extend(joins);
    draft
}

/// All problems, each with its name.
pub fn problems() -> Vec<(&'static str, Problem)> {
    let chain = |t: usize| t - 1;
    let few = || pipeline(Size { tasks: 3, variants: 3 }, 3, chain);
    let many = |n: usize| (0..n).map(|_| pipeline(Size { tasks: 3, variants: 4 }, 3, chain)).collect::<Vec<_>>();
    let mut tiny = few();
    tiny.tasks[0].variants[0] = variant("v0", 0.6, 1.0, &[(0, 1, 1e-9), (0, 65_536, 1e-6)]);
    vec![
        ("a million children", traffic(1e6)),
        ("ten thousand children", traffic(1e4)),
        ("a trillion queries a second", min_cost(PipelineDraft { demand_qps: 1e12, ..few() })),
        ("a million queries a second", min_cost(PipelineDraft { demand_qps: 1e6, ..few() })),
        ("batches of a picosecond", min_cost(PipelineDraft { demand_qps: 1e9, ..tiny })),
        ("an SLO of a year", min_cost(PipelineDraft { slo_ms: 3e10, ..few() })),
        ("an SLO that nothing meets", min_cost(PipelineDraft { slo_ms: 1e-6, ..few() })),
        ("no devices", problem(Mode::HardwareThenAccuracy, Some(0), 3, vec![few()])),
        ("four billion devices", problem(Mode::MaxAccuracy, Some(u32::MAX), 3, vec![few()])),
        ("a chain of 100", min_cost(pipeline(Size { tasks: 100, variants: 4 }, 3, chain))),
        ("a chain of 250 with one variant", min_cost(pipeline(Size { tasks: 250, variants: 1 }, 3, chain))),
        ("a star of 200", min_cost(pipeline(Size { tasks: 200, variants: 4 }, 3, |_| 0))),
        (
            "a binary tree of 63",
            min_cost(PipelineDraft { slo_ms: 60.0, ..pipeline(Size { tasks: 63, variants: 3 }, 3, |t| (t - 1) / 2) }),
        ),
        ("a graph of 40 with all joins", problem(Mode::HardwareThenAccuracy, Some(900), 1, vec![all_joins(40)])),
        ("200 variants of each task", min_cost(pipeline(Size { tasks: 3, variants: 200 }, 3, chain))),
        (
            "1,000 variants of two tasks",
            problem(Mode::MaxAccuracy, Some(50), 1, vec![pipeline(Size { tasks: 2, variants: 1_000 }, 1, chain)]),
        ),
        ("rule path, a chain of 30", by_path(pipeline(Size { tasks: 30, variants: 2 }, 3, chain))),
        ("rule path, 40 variants", by_path(pipeline(Size { tasks: 4, variants: 40 }, 3, chain))),
        ("100 pipelines", problem(Mode::MaxAccuracy, Some(40), 3, many(100))),
        ("300 pipelines that do not fit", problem(Mode::MinCost, Some(2), 3, many(300))),
    ]
}
