//! The calls of planners, checker and estimator. They block and burn a core, so they run on the blocking pool; a panic in
//! them fails the job and not the process.

use apportion_domain::{Plan, PlanOutcome, Problem, Trace};
use apportion_estimator::{ArrivalProcess, SimulateOptions, Workload, simulate};
use apportion_planning::ladder::{UP_TO_MAX, with_headroom};
use apportion_planning::{Listener, Planner, plan};
use apportion_wire::PlanFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use utoipa::ToSchema;
use uuid::Uuid;

/// Longest time that one plan may take, whatever is asked for.
pub const TIME_LIMIT_S_MAX: f64 = 3_600.0;
/// Time limit of a plan that asks for none.
const TIME_LIMIT_S: f64 = 60.0;
/// Seed of every trace drawn here: two plans meet the same arrivals.
const SEED: u64 = 1;

/// How a plan is to be solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanOptions {
    /// `milp` (default), `greedy`, or a baseline: `hardware-only`, `proteus`, `cg-mean`, `cg-peak`.
    #[serde(default = "milp")]
    pub planner: String,
    /// Relative gap at which a plan counts as optimal, 0 to 1; default 1e-4.
    #[serde(default = "gap")]
    pub gap: f64,
    /// Limit on the time spent solving, above 0, at most 3600; default 60.
    #[serde(default = "time_limit_s")]
    pub time_limit_s: f64,
    /// An uploaded trace that the plan must hold on, the same for each pipeline; default: Poisson at the demand, 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Uuid>,
    /// Also find the replicas for other loads, over and below the demand by so many times, 1 to 100: agents then follow them instead of
    /// InferLine's tuner; default: not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<f64>,
    /// What the ladder's rates are divided by; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder_headroom: Option<f64>,
}

fn milp() -> String {
    "milp".into()
}
fn gap() -> f64 {
    1e-4
}
fn time_limit_s() -> f64 {
    TIME_LIMIT_S
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { planner: milp(), gap: gap(), time_limit_s: time_limit_s(), trace: None, ladder: None, ladder_headroom: None }
    }
}

impl PlanOptions {
    /// What is refused: `(pointer, detail)`.
    #[must_use]
    pub fn refused(&self) -> Vec<(&'static str, String)> {
        let mut refused = Vec::new();
        if Planner::from_name(&self.planner).is_none() {
            refused.push(("/planner", format!("{}: expected one of {}", self.planner, Planner::NAMES.join(", "))));
        }
        if !(0.0..=1.0).contains(&self.gap) {
            refused.push(("/gap", format!("{}: expected 0 to 1", self.gap)));
        }
        if !(self.time_limit_s > 0.0 && self.time_limit_s <= TIME_LIMIT_S_MAX) {
            refused.push(("/time_limit_s", format!("{}: expected above 0, at most {TIME_LIMIT_S_MAX}", self.time_limit_s)));
        }
        if let Some(ladder) = self.ladder.filter(|ladder| !(1.0..=UP_TO_MAX).contains(ladder)) {
            refused.push(("/ladder", format!("{ladder}: expected 1 to {UP_TO_MAX} times the demand")));
        }
        refused
    }
}

/// A problem with all that its solving takes.
pub struct Ask {
    /// The problem.
    pub problem: Problem,
    /// How it is solved.
    pub options: PlanOptions,
    /// The trace of each pipeline, in the problem's order.
    pub traces: Vec<Trace>,
    /// Set it to stop.
    pub cancel: Arc<AtomicBool>,
    /// Whether someone will read why: alternatives and prices are worked out.
    pub explain: bool,
    /// Hears how far the search is.
    pub listener: Option<Listener>,
}

/// What came of it.
pub struct Solved {
    /// The outcome.
    pub outcome: PlanOutcome,
    /// Share of requests within the SLO on the traces; `None` without a plan.
    pub attainment: Option<f64>,
    /// The plan file.
    pub document: Value,
}

fn workload(traces: Vec<Trace>) -> Workload {
    Workload { traces, arrivals: ArrivalProcess::Poisson, seed: SEED }
}

/// Solves on the blocking pool and has the checker confirm the plan, whatever its planner says of it.
///
/// # Errors
/// If the planner panicked or its plan is broken: defects of ours, described by their message.
pub async fn solve(ask: Ask) -> Result<Solved, String> {
    let solving = tokio::task::spawn_blocking(move || {
        let begin = Instant::now();
        let options = apportion_planning::PlanOptions {
            planner: Planner::from_name(&ask.options.planner).unwrap_or_default(),
            gap: ask.options.gap,
            time_limit: Some(Duration::from_secs_f64(ask.options.time_limit_s.min(TIME_LIMIT_S_MAX))),
            cancel: ask.cancel,
            trace: Some(workload(ask.traces)),
            explain: ask.explain,
            listener: ask.listener,
            ladder: ask.options.ladder,
            ..apportion_planning::PlanOptions::new(Arc::new(move || begin.elapsed()))
        };
        let (outcome, report) = plan(&ask.problem, &options);
        let outcome = outcome.map(|plan| with_headroom(plan, ask.options.ladder_headroom.unwrap_or(1.0)));
        let attainment = report.estimate.as_ref().map(|e| e.attainment);
        let file = PlanFile::from_outcome(&ask.problem, &outcome, &report);
        let document = serde_json::to_value(&file).expect("a plan file is JSON");
        let findings = outcome.plan().map(|plan| apportion_checker::check(&ask.problem, plan)).unwrap_or_default();
        match findings.first() {
            Some(finding) => Err(format!("the planner's plan is broken: {}", sentence(finding))),
            None => Ok(Solved { outcome, attainment, document }),
        }
    });
    solving.await.unwrap_or_else(|error| Err(panic_message(error)))
}

fn sentence(finding: &apportion_checker::Finding) -> String {
    format!("{}: {}: {}", finding.rule, finding.place, finding.evidence)
}

fn panic_message(error: tokio::task::JoinError) -> String {
    let detail = error.try_into_panic().ok().and_then(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_string()))
    });
    format!("the planner broke down: {}", detail.unwrap_or_else(|| "it was stopped".into()))
}

/// How a plan fares in a problem that it was not made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Holds {
    /// What the checker finds, one sentence each.
    pub findings: Vec<String>,
    /// Share of requests within the SLO on the traces; 0 if the plan could not be replayed.
    pub attainment: f64,
}

/// Checks and replays a plan on the blocking pool. Of the problem's objective the budget and the latency rule matter.
///
/// # Errors
/// If checker or estimator panicked.
pub async fn holds(problem: Problem, plan: Plan, traces: Vec<Trace>) -> Result<Holds, String> {
    let checking = tokio::task::spawn_blocking(move || {
        let findings = apportion_checker::check(&problem, &plan);
        let run = simulate(&problem, &plan, &workload(traces), &SimulateOptions::default());
        Holds { findings: findings.iter().map(sentence).collect(), attainment: run.map_or(0.0, |run| run.total.attainment) }
    });
    checking.await.map_err(panic_message)
}
