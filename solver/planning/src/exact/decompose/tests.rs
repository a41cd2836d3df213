//! The decomposition against the whole formulation, on problems drawn small enough for it.

mod bounds;
mod limits;
mod loads;
mod rounds;

use super::*;
use crate::bench::drawn;
use crate::bench::drawn::{ProblemShape, ShapeHardware};
use crate::exact::model::goal::{SearchEffort, Stage};
use crate::exact::model::space::SpaceError;
use crate::exact::model::tightening::Tightening;
use crate::exact::model::tolerances::ACCURACY_SLACK;
use crate::exact::search::modes::{LastStage, ModeSearch, SearchResult};
use crate::exact::solution::choice::PlanIntegers;
use crate::exact::solution::found::BestFound;
use crate::exact::solution::plan::plan_of;
use crate::exact::solution::worth::worth;
use apportion_domain::{DeviceQuota, Mode, Objective, PipelineIndex, Share};
use std::sync::Arc;
use std::time::Duration;

const GAP: f64 = 1e-3;

fn unlimited() -> RunLimits {
    RunLimits::new(Arc::new(|| Duration::ZERO))
}

fn space_of(problem: &Problem, tightening: &Tightening, goal: Goal) -> Result<Space, SpaceError> {
    if goal == Goal::Replicas {
        return Space::of_most_accurate(problem, tightening, &unlimited());
    }
    Space::new(problem, tightening, &unlimited())
}

/// A hardware type with a price per hour, a count and a speed.
fn kind(price_per_hour: f64, count: Option<u32>, speed: f64) -> ShapeHardware {
    ShapeHardware { price_per_hour, count, speed }
}

fn shape(mode: Mode) -> ProblemShape {
    ProblemShape {
        pipelines: 3,
        tasks_max: 2,
        variants_max: 3,
        batches: 3,
        hardware: vec![kind(1.0, Some(8), 1.0)],
        halves: false,
        demand_qps: 60.0,
        min_accuracy: None,
        objective: Objective { mode, ..Objective::default() },
    }
}

/// Pipelines that are too large for one formulation, but for a few.
fn large(pipelines: usize) -> ProblemShape {
    ProblemShape {
        pipelines,
        tasks_max: 4,
        variants_max: 10,
        hardware: vec![kind(0.5, None, 1.0), kind(0.83, None, 2.0), kind(1.17, None, 3.0)],
        // a plan of many replicas: the bound of two or three of them is looser
        demand_qps: 600.0,
        min_accuracy: Some(0.7),
        ..shape(Mode::MinCost)
    }
}

/// Counts: both found a plan, both found none, the decomposition missed the gap.
#[derive(Debug, Default)]
struct Tally {
    feasible: usize,
    infeasible: usize,
    short: usize,
}

/// Who closes the gap of a decomposition?
#[derive(Clone, Copy, PartialEq, Eq)]
enum GapCloser {
    /// The whole formulation may close it, and it must be closed.
    WholeFormulation,
    /// Nobody: the parts stand by themselves.
    Nobody,
}

/// Compares one stage over `seeds`.
fn compare(shape: &ProblemShape, seeds: std::ops::Range<u64>, goal: Goal, closer: GapCloser) -> Tally {
    compare_problems(seeds.map(|seed| (seed, drawn::problem(seed, shape))), goal, closer)
}

