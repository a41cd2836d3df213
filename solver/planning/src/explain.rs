//! Words for a plan: why each group runs as it does, and which limits have no room left.

use apportion_domain::{Assignment, Binding, Constraint, Decision, Explanation, Pipeline, PipelinePlan, Plan, Problem};
use std::collections::BTreeMap;

/// A limit binds when more than this part of it is used.
const BINDING: f64 = 0.99;

/// Explains a plan.
pub(crate) fn explain(problem: &Problem, plan: &Plan) -> Explanation {
    let mut explanation = Explanation::default();
    for (pipeline, part) in problem.pipelines.iter().zip(&plan.pipelines) {
        let charge = charges(pipeline, part);
        explanation.decisions.extend(part.assignments.iter().map(|a| decision(pipeline, part, a)));
        bind(&mut explanation, Constraint::Latency, &pipeline.name, charge, pipeline.slo_ms);
        if let Some(floor) = pipeline.min_accuracy.filter(|floor| part.accuracy <= floor * (2.0 - BINDING)) {
            let binding = Binding {
                constraint: Constraint::Accuracy,
                place: pipeline.name.clone(),
                used: part.accuracy,
                limit: floor,
            };
            explanation.binding.push(binding);
        }
    }
    for (name, devices) in plan.devices() {
        let count = problem.hardware_named(name).and_then(|h| problem.hardware_at(h).count);
        if let Some(count) = count {
            bind(&mut explanation, Constraint::Capacity, name, devices as f64, f64::from(count));
        }
    }
    if let Some(budget) = problem.objective.budget_per_hour {
        bind(&mut explanation, Constraint::Budget, "plan", plan.cost_per_hour, budget);
    }
    explanation
}

fn bind(explanation: &mut Explanation, constraint: Constraint, place: &str, used: f64, limit: f64) {
    if used >= limit * BINDING {
        explanation.binding.push(Binding { constraint, place: place.into(), used, limit });
    }
}

/// The longest way through the tasks, each charging its slowest group.
fn charges(pipeline: &Pipeline, part: &PipelinePlan) -> f64 {
    let mut slowest: BTreeMap<&str, f64> = BTreeMap::new();
    for a in &part.assignments {
        let charge = slowest.entry(&a.group.task).or_default();
        *charge = charge.max(a.latency_budget_ms);
    }
    let mut finish = vec![0.0_f64; pipeline.tasks.len()];
    for &t in pipeline.order() {
        let before = pipeline.edges_into(t).map(|e| finish[e.from.get()]).fold(0.0, f64::max);
        finish[t.get()] = before + slowest.get(pipeline.task(t).name.as_str()).copied().unwrap_or(0.0);
    }
    finish.into_iter().fold(0.0, f64::max)
}

fn decision(pipeline: &Pipeline, part: &PipelinePlan, a: &Assignment) -> Decision {
    let best = pipeline.task_named(&a.group.task).and_then(|t| {
        let names = pipeline.most_accurate(t).map(|v| pipeline.variant(t, v).name.as_str());
        names.into_iter().find(|&n| n == a.group.variant)
    });
    let quality = if best.is_some() { "the most accurate variant" } else { "less accurate, but faster" };
    let why = if a.traffic_share > 0.0 {
        format!(
            "{quality}; batch {} takes {:.1} ms of the SLO of {} ms; {} replicas serve {:.1} % of the task's queries at \
             {:.0} % of their capacity",
            a.batch,
            a.latency_budget_ms,
            pipeline.slo_ms,
            a.replicas,
            100.0 * a.traffic_share,
            100.0 * a.utilisation
        )
    } else {
        format!("{} replicas without traffic, because the task asks for a minimum", a.replicas)
    };
    Decision { what: format!("{}/{}", part.name, a.group), why }
}
