//! The reference formulations against the production planner, on the sample problems of the shared data.
#![expect(clippy::disallowed_methods, reason = "the planner takes a clock, and the tests print durations")]

use apportion_domain::{LatencyRule, ObjectiveStep, PlanOutcome, Problem};
use apportion_needs::{Need, counted};
use apportion_planning::PlanningOptions;
use apportion_reference::{ReferenceAnswer, ReferenceError, ReferenceSettings, solve, solve_scaling};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gap of both planners.
const GAP: f64 = 1e-5;
/// Time of each stage of the reference. A sample that takes longer is not compared.
const TIME_LIMIT: Duration = Duration::from_secs(4);
/// Fewest samples of each rule that the reference must solve within the limit.
const SOLVED_MIN: usize = 8;

/// One sample under one rule.
struct Row {
    name: String,
    rule: String,
}

/// The rows of the samples under a rule; none where the shared data is not there.
fn rows(rule: &str) -> Vec<(Row, ProblemFile)> {
    let Some(folder) = apportion_needs::data().map(|data| data.join("problems")) else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("expected.csv")).expect("expected.csv");
    let fields = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let row = |f: Vec<&str>| (Row { name: f[0].into(), rule: f[1].into() }, file(&folder, f[0]));
    counted(Need::Data, fields.filter(|f| f[1] == rule).map(row).collect())
}

fn file(folder: &Path, name: &str) -> ProblemFile {
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).expect("a sample");
    read_problem(name, &text).expect("a valid sample")
}

fn options() -> PlanningOptions {
    let start = Instant::now();
    PlanningOptions { gap: GAP, ..PlanningOptions::new(Arc::new(move || start.elapsed())) }
}

fn production(problem: &Problem) -> Option<(Option<ObjectiveStep>, f64)> {
    let (outcome, report) = apportion_planning::plan(problem, &options());
    match outcome {
        PlanOutcome::Infeasible { .. } => None,
        PlanOutcome::Optimal(_) => Some((report.objective.step, report.objective.value.expect("a value"))),
        other => panic!("{} after {:?}", other.status(), report.objective),
    }
}

/// What is wrong with the answers to a sample, if anything; the error is why the reference has no answer.
fn compare(row: &Row, problem: &Problem) -> Result<Option<String>, ReferenceError> {
    let start = Instant::now();
    let settings = ReferenceSettings { gap: GAP, time_limit: Some(TIME_LIMIT), ..ReferenceSettings::default() };
    let answer = solve(problem, &settings);
    eprintln!("{} {}: {:.2} s", row.name, row.rule, start.elapsed().as_secs_f64());
    let reference = match answer? {
        ReferenceAnswer::Infeasible => None,
        ReferenceAnswer::Optimal(found) => {
            let findings = apportion_checker::check(problem, &found.plan);
            if !findings.is_empty() {
                return Ok(Some(format!("{} {}: {findings:?}", row.name, row.rule)));
            }
            Some((found.step, found.value))
        }
    };
    let production = production(problem);
    let is_same = match (reference, production) {
        (None, None) => true,
        (Some((a, x)), Some((b, y))) => a == b && (x - y).abs() <= 3.0 * GAP * x.abs().max(1.0),
        _ => false,
    };
    Ok((!is_same).then(|| format!("{} {}: reference {reference:?}, production {production:?}", row.name, row.rule)))
}

fn all_are_equal(rule: LatencyRule) {
    let rows = rows(rule.name());
    let (mut wrong, mut unsolved) = (Vec::new(), Vec::new());
    for (row, file) in &rows {
        let ProblemFile::Allocation(problem) = file else { panic!("{} has no pipelines", row.name) };
        let problem = problem.changed(|draft| draft.objective.latency_rule = rule).expect("still valid");
        match compare(row, &problem) {
            Ok(difference) => wrong.extend(difference),
            Err(ReferenceError::TimeLimit) => unsolved.push(row.name.as_str()),
            Err(error) => wrong.push(format!("{} {}: {error}", row.name, row.rule)),
        }
    }
    eprintln!("{rule}: {} samples, not solved within the limit: {unsolved:?}", rows.len());
    assert!(wrong.is_empty(), "{} of {} samples:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    assert!(rows.is_empty() || rows.len() - unsolved.len() >= SOLVED_MIN, "{rule}: too few are solved");
}

#[test]
fn samples_under_task_budget_have_equal_objectives() {
    all_are_equal(LatencyRule::TaskBudget);
}

#[test]
fn samples_under_path_have_equal_objectives() {
    all_are_equal(LatencyRule::Path);
}

#[test]
fn scaling_samples_have_equal_objectives() {
    for (row, file) in rows("scaling") {
        let ProblemFile::Scaling(problem) = file else { panic!("{} is no scaling problem", row.name) };
        let reference = solve_scaling(&problem, &ReferenceSettings::default()).expect("an answer");
        let (outcome, _) = apportion_planning::scaling::plan(&problem, &options());
        let values = [reference.as_ref(), outcome.plan()].map(|plan| plan.map(|p| p.value));
        eprintln!("{}: {values:?}", row.name);
        let is_same = match values {
            [None, None] => true,
            [Some(x), Some(y)] => (x - y).abs() <= 1e-6 * x.abs().max(1.0),
            _ => false,
        };
        assert!(is_same, "{}: reference and production {values:?}", row.name);
        let findings = reference.map(|plan| apportion_checker::check_scaling(&problem, &plan)).unwrap_or_default();
        assert!(findings.is_empty(), "{}: {findings:?}", row.name);
    }
}
