//! How fast is the simulation of a chain, in task visits per second of the caller's clock?

use apportion_domain::{
    ArrivalTrace, Assignment, Batching, Dropping, Edge, GroupName, Hardware, HardwareIndex, Pipeline, PipelineDraft,
    PipelinePlan, Plan, Problem, ProblemDraft, Profile, ProfileRow, Queueing, Route, Routing, RoutingPolicy, ServingPolicy,
    Share, Task, TaskIndex, TaskKind, Variant,
};
use apportion_estimator::{ArrivalProcess, SimulateOptions, Workload, draw, simulate};
use std::collections::BTreeMap;

/// Queries per second of the benchmark.
pub const DEMAND_QPS: f64 = 1_000.0;
/// An hour.
pub const SECONDS: u64 = 3_600;

/// The measured policies with their names.
pub const ROWS: [(&str, ServingPolicy); 4] = [
    ("central", policy(Queueing::Central, Batching::AtStart, Dropping::Naive)),
    ("per_replica", policy(Queueing::PerReplica, Batching::AtStart, Dropping::Naive)),
    ("per_replica, reroute", policy(Queueing::PerReplica, Batching::AtStart, Dropping::Reroute)),
    ("per_replica, forming, pard", policy(Queueing::PerReplica, Batching::Forming, Dropping::Pard)),
];

const fn policy(queueing: Queueing, batching: Batching, dropping: Dropping) -> ServingPolicy {
    ServingPolicy { queueing, batching, routing: RoutingPolicy::Stride, dropping }
}

/// Figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSpeed {
    /// Queries that joined a queue.
    pub visits: u64,
    /// Seconds of the caller's clock.
    pub seconds: f64,
    /// Share of the requests within the SLO. It shows that the run was no overload.
    pub attainment: f64,
}

impl RunSpeed {
    /// Visits per second.
    #[must_use]
    pub fn visits_per_second(&self) -> f64 {
        self.visits as f64 / self.seconds
    }
}

/// Runs a chain of three tasks for `seconds` of simulated time, and measures it with `cpu_seconds`, a clock that counts up.
/// It receives 1,000 queries per second in batches of up to 8, which is 83 % of its capacity with full batches.
#[must_use]
pub fn visits_per_second(serving: ServingPolicy, seconds: u64, cpu_seconds: impl Fn() -> f64) -> RunSpeed {
    let trace = Ok::<_, std::convert::Infallible>(rates(seconds));
    let Ok(speed) = visits_per_second_of(serving, || trace, cpu_seconds);
    speed
}

fn rates(seconds: u64) -> ArrivalTrace {
    ArrivalTrace::Rates((0..seconds).map(|s| (s, DEMAND_QPS)).collect())
}

/// The arrivals of the same runs, as a list.
#[must_use]
pub fn arrivals(seconds: u64) -> ArrivalTrace {
    ArrivalTrace::Arrivals(draw(&rates(seconds), ArrivalProcess::Poisson, 1, "chain"))
}

/// The same measurement with a trace of the caller. The time to get the trace counts.
///
/// # Errors
/// The caller's, if there is no trace.
pub fn visits_per_second_of<E>(
    serving: ServingPolicy,
    trace: impl FnOnce() -> Result<ArrivalTrace, E>,
    cpu_seconds: impl Fn() -> f64,
) -> Result<RunSpeed, E> {
    let (problem, plan) = (chain_problem(), chain_plan(serving));
    let before = cpu_seconds();
    let workload = Workload { traces: vec![trace()?], arrivals: ArrivalProcess::Poisson, seed: 1 };
    let run = simulate(&problem, &plan, &workload, &SimulateOptions::default()).expect("a plan that fits its problem");
    Ok(RunSpeed { visits: run.visits, seconds: cpu_seconds() - before, attainment: run.total.attainment })
}

/// Tasks of the chain.
const TASKS: usize = 3;

/// The problem: three equal tasks in a chain.
fn chain_problem() -> Problem {
    let hardware = Hardware { name: "device".into(), price_per_hour: 1.0, count: None, memory_mib: None };
    let row = |batch: u32| ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, batch, 4.0 + 2.0 * f64::from(batch));
    let variant = Variant {
        name: "v".into(),
        accuracy: 0.9,
        fanout: 1.0,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new([1, 2, 4, 8].into_iter().map(row).collect()),
    };
    let task = |t: usize| Task {
        name: format!("t{t}"),
        kind: TaskKind::Batch,
        route: Route::All,
        min_replicas: 1,
        variants: vec![variant.clone()],
    };
    let edge = |t: usize| Edge::between(TaskIndex(t), TaskIndex(t + 1));
    let draft = PipelineDraft {
        name: "chain".into(),
        demand_qps: DEMAND_QPS,
        slo_ms: 250.0,
        tasks: (0..TASKS).map(task).collect(),
        edges: (0..TASKS - 1).map(edge).collect(),
        ..PipelineDraft::default()
    };
    let hardware = vec![hardware];
    let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
    let problem = ProblemDraft { hardware, pipelines: vec![pipeline], ..ProblemDraft::default() };
    Problem::new(problem).expect("a valid problem")
}

/// The plan: three replicas of each task with batches of eight.
fn chain_plan(serving: ServingPolicy) -> Plan {
    let assignment = |t: usize| Assignment {
        group: GroupName { task: format!("t{t}"), variant: "v".into(), hardware: "device".into(), share: Share::WHOLE },
        batch: 8,
        replicas: 3,
        traffic_share: 1.0,
        latency_budget_ms: 40.0,
        utilisation: 0.833,
    };
    let part = PipelinePlan {
        name: "chain".into(),
        demand_qps: DEMAND_QPS,
        accuracy: 0.729,
        serving,
        assignments: (0..TASKS).map(assignment).collect(),
        flows: Vec::new(),
        routing: Routing::default(),
        ladder: vec![],
    };
    Plan { pipelines: vec![part], cost_per_hour: 12.0 }
}
