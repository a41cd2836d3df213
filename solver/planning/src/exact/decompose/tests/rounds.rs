//! A round of a fleet goes on from the last one. The work of both is counted in answers of single pipelines.

use super::*;
use crate::bench::fleet::{FleetKind, FleetSize, fleet};
use crate::fleet_memory::FleetMemory;

const SIZE: FleetSize = FleetSize { pipelines: 40, devices: 2_000 };
/// The kinds whose only stage is the fast search of a fleet.
const KINDS: [FleetKind; 4] = [FleetKind::Accurate, FleetKind::Budgeted, FleetKind::Cheap, FleetKind::Switching];

/// One round: its plan, its bound, and the answers that it asked for.
struct PlannedRound {
    value: f64,
    bound: f64,
    origin: PlanOrigin,
    pricings: usize,
}

/// Plans a fleet with a memory, and lets the checker judge the plan.
fn plan_round(problem: &Problem, memory: Option<&FleetMemory>, seed: u64) -> PlannedRound {
    let limits = unlimited();
    let space = Space::new(problem, &Tightening::none(problem), &limits).expect("a space");
    let goal = if problem.objective.mode == Mode::MinCost { Goal::CostAndSwitching } else { Goal::Accuracy };
    let joint = JointProblem::new(problem, &space, goal, None, GAP, &limits).expect("a goal of stages");
    let joint = JointProblem { memory, ..joint };
    let mut known = JointBounds::new(&joint);
    let FastEnd::Plan(FastPlan { whole, origin }) = joint.solve_fast(&mut known) else { panic!("seed {seed}: no plan") };
    let choice = PlanIntegers { groups: whole.columns.iter().map(|c| c.groups.clone()).collect() };
    let flows = crate::exact::solution::flows::flows(problem, &space, &choice, &limits).expect("unlimited");
    let plan = plan_of(problem, &space, &choice, &flows.expect("flows")).expect("few paths");
    let findings = apportion_checker::check(problem, &plan);
    assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    PlannedRound { value: whole.value, bound: known.bound, origin, pricings: known.pricings }
}

/// The same fleet with other demands of the first pipelines.
fn with_moved_demands(problem: &Problem, pipelines: usize, factor: f64) -> Problem {
    let moved = |d: &mut apportion_domain::ProblemDraft| {
        for pipeline in d.pipelines.iter_mut().take(pipelines) {
            *pipeline = pipeline.with_demand(pipeline.demand_qps * factor);
        }
    };
    problem.changed(moved).expect("a demand changes no validity")
}

#[test]
fn a_small_change_takes_a_tenth_of_the_answers() {
    for kind in KINDS {
        let problem = fleet(kind, SIZE, 60_100);
        let memory = FleetMemory::default();
        let first = plan_round(&problem, Some(&memory), 60_100);
        assert_eq!(first.origin, PlanOrigin::Start, "{kind:?}");
        let moved = with_moved_demands(&problem, 2, 1.03);
        let next = plan_round(&moved, Some(&memory), 60_100);
        assert_eq!(next.origin, PlanOrigin::LastRound, "{kind:?}");
        assert!(next.pricings > 0 && 10 * next.pricings <= first.pricings, "{kind:?}: {}", next.pricings);
        // both bounds hold for both plans
        let alone = plan_round(&moved, None, 60_100);
        let slack = 1e-9 * alone.value.abs();
        assert!(next.bound <= alone.value + slack && alone.bound <= next.value + slack, "{kind:?}");
        let gap = |round: &PlannedRound| (round.value - round.bound) / round.value.abs();
        assert!(gap(&next) <= 1.2 * gap(&first).max(GAP) + 1e-9, "{kind:?}: {} after {}", gap(&next), gap(&first));
    }
}

#[test]
fn an_unchanged_fleet_is_not_asked_again() {
    let problem = fleet(FleetKind::Accurate, SIZE, 60_101);
    let memory = FleetMemory::default();
    let first = plan_round(&problem, Some(&memory), 60_101);
    let again = plan_round(&problem, Some(&memory), 60_101);
    assert_eq!((again.origin, again.pricings), (PlanOrigin::LastRound, 0));
    assert!(again.value <= first.value + 1e-9 && (again.bound - first.bound).abs() <= 1e-9);
}

#[test]
fn a_fleet_that_lost_devices_is_planned_on_the_others() {
    let problem = fleet(FleetKind::Accurate, SIZE, 60_102);
    let memory = FleetMemory::default();
    plan_round(&problem, Some(&memory), 60_102);
    let lose = |d: &mut apportion_domain::ProblemDraft| {
        d.hardware.iter_mut().for_each(|h| h.count = h.count.map(|count| count - count / 100));
    };
    let fewer = problem.changed(lose).expect("fewer devices are valid");
    let next = plan_round(&fewer, Some(&memory), 60_102);
    let alone = plan_round(&fewer, None, 60_102);
    assert!(next.bound <= alone.value + 1e-9 && alone.bound <= next.value + 1e-9);
}

#[test]
fn another_fleet_is_planned_from_the_start() {
    let memory = FleetMemory::default();
    let accurate = fleet(FleetKind::Accurate, SIZE, 60_103);
    plan_round(&accurate, Some(&memory), 60_103);
    // another goal remembers nothing of the first
    let cheap = fleet(FleetKind::Cheap, SIZE, 60_103);
    assert_eq!(plan_round(&cheap, Some(&memory), 60_103).origin, PlanOrigin::Start);
    // all demands have changed: what is kept is the prices
    let halved = with_moved_demands(&accurate, SIZE.pipelines, 0.5);
    let alone = plan_round(&halved, None, 60_103);
    let next = plan_round(&halved, Some(&memory), 60_103);
    assert!(next.bound <= alone.value + 1e-9 && alone.bound <= next.value + 1e-9);
}
