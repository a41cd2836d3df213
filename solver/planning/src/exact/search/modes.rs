//! In which stages is each mode searched, and what is proven at the end?

use crate::exact::decompose::{self, ApartQuestion};
use crate::exact::model::bounds;
use crate::exact::model::goal::{Goal, SearchEffort, Stage};
use crate::exact::model::groups::usable_groups;
use crate::exact::model::space::{Space, SpaceError};
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::solution::deployed::prefer_deployed;
use crate::exact::solution::flows::flows;
use crate::exact::solution::found::BestFound;
use crate::exact::solution::trim::trim;
use crate::exact::solution::worth::worth;
use crate::exact::stage::enumerate;
use crate::exact::stage::paths::{self, Goals, PathQuestion, PathResult};
use crate::exact::stage::solve::{StageResult, solve_stage};
use crate::fleet_memory::FleetMemory;
use apportion_domain::{Mode, ObjectiveStep, PipelineIndex, Problem, StopReason, TaskIndex, VariantIndex};
use apportion_mip::RunLimits;

/// How a search ended.
#[derive(Clone, Debug)]
pub(crate) enum SearchResult {
    Found(Box<BestFound>),
    Infeasible,
    Unknown(StopReason),
}

/// One exact search.
pub(crate) struct ModeSearch<'a> {
    pub problem: &'a Problem,
    pub tightening: &'a Tightening,
    pub effort: SearchEffort,
    /// What is known of the rounds before.
    pub memory: Option<&'a FleetMemory>,
    pub limits: &'a RunLimits,
}

/// The integers of the last stage, with the value and the bound of the mode's objective.
pub(crate) struct LastStage {
    pub choice: PlanIntegers,
    pub step: Option<ObjectiveStep>,
    pub value: f64,
    pub bound: f64,
    pub stopped: Option<StopReason>,
}

