//! Which keys do problems and pipelines have in files? Optional keys stay absent, so a file that is read and written again
//! is the same. `convert` applies the defaults on the way into the domain.

use crate::demand_source::{DemandSourceSpec, DeploymentSourceSpec};
use crate::on_demand::OnDemandSpec;
use crate::record::{FileKind, record};
use crate::row_measurement::RowMeasurement;
use crate::scaling_replan::ScalingReplanSpec;
use crate::states::ReplanMode;
use crate::transform_spec::TransformSpec;
use crate::validation::ValidationSpec;
use crate::workloads::KubernetesSpec;
use apportion_domain::{
    AccuracyModel, Batching, Dropping, LatencyRule, Mode, Partial, Provider, Queueing, Route, RoutingPolicy, TaskKind,
    VariantRuntime,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

record! {
    /// A problem file for the allocation of variants (`version: 1`).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ProblemSpec {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// The goal and its limits.
        pub objective: ObjectiveSpec => required,
        /// Hardware types.
        pub hardware: Vec<HardwareSpec> => required,
        /// Pipelines with their demands.
        pub pipelines: Vec<PipelineSpec> => required,
        /// Groups that run now, for the switching cost and for the least change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub deployed: Vec<DeployedSpec> => optional,
        /// Price of switching.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub switching: Option<SwitchingSpec> => optional,
        /// Sentences about the figures, for example about those that agents measured. `planner.warnings` of the plan
        /// repeats them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub notes: Vec<String> => optional,
    }
}

record! {
    /// The goal of a plan, and its limits.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ObjectiveSpec {
        /// The goal: `hardware_then_accuracy`, `min_cost` or `max_accuracy`.
        pub mode: String => required.words(Mode::NAMES),
        /// The paths that must meet the SLO: through the slowest group of each task (`task_budget`, default), or all paths
        /// with traffic (`path`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub latency_rule: Option<String> => optional.words(LatencyRule::NAMES),
        /// Limit on the cost of the devices per hour; null is no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub budget_per_hour: Option<f64> => optional.or_null(),
    }
}

impl Default for ObjectiveSpec {
    fn default() -> Self {
        let mode = Mode::default().name().to_owned();
        Self { mode, latency_rule: None, budget_per_hour: None }
    }
}

record! {
    /// A hardware type.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct HardwareSpec {
        /// Unique name.
        pub name: String => required,
        /// Price of one whole device per hour; default 1.
        #[serde(default = "one")]
        pub price_per_hour: f64 => optional,
        /// Whole devices that exist; null is unlimited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub count: Option<u32> => optional.or_null(),
        /// Memory of one device; null is not limited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_mib: Option<f64> => optional.or_null(),
    }
}

record! {
    /// A pipeline: in a problem file with its demand and profiles, in the service as it is registered.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PipelineSpec {
        /// Unique name.
        pub name: String => required,
        /// Queries that enter the root per second. Required in a problem file; elsewhere the default is 0.
        #[serde(default)]
        pub demand_qps: f64 => required_in(FileKind::Problem),
        /// End-to-end latency objective.
        pub slo_ms: f64 => required,
        /// Share of requests, in percent, that must meet it; default 99.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub percentile: Option<f64> => optional,
        /// Time of a query at a task, waiting included, as a multiple of its batch's time; default 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue_factor: Option<f64> => optional,
        /// Network time per hop; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub network_ms: Option<f64> => optional,
        /// Network time for each MiB of a query's inputs, on top of `network_ms`; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub network_ms_per_mib: Option<f64> => optional,
        /// Time of one request at its ingress, for reading and decoding; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ingress_ms: Option<f64> => optional,
        /// Mean size of the inputs of one request, in KiB; default 0: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ingress_kib_per_query: Option<f64> => optional,
        /// Weight in `max_accuracy`; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub weight: Option<f64> => optional,
        /// Floor on the accuracy; null is no floor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub min_accuracy: Option<f64> => optional.or_null(),
        /// How the accuracies of a path's tasks combine: `product` (default), `mean` or `task_mean`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub accuracy_model: Option<String> => optional.words(AccuracyModel::NAMES),
        /// Measured accuracy of a path, by `task:variant>task:variant`. It replaces the combined accuracy.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub path_accuracy: BTreeMap<String, f64> => optional,
        /// Weights of the sink tasks in the accuracy; default: all equal.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub leaf_weights: BTreeMap<String, f64> => optional,
        /// Replicas of any one group that may be lost without a loss of capacity; default 0. Where a service knows the
        /// zones of its agents: zones that may be lost together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub survive: Option<u32> => optional,
        /// What a dropped query does to its request. `deny` (default): the request is dropped. `allow`: the answer comes
        /// without that part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub partial: Option<String> => optional.words(Partial::NAMES),
        /// Serving policies that the plan should have; absent ones are defaults.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub serving: Option<ServingSpec> => optional,
        /// The tasks, at least one.
        pub tasks: Vec<TaskSpec> => required,
        /// Edges between tasks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub edges: Vec<EdgeSpec> => optional,
        /// Labelled examples for measuring accuracy. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub validation: Option<ValidationSpec> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// The replan settings. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub replan: Option<ReplanSpec> => only_in(FileKind::RegisteredPipeline).or_null(),
    }
}

