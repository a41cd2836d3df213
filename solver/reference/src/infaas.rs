//! INFaaS's scaling problem, section 4.2.1: how many replicas of each variant of each application to load or unload.
//!
//! With delta(i, j) integer, the replicas of variant j of application i that are loaded (or unloaded, where
//! negative), and a(i, j) the replicas that are loaded:
//!
//! - objective: `minimise sum of C (delta + lambda T_load max(delta, 0))`, where max(delta, 0) is `a >= delta`, `a >=
//!   0`;
//! - INFaaS (1) `sum over j of Q (N + delta) >= L + slack` for each application;
//! - INFaaS (2) `T_inf <= S where delta > 0`: `delta <= 0` for a variant that is slower than its SLO;
//! - INFaaS (3) `sum of R (N + delta) <= R_total` for each resource;
//! - INFaaS (4) `N + delta >= 0`.

use crate::answer::{INTEGER_MAX, ReferenceError};
use crate::solver::{self, Direction, ReferenceSettings};
use apportion_domain::{Application, SLACK, ScalingAction, ScalingPlan, ScalingProblem, ScalingVariant};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

/// Solves a scaling problem; `None` if there is no plan.
///
/// # Errors
/// As [`crate::solve`].
pub fn solve_scaling(
    problem: &ScalingProblem,
    settings: &ReferenceSettings,
) -> Result<Option<ScalingPlan>, ReferenceError> {
    let mut variables = ProblemVariables::new();
    let mut constraints: Vec<Constraint> = Vec::new();
    let mut cost = Expression::default();
    let mut deltas: Vec<Vec<Variable>> = Vec::new();
    for application in &problem.applications {
        let mut of_application = Vec::new();
        let mut capacity = Expression::default();
        for v in &application.variants {
            let running = f64::from(v.running);
            let most = delta_max(application, v); // INFaaS (2)
            if most.max(running) > INTEGER_MAX {
                return Err(ReferenceError::TooManyReplicas(format!("variant {:?}", v.name)));
            }
            let delta = variables.add(variable().integer().min(-running).max(most)); // INFaaS (4)
            let loaded = variables.add(variable().min(0.0).max(most));
            constraints.push(constraint!(loaded >= delta));
            cost.add_mul(v.cost_per_s, delta);
            cost.add_mul(v.cost_per_s * problem.lambda * v.load_s, loaded);
            capacity.add_mul(v.saturation_qps, running + delta);
            of_application.push(delta);
        }
        let needed = application.needed_qps();
        if needed > 0.0 {
            constraints.push(constraint!(capacity / needed >= 1.0 - SLACK / needed.min(1.0))); // INFaaS (1)
        }
        deltas.push(of_application);
    }
    for (resource, &total) in &problem.resources {
        let mut used = Expression::default();
        for (application, deltas) in problem.applications.iter().zip(&deltas) {
            for (v, &delta) in application.variants.iter().zip(deltas) {
                used.add_mul(v.uses(resource), f64::from(v.running) + delta);
            }
        }
        let unit = if total > 0.0 { total } else { 1.0 };
        constraints.push(constraint!(used / unit <= total / unit + SLACK)); // INFaaS (3)
    }
    let solved = solver::optimise(variables, constraints, &cost, Direction::Minimise, settings)?;
    Ok(solved.map(|value| {
        let of = |deltas: &Vec<Variable>| deltas.iter().map(|&delta| value(delta).round() as i64).collect();
        plan(problem, &deltas.iter().map(of).collect::<Vec<Vec<i64>>>())
    }))
}

/// The most useful replicas to load: enough for the load with this variant alone. It is 0 if the variant is slower than its
/// SLO.
fn delta_max(application: &Application, variant: &ScalingVariant) -> f64 {
    let useful = (application.needed_qps() / variant.saturation_qps).ceil() - f64::from(variant.running);
    if application.may_grow(variant) { useful.max(0.0) } else { 0.0 }
}

fn plan(problem: &ScalingProblem, deltas: &[Vec<i64>]) -> ScalingPlan {
    let of = |(a, deltas): (&Application, &Vec<i64>)| -> Vec<ScalingAction> {
        let action = |(v, &delta): (&ScalingVariant, &i64)| ScalingAction {
            application: a.name.clone(),
            variant: v.name.clone(),
            running: (i64::from(v.running) + delta).max(0) as u32,
            delta,
        };
        a.variants.iter().zip(deltas).map(action).collect()
    };
    let actions = problem.applications.iter().zip(deltas).flat_map(of).collect();
    // a sum of zeros may be minus zero, which a file would show
    ScalingPlan { actions, value: problem.cost(deltas) + 0.0 }
}
