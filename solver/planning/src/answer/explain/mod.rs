//! Words for a plan: why each group runs as it does, which limits have no room left, what else there was, and what more of
//! each resource would buy.
//!
//! What can be read off the plan and the profiles always is ([`reasons`], [`batches`]). What takes another search
//! ([`again`]: another variant or hardware for a task, one device more, 10 ms more) is searched for after the plan is
//! settled, within [`TIME_MAX`]; what that leaves out is said.

mod again;
mod batches;
mod binding;
mod latency;
mod reasons;

pub(crate) use binding::binding;

use crate::exact::search::attempt::Provenance;
use crate::options::PlanOptions;
use apportion_domain::{Explanation, ObjectiveValue, Plan, Problem};

/// Explains a plan. Without a `provenance` (a planner that does not search) nothing is searched for again.
pub(crate) fn explain(
    problem: &Problem,
    plan: &Plan,
    objective: ObjectiveValue,
    provenance: Option<&Provenance>,
    options: &PlanOptions,
) -> Explanation {
    let mut explanation = Explanation { binding: binding(problem, plan), ..Explanation::default() };
    let limits = options.limits().for_finishing();
    explanation.decisions = reasons::decisions(problem, plan, &explanation.binding, &limits);
    let groups: usize = plan.pipelines.iter().map(|part| part.assignments.len()).sum();
    if explanation.decisions.len() < groups {
        let missing = groups - explanation.decisions.len();
        explanation.left_out.push(format!("why {missing} groups run as they do: {}", limits.stop_reason_or_time_limit()));
    }
    // what is worked out beyond that is a reader's comfort, and none is there who told it to stop
    if options.explain && !limits.is_cancelled() {
        batches::add(problem, plan, provenance, &mut explanation.decisions, &limits);
        again::add(problem, plan, objective, provenance, options, &mut explanation);
    }
    explanation
}
