//! Baselines and comparisons on a chain whose plans can be worked out by hand.

use apportion_domain::{
    HardwareIndex, JudgedVerdict, Plan, PlanOutcome, PlanStatus, PlanningReport, Problem, Share, StopReason,
};
use apportion_estimator::Workload;
use apportion_planning::compare::{ComparisonStep, Contender, compare};
use apportion_planning::{Planner, PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::sync::Arc;
use std::time::Instant;

/// Two tasks in a row, each query of the first making `fanout` of the second.
fn chain(demand_qps: f64, count: u32, fast_fanout: f64) -> Problem {
    let text = format!(
        r#"
version: 1
objective: {{mode: hardware_then_accuracy}}
hardware: [{{name: gpu, price_per_hour: 1.0, count: {count}}}]
pipelines:
  - name: p
    demand_qps: {demand_qps}
    slo_ms: 100
    tasks:
      - name: a
        variants:
          - {{name: a-s, accuracy: 0.8, fanout: {fast_fanout}, profile: [{{hardware: gpu, batch: 1, latency_ms: 4}},
              {{hardware: gpu, batch: 2, latency_ms: 6}}, {{hardware: gpu, batch: 4, latency_ms: 10}}]}}
          - {{name: a-l, accuracy: 1.0, fanout: 2, profile: [{{hardware: gpu, batch: 1, latency_ms: 10}},
              {{hardware: gpu, batch: 2, latency_ms: 16}}, {{hardware: gpu, batch: 4, latency_ms: 30}}]}}
      - name: b
        variants:
          - {{name: b-l, accuracy: 1.0, profile: [{{hardware: gpu, batch: 1, latency_ms: 5}},
              {{hardware: gpu, batch: 2, latency_ms: 8}}, {{hardware: gpu, batch: 4, latency_ms: 14}}]}}
    edges: [{{from: a, to: b}}]
"#
    );
    match read_problem("chain.yaml", &text).unwrap_or_else(|e| panic!("{e}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("not a scaling problem"),
    }
}

fn options(planner: Planner, trace: Option<Workload>) -> PlanningOptions {
    let start = Instant::now();
    let elapsed = Arc::new(move || start.elapsed());
    PlanningOptions { planner, trace, ..PlanningOptions::new(elapsed) }
}

fn solve(problem: &Problem, planner: Planner) -> (PlanOutcome, PlanningReport) {
    plan(problem, &options(planner, None))
}

/// `variant x replicas @ batch` of each group.
fn groups(plan: &Plan) -> Vec<(&str, u32, u32)> {
    plan.pipelines[0].assignments.iter().map(|a| (a.group.variant.as_str(), a.replicas, a.batch)).collect()
}

/// The plan, which the checker accepts.
fn clean<'a>(problem: &Problem, outcome: &'a PlanOutcome) -> &'a Plan {
    let plan = outcome.plan().expect("a plan");
    assert_eq!(apportion_checker::check(problem, plan), []);
    plan
}

#[test]
fn the_coarse_plan_repeats_its_unit_for_the_rate() {
    // batch 4: 2 x (30 + 14) = 88 ms; 4000 / 30 = 133.3 queries/s at a, and at b 4000 / 14 / 2 = 142.9
    let problem = chain(300.0, 20, 2.0);
    let (outcome, report) = solve(&problem, Planner::CgMean);
    let plan = clean(&problem, &outcome);
    assert_eq!(groups(plan), [("a-l", 3, 4), ("b-l", 3, 4)], "300 / 133.3 rounded up");
    assert_eq!((plan.cost_per_hour, report.objective.value), (6.0, Some(6.0)));
    assert_eq!((outcome.status(), outcome.stopped()), (PlanStatus::Feasible, None));
    let busy: Vec<f64> = plan.pipelines[0].assignments.iter().map(|a| a.utilisation).collect();
    assert!((busy[0] - 0.75).abs() < 1e-9 && (busy[1] - 0.7).abs() < 1e-9, "{busy:?}");
    // the peak of random arrivals in a tenth of a second is far above their mean
    let (outcome, _) = solve(&problem, Planner::CgPeak);
    let peak = clean(&problem, &outcome);
    assert!(peak.replicas() > plan.replicas(), "{:?}", groups(peak));
    assert_eq!(peak.pipelines[0].assignments[0].replicas, peak.pipelines[0].assignments[1].replicas, "one unit");
}

