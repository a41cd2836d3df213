//! Which points of a frontier must be solved, and which follow from others?

use super::point::{FrontierPoint, PointOrigin, update_status};
use super::sweep::SweptProblem;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{CheckedPlan, SearchOutcome, attempt};
use crate::options::PlanningOptions;
use crate::routing;
use apportion_domain::{ObjectiveValue, Plan, PlanStatus, Problem, SLACK, StopReason};
use apportion_mip::RunLimits;
use std::sync::OnceLock;

/// The points of problems that are ordered from the easiest to the hardest.
pub(super) fn fill(
    problems: &[SweptProblem],
    options: &PlanningOptions,
    on_point: &(dyn Fn(&FrontierPoint) + Sync),
) -> Vec<FrontierPoint> {
    let known = problems.iter().map(|_| OnceLock::new()).collect();
    let fill = Fill { problems, options, known, on_point };
    if let Some(last) = problems.len().checked_sub(1) {
        rayon::join(
            || fill.solve(0),
            || {
                if last > 0 {
                    fill.solve(last)
                }
            },
        );
        fill.fill_between(0, last);
    }
    fill.known.into_iter().map(|point| point.into_inner().expect("every point between two known ones is filled")).collect()
}

/// Limits of one search: the time limit counts from now.
pub(super) fn limits(options: &PlanningOptions) -> RunLimits {
    let limits = options.limits().without_listener();
    options.time_limit.map_or(limits.clone(), |limit| limits.ending_at((options.elapsed)() + limit))
}

struct Fill<'a> {
    problems: &'a [SweptProblem],
    options: &'a PlanningOptions,
    known: Vec<OnceLock<FrontierPoint>>,
    on_point: &'a (dyn Fn(&FrontierPoint) + Sync),
}

impl Fill<'_> {
    /// Fills the points between two known points.
    fn fill_between(&self, easy: usize, hard: usize) {
        if hard - easy < 2 {
            return;
        }
        let (from, to) = (self.point(easy), self.point(hard));
        if from.status == PlanStatus::Infeasible {
            for i in easy + 1..hard {
                let origin = PointOrigin::Implied;
                self.set(i, FrontierPoint { origin, ..without_plan(self.problems[i].value, PlanStatus::Infeasible) });
            }
            return;
        }
        let middle = easy + (hard - easy) / 2;
        match agree(from, to).then(|| take_over(&self.problems[middle], to)).flatten() {
            Some(point) => self.set(middle, point),
            None => self.solve(middle),
        }
        rayon::join(|| self.fill_between(easy, middle), || self.fill_between(middle, hard));
    }

    fn point(&self, i: usize) -> &FrontierPoint {
        self.known[i].get().expect("both ends are known")
    }

    fn set(&self, i: usize, point: FrontierPoint) {
        assert!(self.known[i].set(point).is_ok(), "each point is filled once");
        (self.on_point)(self.point(i));
    }

    fn solve(&self, i: usize) {
        let SweptProblem { value, problem } = &self.problems[i];
        let limits = limits(self.options);
        let point = match attempt(problem, &Tightening::none(problem), self.options.gap, &limits) {
            SearchOutcome::Plan(candidate) => with_plan(problem, *value, *candidate, self.options.gap),
            SearchOutcome::Infeasible => without_plan(*value, PlanStatus::Infeasible),
            SearchOutcome::Unknown(stopped) => {
                FrontierPoint { stopped: Some(stopped), ..without_plan(*value, PlanStatus::Unknown) }
            }
        };
        self.set(i, point);
    }
}

/// A point without a plan.
fn without_plan(value: f64, status: PlanStatus) -> FrontierPoint {
    FrontierPoint {
        value,
        status,
        objective: ObjectiveValue { step: None, value: None, bound: None },
        accuracy: None,
        plan: None,
        binding: Vec::new(),
        shortfalls: Vec::new(),
        stopped: None,
        origin: PointOrigin::Solved,
    }
}

/// A point with the plan of its own search.
fn with_plan(problem: &Problem, value: f64, candidate: CheckedPlan, gap: f64) -> FrontierPoint {
    let CheckedPlan { plan, objective, stopped, provenance: _ } = candidate;
    let mut point = FrontierPoint {
        objective,
        accuracy: Some(accuracy(problem, &plan)),
        plan: Some(plan),
        stopped: stopped.filter(|s| *s != StopReason::Finished),
        ..without_plan(value, PlanStatus::Feasible)
    };
    update_status(&mut point, gap);
    point
}

/// Mean by weight over the pipelines.
fn accuracy(problem: &Problem, plan: &Plan) -> f64 {
    let weights: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    let even = 1.0 / problem.pipelines.len() as f64;
    let weight = |own: f64| if weights > 0.0 { own / weights } else { even };
    problem.pipelines.iter().zip(&plan.pipelines).map(|(p, part)| weight(p.weight) * part.accuracy).sum()
}

/// Whether the points between two proven points are known. By the mode's first criterion none of them is better than the
/// easier point or worse than the harder one. If these agree, the same holds for the criterion that breaks ties.
fn agree(easy: &FrontierPoint, hard: &FrontierPoint) -> bool {
    let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SLACK * a.abs().max(1.0),
        _ => false,
    };
    easy.is_proven()
        && hard.is_proven()
        && easy.objective.step == hard.objective.step
        && same(easy.objective.value, hard.objective.value)
        && same(easy.cost_per_hour(), hard.cost_per_hour())
        && same(easy.accuracy, hard.accuracy)
        && easy.replicas() == hard.replicas()
}

/// The point with the plan of a harder one; `None` if the checker does not accept it there.
pub(super) fn take_over(at: &SweptProblem, harder: &FrontierPoint) -> Option<FrontierPoint> {
    let problem = &at.problem;
    let mut plan = harder.plan.clone()?;
    for (pipeline, part) in problem.pipelines.iter().zip(&mut plan.pipelines) {
        let factor = if part.demand_qps > 0.0 { pipeline.demand_qps / part.demand_qps } else { 1.0 };
        part.demand_qps = pipeline.demand_qps;
        part.assignments.iter_mut().for_each(|a| a.utilisation *= factor);
    }
    routing::add_tables(problem, &mut plan, &vec![1.0; problem.pipelines.len()]);
    let clean = apportion_checker::check(problem, &plan).is_empty();
    let taken = FrontierPoint { value: at.value, plan: Some(plan), origin: PointOrigin::Harder, ..harder.clone() };
    clean.then_some(taken)
}
