//! How is rule `path` solved for one pipeline on one kind of device? Most groups and batch sizes are excluded first.
//!
//! Example: the traffic pipeline has 12 variants with 60 batch sizes. At a load of 320 per second the relaxation says that
//! no plan is more accurate than 0.9715, and the best plan of rule `task_budget` reaches 0.9684. A replica of 30 of the 60
//! batch sizes would cost more than this distance. So they are in no better plan, and a small programme remains.
//!
//! 1. The best plan of rule `task_budget` keeps rule `path` too. It is the first incumbent.
//! 2. A tree search divides the devices among the tasks: a node has a least and a most number of replicas for each task.
//!    Its relaxation gives a bound, and a price for a replica of each task ([`Relaxations`]).
//! 3. In each node, every batch size whose loss exceeds the distance of bound and incumbent is left out
//!    ([`Configurations::losses`]). If few are left, our own branch and bound solves the formulation over them. Otherwise
//!    the node is split at a task whose relaxed number of replicas is not whole.
//! 4. The fewest replicas with this accuracy are found in the same way, with fewer devices.

use super::configurations::Configurations;
use super::divisions::{Relaxations, Relaxed};
use super::enumerate::{self, one_kind_of_device};
use super::solve::{StageResult, solve_stage};
use crate::exact::model::goal::{Goal, ReplicaRange, Stage};
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::{PipelineSpace, Space, SpaceError};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::{ACCURACY_SLACK, STAGE_GAP_SHARE};
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use apportion_domain::{LatencyRule, Problem, StopReason};
use apportion_mip::RunLimits;

/// Most batch sizes of a node that is solved although it could be split.
const POINTS_MAX: usize = 16;
/// Distance from a whole number that counts as whole.
const WHOLE: f64 = 1e-6;

/// The search of one problem under rule `path`.
struct PathSearch<'a> {
    problem: &'a Problem,
    tightening: &'a Tightening,
    space: &'a Space,
    configurations: &'a Configurations,
    gap: f64,
    limits: &'a RunLimits,
}

/// A plan with its accuracy.
struct AccuratePlan {
    accuracy: f64,
    choice: PlanIntegers,
}

/// The numbers of replicas of each task.
type Totals = Vec<ReplicaRange>;

/// One tree search: its goal, and the best plan so far.
struct Tree {
    /// Only plans of at least this accuracy count.
    accuracy_min: f64,
    /// Only plans with at most so many replicas count.
    replicas_max: f64,
    /// The fewest replicas, or else the highest accuracy.
    goal: Goal,
    best: Option<AccuratePlan>,
    stopped: Option<StopReason>,
}

/// The highest accuracy, then the fewest replicas that keep it, under rule `path`. Value and bound are negated accuracies.
/// `None` if the problem has another rule, several pipelines or several kinds of devices, or if it is too large.
pub(crate) fn most_accurate(
    problem: &Problem,
    tightening: &Tightening,
    space: &Space,
    gap: f64,
    limits: &RunLimits,
) -> Option<StageResult> {
    let devices = one_kind_of_device(problem, space).filter(|devices| devices.is_finite())?;
    let part = &space.parts[0];
    if part.rule != LatencyRule::Path {
        return None;
    }
    let configurations = Configurations::new(problem.pipeline(part.index), part, limits)?;
    let search = PathSearch { problem, tightening, space, configurations: &configurations, gap, limits };
    Some(search.run(devices))
}

