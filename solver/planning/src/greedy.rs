//! placeholder
use crate::{Control, Made, PlanOptions};
use apportion_domain::{ObjectiveValue, Problem, StopReason};
pub fn plan(_problem: &Problem, _options: &PlanOptions, _control: &Control) -> Made {
    let objective = ObjectiveValue { step: None, value: None, bound: None };
    Made { plan: None, objective, stopped: Some(StopReason::Unsupported), infeasible: false, rounds: Vec::new() }
}
