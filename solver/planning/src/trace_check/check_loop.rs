//! The check loop: solve, replay on the trace, tighten the formulation by the measurements, solve again. Then judge.
//!
//! A formulation that uses replicas fully misses its tail under random arrivals. So a missed percentile tightens each task
//! at which queries waited longer than the queue factor allows. The task gets headroom: its load counts for more. If its
//! replicas were not busy (a parent's batch arrives at once), it also gets a charge on its time. A tightening is an upper
//! end if no plan meets it, or if the plan passes its replay under it. The next tightening lies half-way to the last one
//! that missed.
//!
//! The replays are on one sample of the load, and are cheap. A plan that passes them may fit the chances of this sample. So
//! the plans that pass are judged on fresh samples, the best one first, and the first one that holds is the answer
//! ([`crate::held_out`]). All plans of a cycle are judged on the same samples: they were chosen without them. If none
//! holds, the next cycle searches on samples of this judgement too, and judges on others.

use super::tested::{TestedPlan, compare_worth};
use super::tighten::{MissedPlan, tighten};
use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{CheckedPlan, SearchOutcome, attempt_by};
use crate::held_out::effort::JudgeEffort;
use crate::held_out::judge::{JudgedPlan, judge, least_attainments, run_samples};
use crate::held_out::verdict::{is_accepted, stop_reason};
use crate::options::PlanningOptions;
use crate::replay::{self, ReplayFailure};
use apportion_domain::{CheckRound, JudgedVerdict, PlanOutcome, PlanningReport, Problem, StopReason};
use apportion_estimator::{Simulation, Workload};
use apportion_mip::RunLimits;
use std::cmp::Ordering;

/// Most rounds of the first cycle.
const ROUNDS_MAX: u32 = 8;
/// Most rounds of each further cycle: it begins near a plan that nearly holds.
const FURTHER_ROUNDS_MAX: u32 = 5;
/// Most rounds between plans that were refused and a dearer one that holds.
const GAP_ROUNDS_MAX: u32 = 3;
/// Most cycles of searching and judging.
const CYCLES_MAX: u64 = 4;
/// Most rounds of a cycle that are spent on a better plan once one passes.
const REFINEMENTS_MAX: u32 = 3;
/// Samples of a judgement that the next cycle searches on: one for each of two cores.
const SEEN_SAMPLES: u64 = 2;

/// An outcome with its report.
type Answer = (PlanOutcome, PlanningReport);

/// What judges a plan.
pub(crate) type Judge = fn(&JudgedPlan<'_>, JudgeEffort, &RunLimits) -> Result<Simulation, ReplayFailure>;

/// Plans so that the percentile of every pipeline is met on `workload`.
pub(crate) fn plan_on_trace(problem: &Problem, options: &PlanningOptions, workload: &Workload) -> Answer {
    plan_judged_by(judge, problem, options, workload)
}

/// As [`plan_on_trace`], with this judge.
pub(crate) fn plan_judged_by(judge: Judge, problem: &Problem, options: &PlanningOptions, workload: &Workload) -> Answer {
    let mut check = CheckLoop::new(problem, options, workload, judge);
    let mut tightening = Tightening::none(problem);
    for cycle in 1..=CYCLES_MAX {
        if let Err(answer) = check.search(tightening, cycle) {
            return *answer;
        }
        check.judge_passing(cycle);
        match check.begin_cycle(cycle) {
            Some(next) => tightening = next,
            None => break,
        }
    }
    match check.held {
        Some(held) => check.into_held(held),
        None => check.into_missed(),
    }
}

/// A tightening with the position of its plan.
#[derive(Clone)]
struct TriedTightening {
    tightening: Tightening,
    plan: usize,
}

/// A round with the position of its plan.
struct LoopRound {
    report: CheckRound,
    plan: usize,
}

/// Where the loop stands.
struct CheckLoop<'a> {
    problem: &'a Problem,
    options: &'a PlanningOptions,
    workload: &'a Workload,
    judge: Judge,
    /// Limits of the searches.
    limits: RunLimits,
    /// The attainments that make a plan worth a judgement, by pipeline; known with the first plan.
    aims: Vec<f64>,
    /// All plans so far, each once.
    tested: Vec<TestedPlan>,
    rounds: Vec<LoopRound>,
    /// Rounds so far, also those without a plan.
    count: u32,
    /// The last tightening that missed.
    low: Option<TriedTightening>,
    /// The least tightening under which a plan passes or no plan exists.
    high: Option<Tightening>,
    /// The least tightening that no plan meets.
    infeasible: Option<Tightening>,
    /// Rounds of this cycle whose plan passed.
    refinements: u32,
    /// The position of the best plan that was accepted.
    held: Option<usize>,
    /// Names the fresh samples that earlier cycles have judged on, if the search may look at them.
    seen: Option<String>,
    /// The position of the plan that was handed out last.
    handed_out: Option<usize>,
    stopped: Option<StopReason>,
}

