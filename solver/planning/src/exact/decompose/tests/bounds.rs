//! Each step towards the bound of a fleet, against the proven optimum. The pipelines and the fleets are small and drawn.

use super::loads::{change_pipelines, drawn_prices, exact_plan, hardware, joint_of};
use super::*;
use crate::bench::drawn::Draw;
use crate::exact::decompose::close::close_gaps;
use crate::exact::decompose::generate::generate_priced_columns;
use crate::exact::decompose::repair::choose_columns;
use crate::exact::stage::solve::solve_stage;

/// Boxes of a search before each look at its bound.
const LOOKS: [usize; 6] = [0, 1, 4, 15, 60, 300];
/// Rounds of prices: from the second one on a price of accuracy is known.
const ROUNDS: u64 = 3;

/// What was compared.
#[derive(Debug, Default)]
struct BoundTally {
    compared: usize,
    infeasible: usize,
    /// Bounds within a hundredth of the optimum.
    near: usize,
    /// Lanes that were split before the budgets were decided.
    early_splits: usize,
}

/// The optimum of one question, and the bounds that must not be beyond it.
struct Optimum {
    cost: f64,
    place: String,
}

impl Optimum {
    fn slack(&self) -> f64 {
        1e-5 * self.cost.abs().max(0.1)
    }

    fn assert_bounded(&self, bound: f64, step: &str) {
        assert!(bound <= self.cost + self.slack(), "{}, {step}: bound {bound} above {}", self.place, self.cost);
    }

    fn assert_not_beaten(&self, cost: f64, step: &str) {
        assert!(cost >= self.cost - self.slack(), "{}, {step}: {cost} is better than {}", self.place, self.cost);
    }

    fn is_near(&self, bound: f64) -> bool {
        bound >= self.cost - 1e-2 * self.cost.abs()
    }
}

/// Draws floors, reserves and low demands. One pipeline in four has no floor.
fn draw_floors(problem: &Problem, seed: u64) -> Problem {
    let mut draw = Draw::new(seed + 7);
    let changed = problem.changed(|draft| {
        change_pipelines(draft, |pipeline| {
            let floor = draw.between(0.6, 0.97);
            pipeline.min_accuracy = (draw.below(4) > 0).then_some(floor);
            pipeline.demand_qps *= draw.between(0.1, 1.2);
            pipeline.survive = u32::from(draw.below(5) == 0);
        });
    });
    changed.expect("floors and demands within the ranges")
}

/// Compares what is known of every pipeline at drawn prices with its best plan there.
fn compare_pipelines(problem: &Problem, goal: Goal, seed: u64, tally: &mut BoundTally) {
    let limits = unlimited();
    let Ok(space) = space_of(problem, &Tightening::none(problem), goal) else { return };
    let joint = joint_of(problem, &space, goal, &limits);
    for (p, sub) in joint.subs.iter().enumerate().filter(|(_, sub)| sub.can_price_fast()) {
        for round in 0..ROUNDS {
            let prices = drawn_prices(&joint, seed + 1_000 * round);
            let place = format!("seed {seed}, pipeline {p}, round {round}");
            let PricedColumn { column, bound } = sub.price_fast(joint.goal, joint.goal, &prices, &limits);
            let Some(exact) = exact_plan(&joint, sub, &prices) else {
                assert!(column.is_none(), "{place}: a plan of a pipeline without any");
                tally.infeasible += 1;
                continue;
            };
            let best = Optimum { cost: exact.cost_at(&prices), place };
            best.assert_bounded(bound, "priced");
            column.iter().for_each(|c| best.assert_not_beaten(c.cost_at(&prices), "priced"));
            // the search knows no plan, and finds its own
            let mut search = sub.search_loads(joint.goal, &prices, f64::INFINITY, 1e-6).expect("a plan");
            let mut last = f64::NEG_INFINITY;
            for boxes in LOOKS {
                search.run(boxes, &limits);
                best.assert_bounded(search.bound(), "searched");
                assert!(search.bound() >= last - best.slack(), "{}: {} after {last}", best.place, search.bound());
                last = search.bound();
            }
            let found = search.take_column(&limits);
            found.iter().for_each(|c| best.assert_not_beaten(c.cost_at(&prices), "searched"));
            tally.compared += 1;
            tally.near += usize::from(best.is_near(last));
            tally.early_splits += search.early_splits();
        }
    }
}

#[test]
fn no_bound_of_a_pipeline_exceeds_its_least_cost() {
    let mut tally = BoundTally::default();
    for seed in 60_000_u64..60_060 {
        let halves = seed.is_multiple_of(2);
        let shape = ProblemShape { hardware: hardware(), tasks_max: 3, halves, ..shape(Mode::MinCost) };
        let shape = ProblemShape { batches: 4, min_accuracy: Some(0.9), ..shape };
        let problem = draw_floors(&drawn::problem(seed, &shape), seed);
        compare_pipelines(&problem, Goal::CostAndSwitching, seed, &mut tally);
    }
    let &BoundTally { compared, near, early_splits, .. } = &tally;
    assert!(compared > 200 && 2 * near > compared && early_splits > 100, "{tally:?}");
}

