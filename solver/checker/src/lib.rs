//! The independent checker: does a plan obey every rule of the file formats' "Meaning"?
//!
//! What belongs here: rules that a plan must obey, computed from the problem and the plan alone. What never does: anything
//! shared with a planner (it would share the planner's mistakes), search, I/O. The crate knows `domain` only.
//!
//! A plan without flows splits each task's traffic in proportion to `replicas * q`. Comparisons allow
//! [`SLACK`], relative above 1: budgets sit exactly on profile values.
//!
//! The commonest addition is a rule: add a name to [`rules`], find where its evidence is at hand (names and devices in
//! `groups`, traffic in `traffic`, time in `latency`, sums that the plan claims in `claims`, scaling plans in `scaling`), and add a fixture that it
//! must reject to `tests/rejects.rs`.

mod claims;
mod groups;
mod latency;
pub mod rules;
mod scaling;
mod traffic;

pub use scaling::check_scaling;

use apportion_domain::{Pipeline, PipelinePlan, Plan, Problem, SLACK};
use groups::Groups;
use std::collections::BTreeMap;

/// One violated rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule's name, one of [`rules`].
    pub rule: &'static str,
    /// Pipeline, `pipeline/task/variant/hardware`, path or hardware type; application, `application/variant` or resource.
    pub place: String,
    /// A sentence with the numbers.
    pub evidence: String,
}

impl Finding {
    pub(crate) fn new(rule: &'static str, place: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { rule, place: place.into(), evidence: evidence.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.rule, self.place, self.evidence)
    }
}

/// Everything that is wrong with `plan` as an answer to `problem`; empty if it obeys every rule.
///
/// Where a pipeline names what the problem does not know, only that is reported for the pipeline: its loads cannot be
/// computed.
#[must_use]
pub fn check(problem: &Problem, plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut parts: BTreeMap<&str, &PipelinePlan> = BTreeMap::new();
    for part in &plan.pipelines {
        if problem.pipeline_named(&part.name).is_none() {
            findings.push(Finding::new(rules::UNKNOWN_PIPELINE, &part.name, "the problem has no such pipeline"));
        }
        if parts.insert(&part.name, part).is_some() {
            findings.push(Finding::new(rules::DUPLICATE_PIPELINE, &part.name, "the plan lists it twice"));
        }
    }
    for pipeline in &problem.pipelines {
        match parts.get(pipeline.name.as_str()) {
            Some(part) => check_pipeline(problem, pipeline, part, &mut findings),
            None => findings.push(Finding::new(rules::MISSING_PIPELINE, &pipeline.name, "the plan leaves it out")),
        }
    }
    claims::check_devices(problem, plan, &mut findings);
    findings
}

fn check_pipeline(problem: &Problem, pipeline: &Pipeline, part: &PipelinePlan, findings: &mut Vec<Finding>) {
    let before = findings.len();
    let groups = Groups::resolve(problem, pipeline, part, findings);
    if findings.len() > before {
        return;
    }
    groups.check_replicas(pipeline, findings);
    let Some(traffic) = traffic::traffic(pipeline, part, &groups, findings) else { return };
    traffic.check_capacity(pipeline, &groups, findings);
    latency::check_latency(problem.objective.latency_rule, pipeline, part, &groups, &traffic, findings);
    claims::check_pipeline(pipeline, part, &groups, &traffic, findings);
}

/// Whether `value` is at most `limit`, with slack.
pub(crate) fn at_most(value: f64, limit: f64) -> bool {
    value <= limit + SLACK * limit.abs().max(1.0)
}

/// Whether two sums agree up to the rounding that a file and a solver leave.
pub(crate) fn agrees(claimed: f64, computed: f64) -> bool {
    (claimed - computed).abs() <= CLAIM_SLACK * computed.abs().max(1.0)
}

/// How far a claimed sum may be from the computed one: flows are printed and re-read, each with its own rounding.
pub(crate) const CLAIM_SLACK: f64 = 1e-6;
