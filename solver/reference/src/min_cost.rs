//! Mode `min_cost`: the least cost of devices and of switching, with every floor met.

use crate::answer::{OptimalPlan, ReferenceError};
use crate::model::Model;
use crate::solver::Programme;
use apportion_domain::Deployed;
use good_lp::{Expression, constraint, variable};

/// The least cost; `None` if there is no plan.
pub fn solve(programme: Programme<'_>) -> Result<Option<OptimalPlan>, ReferenceError> {
    let mut model = programme.model()?;
    let switching = add_switching(&mut model);
    let cost = model.cost() + switching; // (25)
    let Some(least) = programme.minimise(model, cost)? else { return Ok(None) };
    Ok(Some(OptimalPlan { plan: programme.plan(&least.choice)?, step: None, value: least.value, bound: least.bound }))
}

/// (24) `a(g) >= sum over b of x(g, b) - deployed(g)` and `a(g) >= 0`: loading is paid for, unloading is free. The
/// sum is `switching_weight load_s(g) price(h) / 3600 a(g)`.
fn add_switching(model: &mut Model<'_>) -> Expression {
    let mut switching = Expression::default();
    for part in &model.parts {
        let pipeline = model.problem.pipeline(part.index);
        for (g, group) in part.sets.groups.iter().enumerate() {
            let runs = |d: &&Deployed| {
                (d.pipeline, d.task, d.variant, d.hardware, d.share)
                    == (part.index, group.task, group.variant, group.hardware, group.share)
            };
            let deployed = model.problem.deployed.iter().find(runs).map_or(0.0, |d| f64::from(d.replicas));
            let load_s = pipeline.variant(group.task, group.variant).load_ms / 1000.0;
            let price_per_s = model.problem.hardware_at(group.hardware).price_per_hour / 3600.0;
            let most = part.replicas_max[g].iter().copied().fold(0.0, f64::max);
            let loaded = model.variables.add(variable().min(0.0).max(most));
            model.constraints.push(constraint!(loaded >= part.replicas_of(g) - deployed)); // (24)
            switching.add_mul(model.problem.switching_weight * load_s * price_per_s, loaded);
        }
    }
    switching
}
