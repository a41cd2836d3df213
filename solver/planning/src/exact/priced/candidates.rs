//! Which operating points are tried for a pipeline?

use super::budgets::{BudgetLevels, BudgetVectors};
use super::points::GroupPoints;
use super::prices::{PartCandidates, PricedBound, PricedRelaxation};
use super::walk::LaneNeeds;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{LatencyRule, Pipeline};

/// Candidates whose neighbours are looked at, if not all are listed.
const CLIMBS: usize = 3;
/// Most steps of one climb.
const STEPS_MAX: usize = 8;

/// The points within all maximal budget vectors, or within some of them.
pub(super) fn list<'a>(pipeline: &Pipeline, part: &'a PipelineSpace) -> PartCandidates<'a> {
    let BudgetVectors { vectors, is_complete } = BudgetLevels::new(pipeline, part).list();
    let mut candidates: Vec<GroupPoints> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for vector in &vectors {
        let points = GroupPoints::within(pipeline, part, vector);
        if known.insert(points.points.clone()) {
            candidates.push(points);
        }
    }
    // under rule `path` the points of a group need no budget that all groups of the task share
    let is_complete = is_complete && part.rule == LatencyRule::TaskBudget;
    PartCandidates { part, needs: LaneNeeds::new(part, pipeline.survive), candidates, is_complete, vectors }
}

/// Candidates near the best ones of a pipeline whose vectors are not all listed, by climbs from neighbour to neighbour.
pub(super) fn near(relaxation: &PricedRelaxation<'_>, p: usize, priced: &PricedBound) -> Vec<GroupPoints> {
    let PartCandidates { part, candidates, vectors, .. } = &relaxation.parts[p];
    let pipeline = relaxation.problem.pipeline(part.index);
    let levels = BudgetLevels::new(pipeline, part);
    let mut scratch = Vec::new();
    let mut found = Vec::new();
    for best in priced.ranked[p].iter().take(CLIMBS) {
        let points = &candidates[best.candidate];
        let vector = vectors.iter().find(|v| GroupPoints::within(pipeline, part, v).points == points.points);
        let Some(mut vector) = vector.cloned() else { continue };
        let mut cost = best.cost;
        for _ in 0..STEPS_MAX {
            let near = levels.neighbours(&vector).into_iter().map(|v| {
                let points = GroupPoints::within(pipeline, part, &v);
                let cost = relaxation.cost_of(p, &points, &priced.prices, &mut scratch);
                (cost, v, points)
            });
            let Some(better) = near.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|near| near.0 < cost) else { break };
            (cost, vector) = (better.0, better.1);
            found.push(better.2);
        }
    }
    found
}
