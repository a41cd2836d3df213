//! Every sample problem with a proven optimum: the objective is reached and the checker accepts the plan.

use apportion_domain::{LatencyRule, ObjectiveStep, PlanOutcome, PlanningReport, Problem};
use apportion_planning::{PlanOptions, Planner, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const GAP: f64 = 1e-4;

struct Row {
    name: String,
    rule: String,
    step: String,
    status: String,
    objective: Option<f64>,
    tolerance: f64,
}

fn folder() -> Option<PathBuf> {
    let folder = apportion_tests::shared_data()?.join("problems");
    folder.join("expected.csv").exists().then_some(folder)
}

fn rows() -> Vec<Row> {
    let Some(folder) = folder() else {
        eprintln!("skipped: ../shared/data/problems is not there");
        return Vec::new();
    };
    let text = std::fs::read_to_string(folder.join("expected.csv")).expect("expected.csv");
    let row = |line: &str| {
        let f: Vec<&str> = line.split(',').collect();
        Row {
            name: f[0].into(),
            rule: f[1].into(),
            step: f[3].into(),
            status: f[4].into(),
            objective: f[5].parse().ok(),
            tolerance: f[6].parse().expect("a tolerance"),
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn problem(name: &str, rule: LatencyRule) -> Problem {
    let path = folder().expect("the samples").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).expect("a sample");
    match read_problem(name, &text).expect("a valid sample") {
        ProblemFile::Allocation(problem) => problem.changed(|d| d.objective.latency_rule = rule).expect("still valid"),
        ProblemFile::Scaling(_) => panic!("{name} is a scaling problem"),
    }
}

fn solve(problem: &Problem) -> (PlanOutcome, PlanningReport) {
    let start = Instant::now();
    let options = PlanOptions {
        planner: Planner::Milp,
        gap: GAP,
        time_limit: None,
        elapsed: Arc::new(move || start.elapsed()),
        cancel: Arc::default(),
        trace: None,
    };
    plan(problem, &options)
}

/// What is wrong with the answer to one row, if anything.
fn judge(row: &Row) -> Option<String> {
    let rule = LatencyRule::from_name(&row.rule).expect("a rule");
    let problem = problem(&row.name, rule);
    let (outcome, report) = solve(&problem);
    let said = format!("{} {}: {} {:?}", row.name, row.rule, outcome.status(), report.objective);
    eprintln!("{said} in {:.3} s", report.seconds);
    if outcome.status().name() != row.status {
        return Some(said);
    }
    if let PlanOutcome::Infeasible { shortfalls } = &outcome {
        return shortfalls.is_empty().then(|| format!("{said}: no shortfalls"));
    }
    let step = report.objective.step.map_or("", ObjectiveStep::name);
    let (value, expected) = (report.objective.value.unwrap_or(f64::NAN), row.objective.expect("an objective"));
    let slack = GAP.max(row.tolerance) * expected.abs().max(1.0);
    if step != row.step || (value - expected).abs().is_nan() || (value - expected).abs() > slack {
        return Some(format!("{said}: expected {} {expected}", row.step));
    }
    let findings = outcome.plan().map(|p| apportion_checker::check(&problem, p)).unwrap_or_default();
    (!findings.is_empty()).then(|| format!("{said}: {findings:?}"))
}

#[test]
fn every_sample_under_task_budget_reaches_its_proven_objective() {
    let rows: Vec<Row> = rows().into_iter().filter(|r| r.rule == "task_budget").collect();
    let wrong: Vec<String> = rows.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{} of {} samples:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
