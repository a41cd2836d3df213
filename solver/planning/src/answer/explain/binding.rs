//! Which limits does a plan leave no room in?

use super::latency::longest_ms;
use apportion_domain::{Binding, Constraint, Plan, Problem, SLACK};

/// A limit binds when more than this part of it is used.
pub(super) const BINDING: f64 = 0.99;

/// The limits that a plan leaves no room in.
pub(crate) fn binding(problem: &Problem, plan: &Plan) -> Vec<Binding> {
    let mut all = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&plan.pipelines) {
        let longest = longest_ms(problem.objective.latency_rule, pipeline, part, None);
        add_if_binding(&mut all, Constraint::Latency, &pipeline.name, longest, pipeline.slo_ms);
        if let Some(floor) = pipeline.min_accuracy.filter(|floor| part.accuracy <= floor * (2.0 - BINDING)) {
            let (place, used) = (pipeline.name.clone(), part.accuracy);
            all.push(Binding { constraint: Constraint::Accuracy, place, used, limit: floor });
        }
    }
    for (name, devices) in plan.devices() {
        let count = problem.hardware_named(name).and_then(|h| problem.hardware_at(h).count);
        if let Some(count) = count {
            add_if_binding(&mut all, Constraint::Capacity, name, devices as f64, f64::from(count));
        }
    }
    if let Some(budget) = problem.objective.budget_per_hour {
        add_if_binding(&mut all, Constraint::Budget, "plan", plan.cost_per_hour, budget);
    }
    all
}

/// Adds a limit of which more than [`BINDING`] is used.
fn add_if_binding(all: &mut Vec<Binding>, constraint: Constraint, place: &str, used: f64, limit: f64) {
    if used >= limit * BINDING {
        all.push(Binding { constraint, place: place.into(), used, limit });
    }
}

/// Whether a sum of charges is within the SLO.
pub(super) fn in_time(longest_ms: f64, slo_ms: f64) -> bool {
    longest_ms <= slo_ms + SLACK * slo_ms.max(1.0)
}
