//! What a plan says about itself is true: prices and alternatives are what planning the changed problem gives.

use apportion_domain::{
    AlternativeKind, Consequence, Constraint, Decision, Explanation, LatencyRule, PlanOutcome, PlanningReport, Problem,
};
use apportion_planning::{ExplanationDepth, PlanningOptions, plan};
use apportion_wire::PlanFile;
use apportion_wire::problem::{ProblemFile, read_problem};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Everything that there is to say. By a clock that stands still the searches end.
const FULL: ExplanationDepth = ExplanationDepth::Full { within: Duration::from_millis(500) };

fn read(file: &Value) -> Problem {
    match read_problem("explained.json", &file.to_string()).unwrap_or_else(|e| panic!("{e}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("not a scaling problem"),
    }
}

/// Plans by a clock that stands still: no limit strikes.
fn solve(problem: &Problem, explain: ExplanationDepth) -> (PlanOutcome, PlanningReport) {
    solve_by(problem, explain, Arc::new(Duration::default))
}

fn solve_by(
    problem: &Problem,
    explain: ExplanationDepth,
    elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
) -> (PlanOutcome, PlanningReport) {
    let options = PlanningOptions { gap: 1e-6, explain, ..PlanningOptions::new(elapsed) };
    plan(problem, &options)
}

fn explained(file: &Value) -> (Problem, PlanOutcome, PlanningReport) {
    let problem = read(file);
    let (outcome, report) = solve(&problem, FULL);
    assert!(outcome.plan().is_some(), "{outcome:?}");
    assert_eq!(report.explanation.left_out, Vec::<String>::new());
    (problem, outcome, report)
}

fn rows(hardware: &str, points: &[(u32, f64)]) -> Vec<Value> {
    points.iter().map(|(batch, ms)| json!({"hardware": hardware, "batch": batch, "latency_ms": ms})).collect()
}

/// A detector with two variants before a classifier, on two kinds of devices.
fn chain(mode: &str, demand_qps: f64, slo_ms: f64, count: u32) -> Value {
    let both = |gpu: &[(u32, f64)], cpu: &[(u32, f64)]| [rows("gpu", gpu), rows("cpu", cpu)].concat();
    let good = both(&[(1, 20.0), (2, 30.0), (4, 50.0)], &[(1, 45.0)]);
    let fast = both(&[(1, 5.0), (4, 12.0)], &[(1, 18.0)]);
    json!({
        "version": 1,
        "objective": {"mode": mode, "budget_per_hour": null},
        "hardware": [
            {"name": "gpu", "price_per_hour": 2.0, "count": count, "memory_mib": 3000},
            {"name": "cpu", "price_per_hour": 0.5, "count": 2}],
        "pipelines": [{
            "name": "p", "demand_qps": demand_qps, "slo_ms": slo_ms, "network_ms": 1.0,
            "tasks": [
                {"name": "detect", "variants": [
                    {"name": "huge", "accuracy": 1.0, "memory_mib": 9000, "profile": rows("gpu", &[(1, 30.0)])},
                    {"name": "good", "accuracy": 0.95, "fanout": 3.0, "profile": good},
                    {"name": "fast", "accuracy": 0.7, "fanout": 2.0, "profile": fast}]},
                {"name": "classify", "variants": [
                    {"name": "c", "accuracy": 0.9, "profile": both(&[(1, 4.0), (8, 16.0)], &[(1, 12.0)])}]}],
            "edges": [{"from": "detect", "to": "classify"}]}]
    })
}

fn decision<'a>(explanation: &'a Explanation, what: &str) -> &'a Decision {
    let found = explanation.decisions.iter().find(|d| d.what.starts_with(what));
    found.unwrap_or_else(|| panic!("no {what} in {:?}", explanation.decisions))
}

