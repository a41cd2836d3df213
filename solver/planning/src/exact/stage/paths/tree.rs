//! How are the replicas divided among the places? By a tree search over their least and most numbers.

use super::context::PathSearch;
use super::relaxation::{Bounds, Relaxations, Relaxed, RelaxedAnswer, RelaxedGoal};
use super::ways::{BatchSizeOfGroup, Worth};
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::SpaceError;
use crate::exact::solution::choice::GroupChoice;
use crate::exact::stage::solve::{StageResult, solve_stage};
use apportion_domain::StopReason;

/// Most batch sizes of a node that is solved although it could be split.
const BATCH_SIZES_MAX: usize = 16;
/// Most nodes that are split. The others are solved as they are.
const SPLITS_MAX: usize = 2_000;
/// The same in a search of bounded effort, whose other nodes are left out.
const BOUNDED_SPLITS_MAX: usize = 30;
/// Distance from a whole number that counts as whole.
const WHOLE: f64 = 1e-6;

/// A plan with the cost of its goal.
#[derive(Clone, Debug)]
pub(super) struct KnownPlan {
    pub cost: f64,
    /// By group.
    pub choice: Vec<GroupChoice>,
}

/// One tree search: its goal, and the best plan so far.
pub(super) struct ReplicaTree {
    goal: RelaxedGoal,
    pub best: Option<KnownPlan>,
    pub stopped: Option<StopReason>,
    root_bound: f64,
    /// Least bound of the nodes that are neither solved nor excluded.
    open_bound: f64,
    splits: usize,
}

impl ReplicaTree {
    /// A search without an incumbent.
    pub fn new(goal: RelaxedGoal, root_bound: f64) -> Self {
        Self { goal, best: None, stopped: None, root_bound, open_bound: f64::INFINITY, splits: 0 }
    }

    /// A search for a plan that is better by a second goal.
    pub fn breaking_ties(goal: RelaxedGoal, incumbent: KnownPlan) -> Self {
        Self { best: Some(incumbent), ..Self::new(goal, f64::NEG_INFINITY) }
    }

    /// The goal of the relaxations. To save a replica, they ask for the highest accuracy with one replica fewer. Its
    /// distance from the least accuracy is tiny, so nearly every batch size is excluded. A distance in replicas is up to a
    /// whole one.
    pub fn relaxed_goal(&self) -> RelaxedGoal {
        match (&self.best, self.goal) {
            (Some(best), RelaxedGoal { goal: Goal::Replicas, accuracy_min: Some(_), .. }) => {
                RelaxedGoal { goal: Goal::Accuracy, accuracy_min: None, replicas_max: Some(best.cost - 1.0) }
            }
            _ => self.goal,
        }
    }

    /// Takes a plan if it is better than the best one.
    pub fn consider(&mut self, search: &PathSearch<'_>, plan: Option<KnownPlan>) {
        if let Some(plan) = plan.filter(|plan| self.best.as_ref().is_none_or(|best| plan.cost < best.cost)) {
            let reported = self.goal.goal.reported();
            if let Some(of) = reported.filter(|_| self.goal.accuracy_min.is_none()) {
                search.limits.report_progress(of.name, of.factor * plan.cost, of.factor * self.root_bound);
            }
            self.best = Some(plan);
        }
    }

    /// Only plans of less cost count, in the unit of the relaxations.
    fn cutoff(&self, search: &PathSearch<'_>) -> f64 {
        if let RelaxedGoal { goal: Goal::Replicas, accuracy_min: Some(least), .. } = self.goal {
            return -least;
        }
        self.best.as_ref().map_or(f64::INFINITY, |best| best.cost - search.margin(self.goal.goal, best.cost))
    }

    /// No plan costs less.
    pub fn proven_bound(&self, search: &PathSearch<'_>) -> f64 {
        let excluded = match &self.best {
            Some(best) if self.goal.goal == Goal::Replicas => best.cost,
            Some(_) => self.cutoff(search),
            None => f64::INFINITY,
        };
        excluded.min(self.open_bound).max(self.root_bound)
    }

    /// Why the whole search ends. A programme that ended after its nodes ends no other one.
    fn ended(&self) -> Option<StopReason> {
        self.stopped.filter(|why| *why != StopReason::Finished)
    }

    /// Ends the search below a node.
    fn stop(&mut self, reason: StopReason, bound: f64) {
        self.stopped = self.ended().or(Some(reason));
        self.open_bound = self.open_bound.min(bound);
    }

