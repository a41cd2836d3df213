//! How are many pipelines on one cluster solved? Apart, joined by the devices and the budget that they share.
//!
//! HiGHS cannot solve one formulation for three or four pipelines in useful time. But only the rows of devices and budget
//! name several pipelines. So the search has five steps:
//!
//! 1. Solve each pipeline alone. If the best plans fit together, they are optimal, and their bounds add up.
//! 2. Price the devices ([`generate`]). Every set of prices gives a bound, and columns for the master programme
//!    ([`master`]).
//! 3. Take the best combination of the columns, and improve it with the devices that are left ([`mod@improve`]).
//! 4. If all devices are equal, the commonest case: divide them exactly by dynamic programming. The value of each number of
//!    devices to each pipeline is solved only where it matters ([`shares`]).
//! 5. If a gap is left and the problem is small: solve the whole formulation between the bound and the best plan.
//!
//! Ties: among plans of (nearly) the same accuracy, the cheapest plan or the one with the fewest replicas.

mod close;
mod fast;
mod floor;
mod generate;
mod improve;
mod joint;
mod knapsack;
mod master;
mod memory;
mod pricer;
mod pricing;
mod repair;
mod shares;
mod sub;
#[cfg(test)]
mod tests;

use crate::exact::model::constraints::build;
use crate::exact::model::goal::{Goal, Stage};
use crate::exact::model::space::Space;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::solution::choice::read_choice;
use crate::exact::stage::enumerate;
use crate::exact::stage::solve::StageResult;
use crate::fleet_memory::FleetMemory;
use apportion_domain::{Problem, StopReason};
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{Ending, RunLimits};
use fast::{FastEnd, FastPlan, PlanOrigin};
use generate::{PhaseEnd, Pricing, find_fitting_columns, generate_columns};
use improve::{break_ties_of_column, improve};
use joint::{FINISH_MAX, JointBounds, JointPlan, JointProblem, PIPELINES_MIN, PriceBound, hard_columns};
use rayon::prelude::*;
use sub::{Column, PricedColumn, PricedQuestion, Subproblem};

/// One or two pipelines are also taken apart if the whole formulation has more integers, points and flows than this.
const WHOLE_MAX: usize = 4_000;
/// Most nodes of the whole formulation that closes a gap.
const FINISH_NODES_MAX: i32 = 20_000;
/// The exact search follows a fast plan only if this many times the time of the fast search is left.
const EXACT_TIME_MIN: u32 = 10;

/// Whether a problem is taken apart.
///
/// Example: a chain of four tasks with ten variants on three hardware types has 11,110 flows. The whole formulation proves
/// a twelfth of the cost of its plan in 20 s. The fast search of fleets proves nine tenths in a second.
fn is_taken_apart(space: &Space) -> bool {
    space.parts.len() >= PIPELINES_MIN || is_too_large_for_one_formulation(space)
}

/// Whether a search for the optimum of the whole formulation proves little.
fn is_too_large_for_one_formulation(space: &Space) -> bool {
    let flows: usize = space.parts.iter().map(|part| part.trie.nodes.len()).sum();
    hard_columns(space) + flows > WHOLE_MAX
}

/// One stage over several pipelines.
#[derive(Clone, Copy)]
pub(crate) struct ApartQuestion<'a> {
    pub goal: Goal,
    /// Goal that breaks ties.
    pub second: Option<Goal>,
    /// Relative gap.
    pub gap: f64,
    /// What is known of the rounds before.
    pub memory: Option<&'a FleetMemory>,
}

/// Solves one stage over several pipelines, and breaks its ties. `None` if the whole formulation is better.
pub(crate) fn solve_apart(
    problem: &Problem,
    space: &Space,
    question: ApartQuestion<'_>,
    limits: &RunLimits,
) -> Option<StageResult> {
    let ApartQuestion { goal, second, gap, memory } = question;
    if !is_taken_apart(space) {
        return None;
    }
    // a small problem is solved as closely as one whole formulation would be
    let gap = if hard_columns(space) <= FINISH_MAX { STAGE_GAP_SHARE * gap } else { gap };
    let quiet = limits.without_listener();
    let joint = JointProblem::new(problem, space, goal, second, gap, &quiet)?;
    Some(JointProblem { memory, ..joint }.solve(limits))
}

