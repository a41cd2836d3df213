//! Every sample problem with a proven optimum: the objective is reached and the checker accepts the plan.

use apportion_domain::{
    Deployed, LatencyRule, ObjectiveStep, PipelineDraft, PipelineIndex, Plan, PlanOutcome, PlanningReport, Problem,
    Relaxation, VariantIndex,
};
use apportion_needs::{Need, counted};
use apportion_planning::{PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
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

/// The rows that a test wants; none where the shared data is not there.
fn rows(wanted: impl Fn(&Row) -> bool) -> Vec<Row> {
    let Some(folder) = apportion_needs::data().map(|data| data.join("problems")) else { return Vec::new() };
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
    counted(Need::Data, text.lines().skip(1).map(row).filter(wanted).collect())
}

fn problem(name: &str, rule: LatencyRule) -> Problem {
    let path = apportion_tests::root().join(format!("../shared/data/problems/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("a sample");
    match read_problem(name, &text).expect("a valid sample") {
        ProblemFile::Allocation(problem) => problem.changed(|d| d.objective.latency_rule = rule).expect("still valid"),
        ProblemFile::Scaling(_) => panic!("{name} is a scaling problem"),
    }
}

fn solve(problem: &Problem) -> (PlanOutcome, PlanningReport) {
    let start = Instant::now();
    let options = PlanningOptions { gap: GAP, ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
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
    let slack = row.tolerance * expected.abs().max(1.0);
    if step != row.step || (value - expected).abs().is_nan() || (value - expected).abs() > slack {
        return Some(format!("{said}: expected {} {expected}", row.step));
    }
    let findings = outcome.plan().map(|p| apportion_checker::check(&problem, p)).unwrap_or_default();
    (!findings.is_empty()).then(|| format!("{said}: {findings:?}"))
}

fn all_reach_their_objective(rule: &str) {
    let rows = rows(|r| r.rule == rule);
    let wrong: Vec<String> = rows.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{} of {} samples:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn every_sample_under_task_budget_reaches_its_proven_objective() {
    all_reach_their_objective("task_budget");
}

#[test]
fn every_sample_under_path_reaches_its_proven_objective() {
    all_reach_their_objective("path");
}

/// The groups of a plan as what runs now.
fn deploy(problem: &Problem, plan: &Plan) -> Problem {
    let mut deployed = Vec::new();
    for (p, part) in plan.pipelines.iter().enumerate() {
        let pipeline = problem.pipeline(PipelineIndex(p));
        for a in &part.assignments {
            let task = pipeline.task_named(&a.group.task).expect("a task of the problem");
            let variant = pipeline.task(task).variants.iter().position(|v| v.name == a.group.variant).expect("a variant");
            deployed.push(Deployed {
                pipeline: PipelineIndex(p),
                task,
                variant: VariantIndex(variant),
                hardware: problem.hardware_named(&a.group.hardware).expect("hardware of the problem"),
                share: a.group.share,
                batch: a.batch,
                replicas: a.replicas,
            });
        }
    }
    problem.changed(|d| d.deployed = deployed).expect("still valid")
}

#[test]
fn planning_again_from_ones_own_plan_changes_nothing() {
    let mut changed = Vec::new();
    for row in rows(|r| r.rule == "task_budget" && r.status == "optimal") {
        let problem = problem(&row.name, LatencyRule::TaskBudget);
        let (first, _) = solve(&problem);
        let first = first.plan().expect("a plan");
        let (again, _) = solve(&deploy(&problem, first));
        let changes = first.diff(again.plan().expect("a plan again"));
        if !changes.is_empty() {
            changed.push(format!("{}: {changes:?}", row.name));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

/// The problem with one value changed as a shortfall proposes.
fn relaxed(problem: &Problem, relax: &Relaxation) -> Problem {
    let parts: Vec<&str> = relax.pointer.split('/').skip(1).collect();
    let index = |i: usize| parts[i].parse::<usize>().expect("an index");
    let pipeline = |change: &dyn Fn(&mut PipelineDraft)| {
        let p = index(1);
        let changed = problem.pipelines[p].changed(&problem.hardware, |d| change(d)).expect("still valid");
        problem.changed(|d| d.pipelines[p] = changed).expect("still valid")
    };
    match (parts[0], *parts.last().expect("a pointer")) {
        ("pipelines", "demand_qps") => pipeline(&|d| d.demand_qps = relax.to),
        ("pipelines", "slo_ms") => pipeline(&|d| d.slo_ms = relax.to),
        ("pipelines", "min_accuracy") => pipeline(&|d| d.min_accuracy = Some(relax.to)),
        ("hardware", "count") => problem.changed(|d| d.hardware[index(1)].count = Some(relax.to as u32)).expect("valid"),
        ("objective", _) => problem.changed(|d| d.objective.budget_per_hour = Some(relax.to)).expect("still valid"),
        other => panic!("an unknown relaxation {other:?}"),
    }
}

#[test]
fn every_relaxation_of_an_infeasible_sample_makes_it_feasible() {
    for row in rows(|r| r.rule == "task_budget" && r.status == "infeasible") {
        let problem = problem(&row.name, LatencyRule::TaskBudget);
        let (outcome, _) = solve(&problem);
        let PlanOutcome::Infeasible { shortfalls } = outcome else { panic!("{} is infeasible", row.name) };
        let relaxations: Vec<&Relaxation> = shortfalls.iter().filter_map(|s| s.relax.as_ref()).collect();
        assert!(!relaxations.is_empty(), "{}: {shortfalls:?}", row.name);
        for relax in relaxations {
            eprintln!("{}: {relax:?}", row.name);
            let (outcome, _) = solve(&relaxed(&problem, relax));
            assert!(outcome.plan().is_some(), "{}: {relax:?} does not help", row.name);
        }
    }
}