#[test]
fn a_price_equals_the_gain_of_planning_with_more() {
    for (mode, demand, count) in [
        ("max_accuracy", 220.0, 4),
        ("max_accuracy", 150.0, 3),
        ("min_cost", 200.0, 5),
        ("hardware_then_accuracy", 200.0, 4),
    ] {
        let mut file = chain(mode, demand, 110.0, count);
        if mode == "max_accuracy" {
            file["objective"]["budget_per_hour"] = json!(9.0);
        }
        let (_, outcome, report) = explained(&file);
        let (value, plan) = (report.objective.value.expect("a value"), outcome.plan().expect("a plan"));
        let prices = &report.explanation.prices;
        let expected = if mode == "max_accuracy" { 4 } else { 3 };
        assert_eq!(prices.len(), expected, "two kinds of devices, the budget, the SLO: {prices:?}");
        for price in prices {
            let mut changed = file.clone();
            let to = if price.change.to.fract() == 0.0 { json!(price.change.to as u64) } else { json!(price.change.to) };
            *changed.pointer_mut(&price.change.pointer).expect("a value of the file") = to;
            let (outcome, report) = solve(&read(&changed), ExplanationDepth::Brief);
            let other = report.objective.value.expect("a value");
            let better = if mode == "min_cost" { value - other } else { other - value };
            match price.gain {
                Some(gain) => assert!((gain - better.max(0.0)).abs() < 1e-5, "{price:?}: {better}"),
                None => assert_eq!(mode, "hardware_then_accuracy", "{price:?}"),
            }
            if price.gain.is_none_or(|gain| gain > 0.0) {
                let replicas = outcome.plan().expect("a plan").replicas() as i64 - plan.replicas() as i64;
                assert_eq!(price.buys.replicas, replicas, "{price:?}");
            } else {
                assert!(price.buys.accuracy.abs() < 1e-6, "nothing gained, nothing bought: {price:?}");
            }
        }
        if demand == 300.0 {
            assert!(prices.iter().any(|p| p.gain.is_some_and(|g| g > 1e-3)), "some limit binds: {prices:?}");
        }
    }
}

#[test]
fn an_alternative_equals_the_plan_restricted_to_it() {
    let file = chain("max_accuracy", 150.0, 110.0, 4);
    let (_, outcome, report) = explained(&file);
    let best = outcome.plan().expect("a plan");
    let detect = decision(&report.explanation, "p/detect/good");
    let alone = |keep: &dyn Fn(&Value) -> bool| {
        let mut only = file.clone();
        let variants = only["pipelines"][0]["tasks"][0]["variants"].as_array_mut().expect("a list");
        variants.retain(|v| keep(v));
        solve(&read(&only), ExplanationDepth::Brief).0
    };
    let seen: Vec<(AlternativeKind, &str)> = detect
        .alternatives
        .iter()
        .filter(|a| a.kind == AlternativeKind::Variant)
        .map(|a| (a.kind, a.to.as_str()))
        .collect();
    assert!(
        seen.contains(&(AlternativeKind::Variant, "fast")) && seen.contains(&(AlternativeKind::Variant, "huge")),
        "{seen:?}"
    );
    for alternative in detect.alternatives.iter().filter(|a| a.kind == AlternativeKind::Variant) {
        let name = json!(alternative.to);
        match (&alternative.consequence, alone(&|v| v["name"] == name).plan()) {
            (Consequence::Plan(change), Some(plan)) => {
                let accuracy = plan.pipelines[0].accuracy - best.pipelines[0].accuracy;
                assert!((change.accuracy - accuracy).abs() < 1e-5, "{alternative:?}: {accuracy}");
                assert!((change.cost_per_hour - (plan.cost_per_hour - best.cost_per_hour)).abs() < 1e-9, "{alternative:?}");
            }
            (Consequence::TooLittleMemory, None) => assert_eq!(alternative.to, "huge"),
            (Consequence::NoPlan, None) => {}
            (said, other) => panic!("{said:?} for {other:?}"),
        }
    }
}

#[test]
fn neighbouring_batches_agree_with_hand_calculation() {
    let mut file = chain("min_cost", 100.0, 110.0, 20);
    file["hardware"] = json!([{"name": "gpu", "price_per_hour": 2.0, "count": 20}]);
    file["pipelines"][0]["min_accuracy"] = json!(0.85);
    for task in 0..2 {
        for variant in file["pipelines"][0]["tasks"][task]["variants"].as_array_mut().expect("a list") {
            variant["profile"].as_array_mut().expect("a list").retain(|r| r["hardware"] == "gpu");
        }
    }
    let (_, outcome, report) = explained(&file);
    let part = &outcome.plan().expect("a plan").pipelines[0];
    // the detector cannot run 4 (2 * 50 + 1, with the classifier's 9 at least): 100/s at batch 2 of 66.7/s are 2 replicas
    let running: Vec<_> = part.assignments.iter().map(|a| (a.group.variant.as_str(), a.batch, a.replicas)).collect();
    assert_eq!(running, [("good", 2, 2), ("c", 8, 1)]);
    let detect = decision(&report.explanation, "p/detect/good");
    let batches: Vec<_> = detect.alternatives.iter().filter(|a| a.kind == AlternativeKind::Batch).collect();
    assert_eq!(batches[0].to, "1");
    // 50/s at batch 1: as many replicas
    assert_eq!(batches[0].consequence.to_string(), "no change");
    // 101 and the classifier's 33 against 110
    assert_eq!(batches[1].consequence.to_string(), "misses the SLO by 24.0 ms");
    assert!(
        detect.binding.iter().any(|b| b.constraint == Constraint::Latency && b.place.ends_with("batch 4")),
        "{detect:?}"
    );
    let classify = decision(&report.explanation, "p/classify/c");
    let smaller = classify.alternatives.iter().find(|a| a.kind == AlternativeKind::Batch && a.to == "1").expect("batch 1");
    // 300/s at 250/s are 2 replicas instead of 1
    assert_eq!(smaller.consequence.to_string(), "+1 replica, +2.00 per hour");
}

