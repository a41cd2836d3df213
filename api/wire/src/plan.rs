//! Plan files as `apportion plan --format json` prints them and the service stores them.

use crate::explanation::ExplanationFile;
use crate::record::{FileKind, FileValue, Shape, record};
use apportion_domain::{
    Batching, Dropping, EstimateMethod, Mode, ObjectiveStep, PlanStatus, Queueing, RoutingPolicy, StopReason,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

record! {
    /// A plan file. Every key is present when it is printed; null stands for what does not exist.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PlanFile {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// `optimal`, `feasible`, `infeasible` or `unknown`.
        pub status: String => optional.words(PlanStatus::NAMES),
        /// What was reached.
        pub objective: ObjectiveFile => optional,
        /// Price of the devices; null without a plan.
        pub cost_per_hour: Option<f64> => optional.or_null(),
        /// All replicas; null without a plan.
        pub replicas: Option<u64> => optional.or_null(),
        /// Empty without a plan.
        pub pipelines: Vec<PipelinePlanFile> => required_in(FileKind::Plan),
        /// Only in the plan of a scaling problem.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scaling: Option<Vec<ScalingEntry>> => required_in(FileKind::ScalingPlan),
        /// How the plan fares when replayed.
        pub estimate: Option<EstimateFile> => optional.or_null(),
        /// How it came about.
        pub planner: PlannerFile => optional,
        /// Why it is as it is.
        pub explanation: ExplanationFile => optional,
    }
}

record! {
    /// Value of the objective with its bound.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ObjectiveFile {
        /// Mode of the problem, or `scaling`.
        pub mode: String => optional.words_or(Mode::NAMES, &["scaling"]),
        /// `hardware` or `accuracy` in mode `hardware_then_accuracy`.
        pub step: Option<String> => optional.words(ObjectiveStep::NAMES).or_null(),
        /// Replicas in step `hardware`, accuracy in step `accuracy`, else cost or accuracy by mode.
        pub value: Option<f64> => optional.or_null(),
        /// Nothing can be better.
        pub bound: Option<f64> => optional.or_null(),
        /// `|value - bound| / max(1e-9, |value|)`.
        pub gap: Option<f64> => optional.or_null(),
    }
}

record! {
    /// The part of a plan that serves one pipeline.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PipelinePlanFile {
        /// The pipeline.
        pub name: String => required,
        /// The demand that it was made for.
        pub demand_qps: f64 => optional,
        /// The accuracy that it promises.
        pub accuracy: f64 => optional.or_null(),
        /// How it is served.
        pub serving: ServingFile => optional,
        /// Groups with their replicas.
        pub assignments: Vec<AssignmentFile> => required,
        /// Paths with traffic.
        pub flows: Vec<FlowFile> => optional,
        /// Tables of all senders.
        pub routing: RoutingFile => optional,
        /// Replicas for other rates, by rising rate; absent if nobody has worked them out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ladder: Vec<LadderStepFile> => optional,
    }
}

record! {
    /// What one rate needs.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct LadderStepFile {
        /// Up to this rate at the root.
        pub rate_qps: f64 => required,
        /// Replicas of each assignment, in the order of `assignments`.
        pub replicas: Vec<u32> => required,
    }
}

record! {
    /// The serving block of a plan.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ServingFile {
        /// Where queries wait.
        pub queueing: String => optional.words(Queueing::NAMES),
        /// When a batch is closed.
        pub batching: String => optional.words(Batching::NAMES),
        /// How a sender chooses a replica.
        pub routing: String => optional.words(RoutingPolicy::NAMES),
        /// What happens to a query that will be late.
        pub dropping: String => optional.words_or(Dropping::NAMES, &["none"]),
    }
}

record! {
    /// Replicas of one group.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct AssignmentFile {
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Hardware type.
        pub hardware: String => required,
        /// Fraction of a device of each replica.
        pub share: f64 => optional,
        /// Batch size.
        pub batch: u32 => required,
        /// Number of replicas.
        pub replicas: u32 => required,
        /// Share of the task's queries.
        pub traffic_share: f64 => optional,
        /// `queue_factor * latency_ms + network_ms`.
        pub latency_budget_ms: f64 => optional,
        /// Load over capacity.
        pub utilisation: f64 => optional,
    }
}

record! {
    /// Share of the traffic on one path of groups.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct FlowFile {
        /// Nodes `[task, variant, hardware]`, with the share as fourth element where it is not 1.
        pub path: Vec<PathNode> => required,
        /// For each sink the shares sum to 1.
        pub share: f64 => required,
    }
}

/// One node of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathNode {
    /// On whole devices.
    Whole(String, String, String),
    /// On a share of a device.
    Part(String, String, String, f64),
}

impl PartialSchema for PathNode {
    fn schema() -> RefOr<Schema> {
        // A list of three texts or four elements, since few generators of clients know lists with a type for each place.
        let element = ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Number]));
        let about = "Task, variant and hardware type, and the share of a device where it is not 1.";
        let node = ArrayBuilder::new().items(element).min_items(Some(3)).max_items(Some(4)).description(Some(about));
        node.into()
    }
}

impl ToSchema for PathNode {}

