//! The check loop: solve, replay on the trace, tighten the formulation by the measurements, solve again.
//!
//! The replay on the trace decides quickly that a plan misses. A plan that passes it is judged on fresh samples, other ones
//! in each round: the plan holds if these show it ([`crate::held_out`]).
//!
//! A formulation that uses replicas fully misses its tail under random arrivals. So a missed percentile tightens each task
//! at which queries waited longer than the queue factor allows. The task gets headroom: its load counts for more. If its
//! replicas were not busy (a parent's batch arrives at once), it also gets a charge on its time. A tightening is an upper
//! end if no plan meets it, or if the plan holds under it. The next tightening lies half-way to the last one that missed.

use super::tighten::{MissedPlan, tighten};
use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{CheckedPlan, SearchOutcome, attempt};
use crate::held_out::judge::{JudgeEffort, JudgedPlan, interval_misses, is_accepted, judge, may_hold, stop_reason};
use crate::options::PlanningOptions;
use crate::replay::{self, ReplayFailure};
use apportion_domain::{
    CheckRound, JudgedOn, JudgedVerdict, Mode, ObjectiveStep, Plan, PlanOutcome, PlanningReport, Problem, StopReason,
};
use apportion_estimator::{Simulation, Workload};
use apportion_mip::RunLimits;

/// Most rounds of the check loop.
pub(crate) const ROUNDS_MAX: u32 = 8;
/// Most rounds spent on a better plan once one holds.
const REFINEMENTS_MAX: u32 = 3;

/// A plan with its replay.
#[derive(Clone)]
struct Replayed {
    candidate: CheckedPlan,
    simulation: Simulation,
    /// The runs on fresh samples, if the plan passed its replay.
    judged: Option<Simulation>,
    tightening: Tightening,
}

impl Replayed {
    /// What the fresh samples say.
    fn judged_on(&self) -> Option<&JudgedOn> {
        self.judged.as_ref().and_then(|judged| judged.total.judged_on.as_ref())
    }

    /// The run with the most requests: that on fresh samples, or else the replay.
    fn best_known(&self) -> &Simulation {
        self.judged.as_ref().unwrap_or(&self.simulation)
    }

    /// By how much each pipeline misses its percentile: 0 where it holds.
    fn misses(&self, problem: &Problem) -> Vec<f64> {
        match self.judged_on() {
            Some(judged) => interval_misses(judged),
            None => replay::percentile_misses(problem, &self.simulation.pipelines),
        }
    }

    fn worst_miss(&self, problem: &Problem) -> f64 {
        self.misses(problem).into_iter().fold(0.0, f64::max)
    }

    /// How far it is from holding: a plan that may hold is closer than one that misses.
    fn distance(&self, problem: &Problem) -> (bool, f64) {
        (!self.judged_on().is_some_and(may_hold), self.worst_miss(problem))
    }
}

/// Where the search for a tightening stands.
#[derive(Default)]
struct Progress {
    held: Option<Replayed>,
    missed: Option<Replayed>,
    /// The last tightening that missed. `high` is the least that holds or that no plan meets.
    low: Option<Tightening>,
    high: Option<Tightening>,
    refinements: u32,
    rounds: Vec<CheckRound>,
    stopped: Option<StopReason>,
}

