//! Does a plan obey every rule of the file formats' "Meaning"? The independent checker.
//!
//! What belongs here: rules that a plan must obey, computed from the problem and the plan alone. What never does: search,
//! input and output, and code that a planner uses too, because both would share its mistakes. The crate knows `domain`
//! only.
//!
//! A plan without flows splits each task's traffic in proportion to `replicas * q`. Comparisons allow
//! [`apportion_domain::SLACK`], relative above 1: budgets sit exactly on profile values.
//!
//! The commonest addition is a rule. Add its name to [`rules`], and a fixture that it must reject to `tests/rejects.rs`.
//! The check goes to the module of its evidence. Names are in `groups`, traffic in `traffic`, time in `latency`, devices
//! and claimed sums in `claims`, scaling plans in `scaling`.

mod claims;
mod compare;
mod finding;
mod groups;
mod latency;
pub mod rules;
mod scaling;
mod traffic;

pub use finding::Finding;
pub use scaling::check_scaling;

use apportion_domain::{Pipeline, PipelinePlan, Plan, Problem};
use groups::ResolvedGroups;
use std::collections::BTreeMap;

/// All rules that `plan` violates for `problem`; empty if it obeys every rule.
///
/// If a pipeline's part has unknown names, only these are reported for the pipeline, because its loads cannot be computed.
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
    claims::check_quotas(problem, plan, &mut findings);
    findings
}

/// Checks one pipeline's part of a plan.
fn check_pipeline(problem: &Problem, pipeline: &Pipeline, part: &PipelinePlan, findings: &mut Vec<Finding>) {
    let before = findings.len();
    let groups = ResolvedGroups::resolve(problem, pipeline, part, findings);
    if findings.len() > before {
        return;
    }
    groups.check_replicas(pipeline, findings);
    let Some(traffic) = traffic::traffic(pipeline, part, &groups, findings) else { return };
    traffic.check_capacity(pipeline, &groups, findings);
    latency::check_latency(problem.objective.latency_rule, pipeline, part, &groups, &traffic, findings);
    claims::check_pipeline(pipeline, part, &groups, &traffic, findings);
}
