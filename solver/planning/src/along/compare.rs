//! Which planner gives the best plan for a load? Each planner plans the same problem, and the estimator replays each plan.
//!
//! The planners run one after the other, so the measured time belongs to one planner.

use crate::options::{Planner, PlanningOptions};
use crate::planners::plan;
use crate::replay;
use apportion_domain::{Estimate, Plan, PlanOutcome, PlanningReport, Problem};
use apportion_estimator::Workload;
use std::sync::Arc;

/// A planner in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A planner that is given the trace.
    OnTrace(Planner),
    /// The exact planner without the check loop: it knows the demand, not the trace.
    WithoutCheckLoop,
}

/// Share of a contender's time for its planner. The rest is for the replay.
const PLAN_PART: f64 = 0.8;
/// The name of the exact planner without the check loop.
const WITHOUT_CHECK_LOOP: &str = "milp-unchecked";

impl Contender {
    /// Every contender, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::OnTrace(Planner::Milp),
        Self::WithoutCheckLoop,
        Self::OnTrace(Planner::Greedy),
        Self::OnTrace(Planner::HardwareOnly),
        Self::OnTrace(Planner::Proteus),
        Self::OnTrace(Planner::CgMean),
        Self::OnTrace(Planner::CgPeak),
    ];

    /// The name in commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnTrace(planner) => planner.name(),
            Self::WithoutCheckLoop => WITHOUT_CHECK_LOOP,
        }
    }

    /// The contender with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// Result of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannerComparison {
    /// The contender.
    pub contender: Contender,
    /// Its outcome.
    pub outcome: PlanOutcome,
    /// Its report. The seconds are those of this contender alone, with the planner's own replay.
    pub report: PlanningReport,
    /// How the plan fares on the load, all pipelines together; `None` without a plan.
    pub estimate: Option<Estimate>,
    /// Whether every pipeline meets its percentile on the load.
    pub holds: bool,
}

impl PlannerComparison {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.outcome.plan()
    }
}

/// Plans with each contender and replays its plan on `workload`, which replaces the trace of `options`. The time limit of
/// `options` holds for each contender.
#[must_use]
pub fn compare(
    problem: &Problem,
    contenders: &[Contender],
    options: &PlanningOptions,
    workload: &Workload,
) -> Vec<PlannerComparison> {
    contenders.iter().map(|&contender| compare_one(problem, contender, options, workload)).collect()
}

fn compare_one(
    problem: &Problem,
    contender: Contender,
    options: &PlanningOptions,
    workload: &Workload,
) -> PlannerComparison {
    let (planner, trace) = match contender {
        Contender::OnTrace(planner) => (planner, Some(workload.clone())),
        Contender::WithoutCheckLoop => (Planner::Milp, None),
    };
    let (start, clock) = ((options.elapsed)(), options.elapsed.clone());
    let elapsed = Arc::new(move || clock().saturating_sub(start));
    let options = PlanningOptions { planner, trace, elapsed, ..options.clone() };
    let (outcome, report) = plan(problem, &options.with_share_of_time(PLAN_PART));
    let limits = options.limits().for_finishing();
    let replayed = outcome.plan().and_then(|plan| replay::replay(problem, plan, workload, &limits).ok());
    let holds =
        replayed.as_ref().is_some_and(|s| replay::percentile_misses(problem, &s.pipelines).iter().all(|&miss| miss <= 0.0));
    PlannerComparison { contender, outcome, report, estimate: replayed.map(|s| s.total), holds }
}
