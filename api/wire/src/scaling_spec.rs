//! Which keys does a scaling problem have in a file?

use crate::record::record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

record! {
    /// A file with a scaling problem (INFaaS section 4.2.1) instead of pipelines.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ScalingFileSpec {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// The problem.
        pub scaling: ScalingSpec => required,
    }
}

record! {
    /// A scaling problem.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ScalingSpec {
        /// Weight of load latency, 1/s.
        pub lambda: f64 => required,
        /// Total amount of each resource.
        pub resources: BTreeMap<String, f64> => required,
        /// Applications.
        pub applications: Vec<ApplicationSpec> => required,
    }
}

record! {
    /// One application of a scaling problem.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ApplicationSpec {
        /// Unique name.
        pub name: String => required,
        /// Its load.
        pub load_qps: f64 => required,
        /// Spare load; default 0.
        #[serde(default)]
        pub slack_qps: f64 => optional,
        /// Its latency objective.
        pub slo_ms: f64 => required,
        /// Its variants.
        pub variants: Vec<ScalingVariantSpec> => required,
    }
}

record! {
    /// One variant of an application.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ScalingVariantSpec {
        /// Unique in its application.
        pub name: String => required,
        /// Its load at saturation.
        pub saturation_qps: f64 => required,
        /// Inference latency.
        pub latency_ms: f64 => required,
        /// Load latency in seconds; default 0.
        #[serde(default)]
        pub load_s: f64 => optional,
        /// Running cost per second.
        pub cost_per_s: f64 => required,
        /// Amount of each resource that one replica uses; default 0.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub resources: BTreeMap<String, f64> => optional,
        /// Replicas running now; default 0.
        #[serde(default)]
        pub running: u32 => optional,
    }
}
