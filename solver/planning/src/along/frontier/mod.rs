//! How do cost, accuracy and replicas change while one value of a problem varies?
//!
//! Along every [`Sweep`] one direction is harder: more demand, a smaller SLO, a smaller budget, fewer devices. A plan
//! for a harder point is a plan for every easier one. An infeasible point makes all harder points infeasible. Three
//! things follow:
//!
//! - *No search where the result is known.* Both ends are solved first, then the middle, and so on. Points harder than an
//!   infeasible point are infeasible. If two proven points agree in value, cost, accuracy and replicas, the harder plan is
//!   the result for all points between them.
//! - *Plans move to easier points.* A point takes the plan of its harder neighbour if that plan is better than its own.
//! - *Bounds move to harder points.* A value that no plan reaches at an easier point, no plan reaches at a harder one.
//!
//! The checker confirms every plan that moved at its new point.

mod fill;
mod point;
mod ranges;
mod sweep;
#[cfg(test)]
mod tests;

pub use point::{FrontierPoint, PointOrigin};
pub use ranges::{NoRange, POINTS_MAX, SweepRange, default_range, values};
pub use sweep::Sweep;

use crate::answer::{explain, infeasible};
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::options::PlanningOptions;
use apportion_domain::{Invalids, Mode, ObjectiveStep, PlanStatus, Problem, SLACK};
use point::update_status;
use sweep::SweptProblem;

/// Plans a problem at every value of a sweep, in parallel. The points have the order of `values`.
///
/// The time limit of `options` holds for each search. Its planner and trace are not used: a frontier belongs to the
/// formulation. `on_point` is called from any thread each time a point becomes known. The result may have a better plan or
/// bound for that point, from its neighbours.
///
/// # Errors
/// Values that the problem refuses, with their pointers.
pub fn frontier(
    problem: &Problem,
    sweep: Sweep,
    values: &[f64],
    options: &PlanningOptions,
    on_point: &(dyn Fn(&FrontierPoint) + Sync),
) -> Result<Vec<FrontierPoint>, Invalids> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    if !sweep.more_is_harder() {
        order.reverse();
    }
    let at = |&i: &usize| Ok(SweptProblem { value: values[i], problem: sweep.problem_at(problem, values[i])? });
    let problems: Vec<SweptProblem> = order.iter().map(at).collect::<Result<_, Invalids>>()?;
    let mut points = fill::fill(&problems, options, on_point);
    pass_plans_on(&problems, &mut points, options.gap);
    pass_bounds_on(&mut points, options.gap);
    add_reasons(&problems, &mut points, options);
    let mut placed: Vec<(usize, FrontierPoint)> = order.into_iter().zip(points).collect();
    placed.sort_by_key(|(position, _)| *position);
    Ok(placed.into_iter().map(|(_, point)| point).collect())
}

/// Moves plans from harder to easier points if they are better than the plans there.
fn pass_plans_on(problems: &[SweptProblem], points: &mut [FrontierPoint], gap: f64) {
    for i in (1..points.len()).rev() {
        let (easier, harder) = points.split_at_mut(i);
        let (here, from) = (&mut easier[i - 1], &harder[0]);
        let at = &problems[i - 1];
        if is_better(&at.problem, from, here)
            && let Some(mut taken) = fill::take_over(at, from)
        {
            // a bound of this point's own search still holds, if it speaks of the same step
            let own = here.objective;
            taken.objective.bound = own.bound.filter(|_| own.step == taken.objective.step);
            update_status(&mut taken, gap);
            *here = taken;
        }
    }
}

/// Moves bounds from easier to harder points.
fn pass_bounds_on(points: &mut [FrontierPoint], gap: f64) {
    for i in 1..points.len() {
        let (before, here) = (points[i - 1].objective, &mut points[i]);
        let (Some(value), Some(bound)) = (here.objective.value, before.bound) else { continue };
        if before.step != here.objective.step || here.is_proven() {
            continue;
        }
        // the side of the value on which its own bound or the other's lies tells which of them is tighter
        let tighter = here.objective.bound.is_none_or(|own| (bound - value).abs() < (own - value).abs());
        if tighter {
            here.objective.bound = Some(bound);
            update_status(here, gap);
        }
    }
}

/// Adds binding limits, and the shortfalls of the easiest infeasible point.
fn add_reasons(problems: &[SweptProblem], points: &mut [FrontierPoint], options: &PlanningOptions) {
    for (at, point) in problems.iter().zip(points.iter_mut()) {
        if let Some(plan) = &point.plan {
            point.binding = explain::binding(&at.problem, plan);
        }
    }
    if let Some(first) = points.iter().position(|p| p.status == PlanStatus::Infeasible) {
        points[first].shortfalls = infeasible::shortfalls(&problems[first].problem, &fill::limits(options));
    }
}

/// Whether a plan beats another by the order of the problem's mode, ties included.
fn is_better(problem: &Problem, a: &FrontierPoint, b: &FrontierPoint) -> bool {
    let (Some(left), Some(right)) = (score(problem, a), score(problem, b)) else { return a.plan.is_some() };
    // the accuracy that the last stage may give up for fewer replicas is no difference
    let least = 2.0 * ACCURACY_SLACK * right.first.abs().max(SLACK);
    let gain = left.first - right.first;
    gain > least || (gain.abs() <= least && left.second > right.second + SLACK * right.second.abs().max(1.0))
}

/// The two criteria of a mode; more is better.
struct Score {
    first: f64,
    /// Decides between equal first criteria.
    second: f64,
}

/// The score of a point; `None` without a plan. In `hardware_then_accuracy`, plans of the step `hardware` are better than
/// all plans of the step `accuracy`, whose first criterion is at most 1.
fn score(problem: &Problem, point: &FrontierPoint) -> Option<Score> {
    let plan = point.plan.as_ref()?;
    let (accuracy, replicas) = (point.accuracy?, plan.replicas() as f64);
    let (first, second) = match problem.objective.mode {
        Mode::HardwareThenAccuracy if point.step() == Some(ObjectiveStep::Hardware) => (2.0, -replicas),
        Mode::HardwareThenAccuracy => (accuracy, -replicas),
        Mode::MaxAccuracy => (accuracy, -plan.cost_per_hour),
        // the tie break is the fewest changes, which a harder point does not know
        Mode::MinCost => (-point.objective.value?, 0.0),
    };
    Some(Score { first, second })
}
