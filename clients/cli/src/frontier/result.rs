//! What does a frontier consist of?

use apportion_domain::{ObjectiveStep, PlanStatus};
use apportion_wire::{FrontierFile, FrontierPointFile};

/// A frontier with the name of its problem.
pub struct Frontier {
    /// The problem file.
    pub file: String,
    /// Its sweep and its points, by increasing value.
    pub result: FrontierFile,
}

/// The step of `hardware_then_accuracy` in which the plan of a point was found.
pub fn step(point: &FrontierPointFile) -> Option<ObjectiveStep> {
    point.objective.step.as_deref().and_then(ObjectiveStep::from_name)
}

/// Whether a point has a plan.
pub fn has_plan(point: &FrontierPointFile) -> bool {
    point.assignments.is_some()
}

/// Whether a point has this status.
pub fn has_status(point: &FrontierPointFile, status: PlanStatus) -> bool {
    point.status == status.name()
}