record! {
    /// Serving policies that a plan should have; absent ones are defaults.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ServingSpec {
        /// Where queries wait: `per_replica` (default) or `central`, one queue for each group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queueing: Option<String> => optional.words(Queueing::NAMES),
        /// When a batch is closed: `at_start` (default), `forming` or `wait_until`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub batching: Option<String> => optional.words(Batching::NAMES),
        /// How a sender chooses a replica: `stride` (default), `jsq` or `most_accurate_first`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub routing: Option<String> => optional.words(RoutingPolicy::NAMES),
        /// The policy for queries that will be late; default `naive`. A service plans registered pipelines with `pard` by
        /// default where their plans have a ladder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dropping: Option<String> => optional.words_or(Dropping::NAMES, &["none"]),
    }
}

record! {
    /// One task of a pipeline.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TaskSpec {
        /// Unique in its pipeline.
        pub name: String => required,
        /// How queries run: in batches (`batch`, default), or each in a slot (`continuous`). Then the batch size is the
        /// number of slots.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kind: Option<String> => optional.words(TaskKind::NAMES),
        /// The children that a query visits: `all` (default), or `one_of`, drawn by the ratios of the edges.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub route: Option<String> => optional.words(Route::NAMES),
        /// Fewest replicas; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub min_replicas: Option<u32> => optional,
        /// Input tensors. Service only; read from the model files if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub inputs: Option<Vec<TensorSpec>> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// Output tensors. Service only; read from the model files if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outputs: Option<Vec<TensorSpec>> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// Transforms from the inputs of a query to those of a variant. `inputs` says what queries bring. Service only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub before: Vec<TransformSpec> => only_in(FileKind::RegisteredPipeline),
        /// Transforms of a variant's outputs, for all edges and for the answer. Service only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub after: Vec<TransformSpec> => only_in(FileKind::RegisteredPipeline),
        /// Ways to do it, at least one.
        pub variants: Vec<VariantSpec> => required,
    }
}

impl TaskSpec {
    /// Whether its queries run in slots.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        self.kind.as_deref() == Some(TaskKind::Continuous.name())
    }
}

record! {
    /// A tensor of a task, in the words of the Open Inference Protocol.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TensorSpec {
        /// Name of the tensor.
        pub name: String => required,
        /// Its data type.
        pub datatype: String => required.words(DATATYPES),
        /// Full shape, with the batch first; -1 for a variable dimension.
        pub shape: Vec<i64> => required,
    }
}

/// Data types of the Open Inference Protocol.
pub const DATATYPES: &[&str] =
    &["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"];

record! {
    /// One way to do a task.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct VariantSpec {
        /// Unique in its task.
        pub name: String => required,
        /// Accuracy from 0 to 1. Required in a problem file, measured elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub accuracy: Option<f64> => required_in(FileKind::Problem).or_null(),
        /// Mean queries that one query produces; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fanout: Option<f64> => optional,
        /// Mean by child task, instead of `fanout * ratio`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub fanout_to: BTreeMap<String, f64> => optional,
        /// Distribution by child task, instead of either mean.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[schema(value_type = BTreeMap<String, BTreeMap<String, f64>>)]
        pub fanout_counts: BTreeMap<String, BTreeMap<u32, f64>> => optional,
        /// Time to load it onto a device; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub load_ms: Option<f64> => optional,
        /// Device memory while loaded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_mib: Option<f64> => optional.or_null(),
        /// Measured latencies. Required in a problem file, measured elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub profile: Option<Vec<ProfileRowSpec>> => required_in(FileKind::Problem).or_null(),
        /// The model file, relative to the file that names it. Only in pipeline files on disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model: Option<String> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// SHA-256 of the model file in lower-case hexadecimal. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model_digest: Option<String> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// A Python file with a function `run`, in the place of a model file, relative to the file that names it. Only in
        /// pipeline files on disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub python: Option<String> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// What runs the model file: `onnx` (default) or `python`. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub runtime: Option<String> => only_in(FileKind::RegisteredPipeline).words(VariantRuntime::NAMES).or_null(),
        /// Threads of one batch on a processor; default those of the device. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub threads: Option<u32> => only_in(FileKind::RegisteredPipeline).or_null(),
        /// What computes its batches: `cpu`, `cuda` or `tensorrt`; default the provider of the device. Service only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub provider: Option<String> => only_in(FileKind::RegisteredPipeline).words(Provider::NAMES).or_null(),
    }
}

record! {
    /// Latency of one batch on one hardware type.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ProfileRowSpec {
        /// Hardware type.
        pub hardware: String => required,
        /// Queries in the batch.
        pub batch: u32 => required,
        /// Median time of the batch.
        pub latency_ms: f64 => required,
        /// 99th percentile of the batch's time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub p99_ms: Option<f64> => optional.or_null(),
        /// Fraction of a device: 1 (default), 0.5, 0.25 or 0.125.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub share: Option<f64> => optional,
        /// How it was measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub measured: Option<RowMeasurement> => optional.or_null(),
    }
}

