//! The search with exclusions against the whole formulation, which excludes nothing.

use super::*;
use crate::bench::drawn::{self, ProblemShape, ShapeHardware};
use crate::exact::model::goal::Stage;
use apportion_domain::{Mode, Objective};
use std::sync::Arc;
use std::time::Duration;

const GAP: f64 = 1e-6;
const DRAWN: u64 = 60;

fn unlimited() -> RunLimits {
    RunLimits::new(Arc::new(|| Duration::ZERO))
}

fn shape(devices: u32, tasks_max: usize, demand_qps: f64) -> ProblemShape {
    ProblemShape {
        pipelines: 1,
        tasks_max,
        variants_max: 4,
        batches: 4,
        hardware: vec![ShapeHardware { price_per_hour: 1.0, count: Some(devices), speed: 1.0 }],
        halves: false,
        demand_qps,
        min_accuracy: None,
        objective: Objective { mode: Mode::HardwareThenAccuracy, latency_rule: LatencyRule::Path, ..Objective::default() },
    }
}

/// The highest accuracy and then the fewest replicas, by the whole formulation. `None` if there is no plan.
fn slow(problem: &Problem, space: &Space) -> Option<(f64, u64)> {
    let limits = unlimited();
    let accuracy = match solve_stage(problem, space, Stage::new(Goal::Accuracy), GAP, &limits, None) {
        StageResult::Found { value, .. } => -value,
        StageResult::Infeasible => return None,
        StageResult::Unknown(reason) => panic!("unlimited, and stopped: {reason}"),
    };
    let least = accuracy * (1.0 - ACCURACY_SLACK);
    let stage = Stage { accuracy_min: Some(least), ..Stage::new(Goal::Replicas) };
    match solve_stage(problem, space, stage, 0.0, &limits, None) {
        StageResult::Found { choice, .. } => Some((accuracy, choice.replicas())),
        _ => panic!("the plan of the first stage fits the second"),
    }
}

/// Compares both over drawn problems. Returns how many had a plan, how many had none, and in how many rule `path` is more
/// accurate than rule `task_budget`.
fn compare(shape: &ProblemShape) -> (usize, usize, usize) {
    let (mut feasible, mut infeasible, mut better) = (0, 0, 0);
    for seed in 0..DRAWN {
        let problem = drawn::problem(seed, shape);
        let tightening = Tightening::none(&problem);
        let Ok(space) = Space::new(&problem, &tightening, &unlimited()) else { continue };
        let result = most_accurate(&problem, &tightening, &space, GAP, &unlimited()).expect("one pipeline, one kind");
        match (slow(&problem, &space), result) {
            (None, StageResult::Infeasible) => infeasible += 1,
            (Some((accuracy, replicas)), StageResult::Found { choice, value, bound, stopped: None }) => {
                feasible += 1;
                let near = 2.0 * GAP * accuracy;
                assert!((-value - accuracy).abs() <= near, "seed {seed}: {} instead of {accuracy}", -value);
                assert!(-bound >= accuracy - near, "seed {seed}: bound {} below {accuracy}", -bound);
                // of plans that differ by less than the gap either may be the one that is reduced
                assert!(choice.replicas() <= replicas + 1, "seed {seed}: {} replicas, {replicas}", choice.replicas());
                let budgets = problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget);
                let budgets = budgets.expect("a rule changes no validity");
                let space = Space::new(&budgets, &tightening, &unlimited()).expect("it has plans under rule `path`");
                let by_budget = enumerate::most_accurate(&budgets, &space, GAP, &unlimited());
                better += usize::from(!matches!(
                    by_budget,
                    Some(StageResult::Found { value, .. }) if -value >= accuracy - near
                ));
            }
            (slow, _) => panic!("seed {seed}: the slow search found {slow:?}"),
        }
    }
    (feasible, infeasible, better)
}

#[test]
fn exclusions_lose_no_better_plan() {
    for (devices, tasks_max, demand_qps) in [(4, 3, 90.0), (12, 3, 300.0), (40, 2, 1_500.0)] {
        let (feasible, infeasible, better) = compare(&shape(devices, tasks_max, demand_qps));
        eprintln!("{devices} devices: {feasible} feasible, {infeasible} infeasible, rule path better in {better}");
        assert!(feasible >= 40, "{feasible} of {DRAWN} drawn problems have a plan");
    }
}
