//! What is a solution, and what is proven about it?

use super::choice::PlanIntegers;
use crate::exact::model::bounds::is_maximised;
use crate::exact::model::space::Space;
use apportion_domain::{ObjectiveStep, Problem, StopReason};

/// A choice with its value and its proven bound.
#[derive(Clone, Debug)]
pub(crate) struct BestFound {
    pub space: Space,
    pub choice: PlanIntegers,
    /// Shares by pipeline and trie node.
    pub flows: Vec<Vec<f64>>,
    /// The step of `hardware_then_accuracy`.
    pub step: Option<ObjectiveStep>,
    pub value: f64,
    pub bound: f64,
    /// Why the search ended before its proof.
    pub stopped: Option<StopReason>,
}

/// The better one of two plans, with the better bound. A plan of Loki's first step is better than one of the second.
pub(crate) fn better_plan(problem: &Problem, a: Box<BestFound>, b: Box<BestFound>) -> Box<BestFound> {
    if a.step != b.step {
        return if a.step == Some(ObjectiveStep::Hardware) { a } else { b };
    }
    let is_maximised = is_maximised(problem, a.step);
    let bound = if is_maximised { a.bound.min(b.bound) } else { a.bound.max(b.bound) };
    let is_better = if is_maximised { b.value > a.value } else { b.value < a.value };
    // of equal plans the first one stays
    let better = if is_better { b } else { a };
    // a bound of the solver may be within its tolerance beyond the plan
    let bound = if is_maximised { bound.max(better.value) } else { bound.min(better.value) };
    Box::new(BestFound { bound, ..*better })
}
