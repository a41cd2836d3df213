//! Why is a plan as it is? The reasons for each group, the binding limits, the alternatives, and the prices of resources.
//!
//! The modules [`reasons`] and [`batches`] need only the plan and the profiles. The module [`variations`] searches
//! again: with another variant or hardware for a task, with one more device, with 10 ms more. It does so after the plan
//! is known, and only if the full explanation is asked for. The explanation names the alternatives that it leaves out.

mod batches;
mod binding;
mod latency;
mod reasons;
mod variations;

pub(crate) use binding::binding;

use crate::exact::search::attempt::Provenance;
use crate::options::PlanningOptions;
use apportion_domain::{Explanation, ObjectiveValue, Plan, Problem};

/// Explains a plan. Without a `provenance` (a planner that does not search) nothing is searched again.
pub(crate) fn explain(
    problem: &Problem,
    plan: &Plan,
    objective: ObjectiveValue,
    provenance: Option<&Provenance>,
    options: &PlanningOptions,
) -> Explanation {
    let mut explanation = Explanation { binding: binding(problem, plan), ..Explanation::default() };
    let limits = options.limits().for_finishing();
    explanation.decisions = reasons::decisions(problem, plan, &explanation.binding, &limits);
    let groups: usize = plan.pipelines.iter().map(|part| part.assignments.len()).sum();
    if explanation.decisions.len() < groups {
        let missing = groups - explanation.decisions.len();
        explanation.left_out.push(format!("why {missing} groups run as they do: {}", limits.stop_reason_or_time_limit()));
    }
    // a cancelled run needs no alternatives
    if !limits.is_cancelled() {
        batches::add_neighbours(problem, plan, provenance, &mut explanation.decisions, &limits);
        variations::add_variations(problem, plan, objective, provenance, options, &mut explanation);
    }
    explanation
}
