//! The reference formulations against the production planner, on tiny drawn problems of every kind; brute force
//! decides who is right.

#[path = "../../../planning/tests/brute_force/draw.rs"]
mod draw;
mod larger;
#[path = "../../../planning/tests/brute_force/oracle.rs"]
mod oracle;
#[path = "../../../planning/tests/brute_force/simplex.rs"]
mod simplex;

use apportion_domain::{LatencyRule, Mode, ObjectiveStep, Plan, PlanOutcome, Problem};
use apportion_planning::PlanningOptions;
use apportion_reference::{ReferenceAnswer, ReferenceError, ReferenceSettings, Solver, solve};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::sync::Arc;
use std::time::Duration;

/// All modes.
const MODES: [Mode; 3] = [Mode::HardwareThenAccuracy, Mode::MinCost, Mode::MaxAccuracy];
/// Both latency rules.
const RULES: [LatencyRule; 2] = [LatencyRule::TaskBudget, LatencyRule::Path];
/// Problems of each mode and rule that production and reference solve.
const PROBLEMS: u64 = 70;
/// Problems of each mode and rule that both solvers solve.
const SOLVED_TWICE: u64 = 30;
/// Problems of each mode and rule that are too large for brute force.
const LARGER: u64 = 10;
/// How far two objectives may be apart, relative to the larger of 1 and the objective.
const TOLERANCE: f64 = 5e-6;

/// What two answers are compared by.
#[derive(Clone, Debug, PartialEq)]
struct Optimum {
    step: Option<ObjectiveStep>,
    value: f64,
    /// What breaks ties: replicas, or in `max_accuracy` cost; the value itself in `min_cost`.
    second: f64,
}

fn problem(seed: u64, mode: Mode, rule: LatencyRule) -> Problem {
    draw::problem(seed, rule).changed(|draft| draft.objective.mode = mode).expect("still valid")
}

fn second(problem: &Problem, plan: &Plan, value: f64) -> f64 {
    match problem.objective.mode {
        Mode::HardwareThenAccuracy => plan.replicas() as f64,
        Mode::MaxAccuracy => plan.cost_per_hour,
        Mode::MinCost => value,
    }
}

/// The production planner's answer; `None` where it proves that there is no plan.
fn production(problem: &Problem) -> Option<Optimum> {
    let options = PlanningOptions { gap: 1e-6, ..PlanningOptions::new(Arc::new(|| Duration::ZERO)) };
    let (outcome, report) = apportion_planning::plan(problem, &options);
    match outcome {
        PlanOutcome::Infeasible { .. } => None,
        PlanOutcome::Optimal(plan) => {
            let value = report.objective.value.expect("a value");
            Some(Optimum { step: report.objective.step, value, second: second(problem, &plan, value) })
        }
        other => panic!("{} after {:?}", other.status(), report.objective),
    }
}

/// Time of each stage of the reference. Tiny problems take milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The reference's answer, whose plan the checker accepts.
fn reference(problem: &Problem, solver: Solver) -> Result<Option<Optimum>, ReferenceError> {
    let settings = ReferenceSettings { solver, time_limit: Some(TIME_LIMIT), ..ReferenceSettings::default() };
    match solve(problem, &settings)? {
        ReferenceAnswer::Infeasible => Ok(None),
        ReferenceAnswer::Optimal(found) => {
            let findings = apportion_checker::check(problem, &found.plan);
            assert!(findings.is_empty(), "{solver:?}: the checker rejects the plan: {findings:?}");
            let second = second(problem, &found.plan, found.value);
            Ok(Some(Optimum { step: found.step, value: found.value, second }))
        }
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(1.0)
}

fn is_same(a: &Option<Optimum>, b: &Option<Optimum>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.step == b.step && is_near(a.value, b.value) && is_near(a.second, b.second),
        _ => false,
    }
}

/// How the problems of one mode and rule went.
#[derive(Default)]
struct Tally {
    wrong: Vec<String>,
    infeasible: u64,
    accuracy_steps: u64,
}

impl Tally {
    fn add(&mut self, seed: u64, problem: &Problem, [left, right]: [Result<Option<Optimum>, ReferenceError>; 2]) {
        self.infeasible += u64::from(left == Ok(None));
        self.accuracy_steps += u64::from(matches!(&left, Ok(Some(found)) if found.step == Some(ObjectiveStep::Accuracy)));
        let agree = matches!((&left, &right), (Ok(left), Ok(right)) if is_same(left, right));
        if !agree {
            let best = oracle::best(problem);
            self.wrong.push(format!("seed {seed}: {left:?}, {right:?}, brute force {best:?}"));
        }
    }

