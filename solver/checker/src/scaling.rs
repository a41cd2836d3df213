//! Does a scaling plan obey its rules (INFaaS section 4.2.1, constraints 1 to 4)?

use crate::compare::{agrees, at_most};
use crate::finding::Finding;
use crate::rules;
use apportion_domain::{Application, ScalingAction, ScalingPlan, ScalingProblem, ScalingVariant};
use std::collections::BTreeMap;

/// All rules that `plan` violates for a scaling problem; empty if it obeys every rule.
///
/// If the plan has an unknown name, or does not list each variant once, only these are reported. Loads and resources cannot
/// be computed then.
#[must_use]
pub fn check_scaling(problem: &ScalingProblem, plan: &ScalingPlan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(actions) = resolve(problem, plan, &mut findings) else { return findings };
    for (application, actions) in problem.applications.iter().zip(&actions) {
        check_application(application, actions, &mut findings);
    }
    check_resources(problem, &actions, &mut findings);
    check_value(problem, plan, &actions, &mut findings);
    findings
}

/// The actions in the problem's order; `None` with findings if a variant does not have exactly one action.
fn resolve<'a>(
    problem: &ScalingProblem,
    plan: &'a ScalingPlan,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Vec<&'a ScalingAction>>> {
    let before = findings.len();
    let mut listed: BTreeMap<(&str, &str), &ScalingAction> = BTreeMap::new();
    for action in &plan.actions {
        let place = place(&action.application, &action.variant);
        match problem.application_named(&action.application) {
            None => findings.push(Finding::new(rules::UNKNOWN_APPLICATION, place, "the problem has no such application")),
            Some(a) if !a.variants.iter().any(|v| v.name == action.variant) => {
                findings.push(Finding::new(rules::UNKNOWN_VARIANT, place, "the application has no such variant"));
            }
            Some(_) if listed.insert((&action.application, &action.variant), action).is_some() => {
                findings.push(Finding::new(rules::DUPLICATE_ACTION, place, "the plan lists it twice"));
            }
            Some(_) => {}
        }
    }
    let mut resolved = Vec::with_capacity(problem.applications.len());
    for a in &problem.applications {
        let mut actions = Vec::with_capacity(a.variants.len());
        for v in &a.variants {
            match listed.get(&(a.name.as_str(), v.name.as_str())) {
                Some(action) => actions.push(*action),
                None => {
                    findings.push(Finding::new(rules::MISSING_ACTION, place(&a.name, &v.name), "the plan leaves it out"))
                }
            }
        }
        resolved.push(actions);
    }
    (findings.len() == before).then_some(resolved)
}

/// Checks the arithmetic of each action, constraint 2 (a variant that is too slow must not grow) and constraint 1 (the
/// load).
fn check_application(application: &Application, actions: &[&ScalingAction], findings: &mut Vec<Finding>) {
    let mut capacity = 0.0;
    for (variant, action) in application.variants.iter().zip(actions) {
        let place = place(&application.name, &variant.name);
        if i64::from(variant.running).checked_add(action.delta) != Some(i64::from(action.running)) {
            let evidence =
                format!("{} running and a change of {} do not make {}", variant.running, action.delta, action.running);
            findings.push(Finding::new(rules::DELTA, &place, evidence));
        }
        if action.running > variant.running && !at_most(variant.latency_ms, application.slo_ms) {
            let evidence = format!(
                "replicas grow from {} to {} with a latency of {} ms and an SLO of {} ms",
                variant.running, action.running, variant.latency_ms, application.slo_ms
            );
            findings.push(Finding::new(rules::GROWTH, &place, evidence));
        }
        capacity += variant.saturation_qps * f64::from(action.running);
    }
    let needed = application.load_qps + application.slack_qps;
    if !at_most(needed, capacity) {
        let evidence = format!("{capacity} queries/s of capacity for a load with slack of {needed}");
        findings.push(Finding::new(rules::LOAD, &application.name, evidence));
    }
}

/// Checks constraint 3: all replicas together keep to the total of every resource.
fn check_resources(problem: &ScalingProblem, actions: &[Vec<&ScalingAction>], findings: &mut Vec<Finding>) {
    for (name, &total) in &problem.resources {
        let used: f64 = variants_with_actions(problem, actions)
            .map(|(v, a)| v.resources.get(name).copied().unwrap_or(0.0) * f64::from(a.running))
            .sum();
        if !at_most(used, total) {
            findings.push(Finding::new(rules::RESOURCE, name, format!("{used} used of {total}")));
        }
    }
}

/// Checks the claimed objective. It is computed here from the running replicas, not by the problem's own function.
fn check_value(problem: &ScalingProblem, plan: &ScalingPlan, actions: &[Vec<&ScalingAction>], findings: &mut Vec<Finding>) {
    let cost = |(v, a): (&ScalingVariant, &ScalingAction)| {
        let delta = f64::from(a.running) - f64::from(v.running);
        v.cost_per_s * delta + problem.lambda * v.load_s * v.cost_per_s * delta.max(0.0)
    };
    let value: f64 = variants_with_actions(problem, actions).map(cost).sum();
    if !agrees(plan.value, value) {
        findings.push(Finding::new(rules::CLAIMED_VALUE, "plan", format!("claims {}, computed {value}", plan.value)));
    }
}

/// All variants with their actions.
fn variants_with_actions<'a>(
    problem: &'a ScalingProblem,
    actions: &'a [Vec<&'a ScalingAction>],
) -> impl Iterator<Item = (&'a ScalingVariant, &'a ScalingAction)> {
    let lists = problem.applications.iter().zip(actions);
    lists.flat_map(|(a, actions)| a.variants.iter().zip(actions.iter().copied()))
}

/// The place of a variant in a finding.
fn place(application: &str, variant: &str) -> String {
    format!("{application}/{variant}")
}