/// The plan of the fast search alone, with its value, for one or two large pipelines. `None` if they are small.
pub(crate) fn plan_large(
    problem: &Problem,
    space: &Space,
    goal: Goal,
    gap: f64,
    limits: &RunLimits,
) -> Option<(PlanIntegers, f64)> {
    if !is_too_large_for_one_formulation(space) {
        return None;
    }
    let quiet = limits.without_listener();
    let joint = JointProblem::new(problem, space, goal, None, gap, &quiet)?;
    match joint.solve_if_large(&mut JointBounds::new(&joint)) {
        FastEnd::Plan(FastPlan { whole: JointPlan { columns, value }, .. }) => {
            Some((PlanIntegers { groups: columns.into_iter().map(|c| c.groups).collect() }, value))
        }
        FastEnd::Infeasible | FastEnd::Nothing => None,
    }
}

impl JointProblem<'_> {
    /// Solves the stage. `progress` receives the progress; the questions to single pipelines are not reported.
    ///
    /// A large problem gets a fast plan first. The exact search of a fleet takes minutes and gains little. So it only fills
    /// a time that was given, and leaves the plan the time that its last steps need. One or two pipelines are searched
    /// exactly for the rest of the time. A round that goes on from the last one ends at once.
    fn solve(self, progress: &RunLimits) -> StageResult {
        let mut known = JointBounds::new(&self);
        let start = (self.limits.elapsed)();
        let FastPlan { whole, origin } = match self.solve_if_large(&mut known) {
            FastEnd::Infeasible => return StageResult::Infeasible,
            FastEnd::Nothing => return self.solve_exactly(known, None, progress),
            FastEnd::Plan(fast) => fast,
        };
        self.report_progress(progress, &known, Some(&whole));
        let took = (self.limits.elapsed)().saturating_sub(start);
        let is_fleet = self.subs.len() >= PIPELINES_MIN;
        let has_time = match self.limits.time_left() {
            Some(left) if is_fleet => left >= EXACT_TIME_MIN * took,
            Some(left) => !left.is_zero(),
            None => !is_fleet,
        };
        if known.is_proven(&whole, self.gap) || !has_time || origin == PlanOrigin::LastRound {
            let stopped = self.limits.stop_reason().or(self.limits.deadline.map(|_| StopReason::TimeLimit));
            return known.to_result(whole, self.gap, stopped);
        }
        let limits = self.limits.without_finishing();
        JointProblem { limits: &limits, ..self }.solve_exactly(known, Some(whole), progress)
    }

    /// Solves the stage by the exact search, which improves a plan where one is known.
    fn solve_exactly(&self, mut known: JointBounds, fast: Option<JointPlan>, progress: &RunLimits) -> StageResult {
        let separate = match (self.solve_separately(&mut known), fast) {
            (Ok(separate), fast) => cheaper_plan(fast, separate),
            // the time was too short for more than the fast plan
            (Err(StageResult::Unknown(reason)), Some(fast)) => return known.to_result(fast, self.gap, Some(reason)),
            (Err(answer), _) => return answer,
        };
        if let Some(whole) = &separate
            && known.is_proven(whole, self.gap)
        {
            return known.to_result(whole.clone(), self.gap, None);
        }
        self.add_rounded_columns(&mut known);
        match find_fitting_columns(self, &mut known, Pricing::Exact) {
            PhaseEnd::Infeasible => return StageResult::Infeasible,
            PhaseEnd::Solved | PhaseEnd::Stopped => {}
        }
        let ended = generate_columns(self, &mut known, Pricing::Exact);
        if ended == PhaseEnd::Infeasible {
            return StageResult::Infeasible;
        }
        let mut best = cheaper_plan(separate, known.best_combination(self));
        self.report_progress(progress, &known, best.as_ref());
        best = match shares::refine(self, &mut known, best.as_ref()) {
            Some(refined) => cheaper_plan(best, Some(refined)),
            None => best.map(|whole| improve(self, &mut known, whole)),
        };
        self.report_progress(progress, &known, best.as_ref());
        if !best.as_ref().is_some_and(|whole| known.is_proven(whole, self.gap))
            && hard_columns(self.space) <= self.finish_max
            && !self.limits.exceeded()
        {
            match self.solve_whole(&known, best.as_ref()) {
                Some(StageResult::Infeasible) if best.is_none() => return StageResult::Infeasible,
                Some(StageResult::Found { choice, value, bound, stopped }) => {
                    known.bound = known.bound.max(bound);
                    if best.as_ref().is_none_or(|b| value < b.value) {
                        let whole = self.plan_of_choice(choice, value);
                        return known.to_result(whole, self.gap, stopped);
                    }
                }
                // no plan is better than the best known one
                Some(StageResult::Infeasible) => known.bound = best.as_ref().map_or(known.bound, |b| b.value),
                _ => {}
            }
        }
        match best {
            Some(whole) => known.to_result(whole, self.gap, self.limits.stop_reason()),
            None => StageResult::Unknown(self.limits.stop_reason().unwrap_or(StopReason::Finished)),
        }
    }

    /// Solves each pipeline alone. The bounds add up, and the plans are joined if they fit together.
    fn solve_separately(&self, known: &mut JointBounds) -> Result<Option<JointPlan>, StageResult> {
        let answers: Vec<PricedColumn> = self.subs.par_iter().map(|sub| self.solve_one(sub)).collect();
        let cost = self.shared.cost.clone();
        let mut bound = 0.0;
        let mut columns = Vec::with_capacity(answers.len());
        for (p, answer) in answers.into_iter().enumerate() {
            if answer.bound == f64::INFINITY {
                return Err(StageResult::Infeasible);
            }
            bound += answer.bound;
            known.cuts[p].push(PriceBound { prices: cost.clone(), cost_min: answer.bound });
            if let Some(column) = answer.column {
                known.master.add(p, column.clone());
                columns.push(column);
            }
        }
        known.bound = known.bound.max(bound);
        Ok((columns.len() == self.subs.len()).then(|| self.join(columns)).flatten())
    }

    /// The best plan of one pipeline that has all devices to itself.
    fn solve_one(&self, sub: &Subproblem) -> PricedColumn {
        let prices = &self.shared.cost;
        if self.goal == Goal::Accuracy
            && sub.weight > 0.0
            && let Some(answer) = enumerate::most_accurate(&sub.problem, &sub.space, self.gap, self.limits)
        {
            return match answer {
                StageResult::Found { choice, value, bound, .. } => {
                    let column = sub.column(choice, self.goal, Some(-value), self.limits);
                    PricedColumn { column, bound: bound * sub.weight }
                }
                StageResult::Infeasible => PricedColumn { column: None, bound: f64::INFINITY },
                StageResult::Unknown(_) => PricedColumn { column: None, bound: -sub.weight },
            };
        }
        let question = PricedQuestion {
            goal: self.goal,
            worth: self.goal,
            prices,
            accuracy_min: None,
            room: None,
            free: None,
            gap: self.gap,
        };
        let answer = sub.solve(question, self.limits);
        let column = answer.column.map(|column| break_ties_of_column(self, sub, column, None));
        PricedColumn { column, ..answer }
    }

    /// Adds plans that need no solver: those of fewest devices, and the best ones for the goal.
    fn add_rounded_columns(&self, known: &mut JointBounds) {
        let shared = &self.shared;
        let few: Vec<f64> = shared.most.iter().map(|m| 1.0 / m.max(1.0)).collect();
        let cost = shared.cost.clone();
        let columns: Vec<Vec<Column>> = self
            .subs
            .par_iter()
            .map(|sub| {
                let mut found = sub.rounded_columns(Goal::Nothing, &few, self.goal, self.limits);
                found.extend(sub.rounded_columns(self.goal, &cost, self.goal, self.limits));
                found
            })
            .collect();
        for (p, of) in columns.into_iter().enumerate() {
            for column in of {
                known.master.add(p, column);
            }
        }
    }

    /// Solves the whole formulation between the bound and the best plan. `Infeasible`: no plan is better.
    fn solve_whole(&self, known: &JointBounds, best: Option<&JointPlan>) -> Option<StageResult> {
        let goal = if self.goal == Goal::Switching { Goal::CostAndSwitching } else { self.goal };
        let mut built = build(self.problem, self.space, Stage::new(goal));
        let f = &mut built.formulation;
        let terms = f.cost_terms();
        if known.bound.is_finite() {
            f.at_least(known.bound - 1e-7 * known.bound.abs().max(1.0), terms.clone());
        }
        if let Some(best) = best {
            let margin = if goal == Goal::Replicas { 1.0 } else { (0.5 * self.gap * best.value.abs()).max(1e-9) };
            f.at_most(best.value - margin, terms);
        }
        let settings = SolveSettings { nodes_max: Some(FINISH_NODES_MAX), ..SolveSettings::mip(0.5 * self.gap) };
        let solved = highs::solve(f, settings, self.limits, None);
        match (solved.ending, solved.values) {
            (Ending::Infeasible, _) => Some(StageResult::Infeasible),
            (Ending::Optimal | Ending::Stopped, Some(values)) => Some(StageResult::Found {
                choice: read_choice(self.space, &built.columns.parts, &values),
                value: solved.cost,
                bound: solved.bound.min(solved.cost),
                stopped: (solved.ending == Ending::Stopped).then(|| self.limits.stop_reason()).flatten(),
            }),
            _ => None,
        }
    }
}

/// The cheaper of two plans.
fn cheaper_plan(a: Option<JointPlan>, b: Option<JointPlan>) -> Option<JointPlan> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.value < a.value { b } else { a }),
        (a, b) => a.or(b),
    }
}
