//! What a plan is bound by, in numbers and words.

use apportion_domain::{Binding, Constraint, Decision, Explanation, Plan, Problem};

/// A resource used to more than this share of its limit is binding.
const BINDING: f64 = 0.98;

/// Bindings and one decision for each group.
#[must_use]
pub fn plan(problem: &Problem, plan: &Plan) -> Explanation {
    let mut explanation = Explanation::default();
    for (name, used) in plan.devices() {
        let count = problem.hardware_named(name).and_then(|h| problem.hardware_at(h).count);
        if let Some(limit) = count.map(f64::from).filter(|&limit| used as f64 >= BINDING * limit) {
            let binding = Binding { constraint: Constraint::Capacity, place: name.to_owned(), used: used as f64, limit };
            explanation.binding.push(binding);
        }
    }
    if let Some(limit) = problem.objective.budget_per_hour.filter(|&b| plan.cost_per_hour >= BINDING * b) {
        let binding = Binding { constraint: Constraint::Budget, place: "plan".into(), used: plan.cost_per_hour, limit };
        explanation.binding.push(binding);
    }
    for part in &plan.pipelines {
        let Some(index) = problem.pipeline_named(&part.name) else { continue };
        let pipeline = problem.pipeline(index);
        let budget = |task: &str| {
            let here = part.assignments.iter().filter(|a| a.group.task == task);
            here.map(|a| a.latency_budget_ms).fold(0.0, f64::max)
        };
        let mut ends = vec![0.0_f64; pipeline.tasks.len()];
        for &t in pipeline.order() {
            let before = pipeline.edges_into(t).map(|e| ends[e.from.get()]).fold(0.0, f64::max);
            ends[t.get()] = before + budget(&pipeline.task(t).name);
        }
        let used = ends.into_iter().fold(0.0, f64::max);
        if used >= BINDING * pipeline.slo_ms {
            let binding = Binding { constraint: Constraint::Latency, place: part.name.clone(), used, limit: pipeline.slo_ms };
            explanation.binding.push(binding);
        }
        for a in &part.assignments {
            let why = format!(
                "{} replicas serve {:.1} % of the task's queries at {:.0} % of their capacity; batches of {} take {:.1} of the {} ms",
                a.replicas,
                100.0 * a.traffic_share,
                100.0 * a.utilisation,
                a.batch,
                a.latency_budget_ms,
                pipeline.slo_ms
            );
            explanation.decisions.push(Decision { what: format!("{}/{}", part.name, a.group), why });
        }
    }
    explanation
}