    fn judge(&self, what: &str, problems: u64, mode: Mode) {
        eprintln!("{what}: {problems} problems, {} infeasible", self.infeasible);
        assert!(self.wrong.is_empty(), "{what}: {} differ\n{}", self.wrong.len(), self.wrong.join("\n"));
        assert!((problems / 10..problems * 2 / 3).contains(&self.infeasible), "{what}: {} infeasible", self.infeasible);
        let has_both_steps = mode != Mode::HardwareThenAccuracy || self.accuracy_steps > 0;
        assert!(has_both_steps, "{what}: no problem reaches accuracy scaling");
    }
}

#[test]
fn production_and_reference_find_equal_objectives() {
    for (mode, rule) in MODES.into_iter().flat_map(|mode| RULES.map(|rule| (mode, rule))) {
        let mut tally = Tally::default();
        for seed in 0..PROBLEMS {
            let problem = problem(seed, mode, rule);
            tally.add(seed, &problem, [reference(&problem, Solver::Highs), Ok(production(&problem))]);
        }
        tally.judge(&format!("{mode} {rule}, reference and production"), PROBLEMS, mode);
    }
}

#[test]
fn microlp_and_highs_find_equal_objectives() {
    for (mode, rule) in MODES.into_iter().flat_map(|mode| RULES.map(|rule| (mode, rule))) {
        let mut tally = Tally::default();
        for seed in 0..SOLVED_TWICE {
            let problem = problem(seed, mode, rule);
            tally.add(seed, &problem, [Solver::Highs, Solver::MicroLp].map(|solver| reference(&problem, solver)));
        }
        tally.judge(&format!("{mode} {rule}, HiGHS and microlp"), SOLVED_TWICE, mode);
    }
}

#[test]
fn production_and_reference_agree_beyond_brute_force() {
    let (mut wrong, mut unsolved, mut infeasible, mut accuracy_steps) = (Vec::new(), 0, 0, 0);
    for (mode, rule) in MODES.into_iter().flat_map(|mode| RULES.map(|rule| (mode, rule))) {
        for seed in 0..LARGER {
            let problem = larger::problem(seed, mode, rule);
            let production = production(&problem);
            infeasible += u64::from(production.is_none());
            let step = production.as_ref().and_then(|found| found.step);
            accuracy_steps += u64::from(step == Some(ObjectiveStep::Accuracy));
            match reference(&problem, Solver::Highs) {
                Ok(reference) if is_same(&reference, &production) => {}
                Err(ReferenceError::TimeLimit) => unsolved += 1,
                other => wrong.push(format!("{mode} {rule}, seed {seed}: {other:?}, production {production:?}")),
            }
        }
    }
    let all = LARGER * (MODES.len() * RULES.len()) as u64;
    eprintln!(
        "{all} larger problems, {infeasible} infeasible, {accuracy_steps} by accuracy, {unsolved} not solved in time"
    );
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        unsolved * 3 < all && (all / 20..all / 2).contains(&infeasible),
        "{unsolved} unsolved, {infeasible} infeasible"
    );
    assert!(accuracy_steps > 0, "no problem reaches accuracy scaling: {accuracy_steps}");
}

/// The best values of a problem by the reference, by brute force and by the production planner.
fn three_values(name: &str, text: &str) -> [f64; 3] {
    let Ok(ProblemFile::Allocation(problem)) = read_problem(name, text) else { panic!("a problem") };
    let best = oracle::best(&problem).expect("a plan").value;
    let [reference, production] = [reference(&problem, Solver::Highs).expect("an answer"), production(&problem)];
    let [reference, production] = [reference, production].map(|found| found.expect("a plan").value);
    eprintln!("{name}: reference {reference}, brute force {best}, production {production}");
    [reference, best, production]
}

/// A known difference: where a task has groups that are fast enough for traffic, the production planner leaves out the
/// slower ones, which `min_replicas` may count.
#[test]
fn an_idle_replica_may_be_too_slow_for_traffic() {
    let text = include_str!("../problems/idle_replica.yaml");
    let [reference, best, production] = three_values("idle_replica.yaml", text);
    assert!(is_near(reference, best), "{reference}, brute force {best}");
    assert!(production >= best - TOLERANCE, "{production} is below the optimum {best}");
}

#[test]
fn a_task_may_have_slow_groups_only() {
    let values = three_values("slow_optional_task.yaml", include_str!("../problems/slow_optional_task.yaml"));
    assert!(values.iter().all(|&value| is_near(value, 6.5)), "{values:?}");
}
