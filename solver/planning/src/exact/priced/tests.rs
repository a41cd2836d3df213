//! The heuristic against the exact planner and the checker, on drawn problems of every kind.

use super::PricedSearch;
use crate::bench::fleet::redeployed;
use crate::bench::heuristics::{case, problem};
use crate::exact::model::bounds::is_maximised;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::heuristic::plan_by_heuristic;
use crate::exact::search::modes::{SearchResult, search};
use crate::exact::solution::found::BestFound;
use crate::exact::solution::plan::plan_of;
use apportion_domain::{LatencyRule, Problem};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Seeds of drawn problems.
const SEEDS: std::ops::Range<u64> = 20_000..20_060;
/// Seeds whose optimum is found quickly are compared with it.
const COMPARED: std::ops::Range<u64> = 20_000..20_120;
/// Relative distance that counts as none.
const NEAR: f64 = 1e-6;

fn unlimited() -> RunLimits {
    RunLimits::new(Arc::new(Duration::default))
}

#[test]
fn the_checker_finds_nothing_in_heuristic_plans() {
    let mut plans = 0;
    // on seeds 8 and 26 the pipelines' plans of fewest devices do not fit together
    for seed in SEEDS.chain([8, 26]) {
        let problem = problem(&case(seed));
        let PricedSearch::Found(found) = plan_by_heuristic(&problem, &Tightening::none(&problem), &unlimited()) else {
            continue;
        };
        let plan = plan_of(&problem, &found.space, &found.choice, &found.flows).expect("few paths");
        assert_eq!(apportion_checker::check(&problem, &plan), [], "seed {seed}");
        let beyond = if is_maximised(&problem, found.step) { found.value - found.bound } else { found.bound - found.value };
        assert!(beyond <= NEAR * found.value.abs(), "seed {seed}: {} beyond {}", found.value, found.bound);
        plans += 1;
    }
    assert!(plans > 40, "the problems are too alike: {plans}");
}

#[test]
fn the_bound_is_never_beyond_the_optimum() {
    let mut compared = 0;
    for seed in COMPARED {
        let problem = problem(&case(seed));
        let is_quick = problem.objective.latency_rule == LatencyRule::TaskBudget;
        if problem.pipelines.len() > 1 || problem.hardware.len() > 1 || !is_quick {
            continue;
        }
        let none = Tightening::none(&problem);
        let SearchResult::Found(exact) = search(&problem, &none, 1e-6, &unlimited()) else { continue };
        let PricedSearch::Found(found) = plan_by_heuristic(&problem, &none, &unlimited()) else { continue };
        if found.step != exact.step {
            continue;
        }
        let sign = if is_maximised(&problem, found.step) { -1.0 } else { 1.0 };
        let slack = 1e-5 * exact.value.abs().max(1.0);
        assert!(sign * found.bound <= sign * exact.value + slack, "seed {seed}: {} beyond {}", found.bound, exact.value);
        assert!(sign * found.value >= sign * exact.bound - slack, "seed {seed}: {} beats {}", found.value, exact.bound);
        compared += 1;
    }
    assert!(compared > 5, "too few problems: {compared}");
}

#[test]
fn planning_again_from_a_heuristic_plan_changes_nothing() {
    let found = |problem: &Problem| match plan_by_heuristic(problem, &Tightening::none(problem), &unlimited()) {
        PricedSearch::Found(found) => Some(found),
        _ => None,
    };
    let plan = |problem: &Problem, of: &BestFound| plan_of(problem, &of.space, &of.choice, &of.flows);
    let (mut plans, mut changed) = (0, Vec::new());
    for seed in 20_000..20_030 {
        let problem = problem(&case(seed));
        let Some(first) = found(&problem) else { continue };
        let deployed = redeployed(&problem, &first.space, &first.choice);
        let again = found(&deployed).and_then(|again| plan(&deployed, &again));
        let first = plan(&problem, &first).expect("few paths");
        plans += 1;
        if again.is_none_or(|again| !first.diff(&again).is_empty()) {
            changed.push(seed);
        }
    }
    assert!(plans > 15 && changed.is_empty(), "of {plans} plans these change: {changed:?}");
}
