//! Which plan does each planner give, with its ladders?

use crate::baselines::{coarse, hardware_only, proteus};
use crate::greedy;
use crate::held_out::search::{judge_answer, search_until_held};
use crate::ladder::{self, PlanWithLadders};
use crate::options::{Planner, PlanningOptions};
use crate::stopwatch::RunPart;
use crate::trace_check::check_loop::plan_on_trace;
use crate::trace_check::unchecked::plan_unchecked;
use crate::warnings::warnings_of;
use apportion_domain::{Mode, Plan, PlanOutcome, PlanningReport, Problem, SLACK};
use std::sync::Arc;

/// Share of the remaining time for a plan if its ladders or another planner follow.
const FIRST_SHARE: f64 = 0.5;

/// Plans a problem. Returns the outcome and a report on the run.
///
/// The run ends within the time limit, or soon after it was cancelled. A plan whose replay was cut short is
/// [`PlanOutcome::Feasible`] with the reason, and has no estimate.
pub fn plan(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let (outcome, report) = plan_by_rivals(problem, options);
    (outcome, PlanningReport { warnings: warnings_of(problem), ..report })
}

/// The plan of the asked planner, or that of a rival if it is cheaper with its ladders.
fn plan_by_rivals(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let Some(up_to) = options.ladder else { return plan_without_ladders(problem, options) };
    let has_rival = options.planner == Planner::Milp && options.trace.is_some() && problem.objective.mode == Mode::MinCost;
    if !has_rival {
        return with_ladders(problem, options, up_to);
    }
    let (exact, exact_report) = with_ladders(problem, &options.with_share_of_time(FIRST_SHARE), up_to);
    let Some(plan) = exact.plan().filter(|_| !options.limits().exceeded()) else { return (exact, exact_report) };
    let (start, clock) = ((options.elapsed)(), options.elapsed.clone());
    let elapsed = Arc::new(move || clock().saturating_sub(start));
    let time_limit = options.limits().time_left();
    let rival = PlanningOptions {
        planner: Planner::Greedy,
        elapsed,
        time_limit,
        listener: None,
        plan_listener: None,
        stopwatch: Arc::default(),
        ..options.clone()
    };
    let (greedy, greedy_report) = with_ladders(problem, &rival, up_to);
    let price = |plan: &Plan| ladder::price_at_demand(problem, plan);
    // A plan without ladders has a price at its demand only.
    let has_ladders = |plan: &&Plan| plan.pipelines.iter().all(|part| !part.ladder.is_empty());
    let is_cheaper = greedy.plan().filter(has_ladders).is_some_and(|found| price(found) < price(plan) * (1.0 - SLACK));
    // A plan without an estimate is not known to hold.
    if is_cheaper && greedy_report.estimate.is_some() { (greedy, greedy_report) } else { (exact, exact_report) }
}

/// The plan of one planner, with ladders.
fn with_ladders(problem: &Problem, options: &PlanningOptions, up_to: f64) -> (PlanOutcome, PlanningReport) {
    let (outcome, mut report) = plan_without_ladders(problem, &options.with_share_of_time(FIRST_SHARE));
    let limits = options.limits();
    let outcome = outcome.map(|plan| {
        let add_ladders = || ladder::with_ladders(problem, plan, up_to, &limits);
        let PlanWithLadders { plan, left_out } = options.measured(RunPart::Ladder, add_ladders);
        report.explanation.left_out.extend(left_out);
        plan
    });
    note_time(options, &mut report);
    (outcome, report)
}

/// Writes the time of a run into its report.
fn note_time(options: &PlanningOptions, report: &mut PlanningReport) {
    let total = (options.elapsed)();
    report.seconds = total.as_secs_f64();
    report.seconds_of = options.stopwatch.seconds_of(total);
}

/// The plan of one planner, without ladders.
fn plan_without_ladders(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let (outcome, mut report) = plan_by_planner(problem, options);
    note_time(options, &mut report);
    (outcome, report)
}

fn plan_by_planner(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let judged = |answer| judge_answer(problem, options, answer);
    match (options.planner, &options.trace) {
        (Planner::Greedy, _) => search_until_held(problem, options, |options| greedy::plan(problem, options)),
        (Planner::HardwareOnly, _) => judged(hardware_only::plan(problem, options)),
        (Planner::Proteus, _) => judged(proteus::plan(problem, options)),
        (Planner::CgMean, _) => judged(coarse::plan(problem, options, coarse::PlannedRate::Mean)),
        (Planner::CgPeak, _) => judged(coarse::plan(problem, options, coarse::PlannedRate::Peak)),
        (Planner::Milp | Planner::PriceAndBranch, Some(workload)) => plan_on_trace(problem, options, workload),
        // without a trace nothing is promised, and the plan was not made on the sample of its replay
        (Planner::Milp | Planner::PriceAndBranch, None) => plan_unchecked(problem, options),
    }
}