impl FileValue for PathNode {
    // `plan_read` checks the elements.
    const SHAPE: Shape = Shape::List(&Shape::Any);
}

record! {
    /// Tables of all senders and the capacity left over.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoutingFile {
        /// One for each sender and task.
        #[serde(default)]
        pub tables: Vec<RoutingTableFile> => optional,
        /// Capacity that the tables leave unused.
        #[serde(default)]
        pub backup: Vec<BackupFile> => optional,
    }
}

record! {
    /// Where one sender sends its queries for one task (Loki, Algorithm 1).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoutingTableFile {
        /// The sending group; null is the frontend.
        pub from: Option<GroupFile> => optional.or_null(),
        /// The task served.
        pub to: String => required,
        /// Most accurate first.
        pub entries: Vec<RoutingEntryFile> => required,
    }
}

record! {
    /// A group by name.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct GroupFile {
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Hardware type.
        pub hardware: String => required,
        /// Fraction of a device.
        #[serde(default = "whole")]
        pub share: f64 => optional,
    }
}

record! {
    /// One target of a table.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoutingEntryFile {
        /// Variant.
        pub variant: String => required,
        /// Hardware type.
        pub hardware: String => required,
        /// Fraction of a device.
        #[serde(default = "whole")]
        pub share: f64 => optional,
        /// Share of the sender's queries.
        pub fraction: f64 => required,
    }
}

record! {
    /// Capacity to spare.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct BackupFile {
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Hardware type.
        pub hardware: String => required,
        /// Fraction of a device.
        #[serde(default = "whole")]
        pub share: f64 => optional,
        /// How much.
        pub capacity_qps: f64 => required,
    }
}

record! {
    /// One variant's replicas in the plan of a scaling problem.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ScalingEntry {
        /// Application.
        pub application: String => required,
        /// Variant.
        pub variant: String => required,
        /// Replicas after the actions.
        pub running: u32 => required,
        /// The change.
        pub delta: i64 => required,
    }
}

record! {
    /// Predicted attainment, latency and accuracy.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct EstimateFile {
        /// How it was made.
        pub method: String => optional.words(EstimateMethod::NAMES),
        /// Root seed of the run.
        pub seed: u64 => optional,
        /// Requests that arrived.
        pub requests: u64 => optional,
        /// Within the SLO.
        pub ok: u64 => optional,
        /// After the SLO.
        pub late: u64 => optional,
        /// Dropped.
        pub dropped: u64 => optional,
        /// Failed.
        pub failed: u64 => optional,
        /// `ok / requests`.
        pub attainment: f64 => optional.or_null(),
        /// Median latency; null where no request was answered.
        pub p50_ms: Option<f64> => optional.or_null(),
        /// 99th percentile; null where no request was answered.
        pub p99_ms: Option<f64> => optional.or_null(),
        /// Mean accuracy over answered requests; null where there is none.
        pub accuracy: Option<f64> => optional.or_null(),
        /// Cost of the plan's devices.
        pub cost_per_hour: f64 => optional.or_null(),
        /// What queries spent at each task; absent from older files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tasks: Vec<TaskEstimateFile> => optional,
    }
}

record! {
    /// What queries spent at one task: `queueing_ms + batch_wait_ms = waiting_mean_ms`, and then `service_ms`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TaskEstimateFile {
        /// The pipeline.
        pub pipeline: String => optional,
        /// The task.
        pub task: String => optional,
        /// Queries that were served there.
        pub queries: u64 => optional,
        /// Mean time from joining the queue to the start of the batch.
        pub waiting_mean_ms: f64 => optional,
        /// 99th percentile of the same.
        pub waiting_p99_ms: f64 => optional,
        /// Mean time from joining the queue to entering a batch.
        pub queueing_ms: f64 => optional,
        /// Mean time from entering the batch to its start.
        pub batch_wait_ms: f64 => optional,
        /// Mean time of the batch, by query.
        pub service_ms: f64 => optional,
        /// Mean size of the batches.
        pub batch: f64 => optional,
        /// Largest share of the time that any of its replicas was busy.
        pub utilisation: f64 => optional,
    }
}

record! {
    /// How a plan came about.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PlannerFile {
        /// Name of the planner.
        pub name: String => optional,
        /// Time it took.
        pub seconds: f64 => optional,
        /// Why it stopped without a proof; null if it has one, or makes none.
        pub stopped: Option<String> => optional.words(StopReason::NAMES).or_null(),
        /// Rounds of the check loop.
        pub rounds: Vec<RoundFile> => optional,
    }
}

record! {
    /// One round of the check loop.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoundFile {
        /// Counted from 1.
        pub round: u32 => optional,
        /// Headroom by `pipeline/task`.
        pub headroom: BTreeMap<String, f64> => optional,
        /// Charge by `pipeline/task`.
        pub charge_ms: BTreeMap<String, f64> => optional,
        /// Objective of the round's plan.
        pub objective: ObjectiveFile => optional,
        /// Its replicas.
        pub replicas: u64 => optional,
        /// Its attainment.
        pub attainment: f64 => optional.or_null(),
        /// Its 99th percentile; null where no request was answered.
        pub p99_ms: Option<f64> => optional.or_null(),
    }
}

pub(crate) fn whole() -> f64 {
    1.0
}
