//! Which problem and plan does the service have?

use super::service::Service;
use anyhow::{Result, bail};
use apportion_domain::{Plan, Problem};
use apportion_wire::{ProblemFile, problem_from_tree, read_plan};
use serde_json::Value;

/// A plan of the service with the problem that it solves.
pub struct FetchedPlan {
    /// The problem.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
}

/// Fetches a plan from the service.
///
/// # Errors
/// If the service has no such plan.
pub async fn fetch_plan(service: &Service, plan: &str) -> Result<FetchedPlan> {
    let document = service.get(&format!("/v1/plans/{plan}")).await?;
    Ok(FetchedPlan { problem: problem_in(&document)?, plan: read_plan("plan", &document["plan"].to_string())? })
}

/// The allocation problem in a plan document of the service.
///
/// # Errors
/// If the document holds no allocation problem.
pub fn problem_in(document: &Value) -> Result<Problem> {
    match problem_from_tree("problem", document["problem"].clone())? {
        ProblemFile::Allocation(problem) => Ok(problem),
        ProblemFile::Scaling(_) => bail!("plan {} has a scaling problem", document["id"]),
    }
}
