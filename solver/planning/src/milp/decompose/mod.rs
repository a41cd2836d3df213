//! Many pipelines on one cluster: the problem taken apart along the devices and the budget that they share.
//!
//! One formulation for all pipelines is beyond HiGHS from three or four pipelines on. But only the rows of devices and budget
//! name several of them, so:
//!
//! 1. each pipeline alone: if the best plans fit together, nothing is better, and the bounds add up;
//! 2. prices for devices ([`generate`]): a bound from every set of prices, and columns for the master programme ([`master`]);
//! 3. the best combination of the columns, improved by what is left over ([`improve`]);
//! 4. equal devices, the commonest case: exact division by dynamic programming over what each number of devices is worth to each
//!    pipeline, measured only where it matters ([`shares`]);
//! 5. where a gap is left and the problem is small: the whole formulation between the bound and the plan that is known.
//!
//! Ties: among plans of (nearly) the same accuracy the cheapest, or the one of fewest replicas.

mod floor;
mod generate;
mod improve;
mod knapsack;
mod master;
mod shares;
mod sub;
#[cfg(test)]
mod tests;

use super::constraints::{Goal, Stage, build};
use super::extract::{self, Choice};
use super::formulation::{self, Ending};
use super::highs::{self, Settings};
use super::space::Space;
use super::{ACCURACY_SLACK, SMALL_GAP, StageAnswer, enumerate};
use crate::limits::Limits;
use apportion_domain::{Problem, Share, StopReason};
use generate::Phase;
use master::{Master, Shared};
use rayon::prelude::*;
use sub::{Ask, Column, Priced, Sub};

/// From this many pipelines on a problem is taken apart; below, the whole formulation proves its optimum by itself.
const PIPELINES_MIN: usize = 3;
/// Two pipelines are taken apart as well if the whole formulation has more integers and points than this.
const WHOLE_MAX: usize = 4_000;
/// The whole formulation is only asked to close a gap if it has no more integers and points than this.
const FINISH_MAX: usize = 900;
/// Most nodes of that.
const FINISH_NODES_MAX: i32 = 20_000;
/// Gap at which a last combination of columns is searched once time is up.
const LATE_GAP: f64 = 1e-2;

/// A joint problem in parts.
struct Joint<'a> {
    problem: &'a Problem,
    space: &'a Space,
    /// `Accuracy`, `Replicas` or `Switching`.
    goal: Goal,
    /// What ties are broken by: `Cost` or `Replicas`.
    second: Option<Goal>,
    gap: f64,
    limits: &'a Limits,
    subs: Vec<Sub>,
    master: Master,
    /// No joint plan costs less.
    bound: f64,
    /// By pipeline, every (prices, least cost at these prices) that was proven.
    cuts: Vec<Vec<(Vec<f64>, f64)>>,
    /// Most columns of a whole formulation that is asked to close the gap.
    finish_max: usize,
}

/// A plan for every pipeline.
#[derive(Clone, Debug)]
struct Whole {
    columns: Vec<Column>,
    /// The goal's value with the devices' cost.
    value: f64,
}

/// Whether a problem is taken apart.
fn applies(space: &Space) -> bool {
    space.parts.len() >= PIPELINES_MIN || (space.parts.len() == 2 && size(space) > WHOLE_MAX)
}

/// Columns of the whole formulation that make it hard.
fn size(space: &Space) -> usize {
    let of = |p: &super::space::Part| {
        p.groups.iter().map(|g| 1 + g.points.len()).sum::<usize>() + p.levels.iter().map(Vec::len).sum::<usize>()
    };
    space.parts.iter().map(of).sum()
}

/// Solves one stage over several pipelines, and breaks its ties by `second`. `None` where the whole formulation is better.
pub(crate) fn answer(
    problem: &Problem,
    space: &Space,
    goal: Goal,
    second: Option<Goal>,
    gap: f64,
    limits: &Limits,
) -> Option<StageAnswer> {
    if !applies(space) {
        return None;
    }
    // a small problem is solved as closely as one whole formulation would be
    let gap = if size(space) <= FINISH_MAX { SMALL_GAP * gap } else { gap };
    let quiet = limits.quiet();
    Some(Joint::new(problem, space, goal, second, gap, &quiet)?.solve(limits))
}

