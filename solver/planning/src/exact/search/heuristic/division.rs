//! Which devices should each of several pipelines have? Rule `path`: each pipeline is searched by its ways on its devices.
//!
//! Example: two pipelines share six devices. The first one has four of them, and would be nearly as accurate on three. So a
//! device moves to the second one, and both are searched again.
//!
//! If the pipelines' best plans fit together, they are the best plan. Otherwise a known plan is improved in three ways:
//!
//! - one pipeline at a time, on the devices that the others leave;
//! - all pipelines together, over the batch sizes of every plan that a search of one pipeline has found;
//! - two pipelines, with devices moved from one to the other.

use crate::exact::model::alone::alone;
use crate::exact::model::bounds::{self, accuracy_max, is_maximised};
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::groups::{FeasibleGroup, is_same_group};
use crate::exact::model::space::{PipelineSpace, Space};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::priced::{GAP, PricedSearch};
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use crate::exact::solution::deployed::fits;
use crate::exact::solution::finish::{LastValues, finish};
use crate::exact::solution::found::BestFound;
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::{HardwareIndex, Mode, ObjectiveStep, Pipeline, PipelineIndex, Problem, ProblemDraft, Share};
use apportion_mip::RunLimits;
use std::collections::BTreeMap;

/// Work of one search of one pipeline on the devices that the others leave.
const AGAIN_WORK_MAX: u64 = 60_000_000;
/// Work of one programme over the batch sizes of all known plans.
const POOLED_WORK_MAX: u64 = 300_000_000;
/// Most devices that move at once.
const MOVED_MAX: u32 = 2;

/// A search of one pipeline.
pub(super) type SearchOne = fn(&Problem, &Tightening, &RunLimits) -> PricedSearch;

/// The plan of one pipeline: its groups that run, each with its batch size.
#[derive(Clone, Debug)]
struct PartPlan {
    step: Option<ObjectiveStep>,
    groups: Vec<FeasibleGroup>,
    choice: Vec<GroupChoice>,
}

impl PartPlan {
    fn new(step: Option<ObjectiveStep>, part: &PipelineSpace, choice: &[GroupChoice]) -> Self {
        let narrowed = |(group, chosen): (&FeasibleGroup, &GroupChoice)| {
            let replicas = chosen.replicas;
            (replicas > 0).then(|| {
                let points = vec![group.points[chosen.point]];
                (FeasibleGroup { points, ..group.clone() }, GroupChoice { replicas, point: 0 })
            })
        };
        let (groups, choice) = part.groups.iter().zip(choice).filter_map(narrowed).unzip();
        Self { step, groups, choice }
    }

    /// Whether it may be a part of a joint plan of a step. In Loki's first step only plans of that step count.
    fn is_of_step(&self, step: Option<ObjectiveStep>) -> bool {
        step != Some(ObjectiveStep::Hardware) || self.step == step
    }

    /// Eighths of devices of one hardware type.
    fn eighths(&self, hardware: usize) -> u64 {
        let here = self.groups.iter().zip(&self.choice).filter(|(g, _)| g.hardware == HardwareIndex(hardware));
        here.map(|(g, c)| u64::from(c.replicas) * u64::from(g.share.eighths())).sum()
    }
}

/// The devices and the budget of one pipeline.
#[derive(Clone, Debug)]
struct PipelineRoom {
    counts: Vec<Option<u32>>,
    budget_per_hour: Option<f64>,
}

/// A pipeline with its counts and the bits of its budget.
type RoomKey = (usize, Vec<Option<u32>>, Option<u64>);

/// A move of devices from one pipeline to another one, in exchange for one of another type, or for nothing.
#[derive(Clone, Copy)]
struct DeviceMove {
    from: usize,
    to: usize,
    hardware: usize,
    devices: u32,
    in_exchange: Option<usize>,
}

/// The search for a better division.
pub(super) struct DivisionSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    limits: &'a RunLimits,
    search_one: SearchOne,
    /// Plans of pipelines that were searched before.
    known: BTreeMap<RoomKey, Option<PartPlan>>,
    /// Batch sizes of the last programme over all of them.
    pooled_points: usize,
}

