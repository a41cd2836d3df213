//! Which better plans are near a plan? Its points are moved by a step, and the replicas are chosen again.
//!
//! Example: `find` has a budget of 100 ms and `read` one of 150 ms. A move gives `find` its next budget, 120 ms, and takes
//! the time from `read`.

use super::budgets::BudgetLevels;
use super::context::{Improvement, StagePlan, StageSearch};
use super::points::GroupPoints;
use super::prices::{PricedBound, PricedRelaxation};
use crate::exact::model::space::PipelineSpace;
use std::collections::BTreeSet;

/// Most rounds of moves, programmes of a round, and programmes of all rounds before the last.
const ROUNDS_MAX: usize = 12;
const ROUND_TRIES_MAX: usize = 24;
const TRIES_MAX: usize = 80;
/// Most pipelines whose replicas are chosen together after a move. Otherwise the moved pipeline alone gets others.
const TOGETHER_MAX: usize = 2;

/// A move of one pipeline to other points, with a bound on the cost of its plans.
struct PointMove {
    bound: f64,
    part: usize,
    points: GroupPoints,
}

impl StageSearch<'_> {
    /// One task gets its next or its previous budget, and another one makes room for it, while that improves the plan.
    pub fn improve_budgets(&self, plan: &mut StagePlan, relaxation: &PricedRelaxation<'_>, priced: &PricedBound) {
        let near = |p: usize, points: &GroupPoints| {
            let part = self.parts[p].part;
            let pipeline = self.problem.pipeline(part.index);
            let levels = BudgetLevels::new(pipeline, part);
            let vectors = levels.neighbours(&points.budgets(part));
            vectors.into_iter().map(|v| GroupPoints::within(pipeline, part, &v)).collect::<Vec<_>>()
        };
        self.improve_by(plan, relaxation, priced, &near);
    }

    /// Rule `path`: the points of a group need no budget that all groups of its task share. So single groups, and pairs of
    /// groups in opposite directions, move to other points while that improves the plan.
    pub fn improve_points(&self, plan: &mut StagePlan, relaxation: &PricedRelaxation<'_>, priced: &PricedBound) {
        let near = |p: usize, points: &GroupPoints| {
            let part = self.parts[p].part;
            let pipeline = self.problem.pipeline(part.index);
            let all = neighbours(part, &points.points).into_iter();
            all.map(|points| GroupPoints::new(pipeline, part, points)).collect::<Vec<_>>()
        };
        self.improve_by(plan, relaxation, priced, &near);
    }

    /// Moves pipelines to the points that `near` lists, while that improves the plan. The moves of least bound come first.
    fn improve_by(
        &self,
        plan: &mut StagePlan,
        relaxation: &PricedRelaxation<'_>,
        priced: &PricedBound,
        near: &dyn Fn(usize, &GroupPoints) -> Vec<GroupPoints>,
    ) {
        let free = vec![0.0; self.problem.hardware.len()];
        let is_joint = self.parts.len() <= TOGETHER_MAX;
        let mut tried: BTreeSet<Vec<Vec<Option<usize>>>> = BTreeSet::new();
        let mut tries = 0;
        for _ in 0..ROUNDS_MAX {
            let mut improvement = Improvement::None;
            let moved = |of: &PointMove| {
                let mut all = plan.points.clone();
                all[of.part].clone_from(&of.points);
                all
            };
            let mut moves: Vec<(usize, Vec<GroupPoints>)> =
                self.moves(plan, relaxation, priced, near).iter().map(|of| (of.part, moved(of))).collect();
            // the same points of all pipelines have the same plans
            let key = |all: &[GroupPoints]| all.iter().map(|of| of.points.clone()).collect::<Vec<_>>();
            moves.retain(|(_, all)| !is_joint || !tried.contains(&key(all)));
            for (part, all) in moves.into_iter().take(ROUND_TRIES_MAX) {
                tries += 1;
                tried.insert(key(&all));
                let who: Vec<usize> = if is_joint { (0..all.len()).collect() } else { vec![part] };
                let points = who.iter().map(|&p| all[p].clone()).collect();
                let before = self.cost_of_active(plan, &who);
                if self.replace(plan, &who, points, &free, before).is_some() {
                    improvement = Improvement::Found;
                    break;
                }
            }
            plan.cost = self.cost_of(plan);
            if improvement == Improvement::None || tries > TRIES_MAX || self.limits.exceeded() {
                break;
            }
        }
    }

    /// The moves whose bounds promise a better plan, by their bounds.
    fn moves(
        &self,
        plan: &StagePlan,
        relaxation: &PricedRelaxation<'_>,
        priced: &PricedBound,
        near: &dyn Fn(usize, &GroupPoints) -> Vec<GroupPoints>,
    ) -> Vec<PointMove> {
        let mut scratch = Vec::new();
        let mut cost = |p: usize, points: &GroupPoints| relaxation.cost_of(p, points, &priced.prices, &mut scratch);
        let cutoff = self.worth_searching_below(Some(plan));
        let costs: Vec<f64> = plan.points.iter().enumerate().map(|(p, points)| cost(p, points)).collect();
        let total = costs.iter().sum::<f64>() - relaxation.worth_of_rows(&priced.prices);
        let mut moves: Vec<PointMove> = Vec::new();
        for (part, own) in costs.iter().enumerate() {
            for points in near(part, &plan.points[part]) {
                let bound = total - own + cost(part, &points);
                if bound < cutoff {
                    moves.push(PointMove { bound, part, points });
                }
            }
        }
        moves.sort_by(|a, b| a.bound.total_cmp(&b.bound));
        moves
    }
}

/// The points of one group moved by a step, alone or with a step of another group in the other direction.
fn neighbours(part: &PipelineSpace, points: &[Option<usize>]) -> Vec<Vec<Option<usize>>> {
    let mut found = Vec::new();
    let step = |points: &[Option<usize>], g: usize, up: isize| {
        let at = points[g].map_or(-1, |b| b as isize) + up;
        ((0..part.groups[g].points.len() as isize).contains(&at)).then(|| {
            let mut moved = points.to_vec();
            moved[g] = Some(at as usize);
            moved
        })
    };
    for g in 0..points.len() {
        found.extend(step(points, g, -1));
        let Some(raised) = step(points, g, 1) else { continue };
        let others = (0..points.len()).filter(|&o| part.groups[o].task != part.groups[g].task);
        found.extend(others.filter_map(|o| step(&raised, o, -1)));
        found.push(raised);
    }
    found
}
