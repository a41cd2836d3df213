//! The reference formulations against the production planner, on tiny drawn problems of every kind; brute force decides who is right.

#[path = "../../../planning/tests/brute_force/draw.rs"]
mod draw;
#[path = "../../../planning/tests/brute_force/oracle.rs"]
mod oracle;
#[path = "../../../planning/tests/brute_force/simplex.rs"]
mod simplex;

use apportion_domain::{LatencyRule, Mode, ObjectiveStep, Plan, PlanOutcome, Problem};
use apportion_planning::PlanOptions;
use apportion_reference::{Answer, Settings, Solver, solve};
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
    let options = PlanOptions { gap: 1e-6, explain: false, ..PlanOptions::new(Arc::new(|| Duration::ZERO)) };
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

/// The reference's answer, whose plan the checker accepts.
fn reference(problem: &Problem, solver: Solver) -> Result<Option<Optimum>, String> {
    let settings = Settings { solver, time_limit: Some(Duration::from_secs(30)), ..Settings::default() };
    match solve(problem, &settings).map_err(|e| e.to_string())? {
        Answer::Infeasible => Ok(None),
        Answer::Optimal(found) => {
            let findings = apportion_checker::check(problem, &found.plan);
            if !findings.is_empty() {
                return Err(format!("the checker rejects the plan: {findings:?}"));
            }
            let second = second(problem, &found.plan, found.value);
            Ok(Some(Optimum { step: found.step, value: found.value, second }))
        }
    }
}

fn is_same(a: &Option<Optimum>, b: &Option<Optimum>) -> bool {
    let near = |x: f64, y: f64| (x - y).abs() <= TOLERANCE * x.abs().max(1.0);
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.step == b.step && near(a.value, b.value) && near(a.second, b.second),
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
    fn add(&mut self, seed: u64, problem: &Problem, [left, right]: [Result<Option<Optimum>, String>; 2]) {
        self.infeasible += u64::from(left == Ok(None));
        self.accuracy_steps +=
            u64::from(matches!(&left, Ok(Some(found)) if found.step == Some(ObjectiveStep::Accuracy)));
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
