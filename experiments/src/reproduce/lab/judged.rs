//! How do plans fare on fresh samples of the load that they were made on?

use apportion_domain::{Dropping, JudgedOn, JudgedVerdict, Plan, Problem};
use apportion_estimator::Workload;
use apportion_planning::{JudgeEffort, judge_side_by_side};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sentence of a report's method.
pub const JUDGED: &str = "All plans of a case are judged on the same fresh samples of the load, at least five, which no \
                          planner has seen; a plan holds if the lower end of the 95 % interval reaches the percentile.";

/// A plan, and what the fresh samples show.
pub struct HeldOutPlan {
    /// The plan.
    pub plan: Plan,
    /// Share of the requests that were late, dropped or failed.
    pub missed: f64,
    /// Whether it holds.
    pub verdict: JudgedVerdict,
}

impl HeldOutPlan {
    /// Whether fresh samples show that it holds, or no request of them was late.
    pub fn is_accepted(&self) -> bool {
        self.verdict == JudgedVerdict::Holds || (self.verdict == JudgedVerdict::Undecided && self.missed <= 0.0)
    }
}

/// Judges the plans of one load on the same fresh samples, all under one dropping policy if one is given. A planner without
/// a plan keeps its place.
pub fn judge_plans(
    problem: &Problem,
    plans: Vec<Option<Plan>>,
    workload: &Workload,
    dropping: Option<Dropping>,
) -> Vec<Option<HeldOutPlan>> {
    let start = Instant::now();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(move || start.elapsed());
    let served = |mut plan: Plan| {
        plan.pipelines.iter_mut().for_each(|p| p.serving.dropping = dropping.unwrap_or(p.serving.dropping));
        plan
    };
    let served: Vec<Plan> = plans.iter().flatten().cloned().map(served).collect();
    let of: Vec<&Plan> = served.iter().collect();
    let mut runs = judge_side_by_side(problem, &of, workload, JudgeEffort::PLAN, &clock, None).into_iter();
    let mut held_out = |plan: Plan| {
        let total = runs.next().flatten()?.total;
        let verdict = total.judged_on.as_ref().map(|judged: &JudgedOn| judged.verdict).unwrap_or_default();
        Some(HeldOutPlan { plan, missed: 1.0 - total.attainment, verdict })
    };
    plans.into_iter().map(|plan| plan.and_then(&mut held_out)).collect()
}
