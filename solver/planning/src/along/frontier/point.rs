//! Which result does one point of a frontier have: a plan, a bound, or a proof that no plan exists?

use apportion_domain::{Binding, ObjectiveStep, ObjectiveValue, Plan, PlanStatus, Shortfall, StopReason};

/// Origin of the result at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointOrigin {
    /// It was searched for.
    Solved,
    /// From a harder point, whose plan is at least as good as anything that was found here.
    Harder,
    /// An easier point is infeasible.
    Implied,
}

impl PointOrigin {
    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Solved => "solved",
            Self::Harder => "harder_point",
            Self::Implied => "easier_point",
        }
    }
}

/// One point of a frontier.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontierPoint {
    /// The value that was varied, in the unit of [`Sweep::unit`](super::Sweep::unit).
    pub value: f64,
    /// The status of the plan.
    pub status: PlanStatus,
    /// Value and bound of the objective.
    pub objective: ObjectiveValue,
    /// Accuracy, the mean by weight over the pipelines; `None` without a plan.
    pub accuracy: Option<f64>,
    /// The plan.
    pub plan: Option<Plan>,
    /// Limits with no room left in the plan.
    pub binding: Vec<Binding>,
    /// Why there is no plan: given for the easiest infeasible point alone.
    pub shortfalls: Vec<Shortfall>,
    /// Why the search ended before its proof.
    pub stopped: Option<StopReason>,
    /// Origin of the result.
    pub origin: PointOrigin,
}

impl FrontierPoint {
    /// The step of `hardware_then_accuracy` in which the plan was found.
    #[must_use]
    pub fn step(&self) -> Option<ObjectiveStep> {
        self.objective.step
    }

    /// Cost of the plan's devices.
    #[must_use]
    pub fn cost_per_hour(&self) -> Option<f64> {
        self.plan.as_ref().map(|p| p.cost_per_hour)
    }

    /// Replicas of the plan.
    #[must_use]
    pub fn replicas(&self) -> Option<u64> {
        self.plan.as_ref().map(Plan::replicas)
    }

    /// Whether `self` is proven within its gap.
    pub(super) fn is_proven(&self) -> bool {
        self.status == PlanStatus::Optimal
    }
}

/// Updates the status after a plan or a bound has changed.
pub(super) fn update_status(point: &mut FrontierPoint, gap: f64) {
    if point.objective.gap().is_some_and(|g| g <= gap) {
        point.status = PlanStatus::Optimal;
        point.stopped = None;
    } else if point.plan.is_some() {
        point.status = PlanStatus::Feasible;
    }
}
