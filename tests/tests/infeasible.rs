//! Infeasible problems of different kinds: the change that each shortfall proposes makes the problem feasible, and half of
//! the change does not.

use apportion_domain::{Constraint, PlanOutcome, Problem, Relaxation, Shortfall};
use apportion_planning::{PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

fn read(file: &Value) -> Problem {
    match read_problem("infeasible.json", &file.to_string()).unwrap_or_else(|e| panic!("{e}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("not a scaling problem"),
    }
}

fn solve(file: &Value) -> PlanOutcome {
    let problem = read(file);
    let start = Instant::now();
    let options = PlanningOptions { gap: 1e-6, ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let (outcome, _) = plan(&problem, &options);
    if let Some(plan) = outcome.plan() {
        assert_eq!(apportion_checker::check(&problem, plan), []);
    }
    outcome
}

/// The file with the value at the pointer changed.
fn with(file: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = file.clone();
    *changed.pointer_mut(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")) = value;
    changed
}

/// Whole numbers in the file stay whole: half of a change is rounded back to where it came from.
fn half(file: &Value, relax: &Relaxation) -> Value {
    let middle = relax.from + 0.5 * (relax.to - relax.from);
    let is_whole = ["count", "min_replicas", "survive"].iter().any(|name| relax.pointer.ends_with(name));
    let value = match (is_whole, relax.to > relax.from) {
        (true, true) => json!(middle.floor() as u64),
        (true, false) => json!(middle.ceil() as u64),
        (false, _) => json!(middle),
    };
    with(file, &relax.pointer, value)
}

/// Checks every relaxation of an infeasible problem and returns the shortfalls.
#[track_caller]
fn shortfalls(file: &Value) -> Vec<Shortfall> {
    let PlanOutcome::Infeasible { shortfalls } = solve(file) else { panic!("feasible: {file}") };
    let relaxations: Vec<&Relaxation> = shortfalls.iter().filter_map(|s| s.relax.as_ref()).collect();
    for relax in &relaxations {
        eprintln!("{relax:?}");
        let there = file.pointer(&relax.pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{relax:?}"));
        assert_eq!(there, relax.from, "{relax:?}");
        let whole = relax.to.fract() == 0.0 && relax.to < 1e9;
        let to = if whole { json!(relax.to as u64) } else { json!(relax.to) };
        let changed = solve(&with(file, &relax.pointer, to));
        assert!(changed.plan().is_some(), "{relax:?} does not help: {changed:?}");
        let changed = solve(&half(file, relax));
        assert!(matches!(changed, PlanOutcome::Infeasible { .. }), "half of {relax:?} is enough");
    }
    shortfalls
}

/// Which values the shortfalls would change, with the kind of each.
fn pointers(shortfalls: &[Shortfall]) -> Vec<(Constraint, &str)> {
    shortfalls.iter().filter_map(|s| Some((s.constraint, s.relax.as_ref()?.pointer.as_str()))).collect()
}

fn rows(hardware: &str, points: &[(u32, f64)]) -> Vec<Value> {
    points.iter().map(|(batch, ms)| json!({"hardware": hardware, "batch": batch, "latency_ms": ms})).collect()
}

/// A detector with two variants before a classifier, on one kind of device.
fn chain(demand_qps: f64, slo_ms: f64, count: u32) -> Value {
    let good = rows("gpu", &[(1, 20.0), (4, 50.0)]);
    let fast = rows("gpu", &[(1, 5.0), (4, 12.0)]);
    json!({
        "version": 1,
        "objective": {"mode": "hardware_then_accuracy", "budget_per_hour": null},
        "hardware": [{"name": "gpu", "price_per_hour": 2.0, "count": count}],
        "pipelines": [{
            "name": "p", "demand_qps": demand_qps, "slo_ms": slo_ms, "network_ms": 1.0,
            "tasks": [
                {"name": "detect", "variants": [
                    {"name": "good", "accuracy": 1.0, "fanout": 3.0, "memory_mib": 4000, "profile": good},
                    {"name": "fast", "accuracy": 0.7, "fanout": 2.0, "memory_mib": 1000, "profile": fast}]},
                {"name": "classify", "variants": [
                    {"name": "c", "accuracy": 0.9, "memory_mib": 500, "profile": rows("gpu", &[(1, 4.0), (8, 16.0)])}]}],
            "edges": [{"from": "detect", "to": "classify"}]}]
    })
}

#[test]
fn an_slo_below_the_fastest_variants_is_a_latency_shortfall() {
    let found = shortfalls(&chain(10.0, 15.0, 20));
    assert_eq!(pointers(&found), [(Constraint::Latency, "/pipelines/0/slo_ms")]);
    // 2 * 5 + 1 at the detector, 2 * 4 + 1 at the classifier
    assert!((found[0].best - 20.0).abs() < 1e-9, "{found:?}");
    assert!((found[0].relax.as_ref().expect("a change").to - 20.0).abs() < 1e-4, "{found:?}");
}

#[test]
fn the_relaxed_slo_is_enough_for_this_load() {
    let found = shortfalls(&chain(400.0, 15.0, 4));
    assert_eq!(pointers(&found), [(Constraint::Latency, "/pipelines/0/slo_ms")]);
    assert!((found[0].best - 20.0).abs() < 1e-9, "{found:?}");
    assert!(found[0].relax.as_ref().expect("a change").to > 21.0, "{found:?}");
}

#[test]
fn two_causes_at_once_have_no_single_relaxation() {
    let found = shortfalls(&chain(5000.0, 15.0, 3));
    assert_eq!((found.len(), found[0].constraint), (1, Constraint::Latency), "{found:?}");
    assert_eq!(found[0].relax, None);
}

#[test]
fn a_demand_above_what_the_devices_serve() {
    let found = shortfalls(&chain(3000.0, 200.0, 5));
    let expected = [(Constraint::Capacity, "/hardware/0/count"), (Constraint::Capacity, "/pipelines/0/demand_qps")];
    assert_eq!(pointers(&found), expected);
}

#[test]
fn a_longer_slo_is_one_cure_for_capacity() {
    let found = shortfalls(&chain(400.0, 22.0, 4));
    let expected = [
        (Constraint::Capacity, "/hardware/0/count"),
        (Constraint::Capacity, "/pipelines/0/demand_qps"),
        (Constraint::Capacity, "/pipelines/0/slo_ms"),
    ];
    assert_eq!(pointers(&found), expected);
}

#[test]
fn too_few_devices_of_one_of_two_kinds() {
    let mut file = chain(200.0, 100.0, 3);
    file["hardware"] = json!([{"name": "gpu", "price_per_hour": 2.0, "count": 3}, {"name": "cpu", "count": 1}]);
    file["pipelines"][0]["tasks"][1]["variants"][0]["profile"] = json!(rows("cpu", &[(1, 10.0)]));
    let found = shortfalls(&file);
    assert!(pointers(&found).contains(&(Constraint::Capacity, "/hardware/1/count")), "{found:?}");
    assert!(!pointers(&found).iter().any(|(_, p)| *p == "/hardware/0/count"), "{found:?}");
}

#[test]
fn a_floor_above_what_any_variants_reach() {
    let mut file = chain(10.0, 200.0, 20);
    file["pipelines"][0]["min_accuracy"] = json!(0.95);
    let found = shortfalls(&file);
    assert_eq!(pointers(&found), [(Constraint::Accuracy, "/pipelines/0/min_accuracy")]);
    assert!((found[0].best - 0.9).abs() < 1e-5, "{found:?}");
}

#[test]
fn a_floor_that_the_slo_leaves_no_time_for() {
    let mut file = chain(10.0, 40.0, 20);
    file["pipelines"][0]["min_accuracy"] = json!(0.8);
    let found = shortfalls(&file);
    let expected = [(Constraint::Latency, "/pipelines/0/slo_ms"), (Constraint::Accuracy, "/pipelines/0/min_accuracy")];
    assert_eq!(pointers(&found), expected);
}

#[test]
fn a_floor_that_the_devices_are_too_few_for() {
    let mut file = chain(200.0, 120.0, 4);
    file["pipelines"][0]["min_accuracy"] = json!(0.85);
    let found = shortfalls(&file);
    let kinds: Vec<Constraint> = found.iter().map(|s| s.constraint).collect();
    assert!(kinds.contains(&Constraint::Capacity) && kinds.contains(&Constraint::Accuracy), "{found:?}");
}

#[test]
fn a_budget_below_the_cheapest_plan() {
    let mut file = chain(200.0, 120.0, 50);
    file["objective"] = json!({"mode": "min_cost", "budget_per_hour": 3.0});
    let found = shortfalls(&file);
    assert!(pointers(&found).contains(&(Constraint::Budget, "/objective/budget_per_hour")), "{found:?}");
    assert!(!pointers(&found).iter().any(|(_, p)| *p == "/hardware/0/count"), "{found:?}");
}

#[test]
fn a_task_that_fits_into_no_memory() {
    let mut file = chain(10.0, 120.0, 20);
    file["hardware"][0]["memory_mib"] = json!(800.0);
    let found = shortfalls(&file);
    assert_eq!(pointers(&found), [(Constraint::Memory, "/hardware/0/memory_mib")]);
    assert_eq!(found[0].relax.as_ref().expect("a change").to, 1000.0);
}

#[test]
fn a_floor_whose_variant_does_not_fit_into_memory() {
    let mut file = chain(10.0, 120.0, 20);
    file["hardware"][0]["memory_mib"] = json!(2000.0);
    file["pipelines"][0]["min_accuracy"] = json!(0.8);
    let found = shortfalls(&file);
    let expected = [(Constraint::Accuracy, "/pipelines/0/min_accuracy"), (Constraint::Memory, "/hardware/0/memory_mib")];
    assert_eq!(pointers(&found), expected);
    assert_eq!(found[1].relax.as_ref().expect("a change").to, 4000.0);
}

#[test]
fn replicas_that_must_be_spared_for_a_loss() {
    let mut file = chain(10.0, 120.0, 6);
    file["pipelines"][0]["survive"] = json!(3);
    let found = shortfalls(&file);
    let expected = [(Constraint::Capacity, "/hardware/0/count"), (Constraint::Capacity, "/pipelines/0/survive")];
    assert_eq!(pointers(&found), expected);
    assert_eq!(found[1].relax.as_ref().expect("a change").to, 2.0);
}

#[test]
fn a_least_number_of_replicas_above_the_count() {
    let mut file = chain(10.0, 120.0, 4);
    file["pipelines"][0]["tasks"][0]["min_replicas"] = json!(9);
    let found = shortfalls(&file);
    let expected =
        [(Constraint::Capacity, "/hardware/0/count"), (Constraint::Capacity, "/pipelines/0/tasks/0/min_replicas")];
    assert_eq!(pointers(&found), expected);
    assert_eq!(found[1].relax.as_ref().expect("a change").to, 3.0);
}

#[test]
fn several_pipelines_on_one_cluster() {
    let mut file = chain(150.0, 120.0, 4);
    let mut other = file["pipelines"][0].clone();
    other["name"] = json!("q");
    other["demand_qps"] = json!(400.0);
    file["pipelines"].as_array_mut().expect("a list").push(other);
    let found = shortfalls(&file);
    assert!(pointers(&found).contains(&(Constraint::Capacity, "/hardware/0/count")), "{found:?}");
    let of_other = |s: &&Shortfall| s.place == "q" && s.relax.as_ref().is_some_and(|r| r.pointer.ends_with("demand_qps"));
    assert!(found.iter().any(|s| of_other(&s)), "{found:?}");
}

#[test]
fn a_join_whose_slower_way_misses_the_slo() {
    let mut file = chain(10.0, 30.0, 20);
    let slow = json!({"name": "s", "accuracy": 1.0, "profile": rows("gpu", &[(1, 10.0)])});
    let last = json!({"name": "l", "accuracy": 1.0, "profile": rows("gpu", &[(1, 2.0), (4, 6.0)])});
    let tasks = file["pipelines"][0]["tasks"].as_array_mut().expect("a list");
    tasks.push(json!({"name": "track", "variants": [slow]}));
    tasks.push(json!({"name": "fuse", "variants": [last]}));
    file["pipelines"][0]["edges"] = json!([
        {"from": "detect", "to": "classify"}, {"from": "detect", "to": "track"},
        {"from": "classify", "to": "fuse", "primary": true}, {"from": "track", "to": "fuse"}]);
    let found = shortfalls(&file);
    assert_eq!(pointers(&found), [(Constraint::Latency, "/pipelines/0/slo_ms")]);
    // detect 11, track 21, fuse 5
    assert!((found[0].best - 37.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn fractions_of_devices_that_are_too_few() {
    let mut file = chain(300.0, 120.0, 1);
    let half = [json!({"hardware": "gpu", "share": 0.5, "batch": 1, "latency_ms": 12.0})];
    for task in 0..2 {
        let variants = file["pipelines"][0]["tasks"][task]["variants"].as_array_mut().expect("a list");
        for variant in variants {
            variant["profile"].as_array_mut().expect("a list").extend(half.clone());
        }
    }
    let found = shortfalls(&file);
    let expected = [(Constraint::Capacity, "/hardware/0/count"), (Constraint::Capacity, "/pipelines/0/demand_qps")];
    assert_eq!(pointers(&found), expected);
}
