//! Small problems and plans for the tests.

use apportion_domain::{
    AccuracyModel, ArrivalTrace, Assignment, Edge, FanoutCounts, GroupName, Hardware, HardwareIndex, Moment, Partial,
    Pipeline, PipelineDraft, PipelinePlan, Plan, Problem, ProblemDraft, Profile, ProfileRow, Queueing, Route, Routing,
    ServingPolicy, ServingWishes, Share, Task, TaskIndex, TaskKind, Variant,
};
use apportion_estimator::{ArrivalProcess, Replay, Scenario, SimulateOptions, Simulation, Workload, replay, simulate};
use std::collections::BTreeMap;

/// One task of a test: one variant, one group.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Position of its parent; ignored for the first.
    pub parent: usize,
    /// Queries made for each query of the parent.
    pub fanout: Fan,
    /// Replicas.
    pub replicas: u32,
    /// Batch.
    pub batch: u32,
    /// Time of a batch by size: `base + size * each`, in ms.
    pub base_ms: f64,
    /// See above.
    pub each_ms: f64,
    /// Accuracy.
    pub accuracy: f64,
}

/// How many queries are made along an edge.
#[derive(Clone, Debug)]
pub enum Fan {
    /// This mean.
    Mean(f64),
    /// This distribution.
    Counts(Vec<(u32, f64)>),
}

/// A problem of one pipeline, and a plan for it.
#[derive(Clone, Debug)]
pub struct Built {
    pub problem: Problem,
    pub plan: Plan,
}

/// Times of a pipeline in ms.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time of one hop.
    pub network_ms: f64,
    /// The SLO.
    pub slo_ms: f64,
    /// Time to load a replica.
    pub load_ms: f64,
}

/// A stage with one query for each of its parent's.
pub fn stage(parent: usize, replicas: u32, batch: u32, base_ms: f64, each_ms: f64) -> Stage {
    Stage { parent, fanout: Fan::Mean(1.0), replicas, batch, base_ms, each_ms, accuracy: 0.9 }
}

/// Pipeline `p` of these stages, called `t0`, `t1` and so on, and the plan that runs them.
pub fn build(stages: &[Stage], queueing: Queueing, network_ms: f64, slo_ms: f64) -> Built {
    build_loading(stages, queueing, Times { network_ms, slo_ms, load_ms: 0.0 }, None)
}

/// Task `t` of a pipeline of these stages.
fn task_of(stages: &[Stage], t: usize, s: &Stage, load_ms: f64) -> Task {
    let row =
        |batch: u32| ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, batch, s.base_ms + s.each_ms * f64::from(batch));
    let children = || stages.iter().enumerate().skip(1).filter(move |(_, c)| c.parent == t);
    let mean = |(c, child): (usize, &Stage)| match child.fanout {
        Fan::Mean(mean) => Some((TaskIndex(c), mean)),
        Fan::Counts(_) => None,
    };
    let counts = |(c, child): (usize, &Stage)| match &child.fanout {
        Fan::Mean(_) => None,
        Fan::Counts(counts) => Some((TaskIndex(c), FanoutCounts(counts.clone()))),
    };
    let variant = Variant {
        name: "v".into(),
        accuracy: s.accuracy,
        fanout: 1.0,
        fanout_to: children().filter_map(mean).collect(),
        fanout_counts: children().filter_map(counts).collect(),
        load_ms,
        memory_mib: None,
        profile: Profile::new((1..=s.batch).map(row).collect()),
    };
    Task { name: format!("t{t}"), kind: TaskKind::Batch, route: Route::All, min_replicas: 0, variants: vec![variant] }
}

