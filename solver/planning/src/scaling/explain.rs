//! Why is a scaling plan as it is? The effect of each change, the binding limits, and the distance of the heuristic
//! from the optimum.

use apportion_domain::{
    Application, Binding, Constraint, Decision, Explanation, ScalingAction, ScalingPlan, ScalingProblem, ScalingVariant,
};

/// A limit binds when more than this part of it is used.
const BINDING: f64 = 0.99;

/// Explains a plan whose actions stand in the problem's order.
pub(crate) fn explain(problem: &ScalingProblem, plan: &ScalingPlan) -> Explanation {
    let mut explanation = Explanation::default();
    let mut actions = plan.actions.iter();
    let mut used = vec![0.0; problem.resources.len()];
    for application in &problem.applications {
        let actions: Vec<&ScalingAction> = actions.by_ref().take(application.variants.len()).collect();
        let both = || application.variants.iter().zip(&actions);
        let changed = both().filter(|(_, a)| a.delta != 0);
        explanation.decisions.extend(changed.map(|(v, a)| decision(problem, application, v, a)));
        let capacity: f64 = both().map(|(v, a)| v.saturation_qps * f64::from(a.running)).sum();
        add_if_binding(&mut explanation, Constraint::Load, &application.name, application.needed_qps(), capacity);
        for (used, name) in used.iter_mut().zip(problem.resources.keys()) {
            *used += both().map(|(v, a)| v.uses(name) * f64::from(a.running)).sum::<f64>();
        }
    }
    for ((name, &total), used) in problem.resources.iter().zip(used) {
        add_if_binding(&mut explanation, Constraint::Capacity, name, used, total);
    }
    explanation
}

fn add_if_binding(explanation: &mut Explanation, constraint: Constraint, place: &str, used: f64, limit: f64) {
    if used > 0.0 && used >= limit * BINDING {
        explanation.binding.push(Binding { constraint, place: place.into(), used, limit });
    }
}

fn decision(problem: &ScalingProblem, application: &Application, v: &ScalingVariant, a: &ScalingAction) -> Decision {
    let cost = v.cost(problem.lambda, a.delta);
    let replicas = a.delta.unsigned_abs();
    let why = if a.delta > 0 {
        let kind = if v.running > 0 { "replicate" } else { "load" };
        let running = a.delta as f64 * v.cost_per_s;
        format!(
            "{kind}: {replicas} more, {:.1} queries/s each within {} ms of the SLO of {} ms; costs {cost:.4}, of which {:.4} for \
             loading",
            v.saturation_qps,
            v.latency_ms,
            application.slo_ms,
            cost - running
        )
    } else {
        let slow = if application.may_grow(v) { "" } else { ", slower than the SLO" };
        format!("unload: {replicas} fewer{slow}; saves {:.4}", -cost)
    };
    Decision { what: format!("{}/{}", application.name, v.name), why, ..Decision::default() }
}

/// A decision that states the heuristic's value beside the optimum.
pub(crate) fn compare_with_heuristic(greedy: Option<&ScalingPlan>, value: f64) -> Decision {
    let why = match greedy {
        Some(plan) => {
            let more = (plan.value - value).max(0.0);
            let gap = more / value.abs().max(1e-9);
            format!(
                "the heuristic of INFaaS section 4.2.2 finds {:.6}, {more:.6} more than the plan (gap {:.2} %)",
                plan.value,
                100.0 * gap
            )
        }
        None => "the heuristic of INFaaS section 4.2.2 finds no plan".to_owned(),
    };
    Decision { what: GREEDY.into(), why, ..Decision::default() }
}

/// Name of the decision that states the heuristic's value.
pub const GREEDY: &str = "greedy";
