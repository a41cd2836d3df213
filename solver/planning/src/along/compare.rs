//! Which planner gives the best plan for a load? Each planner plans the same problem, and all plans are judged on the same
//! fresh samples of the load.
//!
//! The planners run one after the other, so the measured time belongs to one planner.

use crate::held_out::effort::JudgeEffort;
use crate::held_out::side_by_side::judge_side_by_side_within;
use crate::options::{Planner, PlanningOptions};
use crate::planners::plan;
use apportion_domain::{Estimate, JudgedOn, JudgedVerdict, Plan, PlanOutcome, PlanningReport, Problem};
use apportion_estimator::Workload;
use apportion_mip::RunLimits;
use std::sync::Arc;

/// A planner in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A planner that is given the trace.
    OnTrace(Planner),
    /// The exact planner without the check loop: it knows the demand, not the trace.
    WithoutCheckLoop,
}

/// Share of a contender's time for its planner. The rest is for the judgement.
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
    /// Its report. The seconds are those of this contender alone, with the planner's own judgement.
    pub report: PlanningReport,
    /// How the plan fares on the fresh samples, all pipelines together; `None` without a plan or a judgement.
    pub estimate: Option<Estimate>,
}

impl PlannerComparison {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.outcome.plan()
    }

    /// The samples, which are the same for each contender of a comparison.
    #[must_use]
    pub fn judged_on(&self) -> Option<&JudgedOn> {
        self.estimate.as_ref()?.judged_on.as_ref()
    }

    /// Whether every pipeline meets its percentile on the samples.
    #[must_use]
    pub fn verdict(&self) -> Option<JudgedVerdict> {
        self.judged_on().map(|judged| judged.verdict)
    }
}

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub enum ComparisonStep<'a> {
    /// A contender begins its search.
    Begins(Contender),
    /// A contender has ended. Its plan is not judged yet.
    Planned(&'a PlannerComparison),
}

/// Plans with each contender, and judges all plans on fresh samples of `workload`, which replaces the trace of `options`.
/// The time limit of `options` holds for each contender. `on_step` is called before and after each contender's search. A
/// comparison that is cancelled ends without a judgement.
#[must_use]
pub fn compare(
    problem: &Problem,
    contenders: &[Contender],
    options: &PlanningOptions,
    workload: &Workload,
    mut on_step: impl FnMut(ComparisonStep<'_>),
) -> Vec<PlannerComparison> {
    let mut rows = Vec::with_capacity(contenders.len());
    for &contender in contenders {
        on_step(ComparisonStep::Begins(contender));
        let row = plan_as(problem, contender, options, workload);
        on_step(ComparisonStep::Planned(&row));
        rows.push(row);
    }
    let plans: Vec<&Plan> = rows.iter().filter_map(PlannerComparison::plan).collect();
    let time = |limit: std::time::Duration| limit.mul_f64((1.0 - PLAN_PART) * plans.len() as f64);
    let deadline = options.time_limit.map(|limit| (options.elapsed)() + time(limit));
    let limits = RunLimits { cancel: options.cancel.clone(), ..RunLimits::new(options.elapsed.clone()) };
    let limits = deadline.map_or(limits.clone(), |deadline| limits.ending_at(deadline));
    let judged = judge_side_by_side_within(problem, &plans, workload, JudgeEffort::PLAN, &limits);
    let with_plan = rows.iter_mut().filter(|row| row.plan().is_some());
    with_plan.zip(judged).for_each(|(row, judged)| row.estimate = judged.map(|simulation| simulation.total));
    rows
}

/// The plan of one contender, before it is judged.
fn plan_as(problem: &Problem, contender: Contender, options: &PlanningOptions, workload: &Workload) -> PlannerComparison {
    let (planner, trace) = match contender {
        Contender::OnTrace(planner) => (planner, Some(workload.clone())),
        Contender::WithoutCheckLoop => (Planner::Milp, None),
    };
    let (start, clock) = ((options.elapsed)(), options.elapsed.clone());
    let elapsed = Arc::new(move || clock().saturating_sub(start));
    let options = PlanningOptions { planner, trace, elapsed, ..options.clone() };
    let (outcome, report) = plan(problem, &options.with_share_of_time(PLAN_PART));
    PlannerComparison { contender, outcome, report, estimate: None }
}
