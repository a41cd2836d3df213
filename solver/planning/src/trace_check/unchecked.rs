//! Which plan does one search give if there is no trace to check it on?

use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{SearchOutcome, attempt_by};
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{PlanOutcome, PlanningReport, Problem};

/// Searches once and replays the plan on the default trace. The percentile is reported, but not enforced.
pub(crate) fn plan_unchecked(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits();
    match attempt_by(options, problem, &Tightening::none(problem), &limits.for_search()) {
        SearchOutcome::Plan(candidate) => {
            let workload = replay::default_workload(problem);
            let replayed = replay::replay_alone(problem, &candidate.plan, &workload, &limits.for_finishing());
            report::report_plan(problem, options, *candidate, replayed.map(|s| s.total), Vec::new())
        }
        SearchOutcome::Infeasible => report::report_infeasible(problem, options),
        SearchOutcome::Unknown(stopped) => report::report_unknown(options, stopped),
    }
}