impl<'a> Joint<'a> {
    fn new(
        problem: &'a Problem,
        space: &'a Space,
        goal: Goal,
        second: Option<Goal>,
        gap: f64,
        limits: &'a Limits,
    ) -> Option<Self> {
        let (goal, priced) = match goal {
            Goal::CostAndSwitching => (Goal::Switching, true),
            Goal::Accuracy | Goal::Replicas => (goal, false),
            _ => return None,
        };
        let subs: Vec<Sub> =
            (0..space.parts.len()).into_par_iter().map(|p| Sub::new(problem, space, p, &limits.finishing())).collect();
        let mut most = vec![0.0; problem.hardware.len()];
        let mut split = vec![false; problem.hardware.len()];
        for sub in &subs {
            most.iter_mut().zip(sub.devices_max()).for_each(|(m, own)| *m += own);
            for group in sub.part().groups.iter().filter(|g| g.share != Share::WHOLE) {
                split[group.hardware.get()] = true;
            }
        }
        let count = |h: usize| problem.hardware[h].count.map_or(f64::INFINITY, f64::from);
        let price: Vec<f64> = problem.hardware.iter().map(|h| h.price_per_hour).collect();
        let shared = Shared {
            most: most.iter().enumerate().map(|(h, m)| m.ceil().min(count(h))).collect(),
            cost: if priced { price.clone() } else { vec![0.0; price.len()] },
            price,
            budget: problem.objective.budget_per_hour,
            split,
        };
        let pipelines = subs.len();
        let master = Master::new(shared, pipelines);
        let cuts = vec![Vec::new(); pipelines];
        Some(Self {
            problem,
            space,
            goal,
            second,
            gap,
            limits,
            subs,
            master,
            bound: f64::NEG_INFINITY,
            cuts,
            finish_max: FINISH_MAX,
        })
    }

    /// `ears` hears how far it is; the questions to single pipelines are nobody's business.
    fn solve(&mut self, ears: &Limits) -> StageAnswer {
        let alone = match self.alone() {
            Ok(alone) => alone,
            Err(answer) => return answer,
        };
        if let Some(whole) = &alone
            && self.is_proven(whole)
        {
            return self.found(whole.clone(), None);
        }
        self.quick();
        match self.make_fit() {
            Phase::Infeasible => return StageAnswer::Infeasible,
            Phase::Solved | Phase::Stopped => {}
        }
        let ended = self.generate();
        if ended == Phase::Infeasible {
            return StageAnswer::Infeasible;
        }
        let mut best = better(alone, self.combined());
        self.tell(ears, best.as_ref());
        best = match shares::refine(self, best.as_ref()) {
            Some(refined) => better(best, Some(refined)),
            None => best.map(|whole| self.improve(whole)),
        };
        self.tell(ears, best.as_ref());
        if !best.as_ref().is_some_and(|whole| self.is_proven(whole))
            && size(self.space) <= self.finish_max
            && !self.limits.stopped()
        {
            match self.finish(best.as_ref()) {
                Some(StageAnswer::Infeasible) if best.is_none() => return StageAnswer::Infeasible,
                Some(StageAnswer::Found { choice, value, bound, stopped }) => {
                    self.bound = self.bound.max(bound);
                    if best.as_ref().is_none_or(|b| value < b.value) {
                        let whole = self.whole(choice, value);
                        return self.found(whole, stopped);
                    }
                }
                // nothing is better than what is known
                Some(StageAnswer::Infeasible) => self.bound = best.as_ref().map_or(self.bound, |b| b.value),
                _ => {}
            }
        }
        match best {
            Some(whole) => self.found(whole, self.limits.reason()),
            None => StageAnswer::Unknown(self.limits.reason().unwrap_or(StopReason::Finished)),
        }
    }

    fn tell(&self, ears: &Limits, best: Option<&Whole>) {
        let goal = if self.goal == Goal::Switching { Goal::CostAndSwitching } else { self.goal };
        if let Some((goal, factor)) = goal.told() {
            ears.tell(goal, best.map_or(f64::NAN, |b| factor * b.value), factor * self.bound);
        }
    }

    /// Each pipeline as if it were alone: its bound counts, and its plan if all of them fit together.
    fn alone(&mut self) -> Result<Option<Whole>, StageAnswer> {
        let answers: Vec<Priced> = self.subs.par_iter().map(|sub| self.best_alone(sub)).collect();
        let cost = self.master.shared.cost.clone();
        let mut bound = 0.0;
        let mut columns = Vec::with_capacity(answers.len());
        for (p, answer) in answers.into_iter().enumerate() {
            if answer.bound == f64::INFINITY {
                return Err(StageAnswer::Infeasible);
            }
            bound += answer.bound;
            self.cuts[p].push((cost.clone(), answer.bound));
            if let Some(column) = answer.column {
                self.master.add(p, column.clone());
                columns.push(column);
            }
        }
        self.bound = bound;
        Ok((columns.len() == self.subs.len()).then(|| self.joined(columns)).flatten())
    }

    fn best_alone(&self, sub: &Sub) -> Priced {
        let prices = &self.master.shared.cost;
        if self.goal == Goal::Accuracy
            && sub.weight > 0.0
            && let Some(answer) = enumerate::most_accurate(&sub.problem, &sub.space, self.gap, self.limits)
        {
            return match answer {
                StageAnswer::Found { choice, value, bound, .. } => {
                    let column = sub.column(choice, self.goal, Some(-value), self.limits);
                    Priced { column, bound: bound * sub.weight }
                }
                StageAnswer::Infeasible => Priced { column: None, bound: f64::INFINITY },
                StageAnswer::Unknown(_) => Priced { column: None, bound: -sub.weight },
            };
        }
        let ask =
            Ask { goal: self.goal, worth: self.goal, prices, accuracy_min: None, room: None, free: None, gap: self.gap };
        let answer = sub.ask(ask, self.limits);
        let column = answer.column.map(|column| self.cheaper(sub, column, None));
        Priced { column, ..answer }
    }