#[test]
fn no_bound_of_a_pipeline_is_below_its_best_accuracy() {
    let mut tally = BoundTally::default();
    for seed in 60_100_u64..60_140 {
        let halves = seed.is_multiple_of(2);
        let shape = ProblemShape { hardware: hardware(), tasks_max: 3, halves, ..shape(Mode::MaxAccuracy) };
        let problem = draw_floors(&drawn::problem(seed, &shape), seed);
        compare_pipelines(&problem, Goal::Accuracy, seed, &mut tally);
    }
    assert!(tally.compared > 150 && 2 * tally.near > tally.compared && tally.early_splits == 0, "{tally:?}");
}

/// Prices the pipelines at the devices' own costs. The bound of the fleet there.
fn price_at_own_costs(joint: &JointProblem<'_>, known: &mut JointBounds) -> f64 {
    let lambda = joint.shared.own_prices();
    let mut bound = joint.shared.lagrangian_min(&lambda);
    for (p, sub) in joint.subs.iter().enumerate() {
        let prices = joint.shared.prices_for(p, &lambda);
        let answer = sub.price_fast(joint.goal, joint.goal, &prices, joint.limits);
        bound += answer.bound;
        if let Some(column) = answer.column {
            known.master.add(p, column);
        }
    }
    bound
}

/// Compares each step of the search of a fleet with the optimum of the whole formulation.
fn compare_steps(problem: &Problem, goal: Goal, seed: u64, tally: &mut BoundTally) {
    let limits = unlimited();
    let Ok(space) = space_of(problem, &Tightening::none(problem), goal) else { return };
    let joint = joint_of(problem, &space, goal, &limits);
    let mut known = JointBounds::new(&joint);
    let end = joint.solve_fast(&mut known);
    let cost = match solve_stage(problem, &space, Stage::new(goal), 1e-6, &limits, None) {
        StageResult::Found { value, .. } => value,
        StageResult::Infeasible => {
            assert!(!matches!(end, FastEnd::Plan(_)), "seed {seed}: a plan of an infeasible problem");
            tally.infeasible += 1;
            return;
        }
        StageResult::Unknown(reason) => panic!("seed {seed}: {reason}"),
    };
    let best = Optimum { cost, place: format!("seed {seed}") };
    best.assert_bounded(known.bound, "whole search");
    assert!(!matches!(end, FastEnd::Infeasible), "seed {seed}: there is a plan");
    if let FastEnd::Plan(FastPlan { whole, .. }) = end {
        best.assert_not_beaten(whole.value, "whole search");
        tally.near += usize::from(best.is_near(known.bound));
    }
    let mut known = JointBounds::new(&joint);
    best.assert_bounded(price_at_own_costs(&joint, &mut known), "own costs");
    if joint.shared.has_costs() {
        let end = generate_priced_columns(&joint, &mut known, Pricing::Fast);
        assert!(end != PhaseEnd::Infeasible, "seed {seed}: there is a plan");
        best.assert_bounded(known.bound, "priced columns");
    }
    close_gaps(&joint, &mut known);
    best.assert_bounded(known.bound, "whole replicas");
    choose_columns(&joint, &known).iter().for_each(|plan| best.assert_not_beaten(plan.value, "chosen columns"));
    tally.compared += 1;
}

/// One fleet in three has a budget, and another one a quota for two of its pipelines.
fn draw_shared_limits(problem: &Problem, seed: u64) -> Problem {
    let quota = DeviceQuota {
        name: "two".to_owned(),
        pipelines: vec![PipelineIndex(0), PipelineIndex(1)],
        counts: vec![Some(4), None],
        devices: None,
        cost_per_hour: None,
    };
    let changed = problem.changed(|draft| match seed % 3 {
        0 => draft.objective.budget_per_hour = Some(9.0 + (seed % 5) as f64),
        1 => draft.quotas = vec![quota],
        _ => {}
    });
    changed.expect("a budget and a quota within the ranges")
}

#[test]
fn no_step_of_a_fleet_exceeds_its_least_cost() {
    let mut tally = BoundTally::default();
    for seed in 60_200_u64..60_240 {
        let hardware = vec![kind(1.0, Some(6), 1.0), kind(2.2, Some(5), 2.5)];
        let shape = ProblemShape { hardware, halves: seed.is_multiple_of(4), ..shape(Mode::MinCost) };
        let shape = ProblemShape { min_accuracy: Some(0.9), ..shape };
        let problem = draw_shared_limits(&draw_floors(&drawn::problem(seed, &shape), seed), seed);
        compare_steps(&problem, Goal::CostAndSwitching, seed, &mut tally);
    }
    assert!(tally.compared > 20 && tally.infeasible > 0 && 5 * tally.near > tally.compared, "{tally:?}");
}

#[test]
fn no_step_of_a_fleet_is_below_its_best_accuracy() {
    let mut tally = BoundTally::default();
    for seed in 60_300_u64..60_330 {
        let hardware = vec![kind(1.0, Some(6), 1.0), kind(2.2, Some(5), 2.5)];
        let shape = ProblemShape { hardware, halves: seed.is_multiple_of(4), ..shape(Mode::MaxAccuracy) };
        let problem = draw_shared_limits(&draw_floors(&drawn::problem(seed, &shape), seed), seed);
        compare_steps(&problem, Goal::Accuracy, seed, &mut tally);
    }
    assert!(tally.compared > 15 && 3 * tally.near > tally.compared, "{tally:?}");
}