#[test]
fn a_coarse_plan_uses_no_more_than_the_devices() {
    // four devices are two units: 266.7 of 300 queries/s
    let problem = chain(300.0, 4, 2.0);
    let (outcome, report) = solve(&problem, Planner::CgMean);
    let plan = outcome.plan().expect("a plan for less");
    assert_eq!(outcome.stopped(), Some(StopReason::DemandNotMet));
    assert_eq!(groups(plan), [("a-l", 2, 4), ("b-l", 2, 4)]);
    let served = plan.pipelines[0].demand_qps;
    assert!((266.0..=266.7).contains(&served), "{served}");
    let shortfall = &report.explanation.shortfalls[0];
    assert_eq!((shortfall.asked, shortfall.best), (300.0, served));
    // applied, what it says is enough
    let less = problem.changed(|d| d.pipelines = vec![d.pipelines[0].with_demand(served)]).expect("valid");
    assert_eq!(groups(clean(&less, &solve(&less, Planner::CgMean).0)), groups(plan));
}

#[test]
fn hardware_only_scales_replicas_until_the_devices_are_used_up() {
    // a-l at batch 4 serves 133.3, b-l 285.7 queries/s
    let problem = chain(200.0, 5, 2.0);
    let (outcome, _) = solve(&problem, Planner::HardwareOnly);
    assert_eq!(groups(clean(&problem, &outcome)), [("a-l", 2, 4), ("b-l", 2, 4)]);
    assert_eq!(outcome.status(), PlanStatus::Feasible, "nothing is proven of the whole problem");
    // three devices: two for a, and one for b, which serves 285.7 / 2 of the root's queries
    let problem = chain(200.0, 3, 2.0);
    let (outcome, report) = solve(&problem, Planner::HardwareOnly);
    let plan = outcome.plan().expect("a plan for less");
    assert_eq!(outcome.stopped(), Some(StopReason::DemandNotMet));
    assert_eq!(groups(plan), [("a-l", 2, 4), ("b-l", 1, 4)]);
    let served = plan.pipelines[0].demand_qps;
    assert!(served <= 142.8572 && served > 142.5, "{served}");
    assert_eq!(report.explanation.shortfalls[0].asked, 200.0);
    // where the exact planner falls back to the faster variant
    let (exact, _) = solve(&problem, Planner::Milp);
    assert_eq!((exact.status(), exact.stopped()), (PlanStatus::Optimal, None));
    assert!(clean(&problem, &exact).pipelines[0].accuracy < 1.0);
}

#[test]
fn proteus_splits_the_slo_and_uses_every_device() {
    // 50 ms each: a-l at batch 2 (2 x 16) serves 125, b-l at batch 4 (2 x 14) 285.7. Of four devices the busier of the two
    // (100 / 125 against 200 / 285.7) gets the third. Then b gets the fourth.
    let problem = chain(100.0, 4, 2.0);
    let (outcome, _) = solve(&problem, Planner::Proteus);
    let plan = clean(&problem, &outcome);
    assert_eq!(groups(plan), [("a-l", 2, 2), ("b-l", 2, 4)]);
    assert!(plan.pipelines[0].assignments.iter().all(|a| a.latency_budget_ms <= 50.0));
    // 200 queries/s on three devices: 400 at b take two; a's only one cannot serve 200 with a-l, so all of it is a-s
    let problem = chain(200.0, 3, 2.0);
    let (outcome, _) = solve(&problem, Planner::Proteus);
    let plan = clean(&problem, &outcome);
    assert_eq!(groups(plan), [("a-s", 1, 4), ("b-l", 2, 4)]);
    assert!((plan.pipelines[0].accuracy - 0.8).abs() < 1e-9);
}

#[test]
fn every_planner_counts_sizes_and_the_ingress() {
    let plain = chain(60.0, 20, 2.0);
    let pipeline = plain.pipelines[0].changed(&plain.hardware, |draft| {
        (draft.network_ms, draft.network_ms_per_mib, draft.ingress_ms) = (1.0, 8.0, 4.0);
        (draft.ingress_kib_per_query, draft.edges[0].kib_per_query) = (512.0, 128.0);
    });
    let problem = plain.changed(|draft| draft.pipelines[0] = pipeline.expect("a valid pipeline")).expect("still valid");
    for planner in Planner::ALL {
        let (outcome, _) = solve(&problem, planner);
        for a in &clean(&problem, &outcome).pipelines[0].assignments {
            let mut variants = problem.pipelines[0].tasks.iter().flat_map(|task| &task.variants);
            let variant = variants.find(|v| v.name == a.group.variant).expect("a variant of the problem");
            let row = variant.profile.row(HardwareIndex(0), Share::WHOLE, a.batch).expect("a measured batch");
            // into a: 1 ms, 4 ms for half a MiB, and 4 ms at the ingress; into b: 1 ms, and 1 ms for an eighth
            let hop_ms = if a.group.task == "a" { 9.0 } else { 2.0 };
            let wrong_ms = a.latency_budget_ms - 2.0 * row.latency_ms - hop_ms;
            assert!(wrong_ms.abs() < 1e-9, "{}: {}: {wrong_ms}", planner.name(), a.group);
            assert!(planner != Planner::Proteus || a.latency_budget_ms <= 50.0, "half of the SLO: {}", a.group);
        }
    }
}

