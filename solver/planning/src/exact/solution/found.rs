//! What is a solution, and what is proven about it?

use super::choice::PlanIntegers;
use crate::exact::model::space::Space;
use apportion_domain::{ObjectiveStep, StopReason};

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
