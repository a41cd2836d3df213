//! What do all baselines share: parts of the demand, shortfalls, the report?

use crate::answer::{infeasible, report};
use crate::exact::search::attempt::CheckedPlan;
use crate::options::PlanningOptions;
use crate::replay;
use apportion_domain::{
    Constraint, Mode, ObjectiveStep, ObjectiveValue, Plan, PlanOutcome, PlanningReport, Problem, Relaxation, Shortfall,
    StopReason,
};

/// Relative precision of the largest share of the demand that fits.
pub(crate) const PART_PRECISION: f64 = 1e-3;
/// Smallest share of the demand that gets a plan.
const PART_MIN: f64 = 1e-6;

/// The plan of a baseline.
pub(super) struct BaselinePlan {
    pub plan: Plan,
    /// The share of the rates that it serves: 1, or less if more does not fit.
    pub part: f64,
    /// The full rates, in queries per second, by pipeline.
    pub rates: Vec<f64>,
}

/// The largest served part of the demand, with its plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LargestPart<T> {
    /// From 0 to 1.
    pub part: f64,
    pub plan: T,
}

/// The demand of every pipeline, in queries per second.
pub(crate) fn demands(problem: &Problem) -> Vec<f64> {
    problem.pipelines.iter().map(|p| p.demand_qps).collect()
}

/// The problem with this part of every demand.
pub(crate) fn with_part(problem: &Problem, part: f64) -> Problem {
    let pipelines = problem.pipelines.iter().map(|p| p.with_demand(part * p.demand_qps)).collect();
    problem.changed(|d| d.pipelines = pipelines).expect("less demand makes no problem invalid")
}

/// The largest part of the demand, from 0 to 1, that has a plan, to a relative precision. `None` if no part has a plan.
pub(crate) fn largest_part<T>(
    precision: f64,
    mut plan_for: impl FnMut(f64) -> Result<Option<T>, StopReason>,
) -> Result<Option<LargestPart<T>>, StopReason> {
    if let Some(plan) = plan_for(1.0)? {
        return Ok(Some(LargestPart { part: 1.0, plan }));
    }
    let (mut low, mut high) = (0.5, 1.0);
    let mut best = loop {
        if let Some(plan) = plan_for(low)? {
            break LargestPart { part: low, plan };
        }
        high = low;
        low *= 0.5;
        if low < PART_MIN {
            return Ok(None);
        }
    };
    while high - best.part > precision * high {
        let middle = 0.5 * (best.part + high);
        match plan_for(middle) {
            Ok(Some(plan)) => best = LargestPart { part: middle, plan },
            Ok(None) => high = middle,
            // the largest part so far is good enough
            Err(_) => break,
        }
    }
    Ok(Some(best))
}

/// The answer with a baseline's plan, replayed on the trace of the options or on the default trace.
pub(super) fn answer(problem: &Problem, options: &PlanningOptions, found: BaselinePlan) -> (PlanOutcome, PlanningReport) {
    let default = replay::default_workload(problem);
    let workload = options.trace.as_ref().unwrap_or(&default);
    let estimate = replay::replay_alone(problem, &found.plan, workload, &options.limits().for_finishing()).map(|s| s.total);
    let stopped = if found.part < 1.0 { StopReason::DemandNotMet } else { StopReason::Finished };
    let candidate = CheckedPlan {
        objective: objective(problem, &found.plan),
        plan: found.plan,
        stopped: Some(stopped),
        provenance: None,
    };
    let (outcome, mut report) = report::report_plan(problem, options, candidate, estimate, Vec::new());
    if found.part < 1.0 {
        report.explanation.shortfalls = unserved_load(problem, &found.rates, found.part);
    }
    (outcome, report)
}

/// The shortfalls of a plan for a part of these rates, in queries per second by pipeline.
pub(crate) fn unserved_load(problem: &Problem, rates: &[f64], part: f64) -> Vec<Shortfall> {
    let mut shortfalls = Vec::with_capacity(rates.len());
    for (p, (pipeline, &asked)) in problem.pipelines.iter().zip(rates).enumerate() {
        // the rate of a trace is not in the problem, and with several pipelines no single demand would do
        let relax = (problem.pipelines.len() == 1 && asked == pipeline.demand_qps).then(|| Relaxation {
            pointer: format!("/pipelines/{p}/demand_qps"),
            from: asked,
            to: part * asked,
        });
        let place = pipeline.name.clone();
        shortfalls.push(Shortfall { constraint: Constraint::Capacity, place, asked, best: part * asked, relax });
    }
    shortfalls
}

/// Outcome and report if a baseline has no plan at any load. It is infeasible only if the exact planner can prove that.
pub(super) fn no_plan(
    problem: &Problem,
    options: &PlanningOptions,
    shortfalls: Vec<Shortfall>,
) -> (PlanOutcome, PlanningReport) {
    if infeasible::is_hopeless(problem) {
        return report::report_infeasible(problem, options);
    }
    let (outcome, mut report) = report::report_unknown(options, StopReason::Finished);
    report.explanation.shortfalls = shortfalls;
    (outcome, report)
}

/// Objective of a plan in the problem's mode; a baseline has no bound.
pub(super) fn objective(problem: &Problem, plan: &Plan) -> ObjectiveValue {
    let weights: f64 = problem.pipelines.iter().map(|p| p.weight).sum();
    let accuracy = || {
        let weighted = problem.pipelines.iter().zip(&plan.pipelines).map(|(p, part)| p.weight * part.accuracy);
        weighted.sum::<f64>() / weights.max(f64::MIN_POSITIVE)
    };
    let (step, value) = match problem.objective.mode {
        Mode::HardwareThenAccuracy if only_most_accurate(problem, plan) => {
            (Some(ObjectiveStep::Hardware), plan.replicas() as f64)
        }
        Mode::HardwareThenAccuracy => (Some(ObjectiveStep::Accuracy), accuracy()),
        Mode::MinCost => (None, plan.cost_per_hour),
        Mode::MaxAccuracy => (None, accuracy()),
    };
    ObjectiveValue { step, value: Some(value), bound: None }
}

/// Whether a plan runs only the most accurate variants of its tasks.
fn only_most_accurate(problem: &Problem, plan: &Plan) -> bool {
    problem.pipelines.iter().zip(&plan.pipelines).all(|(pipeline, part)| pipeline.is_most_accurate(part))
}
