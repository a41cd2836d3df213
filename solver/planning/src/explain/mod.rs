//! Words for a plan: why each group runs as it does, which limits have no room left, what else there was, and what more of
//! each resource would buy.
//!
//! What can be read off the plan and the profiles always is ([`reasons`], [`batches`]). What takes another search
//! ([`again`]: another variant or hardware for a task, one device more, 10 ms more) is searched for after the plan is
//! settled, within [`TIME_MAX`]; what that leaves out is said.

mod again;
mod batches;
mod reasons;

use crate::PlanOptions;
use crate::tightening::Tightening;
use apportion_domain::{Binding, Constraint, Explanation, ObjectiveValue, Plan, Problem, SLACK};
use std::time::Duration;

/// Longest that all searches for alternatives and prices together may take: a reader waits for the plan, not for these.
pub(crate) const TIME_MAX: Duration = Duration::from_millis(500);

/// A limit binds when more than this part of it is used.
const BINDING: f64 = 0.99;

/// How a plan was found, so that it can be found again on a changed problem.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub tightening: Tightening,
    /// How long the search took.
    pub took: Duration,
    /// Whether it ran to its end.
    pub complete: bool,
}

/// Explains a plan. Without a `basis` (a planner that does not search) nothing is searched for again.
pub(crate) fn explain(
    problem: &Problem,
    plan: &Plan,
    objective: ObjectiveValue,
    basis: Option<&Basis>,
    options: &PlanOptions,
) -> Explanation {
    let mut explanation = Explanation { binding: binding(problem, plan), ..Explanation::default() };
    let limits = options.limits().finishing();
    explanation.decisions = reasons::decisions(problem, plan, &explanation.binding, &limits);
    let groups: usize = plan.pipelines.iter().map(|part| part.assignments.len()).sum();
    if explanation.decisions.len() < groups {
        let missing = groups - explanation.decisions.len();
        explanation.left_out.push(format!("why {missing} groups run as they do: {}", limits.why()));
    }
    // what is worked out beyond that is a reader's comfort, and none is there who told it to stop
    if options.explain && !limits.is_cancelled() {
        batches::add(problem, plan, basis, &mut explanation.decisions, &limits);
        again::add(problem, plan, objective, basis, options, &mut explanation);
    }
    explanation
}

/// The limits that a plan leaves no room in.
pub(crate) fn binding(problem: &Problem, plan: &Plan) -> Vec<Binding> {
    let mut all = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&plan.pipelines) {
        let longest = reasons::longest_ms(problem.objective.latency_rule, pipeline, part, None);
        bind(&mut all, Constraint::Latency, &pipeline.name, longest, pipeline.slo_ms);
        if let Some(floor) = pipeline.min_accuracy.filter(|floor| part.accuracy <= floor * (2.0 - BINDING)) {
            let (place, used) = (pipeline.name.clone(), part.accuracy);
            all.push(Binding { constraint: Constraint::Accuracy, place, used, limit: floor });
        }
    }
    for (name, devices) in plan.devices() {
        let count = problem.hardware_named(name).and_then(|h| problem.hardware_at(h).count);
        if let Some(count) = count {
            bind(&mut all, Constraint::Capacity, name, devices as f64, f64::from(count));
        }
    }
    if let Some(budget) = problem.objective.budget_per_hour {
        bind(&mut all, Constraint::Budget, "plan", plan.cost_per_hour, budget);
    }
    all
}

fn bind(all: &mut Vec<Binding>, constraint: Constraint, place: &str, used: f64, limit: f64) {
    if used >= limit * BINDING {
        all.push(Binding { constraint, place: place.into(), used, limit });
    }
}

/// Whether a sum of charges is within the SLO.
fn in_time(longest_ms: f64, slo_ms: f64) -> bool {
    longest_ms <= slo_ms + SLACK * slo_ms.max(1.0)
}