/// Compares one stage of problems with their seeds.
fn compare_problems(problems: impl Iterator<Item = (u64, Problem)>, goal: Goal, closer: GapCloser) -> Tally {
    let must_close = closer == GapCloser::WholeFormulation;
    let limits = unlimited();
    let mut tally = Tally::default();
    for (seed, problem) in problems {
        let tightening = Tightening::none(&problem);
        let Ok(space) = space_of(&problem, &tightening, goal) else { continue };
        let whole = crate::exact::stage::solve::solve_stage(&problem, &space, Stage::new(goal), 1e-6, &limits, None);
        let second = (goal == Goal::Accuracy).then_some(Goal::Cost);
        let mut joint = JointProblem::new(&problem, &space, goal, second, GAP, &limits).expect("a goal of stages");
        joint.finish_max = if must_close { FINISH_MAX } else { 0 };
        let parts = joint.solve(&unlimited());
        match (whole, parts) {
            (StageResult::Infeasible, StageResult::Infeasible) => tally.infeasible += 1,
            (StageResult::Found { value: best, .. }, StageResult::Found { choice, value, bound, .. }) => {
                let slack = 1e-5 * best.abs().max(1.0);
                assert!(bound <= best + slack, "seed {seed}: bound {bound} above the optimum {best}");
                assert!(value >= best - slack, "seed {seed}: {value} better than the optimum {best}");
                assert!(bound <= value, "seed {seed}");
                let reached = value - best <= GAP * best.abs() + slack;
                assert!(reached || !must_close, "seed {seed}: {value} for {best}");
                tally.short += usize::from(!reached);
                tally.feasible += 1;
                accepted(&problem, space, choice, goal, value, seed);
            }
            (_, StageResult::Unknown(_)) if !must_close => tally.short += 1,
            (whole, parts) => panic!("seed {seed}: {} by the whole, {} by parts", named(&whole), named(&parts)),
        }
    }
    tally
}

fn named(answer: &StageResult) -> String {
    match answer {
        StageResult::Found { value, bound, .. } => format!("{value} (bound {bound})"),
        StageResult::Infeasible => "infeasible".into(),
        StageResult::Unknown(reason) => format!("unknown: {reason}"),
    }
}

/// The plan of a choice has the claimed value, and the checker accepts it.
fn accepted(problem: &Problem, space: Space, choice: PlanIntegers, goal: Goal, value: f64, seed: u64) {
    let step = match (problem.objective.mode, goal) {
        (Mode::HardwareThenAccuracy, Goal::Replicas) => Some(apportion_domain::ObjectiveStep::Hardware),
        (Mode::HardwareThenAccuracy, _) => Some(apportion_domain::ObjectiveStep::Accuracy),
        _ => None,
    };
    let (tightening, limits) = (Tightening::none(problem), unlimited());
    let effort = SearchEffort::until_proven(GAP);
    let search = ModeSearch { problem, tightening: &tightening, effort, memory: None, limits: &limits };
    let SearchResult::Found(found) = search.finish(space, LastStage { choice, step, value, bound: value, stopped: None })
    else {
        panic!("seed {seed}: the choice carries no flows");
    };
    let BestFound { space, choice, flows, step, .. } = *found;
    let worth = worth(problem, &space, &choice, &flows, step);
    let claimed = if goal == Goal::Accuracy { -value } else { value };
    // ties are broken within the slack of two stages
    let better = if goal == Goal::Accuracy { worth - claimed } else { claimed - worth };
    assert!(better >= -5.0 * ACCURACY_SLACK, "seed {seed}: worth {worth}, claimed {claimed}");
    let plan = plan_of(problem, &space, &choice, &flows).expect("few paths");
    let findings = apportion_checker::check(problem, &plan);
    assert!(findings.is_empty(), "seed {seed}: {findings:?}");
}

#[test]
fn division_of_equal_devices_matches_the_whole_formulation() {
    let shape = ProblemShape { hardware: vec![kind(1.0, Some(6), 1.0)], demand_qps: 110.0, ..shape(Mode::MaxAccuracy) };
    let tally = compare(&shape, 0..40, Goal::Accuracy, GapCloser::Nobody);
    assert!(tally.feasible > 15 && tally.infeasible > 2 && tally.short == 0, "{tally:?}");
}

#[test]
fn floors_hold_while_devices_are_divided() {
    let shape = ProblemShape { min_accuracy: Some(0.85), ..shape(Mode::MaxAccuracy) };
    let tally = compare(&shape, 40..60, Goal::Accuracy, GapCloser::WholeFormulation);
    assert!(tally.feasible > 5, "{tally:?}");
}

