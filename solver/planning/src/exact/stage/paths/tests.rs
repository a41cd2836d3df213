//! The search with exclusions against the whole formulation, which excludes nothing.

use super::*;
use crate::bench::drawn::{self, ProblemShape, ShapeHardware};
use crate::exact::model::goal::{SearchEffort, Stage};
use crate::exact::model::groups::usable_groups;
use crate::exact::stage::enumerate;
use crate::exact::stage::solve::{StageResult, solve_stage};
use crate::fixtures;
use apportion_domain::{Mode, Objective, PipelineDraft, ProblemDraft, TaskIndex};
use std::sync::Arc;
use std::time::Duration;

const GAP: f64 = 1e-6;
const DRAWN: u64 = 60;
/// Drawn problems of several hardware types: the whole formulation takes longer on them.
const DRAWN_MIXED: u64 = 25;

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

/// Two or three hardware types, the fast ones dear.
fn mixed(mode: Mode, counts: [Option<u32>; 3], tasks_max: usize, demand_qps: f64) -> ProblemShape {
    let types = [(0.5, 0.4), (1.0, 1.0), (3.0, 2.5)];
    let hardware = types.into_iter().zip(counts);
    let hardware = hardware.map(|((price_per_hour, speed), count)| ShapeHardware { price_per_hour, count, speed });
    ProblemShape {
        hardware: hardware.collect(),
        variants_max: 3,
        batches: 3,
        objective: Objective { mode, latency_rule: LatencyRule::Path, ..Objective::default() },
        ..shape(0, tasks_max, demand_qps)
    }
}

/// The goals of a problem's mode.
fn goals_of(problem: &Problem) -> Goals {
    match problem.objective.mode {
        Mode::HardwareThenAccuracy => Goals { first: Goal::Accuracy, second: Some(Goal::Replicas) },
        Mode::MinCost => Goals { first: Goal::CostAndSwitching, second: None },
        Mode::MaxAccuracy => Goals { first: Goal::Accuracy, second: Some(Goal::Cost) },
    }
}

/// The optimum by the first goal and then by the second, by the whole formulation. `None` if there is no plan.
fn slow(problem: &Problem, space: &Space, goals: Goals) -> Option<(f64, Option<f64>)> {
    let limits = unlimited();
    let first = match solve_stage(problem, space, Stage::new(goals.first), GAP, &limits, None) {
        StageResult::Found { value, .. } => value,
        StageResult::Infeasible => return None,
        StageResult::Unknown(reason) => panic!("unlimited, and stopped: {reason}"),
    };
    let second = goals.second.map(|second| {
        let stage = Stage { accuracy_min: Some(-first * (1.0 - ACCURACY_SLACK)), ..Stage::new(second) };
        match solve_stage(problem, space, stage, 1e-9, &limits, None) {
            StageResult::Found { value, .. } => value,
            _ => panic!("the plan of the first stage fits the second"),
        }
    });
    Some((first, second))
}

/// The value of a second goal, from the choice of a result.
fn second_value(problem: &Problem, space: &Space, choice: &PlanIntegers, goal: Goal) -> f64 {
    match goal {
        Goal::Replicas => choice.replicas() as f64,
        _ => crate::exact::solution::worth::cost(problem, space, choice),
    }
}

/// How the drawn problems of one shape ended.
#[derive(Debug, Default)]
struct Counts {
    feasible: usize,
    infeasible: usize,
    /// Rule `path` is more accurate than rule `task_budget`.
    better: usize,
}

/// Compares both over drawn problems.
fn compare(shape: &ProblemShape, drawn: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..drawn {
        compare_problem(&drawn::problem(seed, shape), &format!("seed {seed}"), &mut counts);
    }
    counts
}

/// Compares both over one problem, if it has a space.
fn compare_problem(problem: &Problem, what: &str, counts: &mut Counts) {
    let tightening = Tightening::none(problem);
    let Ok(space) = Space::new(problem, &tightening, &unlimited()) else { return };
    let goals = goals_of(problem);
    let groups = usable_groups(problem, PipelineIndex(0), &tightening, |_, _| true);
    let question = PathQuestion { goals, effort: SearchEffort::until_proven(GAP), plan_large: |_, _, _, _, _| None };
    let result = search(problem, &tightening, &groups, question, &unlimited()).expect("few ways");
    match (slow(problem, &space, goals), result) {
        (None, PathResult::Infeasible) => counts.infeasible += 1,
        (Some((first, second)), PathResult::Found { space: small, choice, value, bound, stopped: None }) => {
            counts.feasible += 1;
            let near = 2.0 * GAP * first.abs() + 1e-9;
            assert!((value - first).abs() <= near, "{what}: {value} instead of {first}");
            assert!(bound <= first + near, "{what}: bound {bound} above {first}");
            if let (Some(goal), Some(second)) = (goals.second, second) {
                let found = second_value(problem, &small, &choice, goal);
                // of plans that differ by less than the gap either may be the one that is reduced
                assert!(found <= second * (1.0 + 1e-6) + 1.0, "{what}: {found} instead of {second}");
            }
            counts.better += usize::from(is_better_than_within_budgets(problem, &tightening, first, near));
        }
        (slow, _) => panic!("{what}: the slow search found {slow:?}"),
    }
}

