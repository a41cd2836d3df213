//! When the time is up there is a plan nevertheless, valid and with a bound that holds.

use apportion_domain::{Mode, ObjectiveStep, PlanOutcome, PlanningReport, Problem, StopReason};
use apportion_needs::{Need, counted};
use apportion_planning::{Incumbent, Listener, PlanningOptions, StopSignal, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(50);

/// A pipeline of `tasks` in a chain, each with `variants` of growing accuracy and cost, on three kinds of device.
fn pipeline(name: &str, tasks: usize, variants: usize, demand_qps: f64) -> Value {
    let variant = |t: usize, v: usize| {
        let (size, wobble) = (1.0 + v as f64, 1.0 + 0.1 * ((7 * t + 3 * v) % 5) as f64);
        let rows = ["a", "b", "c"].iter().enumerate().flat_map(|(h, hardware)| {
            [1, 2, 4, 8, 16].map(|batch| {
                let latency_ms = (2.0 * size + 0.9 * size * f64::from(batch)) * wobble / (1.0 + h as f64);
                json!({"hardware": hardware, "batch": batch, "latency_ms": latency_ms})
            })
        });
        let accuracy = 0.7 + 0.29 * (v + 1) as f64 / variants as f64;
        json!({"name": format!("t{t}v{v}"), "accuracy": accuracy, "profile": rows.collect::<Vec<_>>()})
    };
    let task =
        |t: usize| json!({"name": format!("t{t}"), "variants": (0..variants).map(|v| variant(t, v)).collect::<Vec<_>>()});
    let edges = (1..tasks).map(|t| json!({"from": format!("t{}", t - 1), "to": format!("t{t}")}));
    json!({
        "name": name, "demand_qps": demand_qps, "slo_ms": 60.0 * tasks as f64,
        "tasks": (0..tasks).map(task).collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>(),
    })
}

fn problem(mode: &str, count: Option<u32>, pipelines: Vec<Value>) -> Problem {
    with_rule("task_budget", mode, count, pipelines)
}

fn with_rule(rule: &str, mode: &str, count: Option<u32>, pipelines: Vec<Value>) -> Problem {
    let hardware = ["a", "b", "c"].iter().zip([0.5, 0.8, 1.1]);
    let hardware: Vec<_> =
        hardware.map(|(name, price)| json!({"name": name, "price_per_hour": price, "count": count})).collect();
    let mut file = json!({"version": 1, "objective": {"mode": mode, "latency_rule": rule}, "hardware": hardware, "pipelines": pipelines});
    if mode == "min_cost" {
        file["pipelines"].as_array_mut().expect("pipelines").iter_mut().for_each(|p| p["min_accuracy"] = json!(0.2));
    }
    match read_problem("generated", &file.to_string()).expect("a valid problem") {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => unreachable!("it has pipelines"),
    }
}

fn judge(name: &str, problem: &Problem) {
    let start = Instant::now();
    let options = PlanningOptions { time_limit: Some(LIMIT), ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let (outcome, report) = plan(problem, &options);
    judge_answer(name, problem, &outcome, &report);
}

/// Checks the plan of a run, its value and its bound.
fn judge_answer(name: &str, problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport) {
    let objective = report.objective;
    eprintln!("{name}: {} {objective:?} in {:.3} s", outcome.status(), report.seconds);
    let plan = outcome.plan().unwrap_or_else(|| panic!("{name}: no plan: {outcome:?}"));
    assert_eq!(apportion_checker::check(problem, plan), [], "{name}");
    let (value, bound) = (objective.value.expect("a value"), objective.bound.expect("a bound"));
    assert!(value.is_finite() && bound.is_finite(), "{name}: {objective:?}");
    let maximised = objective.step == Some(ObjectiveStep::Accuracy) || problem.objective.mode == Mode::MaxAccuracy;
    assert!(if maximised { value <= bound + 1e-9 } else { value >= bound - 1e-9 }, "{name}: {objective:?}");
    assert!(matches!(outcome, PlanOutcome::Optimal(_) | PlanOutcome::Feasible { .. }));
}

/// Limit of a run that is stopped at its first plan, should it report none.
const UNSTOPPED: Duration = Duration::from_secs(10);

#[test]
fn a_run_stopped_at_its_first_plan_returns_it() {
    let mut stopped = 0;
    for mode in ["min_cost", "max_accuracy", "hardware_then_accuracy"] {
        let count = (mode != "min_cost").then_some(60);
        let hard = vec![pipeline("p", 4, 10, 731.0)];
        let many = (0..10).map(|p| pipeline(&format!("p{p}"), 3, 5, 40.0 + p as f64)).collect();
        for (size, pipelines) in [("4 tasks", hard), ("10 pipelines", many)] {
            let problem = problem(mode, count, pipelines);
            let stop = Arc::new(StopSignal::default());
            let asked = stop.clone();
            let listener = move |now: Incumbent| {
                if now.value.is_some() {
                    asked.ask();
                }
            };
            let start = Instant::now();
            let base = PlanningOptions::new(Arc::new(move || start.elapsed()));
            let (time_limit, listener) = (Some(UNSTOPPED), Some(Arc::new(listener) as Listener));
            let options = PlanningOptions { gap: 0.0, time_limit, stop, listener, ..base };
            let (outcome, report) = plan(&problem, &options);
            judge_answer(&format!("{mode}, {size}"), &problem, &outcome, &report);
            stopped += u32::from(outcome.stopped() == Some(StopReason::Stopped));
        }
    }
    assert!(stopped > 0, "no run was stopped");
}

#[test]
fn a_large_problem_has_a_plan_when_the_limit_strikes() {
    for mode in ["min_cost", "max_accuracy", "hardware_then_accuracy"] {
        let count = (mode != "min_cost").then_some(60);
        let many = (0..10).map(|p| pipeline(&format!("p{p}"), 3, 5, 40.0 + p as f64)).collect();
        judge(&format!("{mode}, 10 pipelines of 3 tasks with 5 variants"), &problem(mode, count, many));
        let wide = vec![pipeline("p", 3, 30, 900.0)];
        judge(&format!("{mode}, 3 tasks with 30 variants"), &problem(mode, count, wide));
        let long = vec![pipeline("p", 20, 6, 60.0)];
        judge(&format!("{mode}, 20 tasks with 6 variants"), &problem(mode, count, long));
    }
}

/// Microseconds that a clock of calls goes on with each look at it.
const STEPS_US: [u64; 8] = [1, 5, 20, 50, 100, 200, 400, 800];

#[test]
fn an_early_stop_has_a_plan_or_says_time_limit() {
    let additive = json!({"accuracy_model": "mean"});
    let cases = [("task_budget", json!({})), ("task_budget", additive), ("path", json!({}))];
    let mut planned = 0;
    for ((rule, keys), step_us) in cases.iter().flat_map(|case| STEPS_US.map(|step_us| (case, step_us))) {
        let mut wide = pipeline("p", 3, 30, 900.0);
        wide.as_object_mut().expect("keys").extend(keys.as_object().expect("keys").clone());
        let wide = with_rule(rule, "max_accuracy", Some(60), vec![wide]);
        let calls = AtomicU64::new(0);
        let clock = move || Duration::from_micros(step_us * calls.fetch_add(1, Ordering::Relaxed));
        let options = PlanningOptions { time_limit: Some(LIMIT), ..PlanningOptions::new(Arc::new(clock)) };
        let (outcome, report) = plan(&wide, &options);
        let run = format!("{rule}, {keys}, {step_us} us a call");
        eprintln!("{run}: {} {:?}", outcome.status(), report.objective);
        match (&outcome, outcome.plan()) {
            (_, Some(plan)) => {
                assert_eq!(apportion_checker::check(&wide, plan), [], "{run}");
                planned += 1;
            }
            (PlanOutcome::Unknown { stopped: StopReason::TimeLimit }, None) => {}
            (_, None) => panic!("{run}: {outcome:?}"),
        }
    }
    let runs = cases.len() * STEPS_US.len();
    assert!(planned >= runs / 2, "only {planned} of {runs} runs have a plan");
}

#[test]
fn rule_path_has_a_plan_when_the_limit_strikes() {
    let wide = problem("max_accuracy", Some(60), vec![pipeline("p", 3, 12, 900.0)]);
    let by_path = wide.changed(|d| d.objective.latency_rule = apportion_domain::LatencyRule::Path).expect("valid");
    judge("path, 3 tasks with 12 variants", &by_path);
}

#[test]
fn every_sample_has_a_plan_when_the_limit_strikes() {
    let Some(folder) = apportion_needs::data().map(|data| data.join("problems")) else { return };
    let expected = std::fs::read_to_string(folder.join("expected.csv")).expect("expected.csv");
    let wanted = |line: &&str| line.contains(",task_budget,") && !line.contains(",infeasible,");
    for line in counted(Need::Data, expected.lines().skip(1).filter(wanted).collect()) {
        let name = line.split(',').next().expect("a name");
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("a sample");
        let Ok(ProblemFile::Allocation(problem)) = read_problem(name, &text) else { panic!("{name} is no allocation") };
        judge(name, &problem);
    }
}