    /// Searches the plans with these numbers of replicas. `relaxed` is their relaxation.
    pub fn explore(
        &mut self,
        search: &PathSearch<'_>,
        relaxations: &mut Relaxations<'_>,
        bounds: Vec<Bounds>,
        relaxed: Relaxed,
    ) {
        if relaxed.bound > self.cutoff(search) {
            return;
        }
        let is_spent = search.effort.nodes_max.is_some() && self.splits >= BOUNDED_SPLITS_MAX;
        let spent = is_spent.then_some(StopReason::Finished);
        if let Some(reason) = self.ended().or_else(|| search.limits.stop_reason()).or(spent) {
            self.stop(reason, relaxed.bound);
            return;
        }
        let keep = self.worthwhile(search, &bounds, &relaxed);
        let kept = keep.iter().flatten().filter(|&&keep| keep).count();
        let fraction = |needed: &f64| (needed - needed.round()).abs();
        let widest =
            (0..bounds.len()).max_by(|&a, &b| fraction(&relaxed.needed[a]).total_cmp(&fraction(&relaxed.needed[b])));
        let split = widest.filter(|&r| fraction(&relaxed.needed[r]) > WHOLE && kept > BATCH_SIZES_MAX);
        let Some(r) = split.filter(|_| self.splits < SPLITS_MAX) else {
            self.solve_leaf(search, &bounds, &keep, &relaxed);
            return;
        };
        self.splits += 1;
        let (mut fewer, mut more) = (bounds.clone(), bounds);
        fewer[r].most = fewer[r].most.min(relaxed.needed[r].floor().max(0.0) as u32);
        more[r].least = more[r].least.max(relaxed.needed[r].ceil() as u32);
        let mut nodes = Vec::with_capacity(2);
        for bounds in [fewer, more] {
            match relaxations.solve(self.relaxed_goal(), &bounds) {
                RelaxedAnswer::Solved(of_child) => nodes.push((bounds, of_child)),
                RelaxedAnswer::Infeasible => {}
                // the bound and the prices of the node hold for its parts too
                RelaxedAnswer::Unknown => self.solve_node(search, &bounds, &keep, relaxed.bound),
            }
        }
        nodes.sort_by(|(_, a), (_, b)| a.bound.total_cmp(&b.bound));
        for (bounds, relaxed) in nodes {
            self.explore(search, relaxations, bounds, relaxed);
        }
    }

    /// Solves a node that is not split. If much is left, the batch sizes that its relaxation uses come first: their plan
    /// often costs as little as the bound, or excludes most of the others.
    fn solve_leaf(&mut self, search: &PathSearch<'_>, bounds: &[Bounds], keep: &[Vec<bool>], relaxed: &Relaxed) {
        if keep.iter().flatten().filter(|&&keep| keep).count() <= BATCH_SIZES_MAX {
            self.solve_node(search, bounds, keep, relaxed.bound);
            return;
        }
        let incumbent = self.best.as_ref().map(|best| best.cost);
        let used = |at: BatchSizeOfGroup| relaxed.stops.contains(&at);
        if let Ok(node) = solve_over(search, self.goal, bounds, used, incumbent) {
            self.consider(search, node.plan);
        }
        if relaxed.bound <= self.cutoff(search) {
            let keep = self.worthwhile(search, bounds, relaxed);
            self.solve_node(search, bounds, &keep, relaxed.bound);
        }
    }

    /// By group and point: whether a plan of this node that counts may have a replica there.
    fn worthwhile(&self, search: &PathSearch<'_>, bounds: &[Bounds], relaxed: &Relaxed) -> Vec<Vec<bool>> {
        let loss_max = self.cutoff(search) - relaxed.bound + 1e-9;
        let most: Vec<f64> = bounds.iter().map(|of| f64::from(of.most)).collect();
        let worth = Worth { accuracy: relaxed.accuracy, prices: &relaxed.prices };
        match search.ways.losses(worth, &most) {
            Some(losses) => losses.iter().map(|losses| losses.iter().map(|&loss| loss <= loss_max).collect()).collect(),
            None => search.groups.iter().map(|g| vec![true; g.points.len()]).collect(),
        }
    }

    /// Solves the formulation over the batch sizes to keep, within numbers of replicas.
    fn solve_node(&mut self, search: &PathSearch<'_>, bounds: &[Bounds], keep: &[Vec<bool>], bound: f64) {
        let kept = |at: BatchSizeOfGroup| keep[at.group].get(at.point).copied().unwrap_or(false);
        match solve_over(search, self.goal, bounds, kept, self.best.as_ref().map(|best| best.cost)) {
            Ok(NodePlans { plan, stopped }) => {
                self.consider(search, plan);
                if let Some(reason) = stopped {
                    self.stop(reason, bound);
                }
            }
            Err(reason) => self.stop(reason, bound),
        }
    }
}

/// The best plan of a node, and why it is not proven.
pub(super) struct NodePlans {
    pub plan: Option<KnownPlan>,
    pub stopped: Option<StopReason>,
}

/// Solves the formulation over some batch sizes, within numbers of replicas. Only plans of less cost than the incumbent
/// count.
pub(super) fn solve_over(
    search: &PathSearch<'_>,
    goal: RelaxedGoal,
    bounds: &[Bounds],
    keep: impl Fn(BatchSizeOfGroup) -> bool,
    incumbent: Option<f64>,
) -> Result<NodePlans, StopReason> {
    let none = NodePlans { plan: None, stopped: None };
    let narrow = match search.narrow(keep) {
        Ok(narrow) => narrow,
        // these batch sizes carry no query
        Err(SpaceError::Latency(_)) => return Ok(none),
        Err(SpaceError::Stopped(reason)) => return Err(reason),
        Err(SpaceError::TooLarge(_)) => return Err(StopReason::Unsupported),
    };
    let points = narrow.parts[0].groups.iter().map(|g| g.points.len()).sum::<usize>();
    tracing::debug!(points, nodes = narrow.parts[0].trie.nodes.len(), "a division of the replicas");
    let ranges = search.ranges(bounds);
    let nodes_max = search.effort.nodes_max;
    let stage = Stage { accuracy_min: goal.accuracy_min, totals: Some(&ranges), nodes_max, ..Stage::new(goal.goal) };
    let gap = if goal.goal == Goal::Replicas { 0.0 } else { search.effort.gap };
    match solve_stage(search.problem, &narrow, stage, gap, search.limits, incumbent) {
        StageResult::Found { choice, value, stopped, .. } => {
            let choice = search.translate(&narrow.parts[0], &choice);
            Ok(NodePlans { plan: Some(KnownPlan { cost: value, choice }), stopped })
        }
        StageResult::Infeasible => Ok(none),
        StageResult::Unknown(reason) => Err(reason),
    }
}