impl PathSearch<'_> {
    fn run(&self, devices: f64) -> StageResult {
        let mut relaxations = Relaxations::new(self.configurations, self.space.parts[0].by_variant.len());
        let all = self.all_totals(devices);
        let Some(root) = relaxations.solve(&all, devices) else { return StageResult::Infeasible };
        let small = 1.0 + STAGE_GAP_SHARE * self.gap;
        let best = self.most_accurate_within_budgets();
        let accuracy_min = best.as_ref().map_or(f64::NEG_INFINITY, |best| best.accuracy * small);
        let bound = root.bound;
        let mut tree = Tree { accuracy_min, replicas_max: devices, goal: Goal::Accuracy, best, stopped: None };
        self.explore(&mut tree, &mut relaxations, all, root);
        let Some(AccuratePlan { accuracy, choice }) = tree.best else {
            return tree.stopped.map_or(StageResult::Infeasible, StageResult::Unknown);
        };
        let bound = if tree.stopped.is_some() { bound } else { bound.min(accuracy * small) };
        self.limits.report_progress("accuracy", accuracy, bound);
        let choice = match tree.stopped {
            Some(_) => choice,
            None => self.reduce_replicas(&mut relaxations, accuracy, choice),
        };
        StageResult::Found { choice, value: -accuracy, bound: -bound.max(accuracy), stopped: tree.stopped }
    }

    /// The fewest replicas with accuracy of at least `accuracy * (1 - 1e-6)`.
    fn reduce_replicas(&self, relaxations: &mut Relaxations<'_>, accuracy: f64, choice: PlanIntegers) -> PlanIntegers {
        let accuracy_min = accuracy * (1.0 - ACCURACY_SLACK);
        let replicas_max = choice.replicas() as f64 - 1.0;
        let all = self.all_totals(replicas_max);
        let Some(root) = relaxations.solve(&all, replicas_max) else { return choice };
        let best = Some(AccuratePlan { accuracy, choice });
        let mut tree = Tree { accuracy_min, replicas_max, goal: Goal::Replicas, best, stopped: None };
        self.explore(&mut tree, relaxations, all, root);
        tree.best.expect("a tree search keeps its incumbent").choice
    }

    /// The numbers of replicas that each task may have.
    fn all_totals(&self, devices: f64) -> Totals {
        let pipeline = self.problem.pipeline(self.space.parts[0].index);
        let most = devices.max(0.0) as u32;
        pipeline.tasks.iter().map(|task| ReplicaRange { least: task.min_replicas, most }).collect()
    }

    /// Searches the plans with these numbers of replicas. `relaxed` is their relaxation.
    fn explore(&self, tree: &mut Tree, relaxations: &mut Relaxations<'_>, totals: Totals, relaxed: Relaxed) {
        if relaxed.bound < tree.accuracy_min || tree.stopped.is_some() {
            return;
        }
        if let Some(reason) = self.limits.stop_reason() {
            tree.stopped = Some(reason);
            return;
        }
        let keep = self.worthwhile(tree, &totals, &relaxed);
        let kept = keep.iter().flatten().filter(|&&keep| keep).count();
        let fraction = |needed: &f64| (needed - needed.round()).abs();
        let widest =
            (0..totals.len()).max_by(|&a, &b| fraction(&relaxed.needed[a]).total_cmp(&fraction(&relaxed.needed[b])));
        match widest.filter(|&t| fraction(&relaxed.needed[t]) > WHOLE && kept > POINTS_MAX) {
            Some(t) => {
                let (mut fewer, mut more) = (totals.clone(), totals);
                fewer[t].most = fewer[t].most.min(relaxed.needed[t].floor().max(0.0) as u32);
                more[t].least = more[t].least.max(relaxed.needed[t].ceil() as u32);
                let mut nodes: Vec<(Totals, Relaxed)> = [fewer, more]
                    .into_iter()
                    .filter_map(|totals| relaxations.solve(&totals, tree.replicas_max).map(|relaxed| (totals, relaxed)))
                    .collect();
                nodes.sort_by(|(_, a), (_, b)| b.bound.total_cmp(&a.bound));
                for (totals, relaxed) in nodes {
                    self.explore(tree, relaxations, totals, relaxed);
                }
            }
            None => self.solve_node(tree, &totals, &keep),
        }
    }

    /// By group and point: whether a plan of this node that counts may have a replica there.
    fn worthwhile(&self, tree: &Tree, totals: &Totals, relaxed: &Relaxed) -> Vec<Vec<bool>> {
        let loss_max = relaxed.bound - tree.accuracy_min + 1e-9;
        let most: Vec<f64> = totals.iter().map(|of| f64::from(of.most)).collect();
        let losses = self.configurations.losses(&self.space.parts[0], &relaxed.prices, &most);
        losses.iter().map(|losses| losses.iter().map(|&loss| loss <= loss_max).collect()).collect()
    }

    /// Solves the formulation over the batch sizes to keep, within numbers of replicas.
    fn solve_node(&self, tree: &mut Tree, totals: &Totals, keep: &[Vec<bool>]) {
        let narrow = match self.narrow(keep) {
            Ok(narrow) => narrow,
            // these batch sizes carry no query
            Err(SpaceError::Latency(_)) => return,
            Err(SpaceError::Stopped(reason)) => {
                tree.stopped = Some(reason);
                return;
            }
            Err(SpaceError::TooLarge(_)) => {
                tree.stopped = Some(StopReason::Unsupported);
                return;
            }
        };
        let kept = narrow.parts[0].groups.iter().map(|g| g.points.len()).sum::<usize>();
        tracing::debug!(?totals, kept, nodes = narrow.parts[0].trie.nodes.len(), "a division of the devices");
        let by_accuracy = tree.goal == Goal::Accuracy;
        let stage = Stage {
            accuracy_min: (!by_accuracy).then_some(tree.accuracy_min),
            totals: Some(totals),
            ..Stage::new(tree.goal)
        };
        let incumbent = tree.best.as_ref().map(|best| match tree.goal {
            Goal::Accuracy => -best.accuracy,
            _ => best.choice.replicas() as f64,
        });
        let gap = if by_accuracy { self.gap } else { 0.0 };
        match solve_stage(self.problem, &narrow, stage, gap, self.limits, incumbent) {
            StageResult::Found { choice, value, stopped, .. } => {
                let choice = self.translate(&narrow.parts[0], &choice);
                tree.stopped = stopped;
                if by_accuracy {
                    tree.accuracy_min = tree.accuracy_min.max(-value * (1.0 + STAGE_GAP_SHARE * self.gap));
                    if tree.best.as_ref().is_none_or(|best| -value > best.accuracy) {
                        tree.best = Some(AccuratePlan { accuracy: -value, choice });
                    }
                } else if let Some(best) = tree.best.as_mut().filter(|best| choice.replicas() < best.choice.replicas()) {
                    tree.replicas_max = choice.replicas() as f64 - 1.0;
                    best.choice = choice;
                }
            }
            StageResult::Infeasible => {}
            StageResult::Unknown(reason) => tree.stopped = Some(reason),
        }
    }

    /// The space of the batch sizes to keep.
    fn narrow(&self, keep: &[Vec<bool>]) -> Result<Space, SpaceError> {
        let part = &self.space.parts[0];
        let kept = |(group, keep): (&FeasibleGroup, &Vec<bool>)| {
            let points = group.points.iter().zip(keep).filter(|(_, keep)| **keep).map(|(p, _)| *p).collect();
            FeasibleGroup { points, ..group.clone() }
        };
        let groups: Vec<FeasibleGroup> = part.groups.iter().zip(keep).map(kept).filter(|g| !g.points.is_empty()).collect();
        let limits = self.limits.for_finishing();
        Space::of_groups(self.problem, self.tightening, vec![groups], &limits)
    }

    /// A choice over the groups of another space, over the groups of this one.
    fn translate(&self, from: &PipelineSpace, choice: &PlanIntegers) -> PlanIntegers {
        let of_group = |group: &FeasibleGroup| {
            let is_same = |other: &FeasibleGroup| {
                (other.task, other.variant, other.hardware, other.share)
                    == (group.task, group.variant, group.hardware, group.share)
            };
            let at = from.groups.iter().position(is_same)?;
            let chosen = choice.groups[0][at];
            let batch = from.groups[at].points[chosen.point].batch;
            let point = group.points.iter().position(|p| p.batch == batch)?;
            (chosen.replicas > 0).then_some(GroupChoice { replicas: chosen.replicas, point })
        };
        let groups = self.space.parts[0].groups.iter().map(|group| of_group(group).unwrap_or_default()).collect();
        PlanIntegers { groups: vec![groups] }
    }

    /// The best plan of rule `task_budget`, with its accuracy. It keeps rule `path` too.
    fn most_accurate_within_budgets(&self) -> Option<AccuratePlan> {
        let problem = self.problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget).ok()?;
        let limits = self.limits.without_listener();
        let space = Space::new(&problem, self.tightening, &limits).ok()?;
        match enumerate::most_accurate(&problem, &space, self.gap, &limits)? {
            StageResult::Found { choice, value, .. } => {
                Some(AccuratePlan { accuracy: -value, choice: self.translate(&space.parts[0], &choice) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