/// The same with variants that take time to load, on `count` devices.
pub fn build_loading(stages: &[Stage], queueing: Queueing, times: Times, count: Option<u32>) -> Built {
    let Times { network_ms, slo_ms, load_ms } = times;
    let hardware = vec![Hardware { name: "h".into(), price_per_hour: 2.0, count, memory_mib: None }];
    let task = |(t, s): (usize, &Stage)| task_of(stages, t, s, load_ms);
    let edge = |(t, s): (usize, &Stage)| Edge::between(TaskIndex(s.parent), TaskIndex(t));
    let draft = PipelineDraft {
        name: "p".into(),
        demand_qps: 10.0,
        slo_ms,
        percentile: 99.0,
        queue_factor: 2.0,
        network_ms,
        weight: 1.0,
        min_accuracy: None,
        accuracy_model: AccuracyModel::Product,
        path_accuracy: Vec::new(),
        leaf_weights: BTreeMap::new(),
        survive: 0,
        partial: Partial::Deny,
        serving: ServingWishes::default(),
        tasks: stages.iter().enumerate().map(task).collect(),
        edges: stages.iter().enumerate().skip(1).map(edge).collect(),
        ..PipelineDraft::default()
    };
    let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
    let problem = ProblemDraft { hardware, pipelines: vec![pipeline], ..ProblemDraft::default() };
    let part = PipelinePlan {
        name: "p".into(),
        demand_qps: 10.0,
        accuracy: 0.0,
        serving: ServingPolicy { queueing, ..ServingPolicy::default() },
        assignments: stages.iter().enumerate().map(|(t, s)| assignment(t, "v", s.batch, s.replicas)).collect(),
        flows: Vec::new(),
        routing: Routing::default(),
        ladder: vec![],
    };
    let problem = Problem::new(problem).expect("a valid problem");
    Built { problem, plan: Plan { pipelines: vec![part], cost_per_hour: 7.0 } }
}

/// The same plan for a changed pipeline.
pub fn with_pipeline(built: &Built, change: impl FnOnce(&mut PipelineDraft)) -> Built {
    let Built { problem, plan } = built.clone();
    let pipeline = problem.pipelines[0].changed(&problem.hardware, change).expect("a valid pipeline");
    let problem = problem.changed(|draft| draft.pipelines[0] = pipeline).expect("a valid problem");
    Built { problem, plan }
}

/// A group's assignment.
pub fn assignment(task: usize, variant: &str, batch: u32, replicas: u32) -> Assignment {
    let (task, variant, hardware) = (format!("t{task}"), variant.into(), "h".into());
    Assignment {
        group: GroupName { task, variant, hardware, share: Share::WHOLE },
        batch,
        replicas,
        traffic_share: 1.0,
        latency_budget_ms: 0.0,
        utilisation: 0.0,
    }
}

/// Arrivals at these moments, in ns.
pub fn arrivals(nanos: &[u64]) -> Workload {
    let trace = ArrivalTrace::arrivals(nanos.iter().map(|&n| Moment::from_nanos(n)).collect()).expect("arrivals in order");
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 1 }
}

/// A constant rate for some seconds.
pub fn rate(qps: f64, seconds: u64, process: ArrivalProcess, seed: u64) -> Workload {
    let trace = ArrivalTrace::rates((0..seconds).map(|s| (s, qps)).collect()).expect("rates");
    Workload { traces: vec![trace], arrivals: process, seed }
}

/// A run with a record of each request. A run that keeps sums alone takes fast paths, and must give the same sums.
pub fn run(built: &Built, workload: &Workload) -> Simulation {
    let run = |requests| {
        let options = SimulateOptions { requests, ..SimulateOptions::default() };
        simulate(&built.problem, &built.plan, workload, &options).expect("a plan that can be simulated")
    };
    let (with_records, sums) = (run(true), run(false));
    assert_eq!((&sums.pipelines, &sums.total), (&with_records.pipelines, &with_records.total));
    with_records
}

/// When each request ended, in ns, in the order of arrival.
pub fn finishes(simulation: &Simulation) -> Vec<u64> {
    simulation.requests.iter().map(|r| r.finish.expect("answered").as_nanos()).collect()
}

/// Each task has a second variant `w`, twice as fast and half as accurate.
pub fn with_faster(built: Built) -> Built {
    with_pipeline(&built, |draft| {
        for task in &mut draft.tasks {
            let mut faster = task.variants[0].clone();
            faster.name = "w".into();
            faster.accuracy /= 2.0;
            let mut rows = faster.profile.rows().to_vec();
            rows.iter_mut().for_each(|r| r.latency_ms /= 2.0);
            faster.profile = Profile::new(rows);
            task.variants.push(faster);
        }
    })
}

/// A run with changes that keeps one record per request.
pub fn run_scenario(built: &Built, workload: &Workload, scenario: Scenario<'_>) -> Replay {
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    replay(&built.problem, &built.plan, workload, &options, scenario).expect("a run")
}
