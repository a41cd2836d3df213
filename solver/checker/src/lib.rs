//! Is this plan valid for this problem? Findings with their evidence.
//!
//! What belongs here: the rules of the problem file's meaning, each written in the most obvious way. What never does: anything
//! that a planner also uses, save `domain`; a shared helper would hide a shared mistake. The commonest addition is a rule: a
//! function that pushes findings, a call in [`check`], and a broken plan in `tests/rejects.rs` that only it catches.

mod flows;
mod latency;
mod resolve;
mod rules;

use apportion_domain::{Plan, Problem};

/// Relative slack on capacities, shares and costs: what floats lose in sums over paths, far below one query per second.
const TOLERANCE: f64 = 1e-6;

/// One violated rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule, in one word: see [`RULES`].
    pub rule: &'static str,
    /// Pipeline, group, path or hardware.
    pub place: String,
    /// A sentence with the numbers.
    pub evidence: String,
}

/// Every rule that a finding can name.
pub const RULES: [&str; 16] = [
    "unknown", "missing", "duplicate", "batch", "replicas", "min_replicas", "memory", "count", "budget", "cost", "flow",
    "capacity", "latency", "accuracy", "accuracy_floor", "claim",
];

impl Finding {
    fn new(rule: &'static str, place: impl Into<String>, evidence: impl Into<String>) -> Self {
        debug_assert!(RULES.contains(&rule), "a named rule");
        Self { rule, place: place.into(), evidence: evidence.into() }
    }
}

/// Every rule that `plan` violates as a plan for `problem`; empty means valid.
///
/// Rules about flows and latency are only checked for pipelines whose groups the problem knows.
#[must_use]
pub fn check(problem: &Problem, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let resolved = resolve::resolve(problem, plan, &mut findings);
    rules::devices(problem, plan, &mut findings);
    for part in &resolved {
        rules::groups(problem, part, &mut findings);
        if part.complete {
            let flows = flows::of(part, &mut findings);
            rules::capacity(part, &flows, &mut findings);
            rules::accuracy(part, &flows, &mut findings);
            latency::check(problem.objective.latency_rule, part, &flows, &mut findings);
        }
    }
    findings
}

/// Whether `a` is above `b` by more than float noise.
fn above(a: f64, b: f64) -> bool {
    a > b + TOLERANCE * b.abs().max(1.0)
}

/// Whether two values differ by more than float noise.
fn differ(a: f64, b: f64) -> bool {
    above(a, b) || above(b, a)
}