#[test]
fn proteus_keeps_a_serving_plan_if_its_choices_oscillate() {
    // With a-s above it, b gets half the queries and needs one device. Then a has two and returns to a-l, whose queries b
    // cannot serve. This never settles, and the plan with a-s is the one that works.
    let problem = chain(200.0, 3, 1.0);
    let (outcome, _) = solve(&problem, Planner::Proteus);
    assert_eq!(groups(clean(&problem, &outcome)), [("a-s", 1, 4), ("b-l", 2, 4)]);
}

#[test]
fn proteus_is_never_more_accurate_than_the_exact_planner() {
    for demand in [60.0, 150.0, 220.0, 300.0, 380.0] {
        let problem = chain(demand, 4, 1.5);
        let (exact, baseline) = (solve(&problem, Planner::Milp).0, solve(&problem, Planner::Proteus).0);
        if baseline.stopped().is_some() {
            continue;
        }
        let best = clean(&problem, &exact).pipelines[0].accuracy;
        let other = clean(&problem, &baseline).pipelines[0].accuracy;
        assert!(other <= best + 1e-4, "demand {demand}: {other} against {best}");
    }
}

#[test]
fn a_slow_baseline_does_not_prove_infeasibility() {
    let problem = chain(10.0, 4, 2.0);
    let draft = problem.pipelines[0].changed(&problem.hardware, |d| d.slo_ms = 20.0).expect("valid");
    // a-l and b-l take at least 2 x 15 ms, a-s and b-l 2 x 9
    let problem = problem.changed(|d| d.pipelines = vec![draft]).expect("valid");
    assert_eq!(solve(&problem, Planner::Milp).0.status(), PlanStatus::Optimal);
    for planner in [Planner::HardwareOnly, Planner::CgMean, Planner::CgPeak] {
        let (outcome, report) = solve(&problem, planner);
        assert_eq!(outcome.status(), PlanStatus::Unknown, "{}", planner.name());
        let best: Vec<f64> = report.explanation.shortfalls.iter().map(|s| s.best).collect();
        assert_eq!(best, [30.0], "{}", planner.name());
    }
}

#[test]
fn a_comparison_judges_every_plan_on_the_same_samples() {
    let problem = chain(100.0, 6, 2.0);
    let workload = Workload::default_for(&problem);
    let rows = compare(&problem, &Contender::ALL, &options(Planner::Milp, None), &workload, |_| ());
    let names: Vec<&str> = rows.iter().map(|r| r.contender.name()).collect();
    assert_eq!(names, ["milp", "milp-unchecked", "greedy", "hardware-only", "proteus", "cg-mean", "cg-peak"]);
    let arrived: Vec<u64> = rows.iter().map(|r| r.estimate.as_ref().expect("an estimate").requests).collect();
    assert!(arrived.windows(2).all(|w| w[0] == w[1]), "{arrived:?}");
    let by_name = |name: &str| rows.iter().find(|r| r.contender.name() == name).expect("listed");
    let (checked, unchecked) = (by_name("milp"), by_name("milp-unchecked"));
    assert!(!checked.report.rounds.is_empty() && unchecked.report.rounds.is_empty());
    let attainment =
        |r: &apportion_planning::compare::PlannerComparison| r.estimate.as_ref().expect("an estimate").attainment;
    assert!(attainment(checked) >= attainment(unchecked));
    assert!([checked, by_name("greedy")].iter().all(|row| row.verdict() == Some(JudgedVerdict::Holds)));
    for row in &rows {
        assert_eq!(Contender::from_name(row.contender.name()), Some(row.contender));
        let (judged, first) = (row.judged_on().expect("judged"), rows[0].judged_on().expect("judged"));
        assert_eq!((judged.first_seed, judged.samples), (first.first_seed, first.samples), "{}", row.contender.name());
        assert!(judged.samples >= 5 && judged.first_seed != workload.seed, "{judged:?}");
        let holds = row.verdict() == Some(JudgedVerdict::Holds);
        assert!(!holds || attainment(row) >= 0.99, "{}", row.contender.name());
    }
}

#[test]
fn a_cancelled_comparison_ends_without_a_judgement() {
    let problem = chain(100.0, 6, 2.0);
    let options = options(Planner::Milp, None);
    let cancel = options.cancel.clone();
    let stop_after_first = |step: ComparisonStep<'_>| {
        if matches!(step, ComparisonStep::Planned(_)) {
            cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let rows = compare(&problem, &Contender::ALL[..2], &options, &Workload::default_for(&problem), stop_after_first);
    assert!(rows[0].plan().is_some(), "the first contender had ended");
    assert_eq!(rows[1].outcome.stopped(), Some(StopReason::Cancelled));
    assert!(rows.iter().all(|row| row.estimate.is_none()), "{rows:?}");
}