/// A plan whose replay was cut short.
struct Cut {
    candidate: Box<CheckedPlan>,
    no: ReplayFailure,
}

/// Names the fresh samples of a cycle.
fn purpose_of(cycle: u64) -> String {
    format!("cycle/{cycle}")
}

impl<'a> CheckLoop<'a> {
    fn new(problem: &'a Problem, options: &'a PlanningOptions, workload: &'a Workload, judge: Judge) -> Self {
        Self {
            problem,
            options,
            workload,
            judge,
            limits: options.limits().for_search(),
            aims: Vec::new(),
            tested: Vec::new(),
            rounds: Vec::new(),
            count: 0,
            low: None,
            high: None,
            infeasible: None,
            refinements: 0,
            held: None,
            seen: None,
            handed_out: None,
            stopped: None,
        }
    }

    /// The rounds of one cycle. The error is the answer if there is no plan to go on with.
    fn search(&mut self, first: Tightening, cycle: u64) -> Result<(), Box<Answer>> {
        let mut tightening = first;
        let rounds_max = match (cycle, self.held) {
            (1, _) => ROUNDS_MAX,
            (_, None) => FURTHER_ROUNDS_MAX,
            (_, Some(_)) => GAP_ROUNDS_MAX,
        };
        for _ in 0..rounds_max {
            self.count += 1;
            match attempt_by(self.options, self.problem, &tightening, &self.limits) {
                SearchOutcome::Infeasible if self.count == 1 => {
                    return Err(Box::new(report::report_infeasible(self.problem, self.options)));
                }
                SearchOutcome::Unknown(stopped) if self.count == 1 => {
                    return Err(Box::new(report::report_unknown(self.options, stopped)));
                }
                SearchOutcome::Infeasible => {
                    self.infeasible = Some(tightening.clone());
                    self.high = Some(tightening.clone());
                }
                SearchOutcome::Unknown(stopped) => {
                    self.stopped = Some(stopped);
                    break;
                }
                SearchOutcome::Plan(candidate) => match self.test(*candidate, &tightening) {
                    Ok(plan) => self.record(TriedTightening { tightening, plan }),
                    // a replayed plan of an earlier round is worth more than a plan without a replay
                    Err(Cut { no, .. }) if !self.tested.is_empty() => {
                        self.stopped = Some(no.reason());
                        break;
                    }
                    Err(Cut { no, candidate }) => {
                        let rounds = Vec::new();
                        return Err(Box::new(report::report_plan(self.problem, self.options, *candidate, Err(no), rounds)));
                    }
                },
            }
            match self.next_tightening() {
                Some(next) => tightening = next,
                None => break,
            }
        }
        Ok(())
    }

