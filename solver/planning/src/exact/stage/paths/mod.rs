//! How is rule `path` solved for one pipeline? Most groups and batch sizes are excluded first.
//!
//! Example: the traffic pipeline has 12 variants with 60 batch sizes. At a load of 320 per second the relaxation says that
//! no plan is more accurate than 0.9715, and the best plan of rule `task_budget` reaches 0.9684. A replica of 30 of the 60
//! batch sizes would cost more than this distance. So they are in no better plan, and a small programme remains.
//!
//! 1. A relaxation gives a bound and a price for a replica of each place ([`Relaxations`]).
//! 2. The batch sizes that the relaxation uses make a small programme. Its plan is the first incumbent. The best plan of
//!    rule `task_budget` is another one, because it keeps rule `path` too. It is found fast on one kind of device, and of
//!    large pipelines the fast search of fleets gives one that is nearly as good.
//! 3. A tree search divides the replicas among the places: a node has a least and a most number for each place.
//! 4. In each node, every batch size whose loss exceeds the distance of bound and incumbent is left out
//!    ([`Ways::losses`]). If few are left, our own branch and bound solves the formulation over them. Otherwise the node
//!    is split at a place whose relaxed number of replicas is not whole.
//! 5. Ties are broken by a second goal in the same way.

mod context;
mod incumbents;
mod relaxation;
mod steps;
mod tree;
mod ways;

use crate::exact::model::goal::{Goal, SearchEffort};
use crate::exact::model::groups::{FeasibleGroup, is_same_group};
use crate::exact::model::space::{Space, SpaceError};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::model::trie::TrieError;
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use apportion_domain::{LatencyRule, PipelineIndex, Problem, SLACK, Share, StopReason};
use apportion_mip::RunLimits;
use context::{LargePlanner, PathSearch};
use relaxation::{Bounds, Relaxations, RelaxedAnswer, RelaxedGoal};
use tree::{KnownPlan, ReplicaTree};
use ways::{TaskPlace, Ways};

/// Result of a search under rule `path`.
pub(crate) enum PathResult {
    /// A choice over the groups of a space; its goal's value and bound, both to be minimised; why it ended early.
    Found {
        space: Box<Space>,
        choice: PlanIntegers,
        value: f64,
        bound: f64,
        stopped: Option<StopReason>,
    },
    Infeasible,
    Unknown(StopReason),
}

/// Whether this module solves a problem: one pipeline under rule `path`.
pub(crate) fn applies(problem: &Problem) -> bool {
    problem.pipelines.len() == 1 && problem.objective.latency_rule == LatencyRule::Path && problem.quotas.is_empty()
}

/// The best plan by the first goal, and of those the best one by the second, over these groups of the only pipeline. `None`
/// if the whole formulation is better: there are too many ways, or parts of devices are bought whole. The relaxation buys
/// them in parts, so its bound is far below every plan. A search with a limit of nodes proves little anyway, so it looks
/// for a plan there too.
pub(crate) fn search(
    problem: &Problem,
    tightening: &Tightening,
    groups: &[FeasibleGroup],
    question: PathQuestion,
    limits: &RunLimits,
) -> Option<PathResult> {
    let PathQuestion { goals, effort, plan_large } = question;
    let buys_devices = matches!(goals.first, Goal::Cost | Goal::CostAndSwitching);
    if buys_devices && effort.nodes_max.is_none() && groups.iter().any(|group| group.share != Share::WHOLE) {
        return None;
    }
    let pipeline = problem.pipeline(PipelineIndex(0));
    let ways = match Ways::new(pipeline, groups, &tightening.parts[0].headroom, limits) {
        Ok(ways) => ways,
        Err(TrieError::Stopped(reason)) => return Some(PathResult::Unknown(reason)),
        Err(TrieError::TooLarge) => return None,
    };
    let replicas_max: Vec<f64> = ways.places.iter().map(|&place| replicas_max(problem, groups, &ways, place)).collect();
    let (ways, replicas_max) = (&ways, replicas_max.as_slice());
    let search = PathSearch { problem, tightening, groups, ways, replicas_max, effort, plan_large, limits };
    search.run(goals)
}

/// What is searched, and how.
#[derive(Clone, Copy)]
pub(crate) struct PathQuestion {
    pub goals: Goals,
    pub effort: SearchEffort,
    /// Finds a first plan of a large pipeline.
    pub plan_large: LargePlanner,
}

/// The goal of a search, and the goal that breaks its ties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goals {
    pub first: Goal,
    pub second: Option<Goal>,
}

/// Most replicas of a place that can be useful.
fn replicas_max(problem: &Problem, groups: &[FeasibleGroup], ways: &Ways, place: TaskPlace) -> f64 {
    let pipeline = problem.pipeline(PipelineIndex(0));
    let load = ways.load_max(place.task);
    let here = groups.iter().filter(|g| TaskPlace::of(g) == place);
    let of_group = |g: &FeasibleGroup| (load / g.points[0].qps - SLACK).ceil().max(1.0) + f64::from(pipeline.survive);
    let needed = here.map(of_group).sum::<f64>().max(f64::from(pipeline.task(place.task).min_replicas));
    match problem.hardware_at(place.hardware).count {
        Some(count) => needed.min((f64::from(count) / place.share.value()).floor()),
        None => needed,
    }
}