/// Plans so that the percentile of every pipeline is met on `workload`.
pub(crate) fn plan_on_trace(
    problem: &Problem,
    options: &PlanningOptions,
    workload: &Workload,
) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits();
    let search = limits.for_search();
    let mut progress = Progress::default();
    let mut tightening = Tightening::none(problem);
    for round in 1..=ROUNDS_MAX {
        match attempt(problem, &tightening, options.gap, &search) {
            SearchOutcome::Infeasible if round == 1 => return report::report_infeasible(problem, options),
            SearchOutcome::Unknown(stopped) if round == 1 => return report::report_unknown(options, stopped),
            SearchOutcome::Infeasible => progress.high = Some(tightening.clone()),
            SearchOutcome::Unknown(stopped) => {
                progress.stopped = Some(stopped);
                break;
            }
            SearchOutcome::Plan(candidate) => {
                let checked = match progress.known(&candidate.plan) {
                    Some(known) => Ok(Replayed { tightening: tightening.clone(), ..known }),
                    None => check_plan(problem, workload, (round, &tightening), *candidate, &limits.for_finishing()),
                };
                match checked {
                    Ok(replayed) => progress.record_replay(problem, round, replayed),
                    // a replayed plan of an earlier round is worth more than a plan without a replay
                    Err(Cut { no, .. }) if progress.held.is_some() || progress.missed.is_some() => {
                        progress.stopped = Some(no.reason());
                        break;
                    }
                    Err(Cut { no, candidate }) => {
                        return report::report_plan(problem, options, *candidate, Err(no), progress.rounds);
                    }
                }
            }
        }
        match progress.next_tightening(problem, workload, &search) {
            Some(next) => tightening = next,
            None => break,
        }
    }
    progress.into_report(problem, options, workload)
}

/// A plan whose replay was cut short.
struct Cut {
    candidate: Box<CheckedPlan>,
    no: ReplayFailure,
}

/// Replays a plan on the trace. If it passes, judges it on the fresh samples of its round.
fn check_plan(
    problem: &Problem,
    workload: &Workload,
    (round, tightening): (u32, &Tightening),
    candidate: CheckedPlan,
    limits: &RunLimits,
) -> Result<Replayed, Cut> {
    let simulation = match replay::replay(problem, &candidate.plan, workload, limits) {
        Ok(simulation) => simulation,
        Err(no) => return Err(Cut { candidate: Box::new(candidate), no }),
    };
    let mut replayed = Replayed { candidate, simulation, judged: None, tightening: tightening.clone() };
    if replayed.worst_miss(problem) <= 0.0 {
        // without a judgement the plan counts as one that is not known to hold
        replayed.judged =
            judge_round(problem, &replayed.candidate.plan, workload, (round, JudgeEffort::SEARCH), limits).ok();
    }
    Ok(replayed)
}

/// Judges the plan of a round on the fresh samples of this round.
fn judge_round(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    (round, effort): (u32, JudgeEffort),
    limits: &RunLimits,
) -> Result<Simulation, ReplayFailure> {
    judge(&JudgedPlan { problem, plan, workload, purpose: &format!("round/{round}") }, effort, limits)
}

impl Progress {
    /// The results of the same plan in an earlier round. Other samples would be a second chance, and the first one counts.
    fn known(&self, plan: &Plan) -> Option<Replayed> {
        self.held.iter().chain(&self.missed).find(|of| of.candidate.plan == *plan).cloned()
    }

    fn record_replay(&mut self, problem: &Problem, round: u32, replayed: Replayed) {
        self.rounds.push(round_of(problem, round, &replayed));
        if replayed.judged_on().is_some_and(is_accepted) {
            self.high = Some(replayed.tightening.clone());
            self.refinements += 1;
            if self.held.as_ref().is_none_or(|h| is_better(problem, &replayed.candidate, &h.candidate)) {
                self.held = Some(replayed);
            }
        } else {
            self.low = Some(replayed.tightening.clone());
            let is_closer = |m: &Replayed| replayed.distance(problem) < m.distance(problem);
            if self.missed.as_ref().is_none_or(is_closer) {
                self.missed = Some(replayed);
            }
        }
    }

    /// The next tightening to try; `None` if no better plan is expected.
    fn next_tightening(&self, problem: &Problem, workload: &Workload, limits: &RunLimits) -> Option<Tightening> {
        if limits.exceeded() {
            return None;
        }
        match (&self.low, &self.high) {
            // the very first plan holds
            (None, _) => None,
            (Some(low), Some(high)) => {
                let enough = self.refinements > REFINEMENTS_MAX || (self.held.is_some() && low.is_near(high));
                (!enough).then(|| low.halfway(high))
            }
            (Some(low), None) => {
                let missed = self.missed.as_ref().filter(|m| m.tightening == *low).or(self.missed.as_ref())?;
                let misses = missed.misses(problem);
                let plan = &missed.candidate.plan;
                Some(tighten(problem, workload, low, &MissedPlan { plan, simulation: missed.best_known(), misses }))
            }
        }
    }

