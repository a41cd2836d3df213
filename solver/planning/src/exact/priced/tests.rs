//! Small programmes and their relaxations, against flows and programmes that were solved in another way.

use super::candidates;
use super::context::{ENTRIES_MAX, StagePlan, StageSearch};
use super::points::GroupPoints;
use super::prices::{PartCandidates, PricedGoal, PricedStage};
use super::walk::{LaneNeeds, least_cost};
use super::{GAP, choice_of};
use crate::bench::heuristics::{case, problem};
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::solution::flows::{accuracy, flows};
use apportion_domain::{LatencyRule, Problem};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Candidates of each problem that are looked at.
const LOOKED_AT: usize = 12;

fn unlimited() -> RunLimits {
    RunLimits::new(Arc::new(Duration::default))
}

/// Calls `look` with every problem of some seeds that has one pipeline, its space and its candidates.
fn for_each(seeds: std::ops::Range<u64>, mut look: impl FnMut(u64, &Problem, &Space, &[PartCandidates<'_>])) {
    for seed in seeds {
        let problem = problem(&case(seed));
        if problem.pipelines.len() > 1 {
            continue;
        }
        let Ok(space) = Space::new(&problem, &Tightening::none(&problem), &unlimited()) else { continue };
        let parts = [candidates::list(&problem.pipelines[0], &space.parts[0])];
        look(seed, &problem, &space, &parts);
    }
}

fn search<'a>(
    problem: &'a Problem,
    stage: PricedStage,
    parts: &'a [PartCandidates<'a>],
    limits: &'a RunLimits,
) -> StageSearch<'a> {
    StageSearch { problem, stage, parts, gap: GAP, limits }
}

#[test]
fn flows_of_a_programme_are_flows_of_its_plan() {
    let (limits, stage) = (unlimited(), PricedStage { goal: PricedGoal::Accuracy, accuracy_min: None });
    let mut compared = 0;
    for_each(50_000..50_060, |seed, problem, space, parts| {
        if problem.objective.latency_rule != LatencyRule::Path {
            return;
        }
        let every = parts[0].candidates.len().div_ceil(LOOKED_AT).max(1);
        for points in parts[0].candidates.iter().step_by(every) {
            let found = search(problem, stage, parts, &limits).solve_at(&[points], f64::INFINITY, ENTRIES_MAX);
            let Some(plan) = found.plan else { continue };
            let claimed = plan.accuracy[0];
            let points = vec![points.clone()];
            let plan = StagePlan { groups: plan.groups, cost: plan.cost, accuracy: plan.accuracy, points };
            let own = flows(problem, space, &choice_of(plan), &limits).expect("no limits");
            let own = own.unwrap_or_else(|| panic!("seed {seed}: the replicas carry no flows"));
            let real = space.parts[0].weight * accuracy(&space.parts[0], &own[0]);
            // the flows of a plan are the most accurate ones
            assert!(real >= claimed - 1e-6, "seed {seed}: {claimed} by the programme, {real} by the flows");
            compared += 1;
        }
    });
    assert!(compared > 40, "{compared} compared");
}

#[test]
fn no_query_goes_on_below_a_closed_prefix() {
    let mut closed = 0;
    for_each(50_000..50_060, |seed, _, space, parts| {
        let trie = &space.parts[0].trie;
        for GroupPoints { open, .. } in &parts[0].candidates {
            for split in &trie.splits {
                let Some(from) = split.from.filter(|&from| !open[from]) else { continue };
                assert!(split.to.iter().all(|&n| !open[n]), "seed {seed}: open below the closed prefix {from}");
                closed += 1;
            }
        }
    });
    assert!(closed > 100, "{closed} closed prefixes");
}

#[test]
fn no_plan_costs_less_than_its_walk() {
    let limits = unlimited();
    let (mut compared, mut with_spares) = (0, 0);
    for_each(50_000..50_120, |seed, problem, space, parts| {
        let (part, survive) = (&space.parts[0], problem.pipelines[0].survive);
        let needs = LaneNeeds::new(part, survive);
        let one_each = vec![1.0; part.groups.len()];
        let every = parts[0].candidates.len().div_ceil(LOOKED_AT).max(1);
        for points in parts[0].candidates.iter().step_by(every) {
            let stage = PricedStage { goal: PricedGoal::Replicas, accuracy_min: None };
            let found = search(problem, stage, parts, &limits).solve_at(&[points], f64::INFINITY, ENTRIES_MAX);
            let Some(plan) = found.plan else { continue };
            let least = least_cost(part, points, &needs.prices(points, &one_each, 0.0), &mut Vec::new());
            assert!(least <= plan.cost + 1e-6, "seed {seed}: {least} by the walk, {} by the programme", plan.cost);
            compared += 1;
            with_spares += usize::from(survive > 0);
        }
    });
    assert!(compared > 100 && with_spares > 5, "{compared} compared, {with_spares} of them with spares");
}
