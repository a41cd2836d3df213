//! How are planners, checker and estimator called?
//!
//! They block and use a whole core, so each call has a thread of its own. A panic in a call fails its job and not the
//! process.

use crate::analyses::simulation::SimulatedTimes;
use crate::app::counts;
use crate::decide::replacement::JudgedSides;
use crate::documents;
use crate::ladder_headroom::FACTORS;
use crate::store::jobs::SolveTime;
use apportion_domain::{ArrivalTrace, Plan, PlanOutcome, PlanningReport, Problem};
use apportion_estimator::{ArrivalProcess, Simulation, Workload};
use apportion_planning::ladder::{UP_TO_MAX, with_headroom};
use apportion_planning::{
    ExplanationDepth, FleetMemory, JudgeEffort, Listener, PlanListener, Planner, StopSignal, judge_side_by_side, plan,
};
use apportion_wire::{BadInput, PlanFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use utoipa::ToSchema;
use uuid::Uuid;

/// Highest time limit of one plan, in seconds.
pub const TIME_LIMIT_S_MAX: f64 = 3_600.0;
/// Default time limit of one plan, in seconds.
pub const TIME_LIMIT_S: f64 = 60.0;
/// Seed of every trace. Fresh samples have seeds that are derived from it: two plans are judged on the same arrivals.
const SEED: u64 = 1;

/// The options of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanOptions {
    /// `milp` (default), `greedy`, or a baseline: `hardware-only`, `proteus`, `cg-mean`, `cg-peak`.
    #[serde(default = "default_planner")]
    pub planner: String,
    /// Relative gap at which a plan counts as optimal, 0 to 1; default 1e-4.
    #[serde(default = "default_gap")]
    pub gap: f64,
    /// Limit on the time spent solving, above 0, at most 3600; default 60.
    #[serde(default = "default_time_limit_s")]
    pub time_limit_s: f64,
    /// An uploaded trace that the plan must hold on, the same for each pipeline; default: Poisson at the demand, 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Uuid>,
    /// Also find the replicas for other loads, from the demand divided by this factor to the demand times it, 1 to 100.
    /// Agents then follow them instead of InferLine's tuner; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<f64>,
    /// The divisor of the ladder's rates, 0.1 to 10 and at most `ladder`: a constant headroom. Default: the rates stay, and
    /// the misses move the headroom in the agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder_headroom: Option<f64>,
    /// Times of batches that the plan is checked on; default `p99-matched`. The plan's report warns of `median`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<SimulatedTimes>,
}

fn default_planner() -> String {
    Planner::default().name().to_owned()
}

fn default_gap() -> f64 {
    1e-4
}

fn default_time_limit_s() -> f64 {
    TIME_LIMIT_S
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            planner: default_planner(),
            gap: default_gap(),
            time_limit_s: default_time_limit_s(),
            trace: None,
            ladder: None,
            ladder_headroom: None,
            service: None,
        }
    }
}

impl PlanOptions {
    /// Limit on the time spent solving.
    #[must_use]
    pub fn time_limit(&self) -> Duration {
        Duration::from_secs_f64(self.time_limit_s.clamp(0.0, TIME_LIMIT_S_MAX))
    }

    /// How much time the solver may take: long if the limit is above the default.
    #[must_use]
    pub fn solve_time(&self) -> SolveTime {
        if self.time_limit_s > TIME_LIMIT_S { SolveTime::Long } else { SolveTime::Usual }
    }

