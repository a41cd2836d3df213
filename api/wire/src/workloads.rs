//! Which workloads on Kubernetes follow the plans of a pipeline without agents?

use crate::record::record;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most workloads of one pipeline.
pub const WORKLOADS_MAX: usize = 1_000;
/// Most characters of the name of a workload or of a namespace.
pub const WORKLOAD_NAME_CHARS_MAX: usize = 253;
/// Most workloads that change at a time.
pub const AT_A_TIME_MAX: u32 = 1_000;
/// Most seconds until new replicas must be ready.
pub const READY_WITHIN_S_MAX: f64 = 86_400.0;
/// Most changes in an hour.
pub const CHANGES_PER_HOUR_MAX: u32 = 10_000;
/// The words of [`WorkloadSpec::kind`].
pub const WORKLOAD_KINDS: &[&str] = &["Deployment", "StatefulSet"];

record! {
    /// The workloads on Kubernetes that follow the plans of a pipeline without agents.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct KubernetesSpec {
        /// The workload of each group of replicas; at most 1000.
        pub workloads: Vec<WorkloadSpec> => required,
        /// Most workloads that change at a time, 1 to 1000; default 1.
        #[serde(default = "at_a_time_max")]
        pub at_a_time_max: u32 => optional,
        /// Seconds until new replicas must be ready, 1 to 86400; default 600. What is not ready then is rolled back.
        #[serde(default = "ready_within_s")]
        pub ready_within_s: f64 => optional,
        /// Most changes in an hour, 1 to 10000; default 60. What is rolled back is changed in any case.
        #[serde(default = "changes_per_hour_max")]
        pub changes_per_hour_max: u32 => optional,
        /// Nothing is changed; decisions say what would be. Default false.
        #[serde(default)]
        pub dry_run: bool => optional,
    }
}

record! {
    /// The workload of a group of replicas.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct WorkloadSpec {
        /// The group's task.
        pub task: String => required,
        /// Its variant.
        pub variant: String => required,
        /// Its hardware type.
        pub hardware: String => required,
        /// The batch that the workload's servers are configured for. A plan with another batch is not carried out. Without
        /// it, every batch is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub batch: Option<u32> => optional.or_null(),
        /// The workload's namespace; default `default`.
        #[serde(default = "namespace")]
        pub namespace: String => optional,
        /// `Deployment` (default) or `StatefulSet`.
        #[serde(default = "kind")]
        pub kind: String => optional.words(WORKLOAD_KINDS),
        /// Its name.
        pub name: String => required,
    }
}

fn at_a_time_max() -> u32 {
    1
}

fn ready_within_s() -> f64 {
    600.0
}

fn changes_per_hour_max() -> u32 {
    60
}

pub(crate) fn namespace() -> String {
    "default".to_owned()
}

pub(crate) fn kind() -> String {
    WORKLOAD_KINDS[0].to_owned()
}
