//! Which keys does a plan file have? `apportion plan --format json` prints such files, and the service stores them.

use crate::explanation::ExplanationFile;
use crate::record::{FileKind, FileValue, ValueShape, record};
use apportion_domain::{
    Batching, Dropping, EstimateMethod, JudgedLoad, JudgedVerdict, Mode, ObjectiveStep, PlanStatus, Queueing,
    RoutingPolicy, StopReason,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

record! {
    /// A plan file. A printed file has every key; null means that there is no value.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PlanFile {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// `optimal`, `feasible`, `infeasible` or `unknown`.
        pub status: String => optional.words(PlanStatus::NAMES),
        /// The value of the objective.
        pub objective: ObjectiveFile => optional,
        /// Price of the devices per hour; null without a plan.
        pub cost_per_hour: Option<f64> => optional.or_null(),
        /// Number of all replicas; null without a plan.
        pub replicas: Option<u64> => optional.or_null(),
        /// The plan of each pipeline; empty without a plan.
        pub pipelines: Vec<PipelinePlanFile> => required_in(FileKind::Plan),
        /// Only in the plan of a scaling problem.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scaling: Option<Vec<ScalingEntry>> => required_in(FileKind::ScalingPlan),
        /// The estimate of the replayed plan.
        pub estimate: Option<EstimateFile> => optional.or_null(),
        /// The planner and its rounds.
        pub planner: PlannerFile => optional,
        /// The reasons for the plan.
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
        /// The bound that no plan can beat.
        pub bound: Option<f64> => optional.or_null(),
        /// `abs(value - bound) / max(1e-9, abs(value))`.
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
        /// The demand of the plan.
        pub demand_qps: f64 => optional,
        /// The promised accuracy.
        pub accuracy: f64 => optional.or_null(),
        /// The serving policies.
        pub serving: ServingFile => optional,
        /// Groups with their replicas.
        pub assignments: Vec<AssignmentFile> => required,
        /// Paths with traffic.
        pub flows: Vec<FlowFile> => optional,
        /// Tables of all senders.
        pub routing: RoutingFile => optional,
        /// Replicas for other rates, by rising rate; absent if they were not computed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ladder: Vec<LadderStepFile> => optional,
    }
}

record! {
    /// The replicas for one rate.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct LadderStepFile {
        /// The step holds up to this rate at the root.
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
        /// The place where queries wait.
        pub queueing: String => optional.words(Queueing::NAMES),
        /// The moment when a batch is closed.
        pub batching: String => optional.words(Batching::NAMES),
        /// The policy by which a sender chooses a replica.
        pub routing: String => optional.words(RoutingPolicy::NAMES),
        /// The policy for queries that will be late.
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
        /// `queue_factor * latency_ms + hop`.
        pub latency_budget_ms: f64 => optional,
        /// Load divided by capacity.
        pub utilisation: f64 => optional,
    }
}

record! {
    /// Share of the traffic on one path of groups.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct FlowFile {
        /// Nodes `[task, variant, hardware]`. The share is a fourth element if it is not 1.
        pub path: Vec<PathNode> => required,
        /// Share of the traffic to the path's sink. For each sink the shares sum to 1.
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
        // A list of three or four elements: few generators of clients know lists with a type for each place.
        let element = ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Number]));
        let about = "Task, variant and hardware type, and the share of a device if it is not 1.";
        let node = ArrayBuilder::new().items(element).min_items(Some(3)).max_items(Some(4)).description(Some(about));
        node.into()
    }
}

impl ToSchema for PathNode {}

impl FileValue for PathNode {
    // `plan_read` checks the elements.
    const SHAPE: ValueShape = ValueShape::List(&ValueShape::Any);
}

record! {
    /// The tables of all senders, and the spare capacity.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoutingFile {
        /// One table for each sender and task.
        #[serde(default)]
        pub tables: Vec<RoutingTableFile> => optional,
        /// Capacity that the tables leave unused.
        #[serde(default)]
        pub backup: Vec<BackupFile> => optional,
    }
}

record! {
    /// The groups to which one sender sends its queries for one task (Loki, Algorithm 1).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoutingTableFile {
        /// The sending group; null is the frontend.
        pub from: Option<GroupFile> => optional.or_null(),
        /// The task served.
        pub to: String => required,
        /// The groups, the most accurate first.
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
    /// Spare capacity of one group.
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
        /// Its spare capacity.
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
        /// The change of the number of replicas.
        pub delta: i64 => required,
    }
}