    /// The options that are out of their bounds.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedOption> {
        let mut refused = Vec::new();
        let mut refuse = |pointer, detail| refused.push(RefusedOption { pointer, detail });
        if Planner::from_name(&self.planner).is_none() {
            refuse("/planner", format!("{}: expected one of {}", self.planner, Planner::NAMES.join(", ")));
        }
        if !(0.0..=1.0).contains(&self.gap) {
            refuse("/gap", format!("{}: expected 0 to 1", self.gap));
        }
        if !(self.time_limit_s > 0.0 && self.time_limit_s <= TIME_LIMIT_S_MAX) {
            refuse("/time_limit_s", format!("{}: expected above 0, at most {TIME_LIMIT_S_MAX}", self.time_limit_s));
        }
        if let Some(ladder) = self.ladder.filter(|ladder| !(1.0..=UP_TO_MAX).contains(ladder)) {
            refuse("/ladder", format!("{ladder}: expected 1 to {UP_TO_MAX} times the demand"));
        }
        match (self.ladder_headroom, self.ladder) {
            (Some(headroom), None) => {
                refuse("/ladder_headroom", format!("{headroom}: expected `ladder` beside it, or no such member"));
            }
            // A ladder must reach the plan's own demand.
            (Some(headroom), Some(ladder)) if !(FACTORS.contains(&headroom) && headroom <= ladder) => {
                let (least, most) = (FACTORS.start(), ladder.min(*FACTORS.end()));
                let expected = format!("a factor from {least} to {most}, the smaller of `ladder` and {}", FACTORS.end());
                refuse("/ladder_headroom", format!("{headroom}: expected {expected}"));
            }
            _ => {}
        }
        refused
    }
}

/// An option that is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOption {
    /// Its JSON pointer.
    pub pointer: &'static str,
    /// The value, and what would be right.
    pub detail: String,
}

/// Why a plan could not be solved or replayed: a defect of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// The call panicked.
    #[error("{who} broke down: {detail}")]
    Panic {
        /// The part that panicked.
        who: &'static str,
        /// The message of the panic.
        detail: String,
    },
    /// The checker refuses the planner's plan.
    #[error("the planner's plan breaks a rule: {0}")]
    BrokenPlan(String),
    /// The machine has no thread for it.
    #[error("no thread could be started for {who}: {detail}")]
    NoThread {
        /// The part.
        who: &'static str,
        /// The error of the operating system.
        detail: String,
    },
    /// Its thread ended without an answer.
    #[error("{0} ended without an answer")]
    NoAnswer(&'static str),
}

/// A problem with everything that a solver needs.
pub struct SolveRequest {
    /// The problem.
    pub problem: Problem,
    /// The options.
    pub options: PlanOptions,
    /// The trace of each pipeline, in the problem's order. Without any, no plan is replayed.
    pub traces: Vec<ArrivalTrace>,
    /// Ends the search without a plan when it is set.
    pub cancel: Arc<AtomicBool>,
    /// Ends the search with the best plan so far when it is asked.
    pub stop: Arc<StopSignal>,
    /// How far the plan is explained.
    pub explain: ExplanationDepth,
    /// What is remembered of a fleet that was planned before.
    pub memory: Option<FleetMemory>,
    /// Receives the progress of the search.
    pub listener: Option<Listener>,
    /// Receives the plan file of each better plan before the last one.
    pub file_listener: Option<PlanFileListener>,
}

impl SolveRequest {
    /// A request that nobody watches or ends. Its plan is explained in brief. The problem has the times of the options.
    #[must_use]
    pub fn unwatched(problem: Problem, options: PlanOptions, traces: Vec<ArrivalTrace>) -> Self {
        let problem = options.service.unwrap_or_default().planned(problem);
        Self {
            problem,
            options,
            traces,
            cancel: Arc::default(),
            stop: Arc::default(),
            explain: ExplanationDepth::Brief,
            memory: None,
            listener: None,
            file_listener: None,
        }
    }
}

/// Receives plan files. The thread that searches calls it.
pub type PlanFileListener = Box<dyn Fn(Value) + Send + Sync>;

/// The result of a solver.
pub struct SolvedPlan {
    /// The outcome.
    pub outcome: PlanOutcome,
    /// Share of requests within the SLO on fresh samples of the traces; `None` without a plan.
    pub attainment: Option<f64>,
    /// The plan file.
    pub document: Value,
}

/// The load of each pipeline: the uploaded trace (CSV), the same for each. Without one, a steady load at its demand for
/// 60 s.
///
/// # Errors
/// If the trace cannot be read.
pub(super) fn each_trace(problem: &Problem, uploaded: Option<&str>) -> Result<Vec<ArrivalTrace>, BadInput> {
    const DEFAULT_TRACE_S: u64 = 60;
    Ok(match uploaded {
        Some(csv) => vec![apportion_wire::read_trace("trace", csv.as_bytes(), None)?; problem.pipelines.len()],
        None => problem.pipelines.iter().map(|p| documents::steady(p.demand_qps, DEFAULT_TRACE_S)).collect(),
    })
}