impl<'a> DivisionSearch<'a> {
    pub fn new(problem: &'a Problem, tightening: &'a Tightening, limits: &'a RunLimits, search_one: SearchOne) -> Self {
        Self { problem, tightening, limits, search_one, known: BTreeMap::new(), pooled_points: 0 }
    }

    /// The best plan of each pipeline on all devices, if they fit together. Their bounds add up. Each search may do work of
    /// `work_max`.
    pub fn each_alone(self, work_max: u64) -> PricedSearch {
        let mut all = Vec::with_capacity(self.problem.pipelines.len());
        for p in 0..self.problem.pipelines.len() {
            let own = alone(self.problem, PipelineIndex(p));
            let limits = self.limits.without_listener().with_work(work_max);
            match (self.search_one)(&own, &self.tightening_of(p), &limits) {
                PricedSearch::Found(found) => all.push(*found),
                other => return other,
            }
        }
        let step = match self.problem.objective.mode {
            Mode::HardwareThenAccuracy if all.iter().all(|of| of.step == Some(ObjectiveStep::Hardware)) => {
                Some(ObjectiveStep::Hardware)
            }
            Mode::HardwareThenAccuracy => Some(ObjectiveStep::Accuracy),
            Mode::MinCost | Mode::MaxAccuracy => None,
        };
        let parts: Vec<PartPlan> =
            all.iter().map(|of| PartPlan::new(of.step, &of.space.parts[0], &of.choice.groups[0])).collect();
        let bound = self.sum_of_bounds(&all, step);
        PricedSearch::found_or_not(self.join(&parts, LastValues { step, bound }))
    }

    /// The bound of the joint plan, from those of the pipelines.
    fn sum_of_bounds(&self, all: &[BestFound], step: Option<ObjectiveStep>) -> f64 {
        if !is_maximised(self.problem, step) {
            // together the pipelines may need fewer devices than apart, if they share some
            let is_shared = step.is_none() && self.problem.pipelines.iter().any(runs_on_shares);
            return if is_shared {
                bounds::bound(self.problem, self.tightening, step)
            } else {
                all.iter().map(|of| of.bound).sum()
            };
        }
        let total: f64 = self.problem.pipelines.iter().map(|p| p.weight).sum();
        let bound = |(of, pipeline): (&BestFound, &Pipeline)| {
            let own = if of.step == Some(ObjectiveStep::Hardware) { accuracy_max(pipeline) } else { of.bound };
            let weight = if total > 0.0 { pipeline.weight / total } else { 1.0 / all.len() as f64 };
            weight * own
        };
        all.iter().zip(&self.problem.pipelines).map(bound).sum()
    }

    /// The plan with better plans of pipelines and a better division, where there are any.
    pub fn improve(mut self, mut best: BestFound) -> BestFound {
        let moves = self.moves();
        while !self.limits.exceeded() {
            let better = self.one_at_a_time(&best).or_else(|| self.pooled(&best));
            let moved = |of: &DeviceMove| self.searched_again(&best, &[of.from, of.to, of.from], Some(*of));
            match better.or_else(|| moves.iter().find_map(moved)) {
                Some(better) => best = better,
                None => match self.pooled(&best) {
                    Some(better) => best = better,
                    None => break,
                },
            }
        }
        best
    }

    /// A plan with better plans of pipelines on the devices that the others leave.
    fn one_at_a_time(&mut self, best: &BestFound) -> Option<BestFound> {
        let mut better = None;
        for p in 0..self.problem.pipelines.len() {
            better = self.searched_again(better.as_ref().unwrap_or(best), &[p], None).or(better);
        }
        better
    }

