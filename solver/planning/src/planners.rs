//! Which plan does each planner give, with its ladders?

use crate::baselines::{coarse, hardware_only, proteus};
use crate::greedy;
use crate::held_out::search::{judge_answer, search_until_held};
use crate::held_out::verdict;
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
        return plan_with_ladders(problem, options, up_to).into_answer();
    }
    let exact = plan_with_ladders(problem, &options.with_share_of_time(FIRST_SHARE), up_to);
    if options.limits().exceeded() || exact.outcome.status() == PlanStatus::Infeasible {
        return exact.into_answer();
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
    let greedy = plan_with_ladders(problem, &rival, up_to);
    if greedy.is_better(problem, &exact) { greedy } else { exact }.into_answer()
}

/// What fresh samples show of the plan of a report; `None` if none was played.
fn judged_on(report: &PlanningReport) -> Option<&JudgedOn> {
    report.estimate.as_ref()?.judged_on.as_ref()
}

/// The answer of one planner, with ladders.
struct AnswerWithLadders {
    outcome: PlanOutcome,
    report: PlanningReport,
    /// Whether nothing speaks against the plan: no fresh sample of its own, or a step for its demand that holds.
    may_hold: bool,
}

impl AnswerWithLadders {
    fn into_answer(self) -> (PlanOutcome, PlanningReport) {
        (self.outcome, self.report)
    }

    /// Whether its plan is better than another one.
    ///
    /// A plan that misses its promise, with its ladder too, or that was not played, is worse than any other. Of two others,
    /// the plan that is cheaper with its ladders is better; of two such plans, the plan with more requests in time.
    fn is_better(&self, problem: &Problem, than: &Self) -> bool {
        let Some(plan) = self.outcome.plan() else { return false };
        let Some(other) = than.outcome.plan() else { return true };
        let attainment = |of: &Self| of.report.estimate.as_ref().map_or(0.0, |estimate| estimate.attainment);
        match (self.may_hold, than.may_hold) {
            (true, false) => true,
            (false, true) => false,
            (false, false) if attainment(self) != attainment(than) => attainment(self) > attainment(than),
            _ => is_cheaper(problem, plan, other),
        }
    }
}

/// Whether a plan has ladders and costs less at the demand by them. A plan without ladders has a price at its demand only.
fn is_cheaper(problem: &Problem, plan: &Plan, than: &Plan) -> bool {
    let price = |plan: &Plan| ladder::price_at_demand(problem, plan);
    let has_ladders = plan.pipelines.iter().all(|part| !part.ladder.is_empty());
    has_ladders && price(plan) < price(than) * (1.0 - SLACK)
}

/// The plan of one planner, with ladders.
fn plan_with_ladders(problem: &Problem, options: &PlanningOptions, up_to: f64) -> AnswerWithLadders {
    let (outcome, mut report) = plan_without_ladders(problem, &options.with_share_of_time(FIRST_SHARE));
    let limits = options.limits();
    let mut may_hold = judged_on(&report).is_some_and(verdict::may_hold);
    let outcome = outcome.map(|plan| {
        let add_ladders = || ladder::with_ladders(problem, plan, up_to, judged_on(&report), &limits);
        let PlanWithLadders { plan, left_out, hold_demands } = options.measured(RunPart::Ladder, add_ladders);
        report.explanation.left_out.extend(left_out);
        // A plan without an estimate is not known to hold.
        may_hold |= hold_demands && report.estimate.is_some();
        plan
    });
    note_time(options, &mut report);
    AnswerWithLadders { outcome, report, may_hold }
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
    use apportion_domain::{ArrivalTrace, StopReason};
    use apportion_estimator::{ArrivalProcess, Workload};
    use std::time::Duration;

    #[test]
    fn a_plan_that_may_hold_is_better_than_a_cheaper_one_that_misses() {
        let problem = problem(chain(120.0));
        let demand_qps = problem.pipelines[0].demand_qps;
        let trace = ArrivalTrace::Rates((0..10).map(|second| (second, demand_qps)).collect());
        let options = PlanningOptions {
            planner: Planner::Greedy,
            trace: Some(Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }),
            ..PlanningOptions::new(Arc::new(Duration::default))
        };
        let made = plan_with_ladders(&problem, &options, 2.0);
        assert!(made.may_hold);
        // An answer whose groups have so many replicas, and of whose requests this share is in time.
        let of = |replicas: u32, attainment: f64, may_hold: bool| {
            let priced = |mut plan: Plan| {
                plan.pipelines[0].assignments.iter_mut().for_each(|a| a.replicas = replicas);
                plan.pipelines[0].ladder.iter_mut().for_each(|step| step.replicas.fill(replicas));
                plan
            };
            let mut report = made.report.clone();
            report.estimate.as_mut().expect("an estimate").attainment = attainment;
            AnswerWithLadders { outcome: made.outcome.clone().map(priced), report, may_hold }
        };
        let better = |a: &AnswerWithLadders, b: &AnswerWithLadders| [a.is_better(&problem, b), b.is_better(&problem, a)];
        assert_eq!(better(&of(9, 0.995, true), &of(2, 0.9, false)), [true, false], "the dearer one may hold");
        assert_eq!(better(&of(9, 0.999, true), &of(2, 0.98, true)), [false, true], "both may");
        assert_eq!(better(&of(9, 0.97, false), &of(2, 0.9, false)), [true, false], "none may");
        let mut without_plan = of(2, 1.0, false);
        without_plan.outcome = PlanOutcome::Unknown { stopped: StopReason::TimeLimit };
        assert_eq!(better(&of(9, 0.9, false), &without_plan), [true, false], "the other has no plan");
        let mut without_ladder = of(2, 0.995, true);
        without_ladder.outcome = without_ladder.outcome.map(|mut plan| {
            plan.pipelines[0].ladder.clear();
            plan
        });
        assert!(!without_ladder.is_better(&problem, &of(9, 0.999, true)), "it has no ladder");
    }
}