    /// The position of a plan that was replayed, or is replayed here. A plan that comes again keeps its runs: other samples
    /// would be a second chance.
    fn test(&mut self, candidate: CheckedPlan, tightening: &Tightening) -> Result<usize, Cut> {
        if let Some(known) = self.tested.iter().position(|of| of.candidate.plan == candidate.plan) {
            return Ok(known);
        }
        let limits = self.options.limits().for_finishing();
        let (problem, workload, plan) = (self.problem, self.workload, &candidate.plan);
        if self.aims.is_empty() {
            self.aims = least_attainments(&JudgedPlan { problem, plan, workload, purpose: "" }, JudgeEffort::SEARCH);
        }
        let on_seen =
            |purpose: &String| run_samples(&JudgedPlan { problem, plan, workload, purpose }, SEEN_SAMPLES, &limits);
        let runs = rayon::join(
            || replay::replay(problem, plan, workload, &limits),
            || self.seen.as_ref().map(on_seen).transpose(),
        );
        let (own, seen) = match runs {
            (Ok(own), Ok(seen)) => (own, seen),
            (Err(no), _) | (_, Err(no)) => return Err(Cut { candidate: Box::new(candidate), no }),
        };
        let (tightening, purpose) = (tightening.clone(), String::new());
        self.tested.push(TestedPlan { candidate, tightening, own, seen, judged: None, purpose });
        Ok(self.tested.len() - 1)
    }

    fn record(&mut self, tried: TriedTightening) {
        let tested = &self.tested[tried.plan];
        let report = tested.round(self.problem, self.count, &tried.tightening);
        self.rounds.push(LoopRound { report, plan: tried.plan });
        if tested.passes(&self.aims) {
            self.refinements += 1;
            self.high = Some(tried.tightening);
            self.hand_out(tried.plan);
        } else {
            self.low = Some(tried);
        }
    }

    /// Hands out a plan that passes its replay, unless the one that was handed out before is worth as much.
    fn hand_out(&mut self, at: usize) {
        let Some(listener) = &self.options.plan_listener else { return };
        let is_no_better = |known: usize| !self.tested[known].is_refused() && self.compare(at, known).is_le();
        if self.handed_out.is_some_and(is_no_better) {
            return;
        }
        let TestedPlan { candidate, own, .. } = &self.tested[at];
        let outcome = PlanOutcome::Feasible { plan: candidate.plan.clone(), stopped: StopReason::Finished };
        let (objective, estimate) = (candidate.objective, Some(own.total.clone()));
        let seconds = (self.options.elapsed)().as_secs_f64();
        listener(&outcome, &PlanningReport { objective, estimate, seconds, ..report::empty_report(self.options) });
        self.handed_out = Some(at);
    }

    /// The next tightening to try; `None` if no better plan is expected.
    fn next_tightening(&self) -> Option<Tightening> {
        if self.limits.exceeded() {
            return None;
        }
        match (&self.low, &self.high) {
            // the very first plan passes
            (None, _) => None,
            (Some(low), Some(high)) => {
                let is_near = (self.refinements > 0 || self.held.is_some()) && low.tightening.is_near(high);
                (self.refinements <= REFINEMENTS_MAX && !is_near).then(|| low.tightening.halfway(high))
            }
            (Some(low), None) => {
                let tested = &self.tested[low.plan];
                let missed = MissedPlan {
                    plan: &tested.candidate.plan,
                    simulation: tested.best_known(&self.aims),
                    misses: tested.misses(&self.aims),
                };
                Some(tighten(self.problem, self.workload, &low.tightening, &missed))
            }
        }
    }

    /// Whether a plan is worth more than the one that holds.
    fn is_better(&self, at: usize) -> bool {
        self.held.is_none_or(|held| self.compare(at, held).is_gt())
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        compare_worth(self.problem, &self.tested[a].candidate, &self.tested[b].candidate)
    }

    /// Judges the plans that pass and that are better than what holds, the best one first, until one is accepted.
    fn judge_passing(&mut self, cycle: u64) {
        let is_open =
            |&at: &usize| self.tested[at].judged.is_none() && self.tested[at].passes(&self.aims) && self.is_better(at);
        let mut passing: Vec<usize> = (0..self.tested.len()).filter(is_open).collect();
        passing.sort_by(|&a, &b| self.compare(b, a));
        for at in passing {
            self.judge_plan(at, purpose_of(cycle), JudgeEffort::SEARCH);
            if self.tested[at].is_accepted() {
                self.held = Some(at);
                break;
            }
        }
    }

