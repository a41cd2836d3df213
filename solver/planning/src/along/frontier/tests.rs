//! The values of a sweep, and which of two points is taken.

use super::*;
use crate::fixtures::{chain, problem};
use apportion_domain::{HardwareIndex, ObjectiveValue, PipelineIndex, StopReason};
use std::sync::Arc;
use std::time::Duration;

const GAP: f64 = 1e-4;

/// The chain at three demands, from the easiest, searched.
fn solved() -> (Vec<SweptProblem>, Vec<FrontierPoint>) {
    let options = PlanningOptions { gap: GAP, ..PlanningOptions::new(Arc::new(|| Duration::ZERO)) };
    let chain = problem(chain(100.0));
    let at = |value: f64| SweptProblem { value, problem: Sweep::Demand(None).problem_at(&chain, value).expect("valid") };
    let problems: Vec<SweptProblem> = [100.0, 300.0, 900.0].map(at).into();
    let points = fill::fill(&problems, &options, &|_| ());
    assert!(points.iter().all(FrontierPoint::is_proven));
    (problems, points)
}

#[test]
fn a_point_without_a_plan_takes_a_harder_plan() {
    let (problems, mut points) = solved();
    let (cost, harder) = (points[1].cost_per_hour(), points[2].cost_per_hour());
    let stopped = Some(StopReason::TimeLimit);
    let objective = ObjectiveValue { step: None, value: None, bound: None };
    points[1] =
        FrontierPoint { status: PlanStatus::Unknown, plan: None, accuracy: None, objective, stopped, ..points[1].clone() };
    let proven = points[0].clone();
    pass_plans_on(&problems, &mut points, GAP);
    assert_eq!(points[0], proven, "a cheaper plan stays");
    let taken = &points[1];
    assert_eq!((taken.origin, taken.status, taken.value), (PointOrigin::Harder, PlanStatus::Feasible, 300.0));
    assert_eq!(taken.cost_per_hour(), harder);
    assert!(taken.cost_per_hour() > cost, "what the search would have found");
    let plan = taken.plan.as_ref().expect("a plan");
    assert_eq!(plan.pipelines[0].demand_qps, 300.0);
    assert_eq!(apportion_checker::check(&problems[1].problem, plan), []);
    // the easier point's cost is a bound of it
    pass_bounds_on(&mut points, GAP);
    assert_eq!(points[1].objective.bound, points[0].objective.bound);
    assert_eq!(points[1].status, PlanStatus::Feasible, "a bound that is too far off proves nothing");
}

#[test]
fn the_bound_of_an_easier_point_proves_a_harder_plan() {
    let (_, mut points) = solved();
    // as if both had the same plan, and the harder search had ended without its proof
    let bound = points[0].objective.bound;
    points[1] = FrontierPoint { value: points[1].value, status: PlanStatus::Feasible, ..points[0].clone() };
    points[1].objective.bound = bound.map(|b| 0.5 * b);
    points[1].stopped = Some(StopReason::TimeLimit);
    pass_bounds_on(&mut points, GAP);
    assert_eq!((points[1].status, points[1].stopped), (PlanStatus::Optimal, None));
    assert_eq!(points[1].objective.bound, bound);
}

#[test]
fn values_are_evenly_spaced_and_end_where_they_should() {
    assert_eq!(values(Sweep::Budget, SweepRange { from: 1.0, to: 3.0 }, 5), [1.0, 1.5, 2.0, 2.5, 3.0]);
    assert_eq!(values(Sweep::Budget, SweepRange { from: 1.0, to: 3.0 }, 1), [1.0]);
    assert_eq!(values(Sweep::Slo(PipelineIndex(0)), SweepRange { from: 2.0, to: 2.0 }, 7), [2.0]);
    assert_eq!(values(Sweep::Demand(None), SweepRange { from: 0.1, to: 0.7 }, 4)[3], 0.7, "the last is exact");
}

#[test]
fn counts_are_whole_and_appear_once() {
    assert_eq!(values(Sweep::Count(HardwareIndex(0)), SweepRange { from: 0.0, to: 4.0 }, 20), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(Sweep::Count(HardwareIndex(0)), SweepRange { from: 1.0, to: 10.0 }, 4), [1.0, 4.0, 7.0, 10.0]);
}
