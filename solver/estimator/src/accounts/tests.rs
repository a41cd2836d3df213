//! Runs whose accounts cannot be kept apart to their end.

use super::{ApartRun, play, play_apart};
use crate::compile::CompiledPlan;
use crate::input::options::SimulateOptions;
use crate::input::workload::{Arrivals, Workload};
use crate::simulate::simulate;
use crate::state::bounds::Stop;
use apportion_domain::{
    ArrivalTrace, Assignment, Edge, GroupName, Hardware, HardwareIndex, Pipeline, PipelineDraft, PipelinePlan, Plan,
    Problem, ProblemDraft, Profile, ProfileRow, Route, Routing, ServingPolicy, Share, Task, TaskIndex, TaskKind, Variant,
};
use apportion_serving::{Dropper, Station};
use std::collections::BTreeMap;

const QPS: f64 = 400.0;

/// A detector that makes `fanout` queries at a classifier, and a plan with four replicas of each.
fn detector(fanout: f64) -> (Problem, Plan) {
    let hardware = vec![Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
    let row = |batch: u32| ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, batch, 1.0 + f64::from(batch));
    let variant = |fanout: f64| Variant {
        name: "v".into(),
        accuracy: 0.9,
        fanout,
        fanout_to: BTreeMap::new(),
        fanout_counts: BTreeMap::new(),
        load_ms: 0.0,
        memory_mib: None,
        profile: Profile::new((1..=8).map(row).collect()),
    };
    let task = |(t, fanout): (usize, f64)| Task {
        name: format!("t{t}"),
        kind: TaskKind::Batch,
        route: Route::All,
        min_replicas: 0,
        variants: vec![variant(fanout)],
    };
    let draft = PipelineDraft {
        name: "p".into(),
        demand_qps: QPS,
        slo_ms: 6.0,
        tasks: [fanout, 1.0].into_iter().enumerate().map(task).collect(),
        edges: vec![Edge::between(TaskIndex(0), TaskIndex(1))],
        ..PipelineDraft::default()
    };
    let pipeline = Pipeline::new(draft, &hardware, "").expect("a valid pipeline");
    let problem = ProblemDraft { hardware, pipelines: vec![pipeline], ..ProblemDraft::default() };
    let assignment = |t: usize| Assignment {
        group: GroupName { task: format!("t{t}"), variant: "v".into(), hardware: "h".into(), share: Share::WHOLE },
        batch: 8,
        replicas: 4,
        traffic_share: 1.0,
        latency_budget_ms: 20.0,
        utilisation: 0.5,
    };
    let part = PipelinePlan {
        name: "p".into(),
        demand_qps: QPS,
        accuracy: 0.81,
        serving: ServingPolicy::default(),
        assignments: (0..2).map(assignment).collect(),
        flows: Vec::new(),
        routing: Routing::default(),
        ladder: Vec::new(),
    };
    (Problem::new(problem).expect("a valid problem"), Plan { pipelines: vec![part], cost_per_hour: 8.0 })
}

#[test]
fn a_dropped_query_ends_the_second_thread() {
    let (problem, plan) = detector(2.5);
    let (workload, options) = (Workload::default_for(&problem), SimulateOptions::default());
    for queue_len_max in [1, 1 << 20] {
        let mut state = CompiledPlan::new(&problem, &plan, &workload, &options).expect("a plan").into_state(&options);
        for station in &mut state.serving.stations {
            *station = Station::new(1, station.batcher(), Dropper::Never, queue_len_max);
        }
        let run = play(state, Arrivals::of(&problem, &workload));
        let ends_as_expected = match run {
            ApartRun::GivenUp => queue_len_max == 1,
            ApartRun::Done(_) => queue_len_max > 1,
            ApartRun::Stopped => false,
        };
        assert!(ends_as_expected, "{queue_len_max}: {run:?}");
    }
}

#[test]
fn the_second_thread_counts_as_the_first_one_does() {
    // a request with one query, and requests with several
    for fanout in [0.6, 1.0, 3.4] {
        let (problem, plan) = detector(fanout);
        let (workload, options) = (Workload::default_for(&problem), SimulateOptions::default());
        let ApartRun::Done(apart) = play_apart(&problem, &plan, &workload, &options).expect("a plan") else {
            panic!("{fanout}: a run to its end")
        };
        let apart = apart.result(&problem, &plan, workload.seed);
        let alone = simulate(&problem, &plan, &workload, &options).expect("a run");
        assert_eq!((&apart.pipelines, &apart.total, apart.visits), (&alone.pipelines, &alone.total, alone.visits));
        let both = [alone.total.ok, alone.total.late];
        assert!(alone.total.requests > 20_000 && !both.contains(&0), "{fanout}: {:?}", alone.total);
    }
}

#[test]
fn a_stopped_run_stops_its_second_thread() {
    let (problem, plan) = detector(2.5);
    let options = SimulateOptions { stop: Stop::when(|| true), ..SimulateOptions::default() };
    let run = play_apart(&problem, &plan, &Workload::default_for(&problem), &options).expect("a plan");
    assert!(matches!(run, ApartRun::Stopped), "{run:?}");
}

#[test]
fn a_run_that_may_meet_its_memory_is_given_up() {
    let (problem, plan) = detector(1e5);
    let trace = ArrivalTrace::rates((0..3).map(|s| (s, QPS)).collect()).expect("rates");
    let workload = Workload { traces: vec![trace], ..Workload::default_for(&problem) };
    let run = play_apart(&problem, &plan, &workload, &SimulateOptions::default()).expect("a plan");
    assert!(matches!(run, ApartRun::GivenUp), "{run:?}");
}
