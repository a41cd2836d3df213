//! Mode `max_accuracy`: the highest weighted accuracy within devices, floors and budget, then the least cost that
//! keeps it.

use crate::answer::{ACCURACY_SLACK, OptimalPlan, ReferenceError};
use crate::solver::Programme;
use good_lp::constraint;

/// The highest weighted accuracy; `None` if there is no plan.
pub fn solve(programme: Programme<'_>) -> Result<Option<OptimalPlan>, ReferenceError> {
    let model = programme.model()?;
    let accuracy = model.accuracy();
    let Some(best) = programme.maximise(model, accuracy)? else { return Ok(None) }; // (12), over all pipelines by weight

    // (26) Least cost among the plans that are as accurate.
    let mut model = programme.model()?;
    let accuracy = model.accuracy();
    model.constraints.push(constraint!(accuracy >= best.value - ACCURACY_SLACK * best.value.abs()));
    let cost = model.cost();
    let choice = programme.minimise(model, cost)?.map_or(best.choice, |least| least.choice);
    Ok(Some(OptimalPlan { plan: programme.plan(&choice)?, step: None, value: best.value, bound: best.bound }))
}
