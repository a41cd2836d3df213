//! How are the scaling actions of a replanned pipeline found?

use crate::record::record;
use crate::states::ScalingPlanner;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Largest weight of load latency, 1/s: a load of a millisecond then counts as much as a replica.
pub const LAMBDA_MAX: f64 = 1_000.0;

record! {
    /// Rounds plan by the scaling actions of INFaaS (section 4.2) from the replicas that run: they replicate a variant,
    /// load another one, or remove replicas. Plans are for least cost.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ScalingReplanSpec {
        /// `milp` (default), the integer programme of section 4.2.1, or `greedy`, the heuristic of section 4.2.2.
        #[serde(default = "milp")]
        pub planner: String => optional.words(ScalingPlanner::NAMES),
        /// Weight of load latency, 1/s, 0 to 1000; default 0.1, so a replica that loads for 10 s counts twice.
        #[serde(default = "lambda")]
        pub lambda: f64 => optional,
    }
}

impl Default for ScalingReplanSpec {
    fn default() -> Self {
        Self { planner: milp(), lambda: lambda() }
    }
}

fn milp() -> String {
    ScalingPlanner::Milp.name().to_owned()
}

fn lambda() -> f64 {
    0.1
}