    /// Judges a plan. Without time for it the plan counts as one that is not known to hold.
    fn judge_plan(&mut self, at: usize, purpose: String, effort: JudgeEffort) {
        let tested = &mut self.tested[at];
        let (problem, workload) = (self.problem, self.workload);
        let judged = JudgedPlan { problem, plan: &tested.candidate.plan, workload, purpose: &purpose };
        let runs = (self.judge)(&judged, effort, &self.options.limits().for_finishing());
        tested.judged = runs.ok().or(tested.judged.take());
        tested.purpose = purpose;
        let judged_on = tested.judged_on().cloned();
        self.rounds.iter_mut().filter(|round| round.plan == at).for_each(|r| r.report.judged_on.clone_from(&judged_on));
    }

    /// The first tightening of the next cycle. Without a plan that holds it follows the refused plans. With one, a single
    /// cycle searches between it and the better plans that were refused. `None` if neither is left to do, or no time.
    fn begin_cycle(&mut self, cycle: u64) -> Option<Tightening> {
        if self.held.is_some() && self.seen.is_some() {
            return None;
        }
        let refused = (0..self.tested.len()).filter(|&at| self.tested[at].is_refused() && self.is_better(at));
        // the plan that is worth least has the most headroom
        let plan = refused.min_by(|&a, &b| self.compare(a, b))?;
        self.low = Some(TriedTightening { tightening: self.tested[plan].tightening.clone(), plan });
        self.high = self.held.map(|held| self.tested[held].tightening.clone()).or(self.infeasible.clone());
        self.refinements = 0;
        self.seen = Some(purpose_of(cycle));
        self.next_tightening()
    }

    fn into_held(mut self, held: usize) -> Answer {
        let rounds = self.rounds.into_iter().map(|round| round.report).collect();
        let TestedPlan { candidate, own, judged, .. } = self.tested.swap_remove(held);
        report::report_plan(self.problem, self.options, candidate, Ok(judged.unwrap_or(own).total), rounds)
    }

    /// The answer if no plan was accepted: the one that is closest to holding, judged to the end.
    fn into_missed(mut self) -> Answer {
        let distance = |at: usize| self.tested[at].distance(&self.aims);
        let closest = (0..self.tested.len()).min_by(|&a, &b| {
            let ((a_misses, a_miss), (b_misses, b_miss)) = (distance(a), distance(b));
            a_misses.cmp(&b_misses).then(a_miss.total_cmp(&b_miss))
        });
        let Some(closest) = closest else {
            return report::report_unknown(self.options, self.stopped.unwrap_or(StopReason::TimeLimit));
        };
        let missed = &self.tested[closest];
        let has_passed = missed.judged.is_none() && missed.passes(&self.aims);
        // A search ends a judgement early. This one goes on with the same samples: others would be a second chance.
        if missed.judged_on().is_none_or(|judged| judged.verdict == JudgedVerdict::Undecided) {
            let purpose = if missed.judged.is_some() { missed.purpose.clone() } else { "closest".into() };
            self.judge_plan(closest, purpose, JudgeEffort::PLAN);
        }
        let missed = &mut self.tested[closest];
        let stopped = match (missed.judged_on(), self.options.limits().ended_by_caller()) {
            (Some(judged), _) if is_accepted(judged) => missed.candidate.stopped,
            // a run that its caller has ended has not tried everything
            (_, Some(reason)) => Some(reason),
            (Some(judged), None) => Some(stop_reason(judged)),
            // no time was left to judge a plan that passed its replay
            (None, None) if has_passed => Some(StopReason::TraceUndecided),
            (None, None) => Some(StopReason::TraceNotMet),
        };
        tracing::info!(?stopped, ended = ?self.stopped, "no plan of the rounds holds on fresh samples");
        missed.candidate.stopped = stopped;
        self.into_held(closest)
    }
}
