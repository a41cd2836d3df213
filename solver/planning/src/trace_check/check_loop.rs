//! The check loop: solve, replay on the trace, tighten the formulation by the measurements, solve again.
//!
//! A formulation that uses replicas fully misses its tail under random arrivals. So a missed percentile tightens each task
//! at which queries waited longer than the queue factor allows. The task gets headroom: its load counts for more. If its
//! replicas were not busy (a parent's batch arrives at once), it also gets a charge on its time. A tightening is an upper
//! end if no plan meets it, or if the plan holds under it. The next tightening lies half-way to the last one that missed.

use super::tighten::{MissedPlan, tighten};
use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{CheckedPlan, SearchOutcome, attempt};
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{CheckRound, Mode, ObjectiveStep, PlanOutcome, PlanningReport, Problem, StopReason};
use apportion_estimator::{Simulation, Workload};
use apportion_mip::RunLimits;

/// Most rounds of the check loop.
pub(crate) const ROUNDS_MAX: u32 = 8;
/// Most rounds spent on a better plan once one holds.
const REFINEMENTS_MAX: u32 = 3;

/// A plan with its replay.
struct Replayed {
    candidate: CheckedPlan,
    simulation: Simulation,
    tightening: Tightening,
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
                let simulation = match replay::replay(problem, &candidate.plan, workload, &limits.for_finishing()) {
                    Ok(simulation) => simulation,
                    // a replayed plan of an earlier round is worth more than a plan without a replay
                    Err(no) if progress.held.is_some() || progress.missed.is_some() => {
                        progress.stopped = Some(no.reason());
                        break;
                    }
                    Err(no) => return report::report_plan(problem, options, *candidate, Err(no), progress.rounds),
                };
                progress.rounds.push(round_of(problem, round, &tightening, &candidate, &simulation));
                let replayed = Replayed { candidate: *candidate, simulation, tightening: tightening.clone() };
                progress.record_replay(problem, replayed);
            }
        }
        match progress.next_tightening(problem, workload, &search) {
            Some(next) => tightening = next,
            None => break,
        }
    }
    progress.into_report(problem, options)
}

impl Progress {
    fn record_replay(&mut self, problem: &Problem, replayed: Replayed) {
        let miss = worst_miss(problem, &replayed.simulation);
        if miss <= 0.0 {
            self.high = Some(replayed.tightening.clone());
            self.refinements += 1;
            if self.held.as_ref().is_none_or(|h| is_better(problem, &replayed.candidate, &h.candidate)) {
                self.held = Some(replayed);
            }
        } else {
            self.low = Some(replayed.tightening.clone());
            if self.missed.as_ref().is_none_or(|m| miss < worst_miss(problem, &m.simulation)) {
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
                let missed = MissedPlan { plan: &missed.candidate.plan, simulation: &missed.simulation };
                Some(tighten(problem, workload, low, &missed))
            }
        }
    }

    fn into_report(self, problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
        match (self.held, self.missed) {
            (Some(held), _) => {
                report::report_plan(problem, options, held.candidate, Ok(held.simulation.total), self.rounds)
            }
            (None, Some(missed)) => {
                let reason = self.stopped.unwrap_or(StopReason::TraceNotMet);
                // a cancelled run has not tried everything
                let stopped = if options.limits().is_cancelled() { StopReason::Cancelled } else { StopReason::TraceNotMet };
                let candidate = CheckedPlan { stopped: Some(stopped), ..missed.candidate };
                tracing::info!(%reason, "no plan holds on the trace");
                report::report_plan(problem, options, candidate, Ok(missed.simulation.total), self.rounds)
            }
            (None, None) => report::report_unknown(options, self.stopped.unwrap_or(StopReason::TimeLimit)),
        }
    }
}

/// By how much the worst pipeline misses its percentile, as a share of the requests: 0 if the plan holds.
fn worst_miss(problem: &Problem, simulation: &Simulation) -> f64 {
    replay::percentile_misses(problem, &simulation.pipelines).into_iter().fold(0.0, f64::max)
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
fn round_of(
    problem: &Problem,
    round: u32,
    tightening: &Tightening,
    candidate: &CheckedPlan,
    simulation: &Simulation,
) -> CheckRound {
    let mut headroom = Vec::new();
    let mut charge_ms = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&tightening.parts) {
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
        objective: candidate.objective,
        replicas: candidate.plan.replicas(),
        attainment: simulation.total.attainment,
        p99_ms: simulation.total.p99_ms,
    }
}
