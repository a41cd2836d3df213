//! Where queries go and what their paths are worth: tables, flows, capacities, choices among children, measured paths.

use crate::common::{Built, Fan, Stage, arrivals, assignment, build, finishes, rate, run, stage};
use apportion_domain::Queueing::{Central, PerReplica};
use apportion_domain::{
    AccuracyModel, ArrivalTrace, Flow, GroupName, PathAccuracy, PipelineDraft, Problem, Queueing, Route, RoutingEntry,
    RoutingPolicy, RoutingTable, ServingPolicy, Share, TaskIndex, VariantIndex,
};
use apportion_estimator::{ArrivalProcess, SimulateError, SimulateOptions, Simulation, Workload, simulate};

const MS: u64 = 1_000_000;

fn group(task: &str, variant: &str) -> GroupName {
    GroupName { task: task.into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE }
}

/// The problem with its first pipeline changed.
fn changed(problem: &Problem, change: impl FnOnce(&mut PipelineDraft)) -> Problem {
    let pipeline = problem.pipelines[0].changed(&problem.hardware, change).expect("a valid pipeline");
    problem.changed(|draft| draft.pipelines[0] = pipeline).expect("a valid problem")
}

/// One task whose second variant `w` is twice as fast and half as accurate; one replica of each, batch 1.
fn two_variants(queueing: Queueing) -> Built {
    let Built { problem, mut plan } = build(&[stage(0, 1, 1, 20.0, 0.0)], queueing, 0.0, 1e6);
    let problem = changed(&problem, |draft| {
        let mut faster = draft.tasks[0].variants[0].clone();
        faster.name = "w".into();
        faster.accuracy = 0.45;
        let mut rows = faster.profile.rows().to_vec();
        rows.iter_mut().for_each(|r| r.latency_ms /= 2.0);
        faster.profile = apportion_domain::Profile::new(rows);
        draft.tasks[0].variants.push(faster);
    });
    plan.pipelines[0].assignments.push(assignment(0, "w", 1, 1));
    Built { problem, plan }
}

/// Share of the requests that the accurate variant served.
fn accurate_share(simulation: &Simulation) -> f64 {
    let accurate = simulation.requests.iter().filter(|r| r.accuracy == 0.9).count();
    accurate as f64 / simulation.requests.len() as f64
}

fn twelve() -> Workload {
    arrivals(&(0..12).map(|i| i * 100 * MS).collect::<Vec<_>>())
}

#[test]
fn without_tables_and_flows_traffic_follows_capacity() {
    for queueing in [Central, PerReplica] {
        // 50 and 100 queries per second.
        let simulation = run(&two_variants(queueing), &twelve());
        assert!((accurate_share(&simulation) - 1.0 / 3.0).abs() < 1e-9, "{queueing}: {}", accurate_share(&simulation));
        assert!((simulation.total.accuracy - (0.9 + 2.0 * 0.45) / 3.0).abs() < 1e-9);
    }
}

#[test]
fn flows_decide_before_capacity_and_tables_before_flows() {
    let Built { problem, mut plan } = two_variants(PerReplica);
    let flow = |variant, share| Flow { path: vec![group("t0", variant)], share };
    plan.pipelines[0].flows = vec![flow("v", 0.75), flow("w", 0.25)];
    assert_eq!(accurate_share(&run(&Built { problem: problem.clone(), plan: plan.clone() }, &twelve())), 0.75);
    let entry = |variant, fraction| RoutingEntry { to: group("t0", variant), fraction };
    let entries = vec![entry("v", 0.25), entry("w", 0.75)];
    plan.pipelines[0].routing.tables = vec![RoutingTable { from: None, to_task: "t0".into(), entries }];
    assert_eq!(accurate_share(&run(&Built { problem, plan }, &twelve())), 0.25);
}

#[test]
fn most_accurate_first_makes_its_own_tables() {
    let Built { problem, mut plan } = two_variants(PerReplica);
    plan.pipelines[0].serving.routing = RoutingPolicy::MostAccurateFirst;
    // The accurate variant serves 50 per second: all of a demand of 10, and five sixths of a demand of 60.
    assert_eq!(accurate_share(&run(&Built { problem: problem.clone(), plan: plan.clone() }, &twelve())), 1.0);
    plan.pipelines[0].demand_qps = 60.0;
    let share = accurate_share(&run(&Built { problem, plan }, &twelve()));
    assert!((share - 5.0 / 6.0).abs() < 1e-9, "{share}");
}

#[test]
fn jsq_picks_the_replica_with_fewest_queries() {
    // One query takes 1 ms, two together 30 ms. The first replica starts with two, so the turn of the fifth query falls on
    // it while the second replica is idle.
    let Built { problem, mut plan } = build(&[stage(0, 2, 2, -28.0, 29.0)], PerReplica, 0.0, 1e6);
    plan.pipelines[0].serving.routing = RoutingPolicy::Jsq;
    let at = arrivals(&[0, 0, 0, 5 * MS, 10 * MS]);
    let ends = |simulation: &Simulation| finishes(simulation).into_iter().map(|end| end / MS).collect::<Vec<_>>();
    assert_eq!(ends(&run(&Built { problem: problem.clone(), plan: plan.clone() }, &at)), [30, 1, 30, 6, 11]);
    // The options' policy replaces the plan's.
    let turns = ServingPolicy { queueing: PerReplica, ..ServingPolicy::default() };
    let options = SimulateOptions { requests: true, serving: Some(turns), ..SimulateOptions::default() };
    assert_eq!(ends(&simulate(&problem, &plan, &at, &options).expect("a run")), [30, 1, 30, 6, 31]);
}