    /// A better plan over the batch sizes of every known plan of a pipeline. The same batch sizes are searched once.
    fn pooled(&mut self, best: &BestFound) -> Option<BestFound> {
        let mut pools: Vec<Vec<FeasibleGroup>> = parts_of(best).into_iter().map(|part| part.groups).collect();
        for (key, plan) in &self.known {
            let counts = plan.iter().filter(|plan| plan.is_of_step(best.step));
            counts.flat_map(|plan| &plan.groups).for_each(|group| add_points(&mut pools[key.0], group));
        }
        let points = pools.iter().flatten().map(|group| group.points.len()).sum();
        if self.limits.exceeded() || std::mem::replace(&mut self.pooled_points, points) == points {
            return None;
        }
        let space = Space::of_groups(self.problem, self.tightening, pools, &self.limits.for_finishing()).ok()?;
        let goal = Goal::of_step(self.problem.objective.mode, best.step);
        let cutoff = cost_to_beat(self.problem, best);
        let limits = self.limits.without_listener().with_work(POOLED_WORK_MAX);
        match solve_stage(self.problem, &space, Stage::new(goal), GAP, &limits, Some(cutoff)) {
            StageResult::Found { choice, .. } => {
                let part = |(part, own): (&PipelineSpace, &Vec<GroupChoice>)| PartPlan::new(best.step, part, own);
                let parts: Vec<PartPlan> = space.parts.iter().zip(&choice.groups).map(part).collect();
                let joint = self.join(&parts, LastValues { step: best.step, bound: best.bound })?;
                self.is_better(&joint, best).then_some(joint)
            }
            StageResult::Infeasible | StageResult::Unknown(_) => None,
        }
    }

    /// Every move: first those of one device for nothing.
    fn moves(&self) -> Vec<DeviceMove> {
        let (count, types) = (self.problem.pipelines.len(), self.problem.hardware.len());
        let pairs = (0..count).flat_map(|from| (0..count).filter(move |&to| to != from).map(move |to| (from, to)));
        let places: Vec<(usize, usize, usize)> =
            pairs.flat_map(|(from, to)| (0..types).map(move |hardware| (from, to, hardware))).collect();
        let all = |devices: u32, in_exchange: Option<usize>| {
            let of_place = move |&(from, to, hardware): &(usize, usize, usize)| {
                let is_move = in_exchange != Some(hardware);
                is_move.then_some(DeviceMove { from, to, hardware, devices, in_exchange })
            };
            places.iter().filter_map(of_place)
        };
        let exchanges = (0..types).flat_map(|other| all(1, Some(other)));
        all(1, None).chain(exchanges).chain((2..=MOVED_MAX).flat_map(|devices| all(devices, None))).collect()
    }

    /// A better plan after these pipelines were searched again, one after another. `moved` takes devices from the first
    /// one.
    fn searched_again(&mut self, best: &BestFound, order: &[usize], moved: Option<DeviceMove>) -> Option<BestFound> {
        if self.limits.exceeded() {
            return None;
        }
        let mut parts = parts_of(best);
        for (i, &p) in order.iter().enumerate() {
            let mut room = self.room_of(&parts, p);
            if let Some(of) = moved.filter(|_| i == 0) {
                let used = parts[p].eighths(of.hardware).div_ceil(8) as u32;
                room.counts[of.hardware] = Some(used.checked_sub(of.devices)?);
                if let Some(other) = of.in_exchange {
                    parts[of.to].eighths(other).checked_sub(8)?;
                    room.counts[other] = room.counts[other].map(|count| count + 1);
                }
            }
            parts[p] = self.plan_in(p, &room, best.step)?;
        }
        let joint = self.join(&parts, LastValues { step: best.step, bound: best.bound })?;
        self.is_better(&joint, best).then_some(joint)
    }

    /// The plan of one pipeline in its room, for a joint plan of a step.
    fn plan_in(&mut self, p: usize, room: &PipelineRoom, step: Option<ObjectiveStep>) -> Option<PartPlan> {
        let key = (p, room.counts.clone(), room.budget_per_hour.map(f64::to_bits));
        let found = match self.known.get(&key) {
            Some(known) => known.clone(),
            None => {
                let found = self.search_in(p, room);
                self.known.insert(key, found.clone());
                found
            }
        };
        found.filter(|found| found.is_of_step(step))
    }

    /// Searches one pipeline in its room.
    fn search_in(&self, p: usize, room: &PipelineRoom) -> Option<PartPlan> {
        let change = |d: &mut ProblemDraft| {
            d.objective.budget_per_hour = room.budget_per_hour;
            d.hardware.iter_mut().zip(&room.counts).for_each(|(h, &count)| h.count = count);
        };
        let own = alone(self.problem, PipelineIndex(p)).changed(change).ok()?;
        let limits = self.limits.without_listener().with_work(AGAIN_WORK_MAX);
        match (self.search_one)(&own, &self.tightening_of(p), &limits) {
            PricedSearch::Found(of) => Some(PartPlan::new(of.step, &of.space.parts[0], &of.choice.groups[0])),
            PricedSearch::Infeasible | PricedSearch::NotFound => None,
        }
    }