#[test]
fn memory_that_excludes_a_better_variant_is_named() {
    let (_, _, report) = explained(&chain("max_accuracy", 50.0, 150.0, 4));
    let detect = decision(&report.explanation, "p/detect/good/gpu");
    let memory = detect.binding.iter().find(|b| b.constraint == Constraint::Memory).expect("memory binds");
    assert_eq!((memory.used, memory.limit), (9000.0, 3000.0), "{memory:?}");
}

#[test]
fn rule_path_is_explained_too() {
    let problem = read(&chain("max_accuracy", 150.0, 110.0, 4));
    let problem = problem.changed(|d| d.objective.latency_rule = LatencyRule::Path).expect("still valid");
    let (outcome, report) = solve(&problem, FULL);
    assert!(outcome.plan().is_some());
    assert!(!report.explanation.decisions.is_empty() && !report.explanation.prices.is_empty(), "{:?}", report.explanation);
}

#[test]
fn brief_explanations_search_nothing_and_full_ones_stop_in_time() {
    let problem = read(&chain("max_accuracy", 150.0, 110.0, 4));
    let (with, _) = solve(&problem, FULL);
    let (without, report) = solve(&problem, ExplanationDepth::Brief);
    assert_eq!(with, without, "explaining changes no plan");
    assert!(report.explanation.prices.is_empty());
    let left_out = &report.explanation.left_out;
    assert!(left_out.len() == 1 && left_out[0].contains("only a full explanation has them"), "{left_out:?}");
    let is_arithmetic = |d: &Decision| d.alternatives.iter().all(|a| a.kind == AlternativeKind::Batch);
    assert!(report.explanation.decisions.iter().all(|d| is_arithmetic(d) && !d.why.is_empty()));
    // a clock by which every look takes a second: each search is too long to be repeated
    let looks = Arc::new(AtomicU64::new(0));
    let clock = Arc::new(move || Duration::from_secs(looks.fetch_add(1, Ordering::Relaxed)));
    let (_, report) = solve_by(&problem, FULL, clock);
    assert!(report.explanation.prices.is_empty());
    assert_eq!(report.explanation.left_out.len(), 1, "{:?}", report.explanation.left_out);
    assert!(report.explanation.left_out[0].contains("one search takes"), "{:?}", report.explanation.left_out);
}

#[test]
fn the_plan_file_has_the_explanation() {
    let (problem, outcome, report) = explained(&chain("max_accuracy", 150.0, 110.0, 4));
    let file = PlanFile::from_outcome(&problem, &outcome, &report);
    let json: Value = serde_json::from_str(&file.to_json()).expect("JSON");
    let explanation = &json["explanation"];
    let price = &explanation["prices"][0];
    assert_eq!((&price["unit"], &price["change"]["pointer"]), (&json!("1 device"), &json!("/hardware/0/count")));
    let alternatives = explanation["decisions"][0]["alternatives"].as_array().expect("a list");
    assert!(alternatives.iter().any(|a| a["kind"] == "variant" && a["effect"].is_string()), "{alternatives:?}");
    let again: PlanFile = serde_json::from_value(json).expect("a plan file");
    assert_eq!(again.explanation, file.explanation);
    let plan = outcome.plan().expect("a plan");
    let read = apportion_wire::read_plan("plan.json", &file.to_json()).expect("our own file");
    assert_eq!(read.replicas(), plan.replicas());
}
