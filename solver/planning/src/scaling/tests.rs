//! The planner on drawn problems. Every plan is clean, and the heuristic is never better. Planning again changes nothing,
//! and every relaxation gives a plan.

use super::drawn::{Draw, problem};
use super::plan;
use crate::options::{Planner, PlanningOptions};
use apportion_domain::{Constraint, Relaxation, ScalingOutcome, ScalingProblem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn options(planner: Planner) -> PlanningOptions {
    PlanningOptions { planner, ..PlanningOptions::new(Arc::new(|| Duration::ZERO)) }
}

#[test]
fn plans_are_clean_and_the_heuristic_is_never_better() {
    let (mut equal, mut worse, mut missed) = (0, 0, 0);
    for seed in 0..400 {
        let problem = problem(&mut Draw::new(seed));
        let (exact, report) = plan(&problem, &options(Planner::Milp));
        let (greedy, greedy_report) = plan(&problem, &options(Planner::Greedy));
        for p in [exact.plan(), greedy.plan()].into_iter().flatten() {
            assert_eq!(apportion_checker::check_scaling(&problem, p), [], "seed {seed}");
        }
        match (&exact, &greedy) {
            (ScalingOutcome::Optimal(best), ScalingOutcome::Feasible { plan, .. }) => {
                assert_eq!((report.objective.value, report.objective.bound), (Some(best.value), Some(best.value)));
                assert_eq!(greedy_report.objective.bound, None, "seed {seed}: it proves nothing");
                assert!(plan.value >= best.value - 1e-9, "seed {seed}: {} below {}", plan.value, best.value);
                if plan.value > best.value + 1e-9 { worse += 1 } else { equal += 1 }
            }
            (ScalingOutcome::Optimal(_), ScalingOutcome::Unknown { .. }) => missed += 1,
            (ScalingOutcome::Infeasible { .. }, ScalingOutcome::Infeasible { .. }) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(equal > 50 && worse >= 5 && missed < 50, "{equal} equal, {worse} worse, {missed} missed");
}

#[test]
fn the_report_states_the_heuristics_value_and_its_gap() {
    let stated = |seed| {
        let (outcome, report) = plan(&problem(&mut Draw::new(seed)), &options(Planner::Milp));
        outcome.plan().map(|_| report.explanation.decisions.iter().find(|d| d.what == super::GREEDY).cloned())
    };
    for decision in (0..40).filter_map(stated) {
        let why = decision.expect("a decision named greedy").why;
        assert!(why.contains("more than the plan (gap ") || why.contains("finds no plan"), "{why}");
    }
}

#[test]
fn planning_again_from_a_plan_changes_nothing() {
    let mut plans = 0;
    for seed in 0..400 {
        let mut problem = problem(&mut Draw::new(seed));
        let (outcome, _) = plan(&problem, &options(Planner::Milp));
        let Some(first) = outcome.plan() else { continue };
        let mut running = first.actions.iter().map(|a| a.running);
        for v in problem.applications.iter_mut().flat_map(|a| &mut a.variants) {
            v.running = running.next().expect("an action for each variant");
        }
        let (again, _) = plan(&problem, &options(Planner::Milp));
        let again = again.plan().expect("a plan again");
        assert!(again.actions.iter().all(|a| a.delta == 0), "seed {seed}: {again:?}");
        plans += 1;
    }
    assert!(plans > 100, "{plans} plans");
}

/// The problem with one value at `from + part * (to - from)`.
fn relaxed(problem: &ScalingProblem, relax: &Relaxation, part: f64) -> ScalingProblem {
    let mut problem = problem.clone();
    // at the end exactly what the file would say
    let value = if part == 1.0 { relax.to } else { relax.from + part * (relax.to - relax.from) };
    let parts: Vec<&str> = relax.pointer.split('/').skip(2).collect();
    let slot = match parts.as_slice() {
        ["resources", name] => problem.resources.get_mut(*name).expect("a resource"),
        ["applications", i, key] => {
            let application = &mut problem.applications[i.parse::<usize>().expect("a position")];
            match *key {
                "load_qps" => &mut application.load_qps,
                "slack_qps" => &mut application.slack_qps,
                "slo_ms" => &mut application.slo_ms,
                other => panic!("an unknown key {other}"),
            }
        }
        other => panic!("an unknown pointer {other:?}"),
    };
    assert_eq!(*slot, relax.from, "{}", relax.pointer);
    *slot = value;
    problem
}

/// Every value that a relaxation may change, as far as it can go: no single change helps where none of these does.
fn extremes(problem: &ScalingProblem) -> Vec<(Vec<String>, ScalingProblem)> {
    let changed = |pointers: Vec<String>, change: &dyn Fn(&mut ScalingProblem)| {
        let mut changed = problem.clone();
        change(&mut changed);
        (pointers, changed)
    };
    let of = |name: &String| {
        let free = |p: &mut ScalingProblem| *p.resources.get_mut(name).expect("a resource") = 1e9;
        changed(vec![format!("/scaling/resources/{name}")], &free)
    };
    let mut all: Vec<_> = problem.resources.keys().map(of).collect();
    for i in 0..problem.applications.len() {
        let at = |key: &str| format!("/scaling/applications/{i}/{key}");
        all.push(changed(vec![at("slo_ms")], &|p| p.applications[i].slo_ms = 1e9));
        // the load gives way first, and the slack only where the load cannot: one of them is named
        let (mut no_load, mut no_slack) = (problem.clone(), problem.clone());
        no_load.applications[i].load_qps = 0.0;
        no_slack.applications[i].slack_qps = 0.0;
        let helps = plan(&no_load, &options(Planner::Milp)).0.plan().is_some();
        all.push((vec![at("load_qps"), at("slack_qps")], if helps { no_load } else { no_slack }));
    }
    all
}

#[test]
fn every_relaxation_makes_a_plan_and_half_of_it_does_not() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut without = 0;
    let feasible = |p: &ScalingProblem| plan(p, &options(Planner::Milp)).0.plan().is_some();
    for seed in 0..400 {
        let problem = problem(&mut Draw::new(seed));
        let (ScalingOutcome::Infeasible { shortfalls }, _) = plan(&problem, &options(Planner::Milp)) else { continue };
        assert!(!shortfalls.is_empty(), "seed {seed}");
        without += u32::from(shortfalls.iter().all(|s| s.relax.is_none()));
        let named =
            |pointers: &[String]| shortfalls.iter().filter_map(|s| s.relax.as_ref()).any(|r| pointers.contains(&r.pointer));
        for (pointers, extreme) in extremes(&problem) {
            assert_eq!(named(&pointers), feasible(&extreme), "seed {seed}: {pointers:?} in {shortfalls:?}");
        }
        for (shortfall, relax) in shortfalls.iter().filter_map(|s| Some((s, s.relax.as_ref()?))) {
            let (whole, _) = plan(&relaxed(&problem, relax, 1.0), &options(Planner::Milp));
            assert!(whole.plan().is_some(), "seed {seed}: {shortfall:?} does not help");
            let (half, _) = plan(&relaxed(&problem, relax, 0.5), &options(Planner::Milp));
            assert!(matches!(half, ScalingOutcome::Infeasible { .. }), "seed {seed}: half of {shortfall:?} is enough");
            *seen.entry(shortfall.constraint.name()).or_default() += 1;
        }
    }
    let kinds = [Constraint::Capacity, Constraint::Latency, Constraint::Load].map(Constraint::name);
    assert!(kinds.iter().all(|kind| seen.get(kind).is_some_and(|n| *n >= 10)), "{seen:?}");
    assert!(without > 10, "some need two changes: {without}");
}