    fn into_report(
        self,
        problem: &Problem,
        options: &PlanningOptions,
        workload: &Workload,
    ) -> (PlanOutcome, PlanningReport) {
        let limits = options.limits();
        let report = |candidate, estimate| report::report_plan(problem, options, candidate, Ok(estimate), self.rounds);
        match (self.held, self.missed) {
            (Some(held), _) => report(held.candidate, held.judged.unwrap_or(held.simulation).total),
            (None, Some(mut missed)) => {
                let has_passed = missed.judged.is_none() && missed.worst_miss(problem) <= 0.0;
                // a search ends a judgement early
                if missed.judged_on().is_none_or(|judged| judged.verdict == JudgedVerdict::Undecided && !may_hold(judged)) {
                    let (plan, last) = (&missed.candidate.plan, (ROUNDS_MAX + 1, JudgeEffort::PLAN));
                    missed.judged =
                        judge_round(problem, plan, workload, last, &limits.for_finishing()).ok().or(missed.judged);
                }
                let stopped = match missed.judged_on() {
                    Some(judged) if is_accepted(judged) => missed.candidate.stopped,
                    // a cancelled run has not tried everything
                    _ if limits.is_cancelled() => Some(StopReason::Cancelled),
                    Some(judged) => Some(stop_reason(judged)),
                    // no time was left to judge a plan that passed its replay
                    None if has_passed => Some(StopReason::TraceUndecided),
                    None => Some(StopReason::TraceNotMet),
                };
                tracing::info!(?stopped, ended = ?self.stopped, "no plan of the rounds holds on fresh samples");
                let candidate = CheckedPlan { stopped, ..missed.candidate };
                report(candidate, missed.judged.unwrap_or(missed.simulation).total)
            }
            (None, None) => report::report_unknown(options, self.stopped.unwrap_or(StopReason::TimeLimit)),
        }
    }
}

/// Whether plan `a` is kept instead of `b`, if both hold: cheaper or more accurate, then fewer replicas.
fn is_better(problem: &Problem, a: &CheckedPlan, b: &CheckedPlan) -> bool {
    let value = |c: &CheckedPlan| c.objective.value.unwrap_or(f64::NEG_INFINITY);
    let is_hardware_step = |c: &CheckedPlan| {
        problem.objective.mode == Mode::HardwareThenAccuracy && c.objective.step == Some(ObjectiveStep::Hardware)
    };
    // more is better: accuracy, or else minus the replicas or minus the cost
    let worth = |c: &CheckedPlan| match problem.objective.mode {
        Mode::HardwareThenAccuracy if is_hardware_step(c) => -value(c),
        Mode::HardwareThenAccuracy | Mode::MaxAccuracy => value(c),
        Mode::MinCost => -value(c),
    };
    let by_step = is_hardware_step(a).cmp(&is_hardware_step(b));
    let by_worth = worth(a).total_cmp(&worth(b));
    by_step.then(by_worth).then(b.plan.replicas().cmp(&a.plan.replicas())).is_gt()
}

/// The report of one round.
fn round_of(problem: &Problem, round: u32, replayed: &Replayed) -> CheckRound {
    let mut headroom = Vec::new();
    let mut charge_ms = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&replayed.tightening.parts) {
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let name = format!("{}/{}", pipeline.name, task.name);
            headroom.push((name.clone(), part.headroom[t]));
            charge_ms.push((name, part.charge_ms[t]));
        }
    }
    CheckRound {
        round,
        headroom,
        charge_ms,
        objective: replayed.candidate.objective,
        replicas: replayed.candidate.plan.replicas(),
        attainment: replayed.simulation.total.attainment,
        p99_ms: replayed.simulation.total.p99_ms,
        judged_on: replayed.judged_on().cloned(),
    }
}