pub(super) fn workload(traces: Vec<ArrivalTrace>) -> Workload {
    Workload { traces, arrivals: ArrivalProcess::Poisson, seed: SEED }
}

/// Solves a problem in a thread of its own, and checks the plan with the checker. If the future is dropped, the search
/// stops.
///
/// # Errors
/// If the planner panicked, or its plan breaks a rule.
pub async fn solve(request: SolveRequest) -> Result<SolvedPlan, SolveError> {
    solve_in_place(request, ()).await
}

/// As [`solve`]; `place` is held until the planner has ended, even after the future is dropped.
///
/// # Errors
/// As [`solve`].
pub(super) async fn solve_in_place(request: SolveRequest, place: impl Send + 'static) -> Result<SolvedPlan, SolveError> {
    let cancel = request.cancel.clone();
    let work = move || {
        let solved = plan_and_check(request);
        drop(place);
        solved
    };
    run_planner(cancel, work).await
}

/// Runs a planner in a thread of its own. If the future is dropped, `cancel` is set.
pub(super) async fn run_planner<T: Send + 'static>(
    cancel: Arc<AtomicBool>,
    work: impl FnOnce() -> Result<T, SolveError> + Send + 'static,
) -> Result<T, SolveError> {
    let mut cancel = CancelOnDrop(Some(cancel));
    let done = run_in_thread("the planner", work).await;
    cancel.0 = None;
    done?
}

/// Stops a search when it is dropped.
struct CancelOnDrop(Option<Arc<AtomicBool>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.store(true, Ordering::Relaxed);
        }
    }
}

fn plan_and_check(request: SolveRequest) -> Result<SolvedPlan, SolveError> {
    let begin = Instant::now();
    let plan_listener = request.file_listener.map(|receive| {
        let (problem, headroom) = (request.problem.clone(), request.options.ladder_headroom.unwrap_or(1.0));
        let listener = move |outcome: &PlanOutcome, report: &PlanningReport| {
            let outcome = outcome.clone().map(|plan| with_headroom(plan, headroom));
            if outcome.plan().is_some_and(|plan| apportion_checker::check(&problem, plan).is_empty()) {
                receive(document(&problem, &outcome, report));
            }
        };
        Arc::new(listener) as PlanListener
    });
    let options = apportion_planning::PlanningOptions {
        planner: Planner::from_name(&request.options.planner).unwrap_or_default(),
        gap: request.options.gap,
        time_limit: Some(request.options.time_limit()),
        cancel: request.cancel,
        stop: request.stop,
        trace: (!request.traces.is_empty()).then(|| workload(request.traces)),
        explain: request.explain,
        listener: request.listener,
        plan_listener,
        ladder: request.options.ladder,
        memory: request.memory,
        ..apportion_planning::PlanningOptions::new(Arc::new(move || begin.elapsed()))
    };
    let (outcome, report) = plan(&request.problem, &options);
    let outcome = outcome.map(|plan| with_headroom(plan, request.options.ladder_headroom.unwrap_or(1.0)));
    check_outcome(&request.problem, outcome, &report)
}

/// Checks the plan of an outcome with the checker, and writes its file.
///
/// # Errors
/// If the plan breaks a rule.
pub(super) fn check_outcome(
    problem: &Problem,
    outcome: PlanOutcome,
    report: &PlanningReport,
) -> Result<SolvedPlan, SolveError> {
    let attainment = report.estimate.as_ref().map(|e| e.attainment);
    let document = document(problem, &outcome, report);
    let findings = outcome.plan().map(|plan| apportion_checker::check(problem, plan)).unwrap_or_default();
    match findings.first() {
        Some(finding) => Err(SolveError::BrokenPlan(sentence(finding))),
        None => Ok(SolvedPlan { outcome, attainment, document }),
    }
}

/// The plan file of an outcome.
fn document(problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport) -> Value {
    serde_json::to_value(PlanFile::from_outcome(problem, outcome, report)).expect("a plan file is JSON")
}

