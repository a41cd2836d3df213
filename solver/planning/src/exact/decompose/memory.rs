//! What does a planner remember of a fleet from one round to the next? The prices, and each pipeline's answer at them.
//!
//! Two pipelines are the same if their descriptions, their groups and their weights are. The answer of the same pipeline at
//! the same prices is the same, whatever devices there are. So a round asks only the pipelines that have changed, and the
//! sum of all answers is a bound again. If its gap is about the old one, the round ends there.

use super::joint::{JointBounds, JointPlan, JointProblem};
use super::sub::{Column, Subproblem};
use crate::exact::model::goal::Goal;
use crate::exact::model::groups::FeasibleGroup;
use crate::fleet_memory::FleetMemory;
use apportion_domain::{Pipeline, PipelineIndex};
use std::sync::Arc;

/// How many times the gap of a search from the start a round may have before it searches from the start again.
const GAP_TIMES: f64 = 1.2;
/// Most plans that are remembered of one pipeline: those of least cost at the last prices.
const COLUMNS_MAX: usize = 12;

/// One round.
#[derive(Debug)]
pub(super) struct RememberedRound {
    goal: Goal,
    /// The names of the hardware types, in the order of the prices.
    hardware: Vec<String>,
    /// Prices of devices, then of quotas, at which the bound was highest.
    pub lambda: Vec<f64>,
    /// Relative gap of the last search from the start.
    gap: f64,
    pipelines: Vec<RememberedPipeline>,
}

/// The answer of one pipeline.
#[derive(Debug)]
pub(super) struct RememberedPipeline {
    pipeline: Pipeline,
    groups: Vec<FeasibleGroup>,
    headroom: Vec<f64>,
    weight: f64,
    /// Prices of devices for this pipeline.
    prices: Vec<f64>,
    /// No plan of it costs less at these prices.
    pub cost_min: f64,
    /// Its plans of least cost there.
    pub columns: Vec<Column>,
    /// Its part of the round's plan.
    pub chosen: Column,
}

impl RememberedRound {
    /// The last round of the problem's memory, if it was for its goal and its hardware types.
    pub fn last(joint: &JointProblem<'_>) -> Option<Arc<Self>> {
        let round = joint.memory.and_then(FleetMemory::last::<Self>)?;
        let same_hardware = joint.problem.hardware.iter().map(|h| &h.name).eq(&round.hardware);
        let same_prices = round.lambda.len() == joint.shared.most.len() + joint.shared.quotas.len();
        (round.goal == joint.goal && same_hardware && same_prices).then_some(round)
    }

    /// Remembers a plan that was found at these bounds, if the problem has a memory. `last` is the round from which the
    /// search began.
    pub fn remember(joint: &JointProblem<'_>, known: &JointBounds, whole: &JointPlan, last: Option<&Self>) {
        let Some(memory) = joint.memory else { return };
        let gap = (whole.value - known.bound) / whole.value.abs().max(f64::MIN_POSITIVE);
        let pipeline = |p: usize| remembered_pipeline(joint, known, whole, p);
        let Some(pipelines) = (0..joint.subs.len()).map(pipeline).collect() else { return };
        memory.replace(Self {
            goal: joint.goal,
            hardware: joint.problem.hardware.iter().map(|h| h.name.clone()).collect(),
            lambda: known.best_lambda.clone(),
            gap: last.map_or(gap, |last| last.gap),
            pipelines,
        });
    }

    /// The remembered answer of pipeline `p` at the remembered prices; `None` if the pipeline or its prices have changed.
    pub fn answer(&self, joint: &JointProblem<'_>, p: usize) -> Option<&RememberedPipeline> {
        let sub: &Subproblem = &joint.subs[p];
        let (pipeline, part) = (sub.problem.pipeline(PipelineIndex(0)), sub.part());
        let of_name = |known: &&RememberedPipeline| known.pipeline.name == pipeline.name;
        // pipelines seldom change their places
        let known = self.pipelines.get(p).filter(of_name).or_else(|| self.pipelines.iter().find(of_name))?;
        let is_same = |(now, last): (&FeasibleGroup, &FeasibleGroup)| without_loads(now, joint.goal) == *last;
        let same = known.weight.to_bits() == sub.weight.to_bits()
            && known.headroom == part.headroom
            && known.prices == joint.shared.prices_for(p, &self.lambda)
            && known.pipeline == *pipeline
            && known.groups.len() == part.groups.len()
            && part.groups.iter().zip(&known.groups).all(is_same);
        same.then_some(known)
    }

    /// Whether a plan is about as close to its bound as the plan of a search from the start was.
    pub fn is_close_enough(&self, joint: &JointProblem<'_>, known: &JointBounds, whole: &JointPlan) -> bool {
        known.is_proven(whole, joint.gap.max(GAP_TIMES * self.gap))
    }
}

/// The answer of one pipeline at the best prices; `None` if it was not asked there.
fn remembered_pipeline(
    joint: &JointProblem<'_>,
    known: &JointBounds,
    whole: &JointPlan,
    p: usize,
) -> Option<RememberedPipeline> {
    let sub = &joint.subs[p];
    let prices = joint.shared.prices_for(p, &known.best_lambda);
    let cost_min = known.cuts[p].iter().rev().find(|cut| cut.prices == prices)?.cost_min;
    let priced = |c: &Column| c.cost_at(&prices);
    let mut columns = known.master.columns[p].clone();
    columns.sort_by(|a, b| priced(a).total_cmp(&priced(b)));
    columns.truncate(COLUMNS_MAX);
    let chosen = whole.columns[p].clone();
    if !columns.contains(&chosen) {
        columns.push(chosen.clone());
    }
    let part = sub.part();
    Some(RememberedPipeline {
        pipeline: sub.problem.pipeline(PipelineIndex(0)).clone(),
        groups: part.groups.iter().map(|group| without_loads(group, joint.goal)).collect(),
        headroom: part.headroom.clone(),
        weight: sub.weight,
        prices,
        cost_min,
        columns,
        chosen,
    })
}

/// A group as a goal sees it: only switching counts the deployed replicas.
fn without_loads(group: &FeasibleGroup, goal: Goal) -> FeasibleGroup {
    if goal == Goal::Switching {
        return group.clone();
    }
    FeasibleGroup { deployed: 0, deployed_batch: None, switch_cost: 0.0, ..group.clone() }
}