/// Whether no plan of rule `task_budget` is as accurate. False where that is not known.
fn is_better_than_within_budgets(problem: &Problem, tightening: &Tightening, cost: f64, near: f64) -> bool {
    let budgets = problem.changed(|d| d.objective.latency_rule = LatencyRule::TaskBudget);
    let budgets = budgets.expect("a rule changes no validity");
    let Ok(space) = Space::new(&budgets, tightening, &unlimited()) else { return false };
    let found = enumerate::most_accurate(&budgets, &space, GAP, &unlimited());
    matches!(found, Some(StageResult::Found { value, .. }) if value > cost + near)
}

#[test]
fn exclusions_lose_no_better_plan() {
    let mut better = 0;
    for (devices, tasks_max, demand_qps) in [(4, 3, 90.0), (12, 3, 300.0), (40, 2, 1_500.0)] {
        let counts = compare(&shape(devices, tasks_max, demand_qps), DRAWN);
        eprintln!("{devices} devices: {counts:?}");
        assert!(counts.feasible >= 40, "{} of {DRAWN} drawn problems have a plan", counts.feasible);
        better += counts.better;
    }
    assert!(better > 0, "rule `path` is never better than rule `task_budget`");
}

#[test]
fn several_hardware_types_lose_no_better_plan() {
    let few = [Some(3), Some(2), Some(1)];
    let many = [Some(30), None, Some(10)];
    let (mut feasible, mut infeasible) = (0, 0);
    for (mode, counts, demand_qps) in [
        (Mode::MinCost, few, 60.0),
        (Mode::MinCost, many, 400.0),
        (Mode::MaxAccuracy, few, 60.0),
        (Mode::MaxAccuracy, [Some(6), Some(4), Some(2)], 200.0),
        (Mode::HardwareThenAccuracy, few, 60.0),
        (Mode::MinCost, few, 600.0),
    ] {
        let of_shape = compare(&mixed(mode, counts, 3, demand_qps), DRAWN_MIXED);
        eprintln!("{mode:?} on {counts:?}: {of_shape:?}");
        feasible += of_shape.feasible;
        infeasible += of_shape.infeasible;
    }
    assert!(feasible >= 80 && infeasible >= 5, "{feasible} drawn problems have a plan, {infeasible} have none");
}

#[test]
fn shares_budgets_and_floors_lose_no_better_plan() {
    let budget = |mode, budget_per_hour| {
        let shape = mixed(mode, [None; 3], 2, 150.0);
        ProblemShape { objective: Objective { budget_per_hour, ..shape.objective }, ..shape }
    };
    let floor = ProblemShape { min_accuracy: Some(0.8), ..budget(Mode::MinCost, None) };
    let halves = ProblemShape { halves: true, ..mixed(Mode::HardwareThenAccuracy, [Some(4), Some(3), Some(2)], 2, 90.0) };
    for shape in [floor, halves, budget(Mode::MaxAccuracy, Some(6.0))] {
        let counts = compare(&shape, DRAWN_MIXED);
        eprintln!("{counts:?}");
        assert!(counts.feasible >= 10, "{} of {DRAWN_MIXED} drawn problems have a plan", counts.feasible);
    }
}

/// A task that only idle replicas can have: three variants of the task before it make no queries for it, and the fourth one
/// is so slow that a query would be late. `b_ms` is its latency on the fast type.
fn skipped(mode: Mode, devices: u32, demand_qps: f64, b_ms: f64) -> Problem {
    let blind = |name: &str, accuracy: f64, ms: f64| {
        let rows = [1, 2, 4, 8].map(|batch: u32| (0_usize, batch, ms * (0.6 + 0.4 * f64::from(batch))));
        let slow = [1, 2, 4].map(|batch: u32| (1_usize, batch, 3.0 * ms * (0.6 + 0.4 * f64::from(batch))));
        let mut blind = fixtures::variant(name, accuracy, 1.0, &[&rows[..], &slow[..]].concat());
        blind.fanout_to.insert(TaskIndex(1), 0.0);
        blind
    };
    let mut variants = vec![blind("a-l", 1.0, 10.0), blind("a-m", 0.9, 6.0), blind("a-s", 0.8, 4.0)];
    variants.push(fixtures::variant("loud", 0.99, 1.0, &[(0, 1, 30.0)]));
    let b = fixtures::variant("b-l", 1.0, 1.0, &[(0, 1, b_ms), (0, 2, 1.2 * b_ms), (1, 1, 1.3 * b_ms)]);
    let tasks = vec![fixtures::task("a", variants), fixtures::task("b", vec![b])];
    let draft = PipelineDraft { demand_qps, ..fixtures::draft(100.0, tasks, &[(0, 1)]) };
    let change = |d: &mut ProblemDraft| {
        d.objective = Objective { mode, latency_rule: LatencyRule::Path, ..Objective::default() };
        d.hardware[0].count = Some(devices);
        d.hardware[1].count = Some(1);
    };
    fixtures::problem(draft).changed(change).expect("still valid")
}

#[test]
fn replicas_of_a_task_without_queries_are_not_excluded() {
    let mut counts = Counts::default();
    for mode in [Mode::HardwareThenAccuracy, Mode::MinCost, Mode::MaxAccuracy] {
        // with 30 ms some query would be in time after a faster variant, with 60 ms after none
        for (devices, b_ms) in [1, 2, 4].into_iter().flat_map(|devices| [30.0, 60.0].map(|ms| (devices, ms))) {
            for demand_qps in [300.0, 700.0, 2_500.0] {
                let what = format!("{mode:?}, {devices} devices, {demand_qps} per second, {b_ms} ms");
                compare_problem(&skipped(mode, devices, demand_qps, b_ms), &what, &mut counts);
            }
        }
    }
    assert!(counts.feasible >= 20 && counts.infeasible >= 12, "{counts:?}");
}