    /// Plans that take no solver: the fewest devices, and the best for the goal.
    fn quick(&mut self) {
        let shared = &self.master.shared;
        let few: Vec<f64> = shared.most.iter().map(|m| 1.0 / m.max(1.0)).collect();
        let cost = shared.cost.clone();
        let columns: Vec<Vec<Column>> = self
            .subs
            .par_iter()
            .map(|sub| {
                let mut found = sub.quick(Goal::Nothing, &few, self.goal, self.limits);
                found.extend(sub.quick(self.goal, &cost, self.goal, self.limits));
                found
            })
            .collect();
        for (p, of) in columns.into_iter().enumerate() {
            for column in of {
                self.master.add(p, column);
            }
        }
    }

    /// The best combination of the columns known.
    fn combined(&self) -> Option<Whole> {
        let finishing = self.limits.finishing();
        let (gap, limits) =
            if self.limits.stopped() { (LATE_GAP.max(self.gap), &finishing) } else { (0.1 * self.gap, self.limits) };
        let (chosen, value) = self.master.combine(gap, limits)?;
        let columns = chosen.iter().zip(&self.master.columns).map(|(&c, known)| known[c].clone()).collect();
        Some(Whole { columns, value })
    }

    /// Plans of all pipelines together, if they fit.
    fn joined(&self, columns: Vec<Column>) -> Option<Whole> {
        let devices = self.master.shared.fits(&columns.iter().collect::<Vec<_>>())?;
        let value = devices + columns.iter().map(|c| c.goal).sum::<f64>();
        Some(Whole { columns, value })
    }

    /// Whether nothing is better by more than the gap.
    fn is_proven(&self, whole: &Whole) -> bool {
        whole.value - self.bound <= self.gap * whole.value.abs() + 1e-9
    }

    fn found(&self, whole: Whole, stopped: Option<StopReason>) -> StageAnswer {
        let stopped = stopped.filter(|_| !self.is_proven(&whole));
        let choice = Choice { groups: whole.columns.into_iter().map(|c| c.groups).collect() };
        StageAnswer::Found { choice, value: whole.value, bound: self.bound.min(whole.value), stopped }
    }

    /// A choice of the whole formulation, by pipeline.
    fn whole(&self, choice: Choice, value: f64) -> Whole {
        let column = |(sub, groups): (&Sub, &Vec<(u32, usize)>)| {
            let devices = sub.devices(groups);
            Column { groups: groups.clone(), goal: 0.0, devices }
        };
        Whole { columns: self.subs.iter().zip(&choice.groups).map(column).collect(), value }
    }

    /// The whole formulation, between the bound and the plan that is known. `Infeasible`: nothing is better.
    fn finish(&self, best: Option<&Whole>) -> Option<StageAnswer> {
        let goal = if self.goal == Goal::Switching { Goal::CostAndSwitching } else { self.goal };
        let mut built = build(self.problem, self.space, Stage::new(goal));
        let f = &mut built.formulation;
        let terms: Vec<_> = f.costs.iter().enumerate().filter(|(_, c)| **c != 0.0).collect();
        let terms: Vec<_> = terms.into_iter().map(|(i, &c)| (formulation::Column(i), c)).collect();
        if self.bound.is_finite() {
            f.at_least(self.bound - 1e-7 * self.bound.abs().max(1.0), terms.clone());
        }
        if let Some(best) = best {
            let margin = if goal == Goal::Replicas { 1.0 } else { (0.5 * self.gap * best.value.abs()).max(1e-9) };
            f.at_most(best.value - margin, terms);
        }
        let settings = Settings { nodes_max: Some(FINISH_NODES_MAX), ..Settings::mip(0.5 * self.gap) };
        let solved = highs::solve(f, settings, self.limits, None);
        match (solved.ending, solved.values) {
            (Ending::Infeasible, _) => Some(StageAnswer::Infeasible),
            (Ending::Optimal | Ending::Stopped, Some(values)) => Some(StageAnswer::Found {
                choice: extract::choice(self.space, &built.columns.parts, &values),
                value: solved.cost,
                bound: solved.bound.min(solved.cost),
                stopped: (solved.ending == Ending::Stopped).then(|| self.limits.reason()).flatten(),
            }),
            _ => None,
        }
    }
}

/// The cheaper of two plans.
fn better(a: Option<Whole>, b: Option<Whole>) -> Option<Whole> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.value < a.value { b } else { a }),
        (a, b) => a.or(b),
    }
}
