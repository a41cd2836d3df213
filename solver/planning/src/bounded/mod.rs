//! Does every planner end within its time limit, or soon after its caller has ended it? The tests use problems that take
//! long, and each planner must return a result or a reason.

#![expect(clippy::disallowed_methods, reason = "these tests are about time")]

mod nasty;

use crate::fixtures::{chain, problem, variant};
use crate::options::{Planner, PlanningOptions};
use crate::planners::plan;
use apportion_domain::{Mode, PlanOutcome, PlanningReport, Problem, StopReason};
use apportion_estimator::Workload;
use apportion_mip::FINISH_TIME_AFTER_STOP;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(300);
/// How many times its limit a run may take on a machine that is busy with other work.
const BUSY: u32 = 20;
/// Most memory of a test, in MiB.
const PEAK_MIB_MAX: u64 = 1_536;

/// Result of one run.
struct TimedPlan {
    outcome: PlanOutcome,
    report: PlanningReport,
    took: Duration,
}

/// Plans, and measures the time.
fn plan_timed(problem: &Problem, options: impl FnOnce(PlanningOptions) -> PlanningOptions) -> TimedPlan {
    let start = Instant::now();
    let base = PlanningOptions { time_limit: Some(LIMIT), ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let (outcome, report) = plan(problem, &options(base));
    TimedPlan { outcome, report, took: start.elapsed() }
}

/// The most memory that this process has had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") >> 10
}

/// Checks the time, the memory and the plan of one run.
fn judge(name: &str, problem: &Problem, planned: &TimedPlan) {
    let TimedPlan { outcome, report, took } = planned;
    let stopped = outcome.stopped().map_or("-", StopReason::name);
    eprintln!("{name}: {} ({stopped}) in {:.2} s, peak {} MiB", outcome.status(), took.as_secs_f64(), peak_mib());
    assert!(*took < LIMIT * BUSY, "{name}: {took:?}");
    assert!(peak_mib() < PEAK_MIB_MAX, "{name}: {} MiB", peak_mib());
    match outcome {
        PlanOutcome::Optimal(plan) | PlanOutcome::Feasible { plan, .. } => {
            // the plan of a baseline may be for a part of the demand
            if outcome.stopped() != Some(StopReason::DemandNotMet) {
                assert_eq!(apportion_checker::check(problem, plan), [], "{name}");
            }
            let is_cut = report.estimate.is_none();
            assert!(!is_cut || matches!(outcome, PlanOutcome::Feasible { .. }), "{name}: not seen to hold");
            assert!(!is_cut || report.explanation.left_out.iter().any(|s| s.starts_with("the estimate: ")), "{name}");
        }
        PlanOutcome::Infeasible { shortfalls } => assert!(!shortfalls.is_empty(), "{name}"),
        PlanOutcome::Unknown { .. } => assert!(report.estimate.is_none(), "{name}"),
    }
}

#[test]
fn the_exact_planner_ends_within_its_limit() {
    for (name, problem) in nasty::problems() {
        judge(name, &problem, &plan_timed(&problem, |options| options));
    }
}

#[test]
fn the_exact_planner_with_trace_and_ladder_ends_within_its_limit() {
    for (name, problem) in nasty::problems() {
        let trace = Some(Workload::default_for(&problem));
        judge(name, &problem, &plan_timed(&problem, |options| PlanningOptions { trace, ladder: Some(4.0), ..options }));
    }
}

/// Another planner than the exact one ends within its limit.
fn judge_planner(planner: Planner) {
    for (name, problem) in nasty::problems() {
        let name = format!("{}, {name}", planner.name());
        judge(&name, &problem, &plan_timed(&problem, |options| PlanningOptions { planner, ..options }));
    }
}

#[test]
fn the_greedy_planner_ends_within_its_limit() {
    judge_planner(Planner::Greedy);
}

#[test]
fn the_baselines_of_loki_end_within_their_limit() {
    judge_planner(Planner::HardwareOnly);
    judge_planner(Planner::Proteus);
}

#[test]
fn the_baselines_of_inferline_end_within_their_limit() {
    judge_planner(Planner::CgMean);
    judge_planner(Planner::CgPeak);
}

/// A run that its caller has ended.
struct EndedRun {
    outcome: PlanOutcome,
    /// Its time from then on.
    took: Duration,
}