#[test]
fn fewest_replicas_add_up() {
    let shape = ProblemShape { hardware: vec![kind(1.0, Some(7), 1.0)], ..shape(Mode::HardwareThenAccuracy) };
    let tally = compare(&shape, 0..20, Goal::Replicas, GapCloser::Nobody);
    assert!(tally.feasible > 2 && tally.infeasible > 2 && tally.short == 0, "{tally:?}");
}

#[test]
fn several_kinds_of_devices_are_priced() {
    let hardware = vec![kind(1.0, Some(4), 1.0), kind(2.2, Some(3), 2.5)];
    let shape = ProblemShape { hardware, ..shape(Mode::MaxAccuracy) };
    let tally = compare(&shape, 0..20, Goal::Accuracy, GapCloser::WholeFormulation);
    assert!(tally.feasible > 8, "{tally:?}");
}

#[test]
fn a_budget_is_shared() {
    let objective = Objective { mode: Mode::MaxAccuracy, budget_per_hour: Some(11.0), ..Objective::default() };
    let hardware = vec![kind(1.0, None, 1.0), kind(2.2, None, 2.5)];
    let shape = ProblemShape { hardware, objective, ..shape(Mode::MaxAccuracy) };
    let tally = compare(&shape, 0..20, Goal::Accuracy, GapCloser::WholeFormulation);
    assert!(tally.feasible > 8, "{tally:?}");
}

#[test]
fn quotas_hold_for_their_pipelines_together() {
    let hardware = vec![kind(1.0, Some(5), 1.0), kind(2.2, Some(4), 2.5)];
    let quotas = |seed: u64| {
        let of = |name: &str, pipelines: &[usize]| DeviceQuota {
            name: name.to_owned(),
            pipelines: pipelines.iter().map(|&p| PipelineIndex(p)).collect(),
            counts: vec![Some(3 + (seed % 2) as u32), None],
            devices: seed.is_multiple_of(3).then_some(5),
            cost_per_hour: (seed % 3 == 1).then_some(8.0),
        };
        vec![of("two", &[0, 1]), DeviceQuota { counts: vec![None, Some(1)], ..of("one", &[2]) }]
    };
    let with_quotas = |shape: ProblemShape| {
        (0..20).map(move |seed| {
            let problem = drawn::problem(seed, &shape).changed(|draft| draft.quotas = quotas(seed));
            (seed, problem.expect("quotas of the problem's pipelines"))
        })
    };
    let accuracy = ProblemShape { hardware: hardware.clone(), ..shape(Mode::MaxAccuracy) };
    let cost = ProblemShape { hardware, min_accuracy: Some(0.8), ..shape(Mode::MinCost) };
    for (shape, goal) in [(accuracy, Goal::Accuracy), (cost, Goal::CostAndSwitching)] {
        let tally = compare_problems(with_quotas(shape), goal, GapCloser::WholeFormulation);
        assert!(tally.feasible > 3, "{goal:?}: {tally:?}");
    }
}

