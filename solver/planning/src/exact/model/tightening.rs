//! What does the check loop add to a formulation? More load and more time for tasks at which queries waited too long.

use apportion_domain::Problem;

/// Tightening of one pipeline, by task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartTightening {
    /// Factor on the task's load, at least 1.
    pub headroom: Vec<f64>,
    /// Milliseconds in addition to the hop charge.
    pub charge_ms: Vec<f64>,
}

/// Tightening of all pipelines of a problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tightening {
    pub parts: Vec<PartTightening>,
}

impl Tightening {
    /// No tightening: the problem as it is stated.
    pub fn none(problem: &Problem) -> Self {
        let part = |p: &apportion_domain::Pipeline| PartTightening {
            headroom: vec![1.0; p.tasks.len()],
            charge_ms: vec![0.0; p.tasks.len()],
        };
        Self { parts: problem.pipelines.iter().map(part).collect() }
    }
}

impl Tightening {
    /// Half-way to another: geometric for headroom, arithmetic for charges.
    pub fn halfway(&self, other: &Tightening) -> Self {
        let part = |(a, b): (&PartTightening, &PartTightening)| PartTightening {
            headroom: a.headroom.iter().zip(&b.headroom).map(|(a, b)| (a * b).sqrt()).collect(),
            charge_ms: a.charge_ms.iter().zip(&b.charge_ms).map(|(a, b)| 0.5 * (a + b)).collect(),
        };
        Self { parts: self.parts.iter().zip(&other.parts).map(part).collect() }
    }

    /// Whether another differs by less than 3 % of load and 1 ms everywhere. Plans for both are alike in practice.
    pub fn is_near(&self, other: &Tightening) -> bool {
        self.parts.iter().zip(&other.parts).all(|(a, b)| {
            a.headroom.iter().zip(&b.headroom).all(|(a, b)| (a / b - 1.0).abs() < 0.03)
                && a.charge_ms.iter().zip(&b.charge_ms).all(|(a, b)| (a - b).abs() < 1.0)
        })
    }
}
