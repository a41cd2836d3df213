//! The scaling samples have the expected status and optimum, and clean plans. A relaxation makes a plan when it is
//! applied to the file.

use apportion_domain::{ScalingOutcome, ScalingProblem};
use apportion_needs::{Need, counted};
use apportion_planning::{Planner, PlanningOptions, scaling};
use apportion_wire::{AnyPlan, PlanFile, ProblemFile, problem_from_tree, read_any_plan};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

struct Row {
    name: String,
    tree: Value,
    status: String,
    objective: Option<f64>,
    tolerance: f64,
}

/// The rows of rule `scaling` with one of these statuses, or all; none where the shared data is not there.
fn rows(wanted: Option<&str>) -> Vec<Row> {
    let Some(folder) = apportion_needs::data().map(|data| data.join("problems")) else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("expected.csv")).expect("expected.csv");
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>()).filter(|f| f[1] == "scaling");
    let row = |f: Vec<&str>| {
        let problem = std::fs::read_to_string(folder.join(format!("{}.json", f[0]))).expect("a sample");
        Row {
            name: f[0].into(),
            tree: serde_json::from_str(&problem).expect("JSON"),
            status: f[4].into(),
            objective: f[5].parse().ok(),
            tolerance: f[6].parse().expect("a tolerance"),
        }
    };
    counted(Need::Data, lines.map(row).filter(|row| wanted.is_none_or(|status| row.status == status)).collect())
}

fn problem(name: &str, tree: &Value) -> ScalingProblem {
    match problem_from_tree(name, tree.clone()).expect("a valid sample") {
        ProblemFile::Scaling(problem) => problem,
        ProblemFile::Allocation(_) => panic!("{name} has pipelines"),
    }
}

fn solve(problem: &ScalingProblem, planner: Planner) -> (ScalingOutcome, PlanFile) {
    let start = Instant::now();
    let options = PlanningOptions { planner, ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let (outcome, report) = scaling::plan(problem, &options);
    let file = PlanFile::from_scaling(problem, &outcome, &report);
    (outcome, file)
}

#[test]
fn every_scaling_sample_has_the_expected_answer() {
    for row in rows(None) {
        let problem = problem(&row.name, &row.tree);
        let (outcome, file) = solve(&problem, Planner::Milp);
        eprintln!("{}: {} {:?} in {:.4} s", row.name, file.status, file.objective.value, file.planner.seconds);
        assert_eq!(file.status, row.status, "{}", row.name);
        let Some(expected) = row.objective else {
            assert_eq!((file.objective.value, file.scaling), (None, Some(vec![])), "{}", row.name);
            assert!(!file.explanation.shortfalls.is_empty(), "{}", row.name);
            continue;
        };
        let value = file.objective.value.expect("a value");
        assert!((value - expected).abs() <= row.tolerance * expected.abs().max(1.0), "{}: {value}", row.name);
        let plan = outcome.plan().expect("a plan");
        assert_eq!(apportion_checker::check_scaling(&problem, plan), [], "{}", row.name);
        assert_eq!(read_any_plan("plan.json", &file.to_json()), Ok(AnyPlan::Scaling(plan.clone())), "{}", row.name);
        let (greedy, _) = solve(&problem, Planner::Greedy);
        let greedy = greedy.plan().expect("the heuristic finds a plan for the samples that have one");
        assert_eq!(apportion_checker::check_scaling(&problem, greedy), [], "{}", row.name);
        assert!(greedy.value >= value - 1e-9, "{}: {} below the optimum {value}", row.name, greedy.value);
    }
}

#[test]
fn a_sample_needs_all_of_its_relaxation() {
    for row in rows(Some("infeasible")) {
        let (_, file) = solve(&problem(&row.name, &row.tree), Planner::Milp);
        let relaxations: Vec<_> = file.explanation.shortfalls.iter().filter_map(|s| s.relax.as_ref()).collect();
        assert!(!relaxations.is_empty(), "{}", row.name);
        for relax in relaxations {
            let (from, to) = (relax.from.expect("finite"), relax.to.expect("finite"));
            for (value, status) in [(to, "optimal"), (0.5 * (from + to), "infeasible")] {
                let mut tree = row.tree.clone();
                *tree.pointer_mut(&relax.pointer).expect("a value of the file") = json!(value);
                let (_, file) = solve(&problem(&row.name, &tree), Planner::Milp);
                assert_eq!(file.status, status, "{}: {} at {value}", row.name, relax.pointer);
            }
        }
    }
}
