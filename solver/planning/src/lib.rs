//! Planners: which variants run on which hardware, with which batch size and how many replicas.
//!
//! What belongs here: formulations, searches over them, the check loop that makes plans hold on a trace, and the words that
//! explain a plan or say why there is none. What never does: clocks (the caller passes one), I/O, databases, how a plan is
//! carried out.
//!
//! The exact planner is the module `milp`, whose documentation is the formulation; the greedy one is `greedy` (InferLine);
//! `baselines` are what the papers compare themselves with. [`frontier`] plans along one value of a problem.
//! Every plan is confirmed by the independent checker and replayed by the estimator before it is returned.
//!
//! The commonest addition is a rule that plans must obey: add it to the checker with a fixture that it must reject, then
//! its row to `milp::constraints`, then a tiny problem to the brute-force test that only the rule decides.

mod baselines;
pub mod bench;
#[cfg(test)]
mod bounded;
pub mod change;
mod check_loop;
pub mod compare;
mod explain;
#[cfg(test)]
mod fixtures;
pub mod frontier;
mod greedy;
mod infeasible;
pub mod ladder;
mod limits;
mod milp;
mod replay;
mod report;
mod routing;
pub mod scaling;
mod tightening;

use apportion_domain::{Mode, Plan, PlanOutcome, PlanningReport, Problem, SLACK};
use apportion_estimator::Workload;
use limits::Limits;
pub use limits::{Incumbent, Listener};
pub use replay::REPLAY_VISITS_MAX;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Which planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// Mixed-integer programming: Loki's two steps, least cost, or highest accuracy.
    #[default]
    Milp,
    /// InferLine's Algorithms 1 and 2 on the estimator.
    Greedy,
    /// Baseline: InferLine as Loki evaluates it, replicas of the most accurate variants alone.
    HardwareOnly,
    /// Baseline: accuracy scaling by task, unaware of the pipeline.
    Proteus,
    /// Baseline: the pipeline as one unit, replicated for the trace's mean rate.
    CgMean,
    /// Baseline: the same for its peak rate over a window of one SLO.
    CgPeak,
}

impl Planner {
    /// Every planner, in the order of the documentation.
    pub const ALL: [Self; 6] = [Self::Milp, Self::Greedy, Self::HardwareOnly, Self::Proteus, Self::CgMean, Self::CgPeak];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 6] = {
        let mut names = [""; 6];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ALL[i].name();
            i += 1;
        }
        names
    };

    /// The name in files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Milp => "milp",
            Self::Greedy => "greedy",
            Self::HardwareOnly => "hardware-only",
            Self::Proteus => "proteus",
            Self::CgMean => "cg-mean",
            Self::CgPeak => "cg-peak",
        }
    }

    /// The planner with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// Settings of one run. Planning reads no clock: `elapsed` does.
#[derive(Clone)]
pub struct PlanOptions {
    /// Which planner.
    pub planner: Planner,
    /// Relative gap at which a plan counts as optimal.
    pub gap: f64,
    /// Limit of `elapsed` on everything: formulation, search, replays, explanation, ladder. What was found by then may be worked on
    /// for some tenths of a second more.
    pub time_limit: Option<Duration>,
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Set it to stop the run.
    pub cancel: Arc<AtomicBool>,
    /// The plan must hold on it (check loop); `None` plans the formulation's own optimum.
    pub trace: Option<Workload>,
    /// Whether alternatives and prices are worked out once the plan is settled; what binds is always said.
    pub explain: bool,
    /// Hears of every better plan and bound while the search runs.
    pub listener: Option<Listener>,
    /// The plan's ladders are made up to so many times its demand: `ladder::with_ladders`. Where the exact planner plans
    /// for least cost on a trace, the greedy one then plans too, in what is left of the time limit, and the plan whose ladders are
    /// cheaper at the demand is answered.
    pub ladder: Option<f64>,
}

impl PlanOptions {
    /// The exact planner with gap 1e-4, without limit and trace, with explanations.
    #[must_use]
    pub fn new(elapsed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let cancel = Arc::default();
        let planner = Planner::default();
        Self {
            planner,
            gap: 1e-4,
            time_limit: None,
            elapsed,
            cancel,
            trace: None,
            explain: true,
            listener: None,
            ladder: None,
        }
    }

    fn limits(&self) -> Limits {
        let finish = self.time_limit.map(|limit| limit + limits::FINISH_TIME);
        Limits {
            elapsed: self.elapsed.clone(),
            cancel: self.cancel.clone(),
            until: self.time_limit,
            finish,
            listener: self.listener.clone(),
        }
    }

    /// The same within a part of the time that is left.
    fn part(&self, share: f64) -> Self {
        Self { time_limit: self.limits().part(share).until, ..self.clone() }
    }
}

/// Part of the time left that a plan gets where something comes after it: its ladders, or another planner.
const FIRST_PART: f64 = 0.5;

/// Plans: the outcome and how it came about. Ends within the time limit, and soon after it was cancelled; a plan whose replay was cut
/// short is [`PlanOutcome::Feasible`] with the reason, and has no estimate.
pub fn plan(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    let Some(up_to) = options.ladder else { return bare(problem, options) };
    let has_rival = options.planner == Planner::Milp && options.trace.is_some() && problem.objective.mode == Mode::MinCost;
    if !has_rival {
        return with_ladders(problem, options, up_to);
    }
    let exact = with_ladders(problem, &options.part(FIRST_PART), up_to);
    let Some(plan) = exact.0.plan().filter(|_| !options.limits().stopped()) else { return exact };
    let (start, clock) = ((options.elapsed)(), options.elapsed.clone());
    let elapsed = Arc::new(move || clock().saturating_sub(start));
    let time_limit = options.limits().left();
    let rival = PlanOptions { planner: Planner::Greedy, elapsed, time_limit, listener: None, ..options.clone() };
    let greedy = with_ladders(problem, &rival, up_to);
    let price = |plan: &Plan| ladder::price_at_demand(problem, plan);
    // One without ladders knows nothing but its demand.
    let has_ladders = |plan: &&Plan| plan.pipelines.iter().all(|part| !part.ladder.is_empty());
    let is_cheaper = greedy.0.plan().filter(has_ladders).is_some_and(|found| price(found) < price(plan) * (1.0 - SLACK));
    // One whose replay was cut short has not been seen to hold.
    if is_cheaper && greedy.1.estimate.is_some() { greedy } else { exact }
}

/// A plan of one planner with its ladders.
fn with_ladders(problem: &Problem, options: &PlanOptions, up_to: f64) -> (PlanOutcome, PlanningReport) {
    let (outcome, mut report) = bare(problem, &options.part(FIRST_PART));
    let limits = options.limits();
    let outcome = outcome.map(|plan| {
        let (plan, left_out) = ladder::with_ladders(problem, plan, up_to, &limits);
        report.explanation.left_out.extend(left_out);
        plan
    });
    (outcome, report)
}

/// A plan without ladders.
fn bare(problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    match (options.planner, &options.trace) {
        (Planner::Greedy, _) => greedy::plan(problem, options),
        (Planner::HardwareOnly, _) => baselines::hardware_only::plan(problem, options),
        (Planner::Proteus, _) => baselines::proteus::plan(problem, options),
        (Planner::CgMean, _) => baselines::coarse::plan(problem, options, baselines::coarse::Rate::Mean),
        (Planner::CgPeak, _) => baselines::coarse::plan(problem, options, baselines::coarse::Rate::Peak),
        (Planner::Milp, Some(workload)) => check_loop::hold(problem, options, workload),
        (Planner::Milp, None) => report::once(problem, options),
    }
}
