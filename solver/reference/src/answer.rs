//! What is the answer to a problem, and why may there be none?

use apportion_domain::{ObjectiveStep, Plan};

/// Most prefixes of groups in one pipeline: each is a variable, and under rule `path` nearly each has a row.
pub const PREFIXES_MAX: usize = 20_000;
/// Most replicas or devices of one kind. HiGHS counts steps between the bounds of integers in 32 bits. Far beyond this
/// limit its root node may never end.
pub const INTEGER_MAX: f64 = 1e6;
/// How much accuracy the last stage may give up for fewer replicas or less cost, relative.
pub const ACCURACY_SLACK: f64 = 1e-6;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// A pipeline has more than [`PREFIXES_MAX`] prefixes.
    #[error("pipeline {0:?} has more than {PREFIXES_MAX} prefixes of groups")]
    TooManyPrefixes(String),
    /// A number of replicas or devices may be larger than [`INTEGER_MAX`].
    #[error("{0} may need more than {INTEGER_MAX} replicas")]
    TooManyReplicas(String),
    /// The time limit was reached before the proof.
    #[error("the time limit was reached before the proof")]
    TimeLimit,
    /// The solver failed.
    #[error("the solver failed: {0}")]
    Solver(String),
}

/// An optimal plan.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalPlan {
    /// Replicas by (task, variant, hardware, batch), with the paths that carry traffic. It has no routing tables.
    pub plan: Plan,
    /// Which of Loki's two steps found it; `None` in other modes.
    pub step: Option<ObjectiveStep>,
    /// Replicas in step `hardware`, accuracy in step `accuracy`, cost with switching in `min_cost`, else weighted
    /// accuracy.
    pub value: f64,
    /// No plan has a better value: the value and the gap of the settings.
    pub bound: f64,
}

/// The answer to a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum ReferenceAnswer {
    /// Optimal within the gap of the settings.
    Optimal(Box<OptimalPlan>),
    /// No plan exists.
    Infeasible,
}