/// Runs blocking work in a thread of its own. Unlike tokio's blocking pool, the thread does not delay the end of the
/// process.
pub(super) async fn run_in_thread<T: Send + 'static>(
    who: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SolveError> {
    let (sender, answer) = oneshot::channel();
    let run = move || {
        let done = catch_unwind(AssertUnwindSafe(work)).map_err(|payload| report_panic(who, payload.as_ref()));
        // The receiver may be gone.
        let _unsent = sender.send(done);
    };
    let thread = std::thread::Builder::new().name("plan".to_owned()).spawn(run);
    thread.map_err(|error| SolveError::NoThread { who, detail: error.to_string() })?;
    answer.await.map_err(|_| SolveError::NoAnswer(who))?
}

/// Logs a panic and counts it.
fn report_panic(who: &'static str, payload: &(dyn Any + Send)) -> SolveError {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let detail = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
    counts::PANICS.increment();
    tracing::error!(who, detail, "a panic: a defect of ours");
    SolveError::Panic { who, detail: detail.to_owned() }
}

fn sentence(finding: &apportion_checker::Finding) -> String {
    format!("{}: {}: {}", finding.rule, finding.place, finding.evidence)
}

/// Checks the plan in force in a problem that it was not made for. Judges it beside a new one on the same fresh samples of
/// the traces. Both run in a thread of their own. Of the problem's objective, the budget and the latency rule matter.
///
/// # Errors
/// If checker or estimator panicked.
pub async fn judge_sides(
    problem: Problem,
    in_force: Plan,
    new: Plan,
    traces: Vec<ArrivalTrace>,
) -> Result<JudgedSides, SolveError> {
    run_in_thread("the checker", move || check_and_judge(&problem, [&in_force, &new], traces)).await
}

/// As [`judge_sides`], in the caller's thread. The plan in force is the first.
fn check_and_judge(problem: &Problem, plans: [&Plan; 2], traces: Vec<ArrivalTrace>) -> JudgedSides {
    let findings = apportion_checker::check(problem, plans[0]);
    if !findings.is_empty() {
        return JudgedSides { findings: findings.iter().map(sentence).collect(), ..JudgedSides::default() };
    }
    let begin = Instant::now();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(move || begin.elapsed());
    let judged = judge_side_by_side(problem, &plans, &workload(traces), JudgeEffort::ROUND, &clock, None);
    tracing::debug!(seconds = begin.elapsed().as_secs_f64(), "both plans were judged");
    let attainment = |side: usize| judged[side].as_ref().map_or(0.0, |run| run.total.attainment);
    let samples = |run: &Simulation| run.total.judged_on.as_ref().map_or(0, |judged| judged.samples);
    JudgedSides {
        findings: Vec::new(),
        in_force: attainment(0),
        new: attainment(1),
        samples: judged.iter().flatten().map(samples).max().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headroom_of_ladders_has_bounds() {
        let refused = |ladder: Option<f64>, headroom: f64| {
            let options = PlanOptions { ladder, ladder_headroom: Some(headroom), ..PlanOptions::default() };
            options.refused().into_iter().map(|refused| (refused.pointer, refused.detail)).next()
        };
        assert_eq!([0.1, 1.0, 4.0].map(|headroom| refused(Some(4.0), headroom)), [None, None, None]);
        for wrong in [0.0, 4.1, f64::NAN] {
            let (pointer, detail) = refused(Some(4.0), wrong).expect("it is out of its bounds");
            assert_eq!(pointer, "/ladder_headroom");
            assert!(detail.starts_with(&format!("{wrong}: expected a factor from 0.1 to 4,")), "{detail}");
        }
        let alone = refused(None, 1.5).expect("there is no ladder").1;
        assert_eq!(alone, "1.5: expected `ladder` beside it, or no such member");
        assert_eq!(PlanOptions::default().refused(), []);
    }

    #[tokio::test]
    async fn a_panic_is_reported_and_counted() {
        let before = counts::PANICS.get();
        let broken: Result<(), SolveError> = run_in_thread("the planner", || panic!("no {}", "flow")).await;
        assert_eq!(broken.map_err(|error| error.to_string()), Err("the planner broke down: no flow".into()));
        assert_eq!(counts::PANICS.get(), before + 1);
        assert_eq!(run_in_thread("the planner", || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn dropping_the_request_stops_the_search() {
        let cancel = Arc::new(AtomicBool::new(false));
        drop(CancelOnDrop(Some(cancel.clone())));
        assert!(cancel.load(Ordering::Relaxed));
    }
}
