//! Which settings of a pipeline contradict its scaling actions?
//!
//! Example: scaling actions choose the replicas of each round, and a ladder would choose other ones in between.

use crate::scaling_replan::LAMBDA_MAX;
use crate::spec::ReplanSpec;
use apportion_domain::{Invalid, Mode};

/// The refused values of a pipeline whose rounds plan by scaling actions. `survive` is that of the pipeline.
pub(crate) fn check_scaling(replan: &ReplanSpec, survive: Option<u32>) -> Vec<Invalid> {
    let Some(scaling) = &replan.scaling else { return Vec::new() };
    let mut problems = Vec::new();
    if !(0.0..=LAMBDA_MAX).contains(&scaling.lambda) {
        let expected = format!("a number from 0 to {LAMBDA_MAX}");
        problems.push(Invalid::new("/replan/scaling/lambda", scaling.lambda, expected));
    }
    for (at, value) in [("/replan/ladder", replan.ladder), ("/replan/ladder_headroom", replan.ladder_headroom)] {
        if let Some(value) = value {
            problems.push(Invalid::new(at, value, "no such member beside `scaling`, or no `scaling`"));
        }
    }
    if let Some(objective) = replan.objective.as_ref().filter(|objective| objective.mode != Mode::MinCost.name()) {
        let found = format!("{:?}", objective.mode);
        problems.push(Invalid::new("/replan/objective/mode", found, "\"min_cost\" beside `scaling`, or no `scaling`"));
    }
    if let Some(survive) = survive.filter(|survive| *survive > 0) {
        problems.push(Invalid::new("/survive", survive, "0 beside `replan/scaling`, or no `replan/scaling`"));
    }
    problems
}