record! {
    /// An edge of a pipeline.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct EdgeSpec {
        /// Parent task.
        pub from: String => required,
        /// Child task.
        pub to: String => required,
        /// Share of the parent's output that goes there; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ratio: Option<f64> => optional,
        /// At a join: whether this edge makes the queries. Elsewhere every edge does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub primary: Option<bool> => optional,
        /// Mean size of the inputs that it brings to one query of the child, in KiB; default 0: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kib_per_query: Option<f64> => optional,
        /// Child's input name to parent's output name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub map: BTreeMap<String, String> => optional,
        /// Transforms between the parent's outputs and `map`. They may read the inputs of the parent's queries. Service
        /// only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub transform: Vec<TransformSpec> => only_in(FileKind::RegisteredPipeline),
    }
}

record! {
    /// A group that runs now.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DeployedSpec {
        /// Its pipeline.
        pub pipeline: String => required,
        /// Its task.
        pub task: String => required,
        /// Its variant.
        pub variant: String => required,
        /// Its hardware type.
        pub hardware: String => required,
        /// Its fraction of a device; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub share: Option<f64> => optional,
        /// Its batch size.
        pub batch: u32 => required,
        /// The number of its replicas.
        pub replicas: u32 => required,
    }
}

record! {
    /// Price of a change of the deployed groups.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct SwitchingSpec {
        /// Weight of the load time in `min_cost`; default 0.
        #[serde(default)]
        pub weight: f64 => optional,
    }
}

record! {
    /// The replan settings of a pipeline.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ReplanSpec {
        /// `off` (default), `advisory` (plans are made and not deployed) or `apply`.
        #[serde(default = "replan_off")]
        pub mode: String => optional.words(ReplanMode::NAMES),
        /// Seconds from one plan to the next; default 10.
        #[serde(default = "replan_period_s")]
        pub period_s: f64 => optional,
        /// Factor on the observed arrivals; default 1.2.
        #[serde(default = "replan_headroom")]
        pub headroom: f64 => optional,
        /// Lowest planned demand; default 1.
        #[serde(default = "one")]
        pub min_qps: f64 => optional,
        /// Each plan gets a ladder: replicas for loads from its demand divided by this factor to its demand times it.
        /// Agents follow it until the next plan. A pipeline that names no dropping policy then has `pard`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ladder: Option<f64> => optional.or_null(),
        /// The divisor of the ladders' rates, 0.1 to 10 and at most `ladder`: a constant headroom. Above 1, replicas come
        /// earlier than the estimator asks for them. Default: the rates stay, and the misses move the headroom in the
        /// agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ladder_headroom: Option<f64> => optional.or_null(),
        /// Whether plans count with measured latencies and fan-outs that differ from the profile; default true.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub correct_profiles: Option<bool> => optional,
        /// Whether a latency that differs from its profile for long is measured again by a profile job; default false.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub profile_on_drift: Option<bool> => optional,
        /// The objective of its plans; default `hardware_then_accuracy`. The budget is that of this pipeline alone. With
        /// `min_cost`, a new plan comes into force only if it saves more on the last loads than the change costs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub objective: Option<ObjectiveSpec> => optional.or_null(),
        /// The project that the pipeline belongs to; default `default`. Its quotas hold for all its pipelines together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub project: Option<String> => optional.or_null(),
        /// Which pipelines of the project have devices first, -1000 to 1000: those with the higher number; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub priority: Option<i64> => optional.or_null(),
        /// Where the demand of a pipeline without agents comes from; only with the mode `advisory`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub demand: Option<DemandSourceSpec> => optional.or_null(),
        /// Where its deployed replicas come from, to show the effect of following the advice; only beside `demand`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deployed: Option<DeploymentSourceSpec> => optional.or_null(),
        /// The workloads on Kubernetes that follow its plans; only beside `demand`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kubernetes: Option<KubernetesSpec> => optional.or_null(),
        /// Requests that say their needs may have variants loaded that no plan has; with the modes `apply` and `advisory`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_demand: Option<OnDemandSpec> => optional.or_null(),
        /// Rounds plan by scaling actions from the replicas that run, for least cost, instead of anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scaling: Option<ScalingReplanSpec> => optional.or_null(),
    }
}

impl Default for ReplanSpec {
    fn default() -> Self {
        Self {
            mode: replan_off(),
            period_s: replan_period_s(),
            headroom: replan_headroom(),
            min_qps: one(),
            ladder: None,
            ladder_headroom: None,
            correct_profiles: None,
            profile_on_drift: None,
            objective: None,
            project: None,
            priority: None,
            demand: None,
            deployed: None,
            kubernetes: None,
            on_demand: None,
            scaling: None,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn replan_off() -> String {
    ReplanMode::Off.name().to_owned()
}

fn replan_period_s() -> f64 {
    10.0
}

fn replan_headroom() -> f64 {
    1.2
}
