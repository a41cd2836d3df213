//! What does a frontier consist of?

use apportion_planning::frontier::{FrontierPoint, Sweep};

/// A frontier with its sweep.
pub struct Frontier {
    /// The problem file.
    pub file: String,
    /// The value that was varied.
    pub sweep: Sweep,
    /// Name of the pipeline or hardware of that value.
    pub of: Option<String>,
    /// The value in the problem file.
    pub present: Option<f64>,
    /// By increasing value.
    pub points: Vec<FrontierPoint>,
}
