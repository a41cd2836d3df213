//! Placeholder.
use apportion_domain::{PlanOutcome, PlanningReport, Problem};
use apportion_estimator::Workload;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
/// Which planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planner {
    /// Mixed-integer programming.
    #[default]
    Milp,
    /// InferLine.
    Greedy,
}
/// Settings of one run. Planning reads no clock: `elapsed` does.
#[derive(Clone)]
pub struct PlanOptions {
    /// Which planner.
    pub planner: Planner,
    /// Relative gap.
    pub gap: f64,
    /// Limit of `elapsed` on solving.
    pub time_limit: Option<Duration>,
    /// Monotonic time since the run started.
    pub elapsed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Set it to stop the run.
    pub cancel: Arc<AtomicBool>,
    /// The plan must hold on it (check loop); `None` plans the formulation's own optimum.
    pub trace: Option<Workload>,
}
/// Plans.
pub fn plan(_problem: &Problem, _options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
    unreachable!("placeholder")
}