#[test]
fn one_of_picks_children_by_their_ratios() {
    let stages = [stage(0, 4, 1, 1.0, 0.0), stage(0, 8, 1, 1.0, 0.0), stage(0, 8, 1, 1.0, 0.0)];
    let Built { problem, plan } = build(&stages, Central, 0.0, 1e6);
    let problem = changed(&problem, |draft| {
        draft.tasks[0].route = Route::OneOf;
        draft.tasks[0].variants[0].fanout_to.clear();
        draft.tasks[0].variants[0].fanout = 2.0;
        (draft.edges[0].ratio, draft.edges[1].ratio) = (0.25, 0.75);
    });
    let simulation = run(&Built { problem, plan }, &rate(200.0, 60, ArrivalProcess::Poisson, 3));
    let visits: Vec<f64> = simulation.total.waiting.iter().map(|w| w.queries as f64).collect();
    assert_eq!(visits[1] + visits[2], 2.0 * visits[0], "two queries each, whichever child");
    assert!((visits[1] / (visits[1] + visits[2]) - 0.25).abs() < 0.02, "{visits:?}");
}

#[test]
fn measured_paths_replace_the_formula_and_the_others_keep_it() {
    let Built { problem, plan } = build(&[stage(0, 1, 1, 1.0, 0.0), stage(0, 1, 1, 1.0, 0.0)], Central, 0.0, 1e6);
    let accuracy = |problem: Problem| run(&Built { problem, plan: plan.clone() }, &arrivals(&[0])).total.accuracy;
    let path = |tasks: usize| (0..tasks).map(|t| (TaskIndex(t), VariantIndex(0))).collect::<Vec<_>>();
    let measured = |tasks, accuracy| vec![PathAccuracy { path: path(tasks), accuracy }];
    assert!((accuracy(problem.clone()) - 0.81).abs() < 1e-12);
    assert_eq!(accuracy(changed(&problem, |d| d.path_accuracy = measured(2, 0.7))), 0.7);
    assert!((accuracy(changed(&problem, |d| d.path_accuracy = measured(1, 0.7))) - 0.81).abs() < 1e-12);
    let mean = |d: &mut PipelineDraft| {
        d.accuracy_model = AccuracyModel::Mean;
        d.tasks[1].variants[0].accuracy = 0.5;
    };
    assert!((accuracy(changed(&problem, mean)) - 0.7).abs() < 1e-12);
}

#[test]
fn accuracy_weighs_sinks_or_counts_each_task() {
    // The root (0.9) makes three queries at t1 (0.5) and one at t2 (1.0).
    let three = Stage { fanout: Fan::Counts(vec![(3, 1.0)]), accuracy: 0.5, ..stage(0, 1, 1, 1.0, 0.0) };
    let one = Stage { accuracy: 1.0, ..stage(0, 1, 1, 1.0, 0.0) };
    let Built { problem, plan } = build(&[stage(0, 1, 1, 1.0, 0.0), three, one], Central, 0.0, 1e6);
    let accuracy = |problem: Problem| run(&Built { problem, plan: plan.clone() }, &arrivals(&[0])).total.accuracy;
    assert!((accuracy(problem.clone()) - (0.45 + 0.9) / 2.0).abs() < 1e-12);
    let weighted = changed(&problem, |d| d.leaf_weights = [(TaskIndex(1), 3.0), (TaskIndex(2), 1.0)].into());
    assert!((accuracy(weighted) - (0.75 * 0.45 + 0.25 * 0.9)).abs() < 1e-12);
    let by_task = changed(&problem, |d| d.accuracy_model = AccuracyModel::TaskMean);
    assert!((accuracy(by_task) - (0.9 + 0.5 + 1.0) / 3.0).abs() < 1e-12);
}

#[test]
fn pipelines_of_one_problem_have_their_own_numbers() {
    let Built { problem: first, mut plan } = build(&[stage(0, 1, 1, 10.0, 0.0)], Central, 0.0, 15.0);
    let Built { problem: second, plan: other } = build(&[stage(0, 1, 1, 30.0, 0.0)], PerReplica, 0.5, 100.0);
    let renamed = second.pipelines[0].changed(&second.hardware, |d| d.name = "q".into()).expect("valid");
    let problem = first.changed(|d| d.pipelines.push(renamed)).expect("valid");
    plan.pipelines.extend(other.pipelines.into_iter().map(|p| apportion_domain::PipelinePlan { name: "q".into(), ..p }));
    let trace = |at: &[u64]| arrivals(at).traces.remove(0);
    let traces: Vec<ArrivalTrace> = vec![trace(&[0, 5 * MS]), trace(&[0])];
    let workload = Workload { traces, arrivals: ArrivalProcess::Poisson, seed: 1 };
    let simulation = run(&Built { problem: problem.clone(), plan: plan.clone() }, &workload);
    assert_eq!(finishes(&simulation), [10 * MS, 20 * MS, 30 * MS + MS / 2]);
    let counts: Vec<_> = simulation.pipelines.iter().map(|e| (e.ok, e.late)).collect();
    assert_eq!((counts, simulation.total.ok, simulation.total.requests), (vec![(2, 0), (1, 0)], 3, 3));
    plan.pipelines.pop();
    let error = simulate(&problem, &plan, &workload, &SimulateOptions::default()).expect_err("traffic without replicas");
    assert!(matches!(&error, SimulateError::Plan(what) if what.contains("\"q\"")), "{error}");
    let one_trace = arrivals(&[0]);
    let error = simulate(&problem, &plan, &one_trace, &SimulateOptions::default()).expect_err("a trace too few");
    assert!(matches!(error, SimulateError::Workload { traces: 1, pipelines: 2 }), "{error}");
}
