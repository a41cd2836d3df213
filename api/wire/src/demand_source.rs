//! Which Prometheus says the demand of a pipeline that has no agents?

use crate::record::record;
use apportion_domain::Invalid;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

record! {
    /// Where the demand of a pipeline without agents comes from.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DemandSourceSpec {
        /// A query to a Prometheus.
        pub prometheus: PrometheusDemandSpec => required,
    }
}

record! {
    /// A query to a Prometheus with one series: the queries per second at the pipeline's root.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PrometheusDemandSpec {
        /// The server's URL, without `/api/v1`.
        pub url: String => required,
        /// The query, in PromQL.
        pub query: String => required,
        /// Seconds for one answer, 0.1 to 10; default 5.
        #[serde(default = "timeout_s")]
        pub timeout_s: f64 => optional,
        /// Largest age in seconds of the samples that the query reads, 1 to 3600; default 90.
        #[serde(default = "age_max_s")]
        pub age_max_s: f64 => optional,
    }
}

fn timeout_s() -> f64 {
    5.0
}

fn age_max_s() -> f64 {
    90.0
}

/// The refused values of a source whose pointer is `at`.
pub(crate) fn check_demand_source(source: &DemandSourceSpec, at: &str) -> Vec<Invalid> {
    let PrometheusDemandSpec { timeout_s, age_max_s, .. } = source.prometheus;
    let mut problems = Vec::new();
    if !(0.1..=10.0).contains(&timeout_s) {
        problems.push(Invalid::new(format!("{at}/prometheus/timeout_s"), timeout_s, "a number from 0.1 to 10"));
    }
    if !(1.0..=3_600.0).contains(&age_max_s) {
        problems.push(Invalid::new(format!("{at}/prometheus/age_max_s"), age_max_s, "a number from 1 to 3600"));
    }
    problems
}