/// Plans with a trace and a ladder, without a time limit, and calls `end` after a while.
fn plan_until_ended(problem: &Problem, after: Duration, end: impl Fn(&PlanningOptions)) -> EndedRun {
    let start = Instant::now();
    let base = PlanningOptions::new(Arc::new(move || start.elapsed()));
    let options = PlanningOptions { trace: Some(Workload::default_for(problem)), ladder: Some(4.0), ..base };
    std::thread::scope(|scope| {
        let planning = scope.spawn(|| plan(problem, &options).0);
        while start.elapsed() < after && !planning.is_finished() {
            std::thread::yield_now();
        }
        end(&options);
        let asked = Instant::now();
        let outcome = planning.join().expect("no panic");
        EndedRun { outcome, took: asked.elapsed() }
    })
}

#[test]
fn a_cancelled_run_ends_soon() {
    for (name, problem) in nasty::problems() {
        let cancel = |options: &PlanningOptions| options.cancel.store(true, Ordering::Relaxed);
        let EndedRun { outcome, took } = plan_until_ended(&problem, LIMIT / 3, cancel);
        eprintln!("{name}: {} {:?} {took:?} after it was cancelled", outcome.status(), outcome.stopped());
        assert!(took < LIMIT * BUSY, "{name}: {took:?}");
        if let PlanOutcome::Unknown { stopped } = outcome {
            assert_eq!(stopped, StopReason::Cancelled, "{name}");
        }
    }
}

#[test]
fn a_stopped_run_ends_soon_with_what_it_has() {
    let mut kept = 0;
    for (name, problem) in nasty::problems() {
        for after in [Duration::ZERO, LIMIT / 3] {
            let EndedRun { outcome, took } = plan_until_ended(&problem, after, |options| options.stop.ask());
            eprintln!("{name}: {} {:?} {took:?} after it was stopped", outcome.status(), outcome.stopped());
            assert!(took < FINISH_TIME_AFTER_STOP + LIMIT * BUSY, "{name}: {took:?}");
            kept += u32::from(outcome.stopped() == Some(StopReason::Stopped) && outcome.plan().is_some());
            match &outcome {
                PlanOutcome::Optimal(plan) | PlanOutcome::Feasible { plan, .. } => {
                    assert_eq!(apportion_checker::check(&problem, plan), [], "{name}");
                }
                PlanOutcome::Infeasible { shortfalls } => assert!(!shortfalls.is_empty(), "{name}"),
                PlanOutcome::Unknown { stopped } => assert_eq!(*stopped, StopReason::Stopped, "{name}"),
            }
        }
    }
    assert!(kept > 0, "no plan was kept");
}

#[test]
fn a_plan_too_large_to_replay_has_no_estimate() {
    let mut draft = chain(250.0);
    draft.tasks[0].variants = vec![variant("a", 1.0, 1e6, &[(0, 1, 4.0)])];
    draft.demand_qps = 40.0;
    let problem = problem(draft).changed(|d| d.objective.mode = Mode::MinCost).expect("valid");
    let TimedPlan { outcome, report, .. } = plan_timed(&problem, |options| PlanningOptions { time_limit: None, ..options });
    assert!(matches!(outcome, PlanOutcome::Feasible { stopped: StopReason::ReplayTooLarge, .. }), "{outcome:?}");
    assert_eq!(report.estimate, None);
    let said = report.explanation.left_out.join("; ");
    assert!(said.contains("more than"), "{said}");
}

#[test]
fn a_replay_cut_short_gives_a_plan_without_estimate() {
    let mut draft = chain(250.0);
    draft.tasks[0].variants = vec![variant("a", 1.0, 1e4, &[(0, 8, 4.0)])];
    draft.tasks[1].variants = vec![variant("b", 1.0, 1.0, &[(0, 1024, 4.0)])];
    let problem = problem(draft);
    let TimedPlan { outcome, report, took } = plan_timed(&problem, |options| options);
    assert!(matches!(outcome, PlanOutcome::Feasible { stopped: StopReason::TimeLimit, .. }), "{:?}", outcome.stopped());
    assert_eq!(report.estimate, None);
    assert!(report.objective.value.is_some() && took < LIMIT * BUSY, "{took:?}");
    assert!(report.explanation.left_out.iter().any(|s| s.contains("it was stopped")), "{:?}", report.explanation.left_out);
}
