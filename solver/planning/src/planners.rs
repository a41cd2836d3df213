//! Which plan does each planner give, with its ladders?

use crate::baselines::{coarse, hardware_only, proteus};
use crate::greedy;
use crate::held_out::search::{judge_answer, search_until_held};
use crate::held_out::verdict::{self, is_accepted};
use crate::ladder::{self, PlanWithLadders};
use crate::options::{Planner, PlanningOptions};
use crate::stopwatch::RunPart;
use crate::trace_check::check_loop::plan_on_trace;
use crate::trace_check::unchecked::plan_unchecked;
use crate::warnings::warnings_of;
use apportion_domain::{JudgedOn, Mode, Plan, PlanOutcome, PlanStatus, PlanningReport, Problem, SLACK};
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

/// The answer of the asked planner, or that of the greedy planner beside the exact one.
fn plan_by_rivals(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let Some(up_to) = options.ladder else { return plan_without_ladders(problem, options) };
    let has_rival = options.planner == Planner::Milp && options.trace.is_some() && problem.objective.mode == Mode::MinCost;
    if !has_rival {
        return with_ladders(problem, options, up_to);
    }
    let (exact, exact_report) = with_ladders(problem, &options.with_share_of_time(FIRST_SHARE), up_to);
    if options.limits().exceeded() || exact.status() == PlanStatus::Infeasible {
        return (exact, exact_report);
    }
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
    let greedy = with_ladders(problem, &rival, up_to);
    let exact = (exact, exact_report);
    if is_better(problem, &greedy, &exact) { greedy } else { exact }
}

/// Whether an answer has a better plan than another one.
///
/// A plan that misses its promise on fresh samples, or was not played on any, is worse than any other. Of two others, the
/// plan that is cheaper with its ladders is better; of two such plans, the plan with more requests in time.
fn is_better(
    problem: &Problem,
    (outcome, report): &(PlanOutcome, PlanningReport),
    (than, than_report): &(PlanOutcome, PlanningReport),
) -> bool {
    let Some(plan) = outcome.plan() else { return false };
    let Some(than) = than.plan() else { return true };
    let (attains, than_attains) = (shown_attainment(report), shown_attainment(than_report));
    match (may_hold(report), may_hold(than_report)) {
        (true, false) => true,
        (false, true) => false,
        (false, false) if attains != than_attains => attains > than_attains,
        _ => is_cheaper(problem, plan, than),
    }
}

/// What fresh samples show of the plan of a report; `None` if none was played.
fn judged_on(report: &PlanningReport) -> Option<&JudgedOn> {
    report.estimate.as_ref()?.judged_on.as_ref()
}

/// Whether the samples leave a plan that may keep its promise.
fn may_hold(report: &PlanningReport) -> bool {
    judged_on(report).is_some_and(verdict::may_hold)
}

/// The share of requests in time in the plan's estimate; 0 without an estimate.
fn shown_attainment(report: &PlanningReport) -> f64 {
    report.estimate.as_ref().map_or(0.0, |estimate| estimate.attainment)
}

/// Whether a plan has ladders and costs less at the demand by them. A plan without ladders has a price at its demand only.
fn is_cheaper(problem: &Problem, plan: &Plan, than: &Plan) -> bool {
    let price = |plan: &Plan| ladder::price_at_demand(problem, plan);
    let has_ladders = plan.pipelines.iter().all(|part| !part.ladder.is_empty());
    has_ladders && price(plan) < price(than) * (1.0 - SLACK)
}

/// The plan of one planner, with ladders.
fn with_ladders(problem: &Problem, options: &PlanningOptions, up_to: f64) -> (PlanOutcome, PlanningReport) {
    let (outcome, mut report) = plan_without_ladders(problem, &options.with_share_of_time(FIRST_SHARE));
    let limits = options.limits();
    let holds = judged_on(&report).is_some_and(is_accepted);
    let outcome = outcome.map(|plan| {
        let add_ladders = || ladder::with_ladders(problem, plan, up_to, holds, &limits);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use apportion_domain::{ArrivalTrace, JudgedPipeline, JudgedVerdict};
    use apportion_estimator::{ArrivalProcess, Workload};
    use std::time::Duration;

    /// An answer with a plan of this price, of whose requests this share was in time.
    fn answer(
        (outcome, report): &(PlanOutcome, PlanningReport),
        replicas: u32,
        attainment: f64,
        verdict: JudgedVerdict,
    ) -> (PlanOutcome, PlanningReport) {
        let priced = |mut plan: Plan| {
            plan.pipelines[0].assignments.iter_mut().for_each(|a| a.replicas = replicas);
            plan.pipelines[0].ladder.iter_mut().for_each(|step| step.replicas.fill(replicas));
            plan
        };
        let mut report = report.clone();
        let estimate = report.estimate.as_mut().expect("an estimate");
        estimate.attainment = attainment;
        let judged = estimate.judged_on.take().expect("samples");
        let pipelines = judged.pipelines.into_iter().map(|p| JudgedPipeline { verdict, attainment, ..p }).collect();
        estimate.judged_on = Some(JudgedOn { verdict, pipelines, ..judged });
        (outcome.clone().map(priced), report)
    }

    #[test]
    fn a_plan_that_may_hold_is_better_than_a_cheaper_one_that_misses() {
        let problem = problem(chain(120.0));
        let demand_qps = problem.pipelines[0].demand_qps;
        let trace = ArrivalTrace::Rates((0..10).map(|second| (second, demand_qps)).collect());
        let options = PlanningOptions {
            planner: Planner::Greedy,
            ladder: Some(2.0),
            trace: Some(Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }),
            ..PlanningOptions::new(Arc::new(Duration::default))
        };
        let made = plan(&problem, &options);
        let of = |replicas, attainment, verdict| answer(&made, replicas, attainment, verdict);
        let better = |a: &(PlanOutcome, PlanningReport), b: &(PlanOutcome, PlanningReport)| {
            [is_better(&problem, a, b), is_better(&problem, b, a)]
        };
        let (holds, misses) = (JudgedVerdict::Holds, JudgedVerdict::Misses);
        assert_eq!(better(&of(9, 0.995, holds), &of(2, 0.9, misses)), [true, false], "the dearer one holds");
        assert_eq!(better(&of(9, 0.999, holds), &of(2, 0.995, holds)), [false, true], "both hold");
        let undecided = JudgedVerdict::Undecided;
        assert_eq!(better(&of(9, 0.999, holds), &of(2, 0.995, undecided)), [false, true], "both may hold");
        assert_eq!(better(&of(9, 0.995, holds), &of(2, 0.98, undecided)), [true, false], "one is doubtful");
        assert_eq!(better(&of(9, 0.97, misses), &of(2, 0.9, misses)), [true, false], "none holds");
        let (without_plan, report) = (PlanOutcome::Unknown { stopped: apportion_domain::StopReason::TimeLimit }, &made.1);
        assert_eq!(better(&of(9, 0.9, misses), &(without_plan, report.clone())), [true, false], "the other has no plan");
        let mut unjudged = of(2, 1.0, holds);
        unjudged.1.estimate = None;
        assert_eq!(better(&of(9, 0.995, holds), &unjudged), [true, false], "no sample was played");
    }
}
