//! Tiny random problems of every kind against brute force.

mod draw;
mod idle;
mod oracle;
mod quotas;
mod simplex;

use apportion_domain::{
    Deployed, LatencyRule, Mode, ObjectiveStep, PipelineDraft, PipelineIndex, Plan, PlanOutcome, PlanningReport, Problem,
    Relaxation, VariantIndex,
};
use apportion_planning::{Planner, PlanningOptions, plan};
use idle::IdleCase;
use std::sync::Arc;
use std::time::Duration;

/// Both latency rules.
const RULES: &[LatencyRule] = &[LatencyRule::TaskBudget, LatencyRule::Path];
/// Problems of each rule.
const PROBLEMS: u64 = 400;
/// Seeds beyond [`PROBLEMS`] that once went wrong.
const SEEDS: &[u64] = &[1057, 2255, 2821, 4303];

fn solve(problem: &Problem) -> (PlanOutcome, PlanningReport) {
    solve_with(Planner::Milp, problem)
}

fn solve_with(planner: Planner, problem: &Problem) -> (PlanOutcome, PlanningReport) {
    let options = PlanningOptions { planner, gap: 1e-6, ..PlanningOptions::new(Arc::new(|| Duration::ZERO)) };
    plan(problem, &options)
}

/// What is wrong with the answer, if anything.
fn judge(problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport, best: Option<oracle::Best>) -> Option<String> {
    let said = || format!("{} {:?}, brute force {best:?}", outcome.status(), report.objective);
    let (plan, best) = match (outcome, best) {
        (PlanOutcome::Infeasible { shortfalls }, None) => return shortfalls.is_empty().then(said),
        (PlanOutcome::Optimal(plan), Some(best)) => (plan, best),
        _ => return Some(said()),
    };
    let findings = apportion_checker::check(problem, plan);
    if !findings.is_empty() {
        return Some(format!("{findings:?}"));
    }
    let value = report.objective.value.unwrap_or(f64::NAN);
    let by_hardware = report.objective.step == Some(ObjectiveStep::Hardware);
    let agrees = (value - best.value).abs() <= 5e-6 * best.value.abs().max(1.0);
    let second = match problem.objective.mode {
        Mode::HardwareThenAccuracy => plan.replicas() as f64,
        Mode::MaxAccuracy => plan.cost_per_hour,
        Mode::MinCost => best.second,
    };
    let tied = second <= best.second + 1e-6 || second <= best.second * (1.0 + 1e-6);
    (!agrees || !tied || by_hardware != best.by_hardware).then(|| format!("{}, second {second}", said()))
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
fn the_planner_agrees_with_brute_force() {
    for &rule in RULES {
        let (mut wrong, mut infeasible) = (Vec::new(), 0);
        for seed in (0..PROBLEMS).chain(SEEDS.iter().copied()) {
            let problem = draw::problem(seed, rule);
            let best = oracle::best(&problem);
            let (outcome, report) = solve(&problem);
            infeasible += u64::from(best.is_none());
            wrong.extend(judge(&problem, &outcome, &report, best).map(|why| format!("seed {seed}: {why}")));
        }
        eprintln!("{rule}: {infeasible} of {PROBLEMS} are infeasible");
        assert!(wrong.is_empty(), "{rule}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
        assert!((PROBLEMS / 10..PROBLEMS * 2 / 3).contains(&infeasible), "the problems are too alike: {infeasible}");
    }
}

/// Under rule `path` a task that no query reaches in time may have its replicas all the same.
#[test]
fn idle_replicas_may_be_too_slow_for_every_query() {
    let (mut wrong, mut infeasible, mut all) = (Vec::new(), 0, 0);
    for case in IdleCase::all() {
        let problem = case.problem();
        let best = oracle::best(&problem);
        all += 1;
        infeasible += u32::from(best.is_none());
        let (outcome, report) = solve(&problem);
        wrong.extend(judge(&problem, &outcome, &report, best).map(|why| format!("{case:?}: {why}")));
        let heuristic = solve_with(Planner::PriceAndBranch, &problem).0;
        let findings = heuristic.plan().map(|plan| apportion_checker::check(&problem, plan));
        if findings.is_some() != best.is_some() || findings.is_some_and(|findings| !findings.is_empty()) {
            wrong.push(format!("{case:?}: the heuristic's plan is {}", heuristic.status()));
        }
        let Some(plan) = outcome.plan() else { continue };
        let again = solve(&deploy(&problem, plan)).0;
        if again.plan().is_none_or(|again| !plan.diff(again).is_empty()) {
            wrong.push(format!("{case:?}: planning again changes the plan"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!((all / 20..all / 2).contains(&infeasible), "too alike: {infeasible} of {all} are infeasible");
}

#[test]
fn plans_within_quotas_agree_with_brute_force() {
    for &rule in RULES {
        let (mut wrong, mut infeasible, mut decisive) = (Vec::new(), 0, 0);
        for seed in 0..PROBLEMS {
            let unlimited = draw::problem(seed, rule);
            let problem = match solve(&unlimited).0.plan().filter(|_| !seed.is_multiple_of(2)) {
                Some(plan) => quotas::problem_with_one_device_less(&unlimited, plan),
                None => quotas::problem_with_quotas(seed, rule),
            };
            let (best, free) = (oracle::best(&problem), oracle::best(&unlimited));
            let (outcome, report) = solve(&problem);
            infeasible += u64::from(best.is_none() && free.is_some());
            decisive += u64::from(best.is_some() && best != free);
            wrong.extend(judge(&problem, &outcome, &report, best).map(|why| format!("seed {seed}: {why}")));
        }
        assert!(wrong.is_empty(), "{rule}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
        assert!(infeasible >= PROBLEMS / 20 && decisive >= PROBLEMS / 40, "too alike: {infeasible}, {decisive}");
    }
}

#[test]
fn planning_again_from_a_plan_changes_nothing() {
    for &rule in RULES {
        let mut changed = Vec::new();
        for seed in 0..PROBLEMS {
            // with switching costs a first plan may be a step on the way to a cheaper one
            let problem = draw::problem(seed, rule).changed(|d| d.switching_weight = 0.0).expect("still valid");
            let (first, _) = solve(&problem);
            let Some(first) = first.plan() else { continue };
            let (again, _) = solve(&deploy(&problem, first));
            let changes = again.plan().map(|again| first.diff(again));
            if changes.as_ref().is_none_or(|c| !c.is_empty()) {
                changed.push(format!("seed {seed}: {changes:?}"));
            }
        }
        assert!(changed.is_empty(), "{rule}: {} change\n{}", changed.len(), changed.join("\n"));
    }
}

/// The problem with the value at a relaxation's pointer changed to `value`; whole numbers are rounded towards `from`.
fn with(problem: &Problem, relax: &Relaxation, value: f64) -> Problem {
    let parts: Vec<&str> = relax.pointer.split('/').skip(1).collect();
    let index = |i: usize| parts[i].parse::<usize>().expect("an index");
    let whole = if relax.to > relax.from { value.floor() as u32 } else { value.ceil() as u32 };
    let pipeline = |change: &dyn Fn(&mut PipelineDraft)| {
        let p = index(1);
        let changed = problem.pipelines[p].changed(&problem.hardware, |d| change(d)).expect("still valid");
        problem.changed(|d| d.pipelines[p] = changed).expect("still valid")
    };
    let changed = |change: &dyn Fn(&mut apportion_domain::ProblemDraft)| problem.changed(change).expect("still valid");
    match *parts.last().expect("a pointer") {
        "demand_qps" => pipeline(&|d| d.demand_qps = value),
        "slo_ms" => pipeline(&|d| d.slo_ms = value),
        "min_accuracy" => pipeline(&|d| d.min_accuracy = Some(value)),
        "survive" => pipeline(&|d| d.survive = whole),
        "min_replicas" => pipeline(&|d| d.tasks[index(3)].min_replicas = whole),
        "count" => changed(&|d| d.hardware[index(1)].count = Some(whole)),
        "memory_mib" => changed(&|d| d.hardware[index(1)].memory_mib = Some(value)),
        "budget_per_hour" => changed(&|d| d.objective.budget_per_hour = Some(value)),
        other => panic!("an unknown value {other}"),
    }
}

#[test]
fn brute_force_confirms_that_relaxations_are_least() {
    for &rule in RULES {
        let mut wrong = Vec::new();
        let mut kinds: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
        for seed in 0..PROBLEMS {
            let problem = draw::problem(seed, rule);
            let (PlanOutcome::Infeasible { shortfalls }, _) = solve(&problem) else { continue };
            for relax in shortfalls.iter().filter_map(|s| s.relax.as_ref()) {
                let half = relax.from + 0.5 * (relax.to - relax.from);
                let helps = oracle::best(&with(&problem, relax, relax.to)).is_some();
                let is_least = oracle::best(&with(&problem, relax, half)).is_none();
                *kinds.entry(relax.pointer.rsplit('/').next().unwrap_or_default().to_owned()).or_default() += 1;
                if !helps || !is_least {
                    wrong.push(format!("seed {seed}: helps: {helps}, least: {is_least}: {relax:?}"));
                }
            }
        }
        eprintln!("{rule}: {kinds:?}");
        assert!(wrong.is_empty(), "{rule}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
        assert!(kinds.len() == 8, "the problems are too alike: {kinds:?}");
    }
}
