//! The fast answers of single pipelines at drawn prices, against the exact search.

use super::*;
use crate::bench::drawn::Draw;
use crate::exact::decompose::pricer::PlanEffort;

/// Compares the answers of every pipeline of a drawn problem; returns how many bounds were better than without whole
/// replicas.
fn compare_answers(shape: &ProblemShape, goal: Goal, seed: u64) -> usize {
    let limits = unlimited();
    let problem = drawn::problem(seed, shape);
    let Ok(space) = space_of(&problem, &Tightening::none(&problem), goal) else { return 0 };
    let joint = JointProblem::new(&problem, &space, goal, None, GAP, &limits).expect("a goal of stages");
    let mut draw = Draw::new(seed);
    let mut better = 0;
    for sub in joint.subs.iter().filter(|sub| sub.can_price_fast()) {
        let scale = if joint.goal == Goal::Accuracy { 0.02 } else { 1.0 };
        let prices: Vec<f64> = problem.hardware.iter().map(|_| scale * draw.between(0.5, 2.0)).collect();
        let (goal, worth) = (joint.goal, joint.goal);
        let room = sub.with_room(&vec![None; problem.hardware.len()], None);
        let rest =
            PricedQuestion { accuracy_min: None, room: Some(&room), free: None, gap: 1e-6, goal, worth, prices: &[] };
        let exact = sub.solve(PricedQuestion { prices: &prices, ..rest }, &limits);
        let cost = |c: &Column| c.cost_at(&prices);
        let [mixed, whole] =
            [PlanEffort::Mixes, PlanEffort::Whole].map(|effort| sub.price_fast(goal, worth, &prices, effort, &limits));
        let Some(best) = exact.column.as_ref().map(cost) else { continue };
        let slack = 1e-5 * best.abs().max(0.1);
        assert!(whole.bound <= best + slack, "seed {seed}: bound {} above {best}", whole.bound);
        assert!(whole.bound >= mixed.bound - slack, "seed {seed}: a weaker bound than without whole replicas");
        let found = |answer: &PricedColumn| answer.column.as_ref().map_or(f64::INFINITY, cost);
        assert!(found(&whole) >= best - slack, "seed {seed}: {} better than {best}", found(&whole));
        assert!(found(&whole) <= found(&mixed) + slack, "seed {seed}: a worse plan than without programmes");
        better += usize::from(whole.bound > mixed.bound + slack);
    }
    better
}

#[test]
fn whole_replicas_never_cost_less_than_their_bound() {
    let hardware = vec![kind(1.0, Some(60), 1.0), kind(2.2, Some(50), 2.5)];
    let accuracy = ProblemShape { hardware: hardware.clone(), halves: true, ..shape(Mode::MaxAccuracy) };
    let cost = ProblemShape { hardware, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    let mut better = 0;
    for seed in 300..320 {
        better += compare_answers(&accuracy, Goal::Accuracy, seed);
        better += compare_answers(&cost, Goal::CostAndSwitching, seed);
    }
    assert!(better > 5, "{better} bounds are better");
}
