//! Loki's step 2, accuracy scaling: the highest accuracy within the devices, then the fewest replicas that keep it.

use crate::answer::{ACCURACY_SLACK, OptimalPlan, ReferenceError};
use crate::solver::Programme;
use apportion_domain::ObjectiveStep;
use good_lp::constraint;

/// The highest accuracy; `None` if no variants can serve the demand.
pub fn solve(programme: Programme<'_>) -> Result<Option<OptimalPlan>, ReferenceError> {
    let model = programme.model()?;
    let accuracy = model.accuracy();
    let Some(best) = programme.maximise(model, accuracy)? else { return Ok(None) }; // (12)

    // (23) Fewest replicas among the plans that are as accurate. Loki leaves it out and fills the cluster for nothing.
    let mut model = programme.model()?;
    let accuracy = model.accuracy();
    model.constraints.push(constraint!(accuracy >= best.value - ACCURACY_SLACK * best.value.abs()));
    let replicas = model.replicas();
    let choice = programme.minimise(model, replicas)?.map_or(best.choice, |fewest| fewest.choice);
    let (plan, step) = (programme.plan(&choice)?, Some(ObjectiveStep::Accuracy));
    Ok(Some(OptimalPlan { plan, step, value: best.value, bound: best.bound }))
}