#[test]
fn cost_is_least_within_shared_counts() {
    let hardware = vec![kind(1.0, Some(4), 1.0), kind(2.2, Some(4), 2.5), kind(3.0, Some(12), 2.5)];
    let shape = ProblemShape { hardware, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    let tally = compare(&shape, 0..20, Goal::CostAndSwitching, GapCloser::WholeFormulation);
    assert!(tally.feasible > 8, "{tally:?}");
}

#[test]
fn parts_of_devices_are_counted_whole_at_the_end() {
    let hardware = vec![kind(1.0, Some(5), 1.0), kind(2.2, Some(4), 2.5)];
    let shape = ProblemShape { hardware, halves: true, min_accuracy: Some(0.9), demand_qps: 40.0, ..shape(Mode::MinCost) };
    let tally = compare(&shape, 0..8, Goal::CostAndSwitching, GapCloser::WholeFormulation);
    assert!(tally.feasible > 3, "{tally:?}");
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let problem = drawn::problem(3, &ProblemShape { pipelines: 4, ..shape(Mode::MaxAccuracy) });
    let space = Space::new(&problem, &Tightening::none(&problem), &unlimited()).expect("a space");
    let question = ApartQuestion { goal: Goal::Accuracy, second: Some(Goal::Cost), gap: GAP, memory: None };
    let solve = || solve_apart(&problem, &space, question, &unlimited());
    match (solve(), solve()) {
        (Some(StageResult::Found { choice: a, .. }), Some(StageResult::Found { choice: b, .. })) => assert_eq!(a, b),
        (a, b) => panic!("{:?} {:?}", a.map(|a| named(&a)), b.map(|b| named(&b))),
    }
}

#[test]
fn the_parts_alone_come_near() {
    let hardware = vec![kind(1.0, Some(4), 1.0), kind(2.2, Some(3), 2.5)];
    let accuracy = ProblemShape { hardware: hardware.clone(), demand_qps: 110.0, ..shape(Mode::MaxAccuracy) };
    let cost = ProblemShape { hardware, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    for (shape, goal) in [(accuracy, Goal::Accuracy), (cost, Goal::CostAndSwitching)] {
        let tally = compare(&shape, 100..120, goal, GapCloser::Nobody);
        assert!(tally.short * 4 <= tally.feasible + tally.infeasible, "{tally:?}");
    }
}

#[test]
fn halves_of_devices_are_shared_by_pipelines() {
    let hardware = vec![kind(1.0, Some(3), 1.0), kind(2.2, Some(2), 2.5)];
    let small = ProblemShape { halves: true, batches: 2, variants_max: 2, demand_qps: 90.0, ..shape(Mode::MaxAccuracy) };
    let tally = compare(&ProblemShape { hardware, ..small }, 0..8, Goal::Accuracy, GapCloser::WholeFormulation);
    assert!(tally.feasible > 2, "{tally:?}");
}

#[test]
fn switching_is_paid_by_each_pipeline_for_itself() {
    let hardware = vec![kind(1.0, Some(4), 1.0), kind(2.2, Some(4), 2.5)];
    let shape = ProblemShape { hardware, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    for seed in 0..8 {
        let plain = drawn::problem(seed, &shape);
        // one replica of the first variant of each task runs now
        let deployed = plain.pipelines.iter().enumerate().flat_map(|(p, pipeline)| {
            (0..pipeline.tasks.len()).map(move |t| apportion_domain::Deployed {
                pipeline: apportion_domain::PipelineIndex(p),
                task: apportion_domain::TaskIndex(t),
                variant: apportion_domain::VariantIndex(0),
                hardware: apportion_domain::HardwareIndex(0),
                share: Share::WHOLE,
                batch: 1,
                replicas: 1,
            })
        });
        let deployed: Vec<_> = deployed.collect();
        let change = |d: &mut apportion_domain::ProblemDraft| (d.deployed, d.switching_weight) = (deployed, 400.0);
        let problem = plain.changed(change).expect("what runs is known");
        let space = Space::new(&problem, &Tightening::none(&problem), &unlimited()).expect("a space");
        let stage = Stage::new(Goal::CostAndSwitching);
        let whole = crate::exact::stage::solve::solve_stage(&problem, &space, stage, 1e-6, &unlimited(), None);
        let question = ApartQuestion { goal: stage.goal, second: None, gap: GAP, memory: None };
        match (whole, solve_apart(&problem, &space, question, &unlimited()).expect("three pipelines")) {
            (StageResult::Found { value: best, .. }, StageResult::Found { choice, value, bound, .. }) => {
                assert!(bound <= best + 1e-5 && value >= best - 1e-5, "seed {seed}: {bound} {best} {value}");
                assert!(value <= best * (1.0 + GAP) + 1e-5, "seed {seed}: {value} for {best}");
                accepted(&problem, space, choice, stage.goal, value, seed);
            }
            (StageResult::Infeasible, StageResult::Infeasible) => {}
            (whole, parts) => panic!("seed {seed}: {} by the whole, {} by parts", named(&whole), named(&parts)),
        }
    }
}

/// One way to use some variants of a task.
#[derive(Clone, Copy)]
struct Way {
    /// Devices that are left.
    devices: u32,
    /// Load that is left.
    left_qps: f64,
    accuracy: f64,
}

/// The highest accuracy of a pipeline of one task on `n` devices. Every way to use them is tried. Minus infinity if they do
/// not suffice.
fn accuracy_by_brute_force(pipeline: &apportion_domain::Pipeline, n: u32) -> f64 {
    let fastest = |v: &apportion_domain::Variant| {
        let rows = v.profile.rows().iter().filter(|r| 2.0 * r.latency_ms <= pipeline.slo_ms + 1e-9);
        rows.map(apportion_domain::ProfileRow::throughput_qps).fold(0.0, f64::max)
    };
    let mut ways = vec![Way { devices: n, left_qps: pipeline.demand_qps, accuracy: 0.0 }];
    for variant in &pipeline.tasks[0].variants {
        let served = |x: u32, left: f64| left.min(f64::from(x) * fastest(variant));
        let accuracy = |x: u32, left: f64| served(x, left) / pipeline.demand_qps * variant.accuracy;
        let with_variant = |way: &Way| -> Vec<Way> {
            let &Way { devices, left_qps, accuracy: sum } = way;
            let on = |x: u32| Way {
                devices: devices - x,
                left_qps: left_qps - served(x, left_qps),
                accuracy: sum + accuracy(x, left_qps),
            };
            (0..=devices).map(on).collect()
        };
        ways = ways.iter().flat_map(with_variant).collect();
    }
    let enough = ways.iter().filter(|w| w.left_qps <= 1e-9 * pipeline.demand_qps);
    enough.map(|w| w.accuracy).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn tiny_clusters_are_divided_as_by_brute_force() {
    let tiny = ProblemShape {
        tasks_max: 1,
        hardware: vec![kind(1.0, Some(5), 1.0)],
        demand_qps: 120.0,
        ..shape(Mode::MaxAccuracy)
    };
    let (mut feasible, mut infeasible) = (0, 0);
    for seed in 0..60 {
        let problem = drawn::problem(seed, &tiny);
        let total: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
        let worth =
            |p: usize, n: u32| problem.pipelines[p].weight / total * accuracy_by_brute_force(&problem.pipelines[p], n);
        let mut best = f64::NEG_INFINITY;
        for a in 0..=5 {
            for b in 0..=5 - a {
                best = best.max(worth(0, a) + worth(1, b) + worth(2, 5 - a - b));
            }
        }
        match crate::exact::search::best::search(&problem, &Tightening::none(&problem), GAP, &unlimited()) {
            SearchResult::Found(found) => {
                assert!(found.value >= best * (1.0 - GAP) - 1e-9, "seed {seed}: {} for {best}", found.value);
                assert!(found.value <= best + 1e-6 && found.bound >= best - 1e-6, "seed {seed}: {}", found.value);
                feasible += 1;
            }
            SearchResult::Infeasible => {
                assert!(best.is_infinite(), "seed {seed}: {best} by brute force");
                infeasible += 1;
            }
            SearchResult::Unknown(reason) => panic!("seed {seed}: {reason}"),
        }
    }
    assert!(feasible > 15 && infeasible > 3, "{feasible} {infeasible}");
}

#[test]
fn fast_prices_bound_every_plan_of_a_small_problem() {
    let hardware = vec![kind(1.0, Some(6), 1.0), kind(2.2, Some(5), 2.5)];
    let accuracy = ProblemShape { hardware: hardware.clone(), halves: true, ..shape(Mode::MaxAccuracy) };
    let cost = ProblemShape { hardware, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    let limits = unlimited();
    let (mut plans, mut tight) = (0, 0);
    for (shape, goal) in [(accuracy, Goal::Accuracy), (cost, Goal::CostAndSwitching)] {
        for seed in 200..224 {
            let pipelines = 1 + seed as usize % 3;
            let problem = drawn::problem(seed, &ProblemShape { pipelines, ..shape.clone() });
            let space = Space::new(&problem, &Tightening::none(&problem), &limits).expect("a space");
            let whole = crate::exact::stage::solve::solve_stage(&problem, &space, Stage::new(goal), 1e-6, &limits, None);
            let joint = JointProblem::new(&problem, &space, goal, None, GAP, &limits).expect("a goal of stages");
            let mut known = JointBounds::new(&joint);
            let end = joint.solve_fast(&mut known);
            let StageResult::Found { value: best, .. } = whole else {
                assert!(!matches!(end, FastEnd::Plan(_)), "seed {seed}: a plan of an infeasible problem");
                continue;
            };
            assert!(known.bound <= best + 1e-5, "seed {seed}: bound {} above {best}", known.bound);
            assert!(!matches!(end, FastEnd::Infeasible), "seed {seed}");
            if let FastEnd::Plan(FastPlan { whole: plan, .. }) = end {
                assert!(plan.value >= best - 1e-5, "seed {seed}: {} better than {best}", plan.value);
                plans += 1;
                tight += usize::from(plan.value - known.bound <= 0.2 * best.abs());
            }
        }
    }
    assert!(plans > 8 && tight * 3 > plans, "{plans} plans, {tight} of them with a good bound");
}

#[test]
fn one_or_two_pipelines_with_many_ways_have_a_close_bound_soon() {
    for pipelines in [1, 2] {
        let large = large(pipelines);
        let mut searched = 0;
        for seed in 300..800 {
            let problem = drawn::problem(seed, &large);
            let space = Space::new(&problem, &Tightening::none(&problem), &unlimited()).expect("a space");
            if !is_too_large_for_one_formulation(&space) {
                continue;
            }
            let limits = unlimited();
            let joint = JointProblem::new(&problem, &space, Goal::CostAndSwitching, None, GAP, &limits).expect("a goal");
            let mut known = JointBounds::new(&joint);
            let FastEnd::Plan(FastPlan { whole, .. }) = joint.solve_if_large(&mut known) else { panic!("{seed}: no plan") };
            let (value, bound) = (whole.value, known.bound);
            assert!(bound <= value + 1e-9 && value - bound <= 0.25 * value, "{seed}: bound {bound} of {value}");
            searched += 1;
        }
        assert!(searched > 1, "{searched} large problems of {pipelines} pipelines");
    }
}

#[test]
fn a_drawn_fleet_is_planned_and_its_plan_stays() {
    use crate::bench::fleet::{FleetKind, FleetSize, fleet, redeployed};
    let (limits, size) = (unlimited(), FleetSize { pipelines: 40, devices: 2_000 });
    for kind in FleetKind::ALL {
        for seed in 100..102 {
            let problem = fleet(kind, size, seed);
            let tightening = Tightening::none(&problem);
            let found = match crate::exact::search::best::search(&problem, &tightening, GAP, &limits) {
                SearchResult::Found(found) => found,
                _ => panic!("{kind:?} {seed}: no plan"),
            };
            let plan = plan_of(&problem, &found.space, &found.choice, &found.flows).expect("few paths");
            let findings = apportion_checker::check(&problem, &plan);
            assert!(findings.is_empty(), "{kind:?} {seed}: {findings:?}");
            let again = redeployed(&problem, &found.space, &found.choice);
            match crate::exact::search::best::search(&again, &tightening, GAP, &limits) {
                SearchResult::Found(second) => {
                    // With costs of switching the second search has another goal. Its unproven plan may be better.
                    if kind == FleetKind::Switching {
                        continue;
                    }
                    let still = redeployed(&problem, &second.space, &second.choice);
                    assert!(still.deployed == again.deployed, "{kind:?} {seed}: the plan changed");
                }
                _ => panic!("{kind:?} {seed}: no plan the second time"),
            }
        }
    }
}
