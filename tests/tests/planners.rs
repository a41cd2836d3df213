//! The planners on loads: plans of the check loop and of the greedy planner hold on the trace they were made for.

use apportion_domain::{PlanOutcome, PlanStatus, PlanningReport, Problem, StopReason};
use apportion_estimator::{SimulateOptions, Workload, simulate};
use apportion_planning::{Planner, PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Like the digits example as measured: canvases with 2 to 9 digits, six devices.
fn digits(demand_qps: f64, mode: &str) -> Problem {
    let text = format!(
        r#"
version: 1
objective: {{mode: {mode}}}
hardware: [{{name: demo, price_per_hour: 1.0, count: 6}}]
pipelines:
  - name: digits
    demand_qps: {demand_qps}
    slo_ms: 400
    percentile: 99
    network_ms: 0.5
    tasks:
      - name: find
        variants:
          - {{name: find-l, accuracy: 0.99, fanout_counts: {{read: {{2: 0.2, 4: 0.3, 6: 0.3, 9: 0.2}}}}, profile: [
              {{hardware: demo, batch: 1, latency_ms: 35}}, {{hardware: demo, batch: 2, latency_ms: 62}},
              {{hardware: demo, batch: 4, latency_ms: 118}}]}}
          - {{name: find-s, accuracy: 0.90, fanout_counts: {{read: {{2: 0.3, 4: 0.3, 6: 0.3, 9: 0.1}}}}, profile: [
              {{hardware: demo, batch: 1, latency_ms: 9}}, {{hardware: demo, batch: 2, latency_ms: 16}},
              {{hardware: demo, batch: 4, latency_ms: 30}}]}}
      - name: read
        variants:
          - {{name: read-l, accuracy: 0.98, profile: [{{hardware: demo, batch: 1, latency_ms: 4}},
              {{hardware: demo, batch: 4, latency_ms: 12}}, {{hardware: demo, batch: 16, latency_ms: 42}},
              {{hardware: demo, batch: 32, latency_ms: 80}}]}}
          - {{name: read-s, accuracy: 0.93, profile: [{{hardware: demo, batch: 1, latency_ms: 1.5}},
              {{hardware: demo, batch: 4, latency_ms: 4}}, {{hardware: demo, batch: 16, latency_ms: 13}},
              {{hardware: demo, batch: 32, latency_ms: 25}}]}}
    edges: [{{from: find, to: read}}]
"#
    );
    match read_problem("digits.yaml", &text).unwrap_or_else(|e| panic!("{e}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("not a scaling problem"),
    }
}

fn solve(problem: &Problem, planner: Planner, trace: Option<Workload>) -> (PlanOutcome, PlanningReport) {
    let start = Instant::now();
    let elapsed = Arc::new(move || start.elapsed());
    let options = PlanningOptions { planner, trace, ..PlanningOptions::new(elapsed) };
    plan(problem, &options)
}

fn attainment(problem: &Problem, outcome: &PlanOutcome, workload: &Workload) -> f64 {
    let plan = outcome.plan().expect("a plan");
    simulate(problem, plan, workload, &SimulateOptions::default()).expect("a run").total.attainment
}

#[test]
fn plans_of_the_check_loop_hold_on_their_trace() {
    for demand in [20.0, 40.0, 60.0, 80.0, 120.0] {
        let problem = digits(demand, "hardware_then_accuracy");
        let workload = Workload::default_for(&problem);
        let (outcome, report) = solve(&problem, Planner::Milp, Some(workload.clone()));
        for r in &report.rounds {
            eprintln!(
                "{demand}: round {} replicas {} {:?} attainment {:.4} p99 {:.1} headroom {:?} charge {:?}",
                r.round, r.replicas, r.objective, r.attainment, r.p99_ms, r.headroom, r.charge_ms
            );
        }
        eprintln!("{demand}: {} {:?} {:.2} s", outcome.status(), report.objective, report.seconds);
        let reached = attainment(&problem, &outcome, &workload);
        assert_ne!(outcome.stopped(), Some(StopReason::TraceNotMet), "demand {demand}: {reached}");
        assert!(reached >= 0.99, "demand {demand}: {reached}");
        assert_eq!(apportion_checker::check(&problem, outcome.plan().expect("a plan")), []);
    }
}

#[test]
fn plans_that_pass_their_replay_are_handed_out() {
    let problem = digits(60.0, "hardware_then_accuracy");
    let handed_out = Arc::new(Mutex::new(Vec::new()));
    let received = handed_out.clone();
    let listener = move |outcome: &PlanOutcome, report: &PlanningReport| {
        received.lock().expect("no panic").push((outcome.clone(), report.clone()));
    };
    let start = Instant::now();
    let trace = Some(Workload::default_for(&problem));
    let base = PlanningOptions::new(Arc::new(move || start.elapsed()));
    let (outcome, _) = plan(&problem, &PlanningOptions { trace, plan_listener: Some(Arc::new(listener)), ..base });
    assert!(outcome.plan().is_some(), "{outcome:?}");
    let handed_out = handed_out.lock().expect("no panic");
    eprintln!("{} plans were handed out", handed_out.len());
    assert!(!handed_out.is_empty());
    for (outcome, report) in handed_out.iter() {
        let plan = outcome.plan().expect("a plan");
        assert_eq!(apportion_checker::check(&problem, plan), []);
        assert_eq!((outcome.status(), outcome.stopped()), (PlanStatus::Feasible, None));
        assert!(report.objective.value.is_some() && report.estimate.is_some(), "{report:?}");
    }
    let plans: Vec<_> = handed_out.iter().filter_map(|(outcome, _)| outcome.plan()).collect();
    assert!(plans.windows(2).all(|two| two[0] != two[1]), "each is better than the one before");
}

#[test]
fn the_best_plan_answers_a_trace_that_none_meets() {
    let problem = digits(200.0, "hardware_then_accuracy");
    // four and a half times the demand: more than six devices serve
    let workload = Workload::default_for(&digits(900.0, "hardware_then_accuracy"));
    let (outcome, report) = solve(&problem, Planner::Milp, Some(workload.clone()));
    eprintln!("{} {:?} rounds {}", outcome.status(), outcome.stopped(), report.rounds.len());
    assert_eq!(outcome.status(), PlanStatus::Feasible);
    assert_eq!(outcome.stopped(), Some(StopReason::TraceNotMet));
    let reached = attainment(&problem, &outcome, &workload);
    let best = report.rounds.iter().map(|r| r.attainment).fold(0.0, f64::max);
    assert!(reached < 0.99 && reached == best, "{reached}, best round {best}");
}

#[test]
fn greedy_plans_hold_and_no_single_removal_does() {
    let problem = digits(30.0, "min_cost");
    let workload = Workload::default_for(&problem);
    let (outcome, report) = solve(&problem, Planner::Greedy, Some(workload.clone()));
    eprintln!("{outcome:?} {:.2} s", report.seconds);
    assert_eq!(outcome.status(), PlanStatus::Feasible);
    assert_eq!((outcome.stopped(), report.objective.bound), (None, None));
    assert!(attainment(&problem, &outcome, &workload) >= 0.99);
    let best = outcome.plan().expect("a plan");
    assert_eq!(apportion_checker::check(&problem, best), []);
    for (i, a) in best.pipelines[0].assignments.iter().enumerate().filter(|(_, a)| a.replicas > 1) {
        let mut fewer = best.clone();
        fewer.pipelines[0].assignments[i].replicas -= 1;
        fewer.pipelines[0].assignments[i].utilisation = 0.0;
        fewer.cost_per_hour = 0.0;
        let clean = apportion_checker::check(&problem, &fewer).is_empty();
        let run = simulate(&problem, &fewer, &workload, &SimulateOptions::default()).expect("a run");
        assert!(!clean || run.total.attainment < 0.99, "{} can do with a replica less", a.group);
    }
}

#[test]
fn a_cancelled_run_says_so_and_claims_nothing() {
    let problem = digits(200.0, "min_cost");
    let cancel = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let elapsed = Arc::new(std::time::Duration::default);
    let options = PlanningOptions { cancel, ..PlanningOptions::new(elapsed) };
    let (outcome, report) = plan(&problem, &options);
    assert_eq!(outcome, PlanOutcome::Unknown { stopped: StopReason::Cancelled });
    assert_eq!((report.objective.value, report.objective.bound), (None, None));
}

#[test]
fn a_run_stopped_at_once_has_a_plan_and_says_why() {
    // without a budget, the first budget vector proves the optimum at once
    let problem = digits(30.0, "min_cost").changed(|d| d.objective.budget_per_hour = Some(100.0)).expect("a budget");
    let options = PlanningOptions::new(Arc::new(std::time::Duration::default));
    options.stop.ask();
    let (outcome, report) = plan(&problem, &options);
    let found = outcome.plan().expect("that of the local search");
    assert_eq!(apportion_checker::check(&problem, found), []);
    assert_eq!(outcome.stopped(), Some(StopReason::Stopped));
    let (value, bound) = (report.objective.value.expect("a value"), report.objective.bound.expect("a bound"));
    assert!(bound <= value + 1e-9, "{bound} above {value}");
}