impl ModeSearch<'_> {
    /// Searches in the stages of the mode.
    pub fn search_exactly(&self) -> SearchResult {
        if let Some(found) = self.search_by_ways() {
            return found;
        }
        // Every plan needs a space, also that of the local search. So it is made even in the last of the time.
        let space = match Space::new(self.problem, self.tightening, &self.limits.for_finishing()) {
            Ok(space) => space,
            Err(SpaceError::Latency(_)) => return SearchResult::Infeasible,
            Err(SpaceError::Stopped(reason)) => return SearchResult::Unknown(reason),
            Err(why @ SpaceError::TooLarge(_)) => {
                tracing::warn!(%why, "the problem is too large for the exact planner");
                return SearchResult::Unknown(StopReason::Unsupported);
            }
        };
        let found = match self.problem.objective.mode {
            Mode::HardwareThenAccuracy => self.search_hardware_then_accuracy(space),
            Mode::MinCost => self.search_least_cost(space),
            Mode::MaxAccuracy => self.search_highest_accuracy(space, None, Goal::Cost),
        };
        self.with_deployed(found)
    }

    /// The search of one pipeline under rule `path`. `None` if the search over its ways does not apply.
    pub(crate) fn search_by_ways(&self) -> Option<SearchResult> {
        if !paths::applies(self.problem) {
            return None;
        }
        self.search_paths().map(|found| self.with_deployed(found))
    }

    /// The deployed plan instead of the solution, if it is as good.
    fn with_deployed(&self, found: SearchResult) -> SearchResult {
        match found {
            SearchResult::Found(found) => SearchResult::Found(Box::new(prefer_deployed(self.problem, *found, self.limits))),
            other => other,
        }
    }

    /// One pipeline under rule `path`. `None` if the search over its ways does not apply.
    fn search_paths(&self) -> Option<SearchResult> {
        let &Self { problem, tightening, effort, limits, .. } = self;
        let index = PipelineIndex(0);
        let solve = |goals, wanted: &dyn Fn(TaskIndex, VariantIndex) -> bool| {
            let groups = usable_groups(problem, index, tightening, wanted);
            let question = PathQuestion { goals, effort, plan_large: decompose::plan_large };
            paths::search(problem, tightening, &groups, question, limits)
        };
        let (goals, step) = match problem.objective.mode {
            Mode::HardwareThenAccuracy => {
                let goals = Goals { first: Goal::Replicas, second: None };
                let is_best = |t, v| problem.pipeline(index).most_accurate(t).any(|best| best == v);
                let fewest = solve(goals, &is_best)?;
                if !matches!(fewest, PathResult::Infeasible) {
                    return Some(self.finish_paths(fewest, Goal::Replicas, Some(ObjectiveStep::Hardware)));
                }
                (Goals { first: Goal::Accuracy, second: Some(Goal::Replicas) }, Some(ObjectiveStep::Accuracy))
            }
            Mode::MinCost => (Goals { first: Goal::CostAndSwitching, second: None }, None),
            Mode::MaxAccuracy => (Goals { first: Goal::Accuracy, second: Some(Goal::Cost) }, None),
        };
        Some(self.finish_paths(solve(goals, &|_, _| true)?, goals.first, step))
    }

    /// The plan of a search over ways.
    fn finish_paths(&self, result: PathResult, goal: Goal, step: Option<ObjectiveStep>) -> SearchResult {
        match result {
            PathResult::Found { space, choice, value, bound, stopped } => {
                let (value, bound) = match goal {
                    Goal::Accuracy => (-value, -bound),
                    Goal::Replicas => (value, (bound - 1e-6).ceil()),
                    _ => (value, bound),
                };
                self.finish(*space, LastStage { choice, step, value, bound, stopped })
            }
            PathResult::Infeasible => SearchResult::Infeasible,
            PathResult::Unknown(reason) => SearchResult::Unknown(reason),
        }
    }

    /// Loki: the fewest replicas of the most accurate variants, or else the highest accuracy.
    fn search_hardware_then_accuracy(&self, space: Space) -> SearchResult {
        let &Self { problem, tightening, effort: SearchEffort { gap, .. }, memory, limits } = self;
        if let Ok(best) = Space::of_most_accurate(problem, tightening, &limits.for_finishing()) {
            let fewest = ApartQuestion { goal: Goal::Replicas, second: None, gap, memory };
            let result = match enumerate::fewest_replicas(problem, &best, &limits.for_finishing()) {
                Some(result) => result,
                None => decompose::solve_apart(problem, &best, fewest, limits)
                    .unwrap_or_else(|| solve_stage(problem, &best, Stage::new(Goal::Replicas), gap, limits, None)),
            };
            match result {
                StageResult::Found { choice, value, bound, stopped } => {
                    let (step, bound) = (Some(ObjectiveStep::Hardware), (bound - 1e-6).ceil());
                    return self.finish(best, LastStage { choice, step, value, bound, stopped });
                }
                StageResult::Infeasible => {}
                StageResult::Unknown(reason) => return SearchResult::Unknown(reason),
            }
        }
        self.search_highest_accuracy(space, Some(ObjectiveStep::Accuracy), Goal::Replicas)
    }

    /// The least cost, with that of switching.
    fn search_least_cost(&self, space: Space) -> SearchResult {
        let &Self { problem, effort: SearchEffort { gap, .. }, limits, .. } = self;
        match enumerate::least_cost(problem, &space, gap, limits) {
            Some(StageResult::Found { choice, value, bound, stopped }) => {
                self.finish(space, LastStage { choice, step: None, value, bound, stopped })
            }
            Some(StageResult::Infeasible) => SearchResult::Infeasible,
            Some(StageResult::Unknown(reason)) => SearchResult::Unknown(reason),
            None => self.search_stages(space, Goal::CostAndSwitching, None),
        }
    }

    /// The highest accuracy, and the least of `second` that keeps it: replicas or costs. On one kind of device, they have
    /// the same optimum.
    fn search_highest_accuracy(&self, space: Space, step: Option<ObjectiveStep>, second: Goal) -> SearchResult {
        let &Self { problem, effort: SearchEffort { gap, .. }, limits, .. } = self;
        match enumerate::most_accurate(problem, &space, gap, limits) {
            Some(StageResult::Found { choice, value, bound, stopped }) => {
                self.finish(space, LastStage { choice, step, value: -value, bound: -bound, stopped })
            }
            Some(StageResult::Infeasible) => SearchResult::Infeasible,
            Some(StageResult::Unknown(reason)) => SearchResult::Unknown(reason),
            None => self.search_stages(space, Goal::Accuracy, Some(second)),
        }
    }

    /// Solves `goal` first, and then `second` among the plans of the same accuracy.
    fn search_stages(&self, space: Space, goal: Goal, second: Option<Goal>) -> SearchResult {
        let &Self { problem, effort: SearchEffort { gap, .. }, memory, limits, .. } = self;
        let apart = decompose::solve_apart(problem, &space, ApartQuestion { goal, second, gap, memory }, limits);
        // the decomposition has broken the ties already
        let second = second.filter(|_| apart.is_none());
        let first = apart.unwrap_or_else(|| solve_stage(problem, &space, Stage::new(goal), gap, limits, None));
        let (mut choice, value, bound, mut stopped) = match first {
            StageResult::Found { choice, value, bound, stopped } => (choice, value, bound, stopped),
            StageResult::Infeasible => return SearchResult::Infeasible,
            StageResult::Unknown(reason) => return SearchResult::Unknown(reason),
        };
        if let (Some(goal), None) = (second, stopped) {
            let least = -value - ACCURACY_SLACK * value.abs();
            let stage = Stage { accuracy_min: Some(least), ..Stage::new(goal) };
            match solve_stage(problem, &space, stage, gap, limits, None) {
                StageResult::Found { choice: cheaper, .. } => choice = cheaper,
                StageResult::Infeasible => stopped = Some(StopReason::Numerics),
                StageResult::Unknown(_) => {}
            }
        }
        let step = (problem.objective.mode == Mode::HardwareThenAccuracy).then_some(ObjectiveStep::Accuracy);
        let (value, bound) = if goal == Goal::Accuracy { (-value, -bound) } else { (value, bound) };
        self.finish(space, LastStage { choice, step, value, bound, stopped })
    }

    /// Solves the flows of a choice, removes the replicas that it does not need, and states its value and bound.
    pub(crate) fn finish(&self, space: Space, last: LastStage) -> SearchResult {
        let &Self { problem, tightening, limits, .. } = self;
        let LastStage { choice, step, value, bound, stopped } = last;
        // these linear programmes are tiny, so the limit that ended the search does not stop them
        let flows = match flows(problem, &space, &choice, &limits.for_last_step()) {
            Ok(Some(flows)) => flows,
            Ok(None) => {
                tracing::error!("the integers of a solution carry no flows");
                return SearchResult::Unknown(StopReason::Numerics);
            }
            Err(reason) => return SearchResult::Unknown(reason),
        };
        let choice = trim(problem, &space, choice, &flows);
        let worth = worth(problem, &space, &choice, &flows, step);
        let is_maximised = bounds::is_maximised(problem, step);
        let bound = match (stopped.is_some(), is_maximised) {
            (false, _) => bound,
            (true, true) => bound.min(bounds::bound(problem, tightening, step)),
            (true, false) => bound.max(bounds::bound(problem, tightening, step)),
        };
        // Trimming and exact flows may give a better value than the solver saw. It is never worse than the tolerance.
        let bound = if is_maximised { bound.max(worth) } else { bound.min(worth) };
        tracing::debug!(value, worth, bound, "solved");
        SearchResult::Found(Box::new(BestFound { space, choice, flows, step, value: worth, bound, stopped }))
    }
}
