//! Loki's step 1, hardware scaling: fewest replicas with only the most accurate variants.

use crate::answer::{OptimalPlan, ReferenceError};
use crate::solver::Programme;
use apportion_domain::ObjectiveStep;
use good_lp::constraint;

/// The fewest replicas; `None` if the most accurate variants cannot serve the demand.
pub fn solve(programme: Programme<'_>) -> Result<Option<OptimalPlan>, ReferenceError> {
    let mut model = programme.model()?;
    for part in &model.parts {
        let pipeline = model.problem.pipeline(part.index);
        for (g, group) in part.sets.groups.iter().enumerate() {
            // (8) the most accurate variants of the task; (9) the others
            if !pipeline.most_accurate(group.task).any(|best| best == group.variant) {
                model.constraints.push(constraint!(part.replicas_of(g) == 0.0)); // (10)
            }
        }
    }
    let replicas = model.replicas();
    let Some(fewest) = programme.minimise(model, replicas)? else { return Ok(None) }; // (11)
    let (value, bound) = (fewest.value.round(), (fewest.bound - 1e-6).ceil());
    Ok(Some(OptimalPlan { plan: programme.plan(&fewest.choice)?, step: Some(ObjectiveStep::Hardware), value, bound }))
}
