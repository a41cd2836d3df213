//! Which variants may requests have loaded beyond the plan's?

use crate::record::record;
use crate::states::ReplanMode;
use apportion_domain::Invalid;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most replicas of one pipeline that requests have loaded.
pub const ON_DEMAND_REPLICAS_MAX: u32 = 1_000;
/// Most loads for requests of one pipeline in a minute.
pub const LOADS_PER_MINUTE_MAX: u32 = 600;
/// Most seconds without a query after which such a replica is unloaded. The service knows the use of the last ten minutes.
pub const IDLE_S_MAX: f64 = 540.0;

record! {
    /// Requests that say their needs may have variants loaded that no plan has. The service loads a replica on free devices
    /// only, and unloads it when a plan needs the device.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct OnDemandSpec {
        /// Most replicas of the pipeline at a time that requests have loaded, 1 to 1000; default 2.
        #[serde(default = "replicas_max")]
        pub replicas_max: u32 => optional,
        /// Most replicas in a minute that are loaded for requests, 1 to 600; default 6.
        #[serde(default = "loads_per_minute_max")]
        pub loads_per_minute_max: u32 => optional,
        /// Seconds without a query after which such a replica is unloaded, 1 to 540; default 60.
        #[serde(default = "idle_s")]
        pub idle_s: f64 => optional,
    }
}

impl Default for OnDemandSpec {
    fn default() -> Self {
        Self { replicas_max: replicas_max(), loads_per_minute_max: loads_per_minute_max(), idle_s: idle_s() }
    }
}

fn replicas_max() -> u32 {
    2
}

fn loads_per_minute_max() -> u32 {
    6
}

fn idle_s() -> f64 {
    60.0
}

/// The refused values of these settings in a pipeline with this replan mode.
pub(crate) fn check_on_demand(mode: &str, spec: &OnDemandSpec) -> Vec<Invalid> {
    const AT: &str = "/replan/on_demand";
    let mut problems = Vec::new();
    if mode == ReplanMode::Off.name() {
        let found = format!("loads for requests with the mode {mode}");
        problems.push(Invalid::new(AT, found, "the mode apply or advisory beside it, or no such member"));
    }
    if !(1..=ON_DEMAND_REPLICAS_MAX).contains(&spec.replicas_max) {
        let expected = format!("a number from 1 to {ON_DEMAND_REPLICAS_MAX}");
        problems.push(Invalid::new(format!("{AT}/replicas_max"), spec.replicas_max, expected));
    }
    if !(1..=LOADS_PER_MINUTE_MAX).contains(&spec.loads_per_minute_max) {
        let expected = format!("a number from 1 to {LOADS_PER_MINUTE_MAX}");
        problems.push(Invalid::new(format!("{AT}/loads_per_minute_max"), spec.loads_per_minute_max, expected));
    }
    if !(1.0..=IDLE_S_MAX).contains(&spec.idle_s) {
        problems.push(Invalid::new(format!("{AT}/idle_s"), spec.idle_s, format!("a number from 1 to {IDLE_S_MAX}")));
    }
    problems
}
