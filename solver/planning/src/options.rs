//! Which planner runs, on what, and within which limits?

use crate::fleet_memory::FleetMemory;
use crate::stopwatch::{RunPart, Stopwatch};
use apportion_domain::{PlanOutcome, PlanningReport};
use apportion_estimator::Workload;
use apportion_mip::{Listener, RunLimits, StopSignal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest that work on a solution may go on after the limit: its flows, its replay. So a solution that was found in time
/// is not lost.
const FINISH_TIME: Duration = Duration::from_millis(300);

/// A planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// Mixed-integer programming: Loki's two steps, least cost, or highest accuracy.
    #[default]
    Milp,
    /// The heuristic beside it: prices of devices, and small integer programmes for the best budgets at these prices.
    PriceAndBranch,
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
    pub const ALL: [Self; 7] =
        [Self::Milp, Self::PriceAndBranch, Self::Greedy, Self::HardwareOnly, Self::Proteus, Self::CgMean, Self::CgPeak];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 7] = {
        let mut names = [""; 7];
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
            Self::PriceAndBranch => "price-and-branch",
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

/// Receives a plan that the run could end with, with its estimate, without an explanation. The thread that searches calls
/// it.
pub type PlanListener = Arc<dyn Fn(&PlanOutcome, &PlanningReport) + Send + Sync>;

/// How far is a plan explained?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExplanationDepth {
    /// By arithmetic on the plan: reasons, binding limits, neighbouring batch sizes.
    #[default]
    Brief,
    /// Also by searches: prices of one more unit of each resource, other variants and hardware for each task.
    Full {
        /// Longest that these searches together may take: they run while somebody waits.
        within: Duration,
    },
}

/// Settings of one run. Planning reads no clock; the caller passes `elapsed`.
#[derive(Clone)]
pub struct PlanningOptions {
    /// Which planner.
    pub planner: Planner,
    /// Relative gap at which a plan counts as optimal.
    pub gap: f64,
    /// Limit of `elapsed` for the whole run: formulation, search, replays, explanation, ladder. Work on a solution that was
    /// found in time may take some tenths of a second more. Where none was found, a quick search may take a second more.
    pub time_limit: Option<Duration>,
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The caller sets it to end the run without a plan.
    pub cancel: Arc<AtomicBool>,
    /// The caller ends the search by it, and gets the best plan so far. The work on that plan takes 2 s more at most.
    pub stop: Arc<StopSignal>,
    /// The plan must hold on this load (check loop); `None` plans the optimum of the formulation.
    pub trace: Option<Workload>,
    /// How far the plan is explained.
    pub explain: ExplanationDepth,
    /// Receives every better plan and bound while the search runs.
    pub listener: Option<Listener>,
    /// Receives the plan of each round of the check loop that passes its replay and is better than those before.
    pub plan_listener: Option<PlanListener>,
    /// Makes ladders up to this many times the plan's demand ([`ladder`](crate::ladder)). If the exact planner plans for
    /// least cost on a trace, the greedy planner then plans too, within the remaining time. The result is the plan whose
    /// ladders are cheaper at the demand.
    pub ladder: Option<f64>,
    /// What is remembered of a fleet that was planned before: the next plan goes on from there. `None` remembers nothing.
    pub memory: Option<FleetMemory>,
    /// Where the run notes what takes its time. A run needs one of its own.
    pub stopwatch: Arc<Stopwatch>,
}

impl PlanningOptions {
    /// The exact planner with a gap of 1e-4, with a brief explanation, without a limit and a trace.
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
            stop: Arc::default(),
            trace: None,
            explain: ExplanationDepth::Brief,
            listener: None,
            plan_listener: None,
            ladder: None,
            memory: None,
            stopwatch: Arc::default(),
        }
    }

    pub(crate) fn limits(&self) -> RunLimits {
        let finish_deadline = self.time_limit.map(|limit| limit + FINISH_TIME);
        RunLimits {
            cancel: self.cancel.clone(),
            stop: self.stop.clone(),
            deadline: self.time_limit,
            finish_deadline,
            listener: self.listener.clone(),
            ..RunLimits::new(self.elapsed.clone())
        }
    }

    /// The result of `work`, whose time counts for this part of the run.
    pub(crate) fn measured<T>(&self, part: RunPart, work: impl FnOnce() -> T) -> T {
        let start = (self.elapsed)();
        let result = work();
        self.stopwatch.add(part, (self.elapsed)().saturating_sub(start));
        result
    }

    /// These options with a share of the remaining time.
    pub(crate) fn with_share_of_time(&self, share: f64) -> Self {
        Self { time_limit: self.limits().with_share_of_time(share).deadline, ..self.clone() }
    }
}
