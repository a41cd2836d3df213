//! Placeholder.
use apportion_domain::{Plan, Problem};
/// One violated rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Rule name.
    pub rule: &'static str,
    /// Pipeline, group, path or hardware.
    pub place: String,
    /// Sentence with the evidence.
    pub evidence: String,
}
/// Checks.
#[must_use]
pub fn check(_problem: &Problem, _plan: &Plan) -> Vec<Finding> {
    Vec::new()
}