    /// The devices and the budget that the other pipelines leave.
    fn room_of(&self, parts: &[PartPlan], p: usize) -> PipelineRoom {
        let others = || parts.iter().enumerate().filter(|&(other, _)| other != p).map(|(_, part)| part);
        let taken = |h: usize| others().map(|part| part.eighths(h)).sum::<u64>().div_ceil(8) as u32;
        let taken: Vec<u32> = (0..self.problem.hardware.len()).map(taken).collect();
        let hardware = || self.problem.hardware.iter().zip(&taken);
        let cost: f64 = hardware().map(|(h, &n)| h.price_per_hour * f64::from(n)).sum();
        PipelineRoom {
            counts: hardware().map(|(h, &n)| h.count.map(|count| count.saturating_sub(n))).collect(),
            budget_per_hour: self.problem.objective.budget_per_hour.map(|budget| (budget - cost).max(0.0)),
        }
    }

    fn tightening_of(&self, p: usize) -> Tightening {
        Tightening { parts: vec![self.tightening.parts[p].clone()] }
    }

    /// The plans of all pipelines as one; `None` if they do not fit together.
    fn join(&self, parts: &[PartPlan], last: LastValues) -> Option<BestFound> {
        let (groups, choice) = parts.iter().map(|part| (part.groups.clone(), part.choice.clone())).unzip();
        let space = Space::of_groups(self.problem, self.tightening, groups, &self.limits.for_finishing()).ok()?;
        let choice = PlanIntegers { groups: choice };
        if !fits(self.problem, &space, &choice) {
            return None;
        }
        finish(self.problem, space, choice, last, self.limits)
    }

    /// Whether a plan is better, or as good with fewer replicas.
    fn is_better(&self, a: &BestFound, b: &BestFound) -> bool {
        let gain = if is_maximised(self.problem, a.step) { a.value - b.value } else { b.value - a.value };
        let slack = 1e-9 * b.value.abs().max(1.0);
        gain > slack || (gain >= -slack && a.choice.replicas() < b.choice.replicas())
    }
}

/// The cost of a plan by its goal, to be beaten. Other plans cost less by more than the gap, or by a whole replica.
fn cost_to_beat(problem: &Problem, best: &BestFound) -> f64 {
    if best.step == Some(ObjectiveStep::Hardware) {
        return best.value;
    }
    let sign = if is_maximised(problem, best.step) { -1.0 } else { 1.0 };
    sign * best.value - (STAGE_GAP_SHARE * GAP * best.value.abs()).max(1e-9)
}

/// Whether the pipelines of a problem share nothing: no counted devices, no budget, and no parts of devices.
pub(super) fn is_separable(problem: &Problem) -> bool {
    let is_limited = problem.hardware.iter().any(|h| h.count.is_some()) || problem.objective.budget_per_hour.is_some();
    !is_limited && problem.quotas.is_empty() && !problem.pipelines.iter().any(runs_on_shares)
}

/// Whether some variant of a pipeline may run on a share of a device.
fn runs_on_shares(pipeline: &Pipeline) -> bool {
    let mut variants = pipeline.tasks.iter().flat_map(|task| &task.variants);
    variants.any(|variant| variant.profile.places().any(|(_, share)| share != Share::WHOLE))
}

/// The plans of the pipelines of a joint plan.
fn parts_of(joint: &BestFound) -> Vec<PartPlan> {
    let part = |(space, choice): (&PipelineSpace, &Vec<GroupChoice>)| PartPlan::new(joint.step, space, choice);
    joint.space.parts.iter().zip(&joint.choice.groups).map(part).collect()
}

/// Adds a group, or its batch sizes to those of the same group.
fn add_points(pool: &mut Vec<FeasibleGroup>, group: &FeasibleGroup) {
    match pool.iter_mut().find(|own| is_same_group(own, group)) {
        None => pool.push(group.clone()),
        Some(own) => {
            for point in &group.points {
                if own.points.iter().all(|other| other.batch != point.batch) {
                    let at = own.points.partition_point(|other| other.charge_ms < point.charge_ms);
                    own.points.insert(at, *point);
                }
            }
        }
    }
}
