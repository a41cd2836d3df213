//! The calls of planners, checker and estimator. They block and burn a core, so each has a thread of its own; a panic in
//! them fails the job and not the process.

use super::counts;
use apportion_domain::{Plan, PlanOutcome, Problem, Trace};
use apportion_estimator::{ArrivalProcess, SimulateOptions, Workload, simulate};
use apportion_planning::ladder::{UP_TO_MAX, with_headroom};
use apportion_planning::{Listener, Planner, plan};
use apportion_wire::PlanFile;
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
    /// Also find the replicas for other loads, over and below the demand by so many times, 1 to 100: agents then follow
    /// them instead of InferLine's tuner; default: not.
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
    /// Limit on the time spent solving.
    #[must_use]
    pub fn time_limit(&self) -> Duration {
        Duration::from_secs_f64(self.time_limit_s.clamp(0.0, TIME_LIMIT_S_MAX))
    }

    /// Whether a plan may take so long that it must leave places to others.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.time_limit_s > TIME_LIMIT_S
    }

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

/// Solves in a thread of its own and has the checker confirm the plan, whatever its planner says of it. Who no longer waits
/// for the answer stops the search.
///
/// # Errors
/// If the planner panicked or its plan is broken: defects of ours, described by their message.
pub async fn solve(ask: Ask) -> Result<Solved, String> {
    solve_holding(ask, ()).await
}

/// The same; `held` is kept until the planner has ended, even if nobody waits for it any more.
///
/// # Errors
/// As [`solve`].
pub(super) async fn solve_holding(ask: Ask, held: impl Send + 'static) -> Result<Solved, String> {
    let mut leaving = Leaving(Some(ask.cancel.clone()));
    let solved = in_a_thread("the planner", move || {
        let solved = solved(ask);
        drop(held);
        solved
    });
    let solved = solved.await;
    leaving.0 = None;
    solved?
}

/// Stops a search when it is dropped.
struct Leaving(Option<Arc<AtomicBool>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.store(true, Ordering::Relaxed);
        }
    }
}

fn solved(ask: Ask) -> Result<Solved, String> {
    let begin = Instant::now();
    let options = apportion_planning::PlanOptions {
        planner: Planner::from_name(&ask.options.planner).unwrap_or_default(),
        gap: ask.options.gap,
        time_limit: Some(ask.options.time_limit()),
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
}

/// Runs what blocks in a thread of its own: the process may end while it runs, which tokio's blocking pool would wait for.
async fn in_a_thread<T: Send + 'static>(who: &'static str, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (tell, told) = oneshot::channel();
    let run = move || {
        let done = catch_unwind(AssertUnwindSafe(work)).map_err(|payload| broke_down(who, payload.as_ref()));
        // Nobody may be waiting any more.
        let _unheard = tell.send(done);
    };
    let name = "plan".to_owned();
    std::thread::Builder::new().name(name).spawn(run).map_err(|e| format!("there is no thread for {who}: {e}"))?;
    told.await.map_err(|_| format!("{who} ended without a word"))?
}

/// Reports a panic and counts it.
fn broke_down(who: &str, payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let detail = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
    counts::PANICS.add();
    tracing::error!(who, detail, "a panic: a defect of ours");
    format!("{who} broke down: {detail}")
}

fn sentence(finding: &apportion_checker::Finding) -> String {
    format!("{}: {}: {}", finding.rule, finding.place, finding.evidence)
}

/// How a plan fares in a problem that it was not made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Holds {
    /// What the checker finds, one sentence each.
    pub findings: Vec<String>,
    /// Share of requests within the SLO on the traces; 0 if the plan could not be replayed.
    pub attainment: f64,
}

/// Checks and replays a plan in a thread of its own. Of the problem's objective the budget and the latency rule matter.
///
/// # Errors
/// If checker or estimator panicked.
pub async fn holds(problem: Problem, plan: Plan, traces: Vec<Trace>) -> Result<Holds, String> {
    in_a_thread("the checker", move || {
        let findings = apportion_checker::check(&problem, &plan);
        let run = simulate(&problem, &plan, &workload(traces), &SimulateOptions::default());
        Holds { findings: findings.iter().map(sentence).collect(), attainment: run.map_or(0.0, |run| run.total.attainment) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_and_counted() {
        let before = counts::PANICS.get();
        let fails = || -> u32 { panic!("no {}", "flow") };
        let broken = in_a_thread("the planner", fails).await;
        assert_eq!(broken, Err("the planner broke down: no flow".into()));
        assert_eq!(counts::PANICS.get(), before + 1);
        assert_eq!(in_a_thread("the planner", || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn who_leaves_stops_the_search() {
        let cancel = Arc::new(AtomicBool::new(false));
        drop(Leaving(Some(cancel.clone())));
        assert!(cancel.load(Ordering::Relaxed));
    }
}
