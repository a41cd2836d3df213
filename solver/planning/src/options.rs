//! Which planner runs, on what, and within which limits?

use apportion_estimator::Workload;
use apportion_mip::{Limits, Listener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest that work on a solution may go on after the limit: its flows, its replay. So a solution that was found in time
/// is not lost.
const FINISH_TIME: Duration = Duration::from_millis(300);

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

    pub(crate) fn limits(&self) -> Limits {
        let finish_deadline = self.time_limit.map(|limit| limit + FINISH_TIME);
        Limits {
            elapsed: self.elapsed.clone(),
            cancel: self.cancel.clone(),
            deadline: self.time_limit,
            finish_deadline,
            listener: self.listener.clone(),
        }
    }

    /// The same within a part of the time that is left.
    pub(crate) fn with_share_of_time(&self, share: f64) -> Self {
        Self { time_limit: self.limits().with_share_of_time(share).deadline, ..self.clone() }
    }
}
