//! What does a frontier consist of?

use apportion_planning::frontier::{FrontierPoint, Sweep};

/// A frontier with what it is about.
pub struct Frontier {
    /// Where the problem was read from.
    pub file: String,
    /// What was varied.
    pub sweep: Sweep,
    /// Name of the pipeline or hardware that it was varied of.
    pub of: Option<String>,
    /// The value in the problem file.
    pub present: Option<f64>,
    /// By increasing value.
    pub points: Vec<FrontierPoint>,
}