impl PathSearch<'_> {
    fn run(&self, goals: Goals) -> Option<PathResult> {
        let pipeline = self.problem.pipeline(PipelineIndex(0));
        let relaxations = Relaxations::new(self.problem, pipeline, self.groups, self.ways, self.replicas_max, self.limits);
        let Some(mut relaxations) = relaxations else {
            // without a best way, either none is in time, or there are too many steps
            return (!self.ways.is_any_in_time()).then_some(PathResult::Infeasible);
        };
        let goal = RelaxedGoal { goal: goals.first, accuracy_min: None, replicas_max: None };
        let all = self.all_bounds();
        let root = match relaxations.solve(goal, &all) {
            RelaxedAnswer::Solved(root) => root,
            RelaxedAnswer::Infeasible => return Some(PathResult::Infeasible),
            RelaxedAnswer::Unknown => return None,
        };
        let mut tree = ReplicaTree::new(goal, root.bound);
        tree.consider(self, self.first_incumbent(goal, &all, &root));
        tree.explore(self, &mut relaxations, all, root);
        let bound = tree.proven_bound(self);
        let stopped = tree.stopped;
        let Some(best) = tree.best else {
            return Some(stopped.map_or(PathResult::Infeasible, PathResult::Unknown));
        };
        let value = best.cost;
        let factor = if goals.first == Goal::Accuracy { -1.0 } else { 1.0 };
        self.limits.report_progress(goals.first.reported().map_or("", |of| of.name), factor * value, factor * bound);
        let best = match goals.second.filter(|_| stopped.is_none_or(|why| why == StopReason::Finished)) {
            Some(second) => self.break_ties(&mut relaxations, second, best),
            None => best,
        };
        Some(self.to_result(best.choice, value, bound, stopped))
    }

    /// The best plan by a second goal with (nearly) the same accuracy.
    fn break_ties(&self, relaxations: &mut Relaxations<'_>, second: Goal, best: KnownPlan) -> KnownPlan {
        let accuracy = -best.cost;
        let accuracy_min = Some(accuracy - ACCURACY_SLACK * accuracy.abs());
        let goal = RelaxedGoal { goal: second, accuracy_min, replicas_max: None };
        let incumbent = KnownPlan { cost: self.cost_of(second, &best.choice), choice: best.choice.clone() };
        let mut tree = ReplicaTree::breaking_ties(goal, incumbent);
        let all = self.all_bounds();
        if let RelaxedAnswer::Solved(root) = relaxations.solve(tree.relaxed_goal(), &all) {
            tree.explore(self, relaxations, all, root);
        }
        tree.best.unwrap_or(best)
    }

    /// The value of a goal that counts replicas or devices.
    fn cost_of(&self, goal: Goal, choice: &[GroupChoice]) -> f64 {
        if goal == Goal::Replicas {
            return choice.iter().map(|c| f64::from(c.replicas)).sum();
        }
        let devices = |h: usize| {
            let here = self.groups.iter().zip(choice).filter(|(g, _)| g.hardware.get() == h);
            here.map(|(g, c)| g.share.value() * f64::from(c.replicas)).sum::<f64>()
        };
        let hardware = self.problem.hardware.iter().enumerate();
        hardware.map(|(h, of)| of.price_per_hour * (devices(h) - SLACK).ceil().max(0.0)).sum()
    }

    /// The numbers of replicas that each place may have.
    fn all_bounds(&self) -> Vec<Bounds> {
        let pipeline = self.problem.pipeline(PipelineIndex(0));
        let places = self.ways.places.iter().zip(self.replicas_max);
        let alone = |place: &TaskPlace| self.ways.places.iter().filter(|other| other.task == place.task).count() == 1;
        let bounds = |(place, &most): (&TaskPlace, &f64)| {
            let least = if alone(place) { pipeline.task(place.task).min_replicas } else { 0 };
            Bounds { least, most: most as u32 }
        };
        places.map(bounds).collect()
    }

    /// The result over a small space: the groups of the choice, and the deployed groups.
    fn to_result(&self, choice: Vec<GroupChoice>, value: f64, bound: f64, stopped: Option<StopReason>) -> PathResult {
        let is_deployed =
            |g: &FeasibleGroup, point: usize| g.deployed > 0 && g.deployed_batch == Some(g.points[point].batch);
        let space = self.narrow(|at| {
            let chosen = choice[at.group];
            (chosen.replicas > 0 && chosen.point == at.point) || is_deployed(&self.groups[at.group], at.point)
        });
        let space = match space {
            Ok(space) => space,
            Err(SpaceError::Stopped(reason)) => return PathResult::Unknown(reason),
            // a choice of so many groups is one of a search that was stopped early
            Err(_) => return PathResult::Unknown(stopped.unwrap_or(StopReason::Unsupported)),
        };
        let of_group = |group: &FeasibleGroup| {
            let at = self.groups.iter().position(|other| is_same_group(group, other))?;
            let chosen = choice[at];
            let batch = self.groups[at].points[chosen.point].batch;
            let point = group.points.iter().position(|p| p.batch == batch)?;
            (chosen.replicas > 0).then_some(GroupChoice { replicas: chosen.replicas, point })
        };
        let groups = space.parts[0].groups.iter().map(|group| of_group(group).unwrap_or_default()).collect();
        PathResult::Found {
            space: Box::new(space),
            choice: PlanIntegers { groups: vec![groups] },
            value,
            bound: bound.min(value),
            stopped,
        }
    }
}

#[cfg(test)]
mod tests;
