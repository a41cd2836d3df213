//! Which of several plans for one load serves it better?

use super::judge::{JudgeEffort, JudgedPlan, judge_all};
use apportion_domain::{Plan, Problem};
use apportion_estimator::{Simulation, Workload};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Names the samples of a comparison. No search and no judgement of a single plan has seen them.
const PURPOSE: &str = "side by side";

/// Judges plans by one rule on the same fresh samples of a load. Samples are added until each plan is decided, or until the
/// effort or the time is spent. `clock` is the caller's monotonic clock, and `deadline` a time of it.
///
/// The answers have the order of the plans. An answer is `None` if the estimator refuses the plan or had no time for it;
/// the reason is logged. The total's `judged_on` names the samples, which are the same for every answer.
#[must_use]
pub fn judge_side_by_side(
    problem: &Problem,
    plans: &[&Plan],
    workload: &Workload,
    effort: JudgeEffort,
    clock: &Arc<dyn Fn() -> Duration + Send + Sync>,
    deadline: Option<Duration>,
) -> Vec<Option<Simulation>> {
    let limits = RunLimits::new(clock.clone());
    let limits = deadline.map_or(limits.clone(), |deadline| limits.ending_at(deadline));
    let judged: Vec<JudgedPlan<'_>> =
        plans.iter().map(|plan| JudgedPlan { problem, plan, workload, purpose: PURPOSE }).collect();
    judge_all(&judged, effort, &limits).into_iter().map(Result::ok).collect()
}