record! {
    /// Predicted attainment, latency and accuracy.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct EstimateFile {
        /// The method.
        pub method: String => optional.words(EstimateMethod::NAMES),
        /// Root seed of the run.
        pub seed: u64 => optional,
        /// Requests that arrived.
        pub requests: u64 => optional,
        /// Requests within the SLO.
        pub ok: u64 => optional,
        /// Requests after the SLO.
        pub late: u64 => optional,
        /// Dropped requests.
        pub dropped: u64 => optional,
        /// Failed requests.
        pub failed: u64 => optional,
        /// `ok / requests`.
        pub attainment: f64 => optional.or_null(),
        /// Median latency; null if no request was answered.
        pub p50_ms: Option<f64> => optional.or_null(),
        /// 99th percentile of the latency; null if no request was answered.
        pub p99_ms: Option<f64> => optional.or_null(),
        /// Mean accuracy of answered requests; null if there is none.
        pub accuracy: Option<f64> => optional.or_null(),
        /// Cost of the plan's devices.
        pub cost_per_hour: f64 => optional.or_null(),
        /// The fresh samples of which the figures are the sum; absent for a single run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub judged_on: Option<JudgedOnFile> => optional,
        /// The times of queries at each task; older files do not have them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tasks: Vec<TaskEstimateFile> => optional,
    }
}

record! {
    /// The samples on which a plan was judged. No planner sees them while it searches.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct JudgedOnFile {
        /// `holds` if every pipeline holds, `misses` if one misses, else `undecided`.
        pub verdict: String => optional.words(JudgedVerdict::NAMES),
        /// `redrawn`: the same rates with other arrivals; `from_recording`: arrivals drawn from the rates of a recording.
        pub load: String => optional.words(JudgedLoad::NAMES),
        /// Number of independent samples.
        pub samples: u64 => optional,
        /// Seed of the first sample. The seeds of the others follow it.
        pub first_seed: u64 => optional,
        /// The answer for each pipeline.
        pub pipelines: Vec<JudgedPipelineFile> => optional,
    }
}

record! {
    /// The attainment of one pipeline over the fresh samples.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct JudgedPipelineFile {
        /// Name of the pipeline.
        pub pipeline: String => optional,
        /// The share of requests that must be in time, 0 to 100.
        pub percentile: f64 => optional,
        /// Requests over all samples.
        pub requests: u64 => optional,
        /// Share of them within the SLO.
        pub attainment: f64 => optional,
        /// Lower end of the 95 % interval of the attainment.
        pub attainment_low: f64 => optional,
        /// Upper end of the 95 % interval of the attainment.
        pub attainment_high: f64 => optional,
        /// `holds` if the lower end reaches the percentile, `misses` if the upper end is below it, else `undecided`.
        pub verdict: String => optional.words(JudgedVerdict::NAMES),
    }
}

record! {
    /// The times of queries at one task: `queueing_ms + batch_wait_ms = waiting_mean_ms`, followed by `service_ms`.
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
        /// 99th percentile of the time from joining the queue to the start of the batch.
        pub waiting_p99_ms: f64 => optional,
        /// Mean time from joining the queue to entering a batch.
        pub queueing_ms: f64 => optional,
        /// Mean time from entering the batch to its start.
        pub batch_wait_ms: f64 => optional,
        /// Mean time of the batch, by query.
        pub service_ms: f64 => optional,
        /// Mean size of the batches.
        pub batch: f64 => optional,
        /// Largest share of the time that any replica was busy.
        pub utilisation: f64 => optional,
    }
}

record! {
    /// The planner of a plan.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PlannerFile {
        /// Name of the planner.
        pub name: String => optional,
        /// Its time in seconds, all in all.
        pub seconds: f64 => optional,
        /// The same by what took it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub seconds_of: Option<SecondsOfFile> => optional,
        /// Why it stopped without a proof; null if it has a proof, or makes none.
        pub stopped: Option<String> => optional.words(StopReason::NAMES).or_null(),
        /// Rounds of the check loop.
        pub rounds: Vec<RoundFile> => optional,
        /// Sentences about doubtful figures of the problem: times that are 0, measured, or far from the measured ones.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub warnings: Vec<String> => optional,
    }
}

record! {
    /// The time of a planner by what took it, in seconds.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct SecondsOfFile {
        /// Formulations and searches for plans.
        pub search: f64 => optional,
        /// Simulations: of plans on the trace and on fresh samples, and of the settings that the greedy planner tries.
        pub replay: f64 => optional,
        /// The search for the changes that would make an infeasible problem feasible.
        pub shortfalls: f64 => optional,
        /// The explanation of the plan.
        pub explanation: f64 => optional,
        /// The ladders of replicas by load.
        pub ladder: f64 => optional,
    }
}

record! {
    /// One round of the check loop.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RoundFile {
        /// The number of the round, from 1.
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
        /// Its 99th percentile of the latency; null if no request was answered.
        pub p99_ms: Option<f64> => optional.or_null(),
        /// What fresh samples show; absent without a judgement: the plan misses its replay, or a better one holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub judged_on: Option<JudgedOnFile> => optional,
    }
}

pub(crate) fn whole() -> f64 {
    1.0
}
