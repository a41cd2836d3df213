//! Which replicas run now? By a plan file, or by Prometheus.

use super::server::{MetricsSource, needed};
use apportion_api::decide::deployed::plan_of;
use apportion_domain::{Plan, Problem};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::{BadInput, read_plan_for};
use clap::Args;

/// The arguments that say which replicas run.
#[derive(Args, Debug)]
pub struct DeployedArgs {
    /// Plan file of the replicas that run now.
    #[arg(long, value_name = "PLAN", conflicts_with = "deployed_query")]
    deployed: Option<String>,
    /// PromQL query for the replicas that run now, one series for each group. The labels `pipeline`, `task`, `variant` (or
    /// `model`), `hardware` and `batch` name the group. A label may be absent where the problem leaves one choice. Without
    /// `batch`, the largest batch of the profile counts.
    #[arg(long, value_name = "PROMQL")]
    deployed_query: Option<String>,
}

impl DeployedArgs {
    /// The plan that runs now, if it is known.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, problem: &Problem, metrics: Option<&MetricsSource>) -> Result<Option<Plan>, Failure> {
        const OPTION: &str = "--deployed-query";
        if let Some(file) = &self.deployed {
            return input::read_plan_for(problem, file).map(Some);
        }
        let Some(promql) = &self.deployed_query else { return Ok(None) };
        let samples = needed(metrics, OPTION, promql)?.read_all(OPTION, promql)?.samples;
        if samples.is_empty() {
            let expected = "a series for each group that runs: no answer is not no replica";
            return Err(BadInput::one(OPTION, promql, "no series", expected).into());
        }
        let document = plan_of(problem, &samples).map_err(|e| BadInput::one(OPTION, e.at, e.found, e.expected))?;
        Ok(Some(read_plan_for(problem, OPTION, &document.to_string())?))
    }
}
