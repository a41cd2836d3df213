//! What the check loop adds to a formulation: more load and more time for tasks at which queries waited too long.

use apportion_domain::Problem;

/// Of one pipeline, by task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartTightening {
    /// Factor on the task's load, at least 1.
    pub headroom: Vec<f64>,
    /// Milliseconds in addition to the hop charge.
    pub charge_ms: Vec<f64>,
}

/// Of all pipelines of a problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tightening {
    pub parts: Vec<PartTightening>,
}

impl Tightening {
    /// The problem as it is written.
    pub fn none(problem: &Problem) -> Self {
        let part = |p: &apportion_domain::Pipeline| PartTightening {
            headroom: vec![1.0; p.tasks.len()],
            charge_ms: vec![0.0; p.tasks.len()],
        };
        Self { parts: problem.pipelines.iter().map(part).collect() }
    }
}
