//! How does a planner that searches on one sample come to a plan that holds on fresh ones?

use super::effort::JudgeEffort;
use super::judge::{JudgedPlan, judge};
use super::verdict::{is_accepted, stop_reason};
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{
    ArrivalTrace, CheckRound, JudgedOn, JudgedVerdict, Moment, PlanOutcome, PlanningReport, Problem, StopReason,
};
use apportion_estimator::Workload;

/// Factors on the load of the searches, one after the other, until a plan holds. Each search is given a sample that is so
/// much heavier than the load that its plan is judged on.
const HEADROOMS: [f64; 6] = [1.0, 1.03, 1.07, 1.12, 1.2, 1.3];

/// A plan with its report, and the figures of its judgement.
type Answer = (PlanOutcome, PlanningReport);

/// Calls `search` on heavier and heavier loads until its plan holds on fresh samples of the load. If none does, the plan
/// that came closest is the answer, and the outcome says so.
pub(crate) fn search_until_held(
    problem: &Problem,
    options: &PlanningOptions,
    search: impl Fn(&PlanningOptions) -> Answer,
) -> Answer {
    let workload = options.trace.clone().unwrap_or_else(|| replay::default_workload(problem));
    let limits = options.limits();
    let mut rounds = Vec::new();
    let mut best: Option<Answer> = None;
    let mut accepted = false;
    for (round, headroom) in (1..).zip(HEADROOMS) {
        if accepted || (round > 1 && limits.for_search().exceeded()) {
            break;
        }
        let trace = Some(scaled(&workload, headroom));
        let (outcome, mut report) = search(&PlanningOptions { trace, ..options.clone() });
        let Some(plan) = outcome.plan() else {
            return best.map_or((outcome, report), |best| judge_missed(problem, &workload, options, best));
        };
        let judged = JudgedPlan { problem, plan, workload: &workload, purpose: &format!("search/{round}") };
        let judgement = judge(&judged, JudgeEffort::SEARCH, &limits.for_finishing());
        rounds.push(round_of(problem, round, headroom, plan.replicas(), &report));
        match judgement {
            Ok(simulation) => report.estimate = Some(simulation.total),
            Err(no) => {
                report.explanation.left_out.push(format!("the judgement on fresh samples: {}", no.why));
                return best.map_or((outcome, report), |best| judge_missed(problem, &workload, options, best));
            }
        }
        let judged_on = judged_on(&report).cloned().unwrap_or_default();
        accepted = is_accepted(&judged_on);
        rounds.iter_mut().rev().take(1).for_each(|r: &mut CheckRound| r.judged_on = Some(judged_on.clone()));
        if accepted || best.as_ref().is_none_or(|best| is_closer(&report, &best.1)) {
            best = Some((outcome, report));
        }
    }
    let best = best.expect("the first search has an answer");
    let (outcome, mut report) = if accepted { best } else { judge_missed(problem, &workload, options, best) };
    if rounds.len() > 1 {
        report.rounds = rounds;
    }
    (outcome, report)
}

fn judged_on(report: &PlanningReport) -> Option<&JudgedOn> {
    report.estimate.as_ref()?.judged_on.as_ref()
}

/// Judges the plan that came closest to its end: a search stops a judgement early.
fn judge_missed(
    problem: &Problem,
    workload: &Workload,
    options: &PlanningOptions,
    (outcome, mut report): Answer,
) -> Answer {
    if let Some(plan) = outcome.plan() {
        let judged = JudgedPlan { problem, plan, workload, purpose: "search/closest" };
        // without time, the earlier judgement counts
        if let Ok(simulation) = judge(&judged, JudgeEffort::PLAN, &options.limits().for_finishing()) {
            report.estimate = Some(simulation.total);
        }
    }
    let missed_for = judged_on(&report).filter(|judged| !is_accepted(judged)).map(stop_reason);
    (missed_for.map_or_else(|| outcome.clone(), |reason| missed(outcome.clone(), reason)), report)
}

/// An answer with its plan's figures on fresh samples of the load. The percentile is reported, but not enforced.
pub(crate) fn judge_answer(problem: &Problem, options: &PlanningOptions, (outcome, mut report): Answer) -> Answer {
    if let Some(plan) = outcome.plan().filter(|_| report.estimate.is_some()) {
        let workload = options.trace.clone().unwrap_or_else(|| replay::default_workload(problem));
        let judged = JudgedPlan { problem, plan, workload: &workload, purpose: "answer" };
        match judge(&judged, JudgeEffort::ANSWER, &options.limits().for_finishing()) {
            Ok(simulation) => report.estimate = Some(simulation.total),
            Err(no) => report.explanation.left_out.push(format!("the judgement on fresh samples: {}", no.why)),
        }
    }
    (outcome, report)
}

/// The same outcome without a proof.
fn missed(outcome: PlanOutcome, stopped: StopReason) -> PlanOutcome {
    match outcome {
        PlanOutcome::Optimal(plan) => PlanOutcome::Feasible { plan, stopped },
        PlanOutcome::Feasible { plan, stopped: StopReason::Finished } => PlanOutcome::Feasible { plan, stopped },
        other => other,
    }
}

/// Whether report `a` is closer to holding than report `b`.
fn is_closer(a: &PlanningReport, b: &PlanningReport) -> bool {
    let least = |j: &JudgedOn| j.pipelines.iter().map(|p| p.attainment - p.percentile / 100.0).fold(1.0, f64::min);
    let closeness = |report: &PlanningReport| judged_on(report).map(|j| (j.verdict == JudgedVerdict::Undecided, least(j)));
    closeness(a) > closeness(b)
}

/// The load with its rates multiplied by `factor`; recorded arrivals come closer together.
fn scaled(workload: &Workload, factor: f64) -> Workload {
    let scale = |trace: &ArrivalTrace| match trace {
        ArrivalTrace::Rates(rows) => ArrivalTrace::Rates(rows.iter().map(|&(s, qps)| (s, qps * factor)).collect()),
        ArrivalTrace::Arrivals(moments) => {
            let earlier = |m: &Moment| Moment::from_nanos((m.as_nanos() as f64 / factor) as u64);
            ArrivalTrace::Arrivals(moments.iter().map(earlier).collect())
        }
    };
    if factor == 1.0 {
        return workload.clone();
    }
    Workload { traces: workload.traces.iter().map(scale).collect(), ..workload.clone() }
}

/// The report of one search.
fn round_of(problem: &Problem, round: u32, headroom: f64, replicas: u64, report: &PlanningReport) -> CheckRound {
    let tasks = problem.pipelines.iter().flat_map(|p| p.tasks.iter().map(move |t| format!("{}/{}", p.name, t.name)));
    let estimate = report.estimate.as_ref();
    CheckRound {
        round,
        headroom: tasks.clone().map(|task| (task, headroom)).collect(),
        charge_ms: tasks.map(|task| (task, 0.0)).collect(),
        objective: report.objective,
        replicas,
        attainment: estimate.map_or(0.0, |e| e.attainment),
        p99_ms: estimate.map_or(0.0, |e| e.p99_ms),
        judged_on: None,
    }
}
