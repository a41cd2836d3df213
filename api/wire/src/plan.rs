//! Plan files as `apportion plan --format json` prints them and the service stores them.

use crate::explanation::{self, ExplanationFile};
use apportion_domain::{
    Assignment, Estimate, Flow, GroupName, LadderStep, Mode, ObjectiveValue, PipelinePlan, PlanOutcome, PlanningReport,
    Problem, Round, Routing, ServingPolicy, Share, TaskWaiting,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// A plan file. Every key is present when it is printed; null stands for what does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// Version of the format: 1.
    pub version: u32,
    /// `optimal`, `feasible`, `infeasible` or `unknown`.
    pub status: String,
    /// What was reached.
    pub objective: ObjectiveFile,
    /// Price of the devices; null without a plan.
    pub cost_per_hour: Option<f64>,
    /// All replicas; null without a plan.
    pub replicas: Option<u64>,
    /// Empty without a plan.
    pub pipelines: Vec<PipelinePlanFile>,
    /// Only in the plan of a scaling problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Vec<ScalingEntry>>,
    /// How the plan fares when replayed.
    pub estimate: Option<EstimateFile>,
    /// How it came about.
    pub planner: PlannerFile,
    /// Why it is as it is.
    pub explanation: ExplanationFile,
}

/// Value of the objective with its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveFile {
    /// Mode of the problem, or `scaling`.
    pub mode: String,
    /// `hardware` or `accuracy` in mode `hardware_then_accuracy`.
    pub step: Option<String>,
    /// Replicas in step `hardware`, accuracy in step `accuracy`, else cost or accuracy by mode.
    pub value: Option<f64>,
    /// Nothing can be better.
    pub bound: Option<f64>,
    /// `|value - bound| / max(1e-9, |value|)`.
    pub gap: Option<f64>,
}

/// The part of a plan that serves one pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelinePlanFile {
    /// The pipeline.
    pub name: String,
    /// The demand that it was made for.
    pub demand_qps: f64,
    /// The accuracy that it promises.
    pub accuracy: f64,
    /// How it is served.
    pub serving: ServingFile,
    /// Groups with their replicas.
    pub assignments: Vec<AssignmentFile>,
    /// Paths with traffic.
    pub flows: Vec<FlowFile>,
    /// Tables of all senders.
    pub routing: RoutingFile,
    /// Replicas for other rates, by rising rate; absent if nobody has worked them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<LadderStepFile>,
}

/// What one rate needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LadderStepFile {
    /// Up to this rate at the root.
    pub rate_qps: f64,
    /// Replicas of each assignment, in the order of `assignments`.
    pub replicas: Vec<u32>,
}

/// The serving block of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServingFile {
    /// Where queries wait.
    pub queueing: String,
    /// When a batch is closed.
    pub batching: String,
    /// How a sender chooses a replica.
    pub routing: String,
    /// What happens to a query that will be late.
    pub dropping: String,
}

/// Replicas of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentFile {
    /// Task.
    pub task: String,
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Fraction of a device of each replica.
    pub share: f64,
    /// Batch size.
    pub batch: u32,
    /// Number of replicas.
    pub replicas: u32,
    /// Share of the task's queries.
    pub traffic_share: f64,
    /// `queue_factor * latency_ms + network_ms`.
    pub latency_budget_ms: f64,
    /// Load over capacity.
    pub utilisation: f64,
}

/// Share of the traffic on one path of groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowFile {
    /// Nodes `[task, variant, hardware]`, with the share as fourth element where it is not 1.
    pub path: Vec<PathNode>,
    /// For each sink the shares sum to 1.
    pub share: f64,
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

/// Tables of all senders and the capacity left over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoutingFile {
    /// One for each sender and task.
    #[serde(default)]
    pub tables: Vec<RoutingTableFile>,
    /// Capacity that the tables leave unused.
    #[serde(default)]
    pub backup: Vec<BackupFile>,
}

/// Where one sender sends its queries for one task (Loki, Algorithm 1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoutingTableFile {
    /// The sending group; null is the frontend.
    pub from: Option<GroupFile>,
    /// The task served.
    pub to: String,
    /// Most accurate first.
    pub entries: Vec<RoutingEntryFile>,
}

/// A group by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// Task.
    pub task: String,
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Fraction of a device.
    #[serde(default = "whole")]
    pub share: f64,
}

/// One target of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoutingEntryFile {
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Fraction of a device.
    #[serde(default = "whole")]
    pub share: f64,
    /// Share of the sender's queries.
    pub fraction: f64,
}

/// Capacity to spare.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupFile {
    /// Task.
    pub task: String,
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Fraction of a device.
    #[serde(default = "whole")]
    pub share: f64,
    /// How much.
    pub capacity_qps: f64,
}

/// One variant's replicas in the plan of a scaling problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScalingEntry {
    /// Application.
    pub application: String,
    /// Variant.
    pub variant: String,
    /// Replicas after the actions.
    pub running: u32,
    /// The change.
    pub delta: i64,
}

/// Predicted attainment, latency and accuracy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EstimateFile {
    /// How it was made.
    pub method: String,
    /// Root seed of the run.
    pub seed: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Within the SLO.
    pub ok: u64,
    /// After the SLO.
    pub late: u64,
    /// Dropped.
    pub dropped: u64,
    /// Failed.
    pub failed: u64,
    /// `ok / requests`.
    pub attainment: f64,
    /// Median latency; null where no request was answered.
    pub p50_ms: Option<f64>,
    /// 99th percentile; null where no request was answered.
    pub p99_ms: Option<f64>,
    /// Mean accuracy over answered requests; null where there is none.
    pub accuracy: Option<f64>,
    /// Cost of the plan's devices.
    pub cost_per_hour: f64,
    /// What queries spent at each task; absent from older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskEstimateFile>,
}

/// What queries spent at one task: `queueing_ms + batch_wait_ms = waiting_mean_ms`, and then `service_ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskEstimateFile {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// Queries that were served there.
    pub queries: u64,
    /// Mean time from joining the queue to the start of the batch.
    pub waiting_mean_ms: f64,
    /// 99th percentile of the same.
    pub waiting_p99_ms: f64,
    /// Mean time from joining the queue to entering a batch.
    pub queueing_ms: f64,
    /// Mean time from entering the batch to its start.
    pub batch_wait_ms: f64,
    /// Mean time of the batch, by query.
    pub service_ms: f64,
    /// Mean size of the batches.
    pub batch: f64,
    /// Largest share of the time that any of its replicas was busy.
    pub utilisation: f64,
}

/// How a plan came about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannerFile {
    /// Name of the planner.
    pub name: String,
    /// Time it took.
    pub seconds: f64,
    /// Why it stopped without a proof; null if it has one, or makes none.
    pub stopped: Option<String>,
    /// Rounds of the check loop.
    pub rounds: Vec<RoundFile>,
}

/// One round of the check loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoundFile {
    /// Counted from 1.
    pub round: u32,
    /// Headroom by `pipeline/task`.
    pub headroom: BTreeMap<String, f64>,
    /// Charge by `pipeline/task`.
    pub charge_ms: BTreeMap<String, f64>,
    /// Objective of the round's plan.
    pub objective: ObjectiveFile,
    /// Its replicas.
    pub replicas: u64,
    /// Its attainment.
    pub attainment: f64,
    /// Its 99th percentile; null where no request was answered.
    pub p99_ms: Option<f64>,
}

pub(crate) fn whole() -> f64 {
    1.0
}

pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl PlanFile {
    /// The file of an outcome.
    #[must_use]
    pub fn from_outcome(problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport) -> Self {
        let plan = outcome.plan();
        Self {
            version: crate::problem::VERSION,
            status: outcome.status().name().to_owned(),
            objective: objective(Some(problem.objective.mode), &report.objective),
            cost_per_hour: plan.map(|p| p.cost_per_hour),
            replicas: plan.map(apportion_domain::Plan::replicas),
            pipelines: plan.map(|p| p.pipelines.iter().map(pipeline).collect()).unwrap_or_default(),
            scaling: None,
            estimate: report.estimate.as_ref().map(EstimateFile::from),
            planner: PlannerFile {
                name: report.planner.clone(),
                seconds: report.seconds,
                stopped: outcome.stopped().map(|s| s.name().to_owned()),
                rounds: report.rounds.iter().map(|r| round(problem.objective.mode, r)).collect(),
            },
            explanation: explanation::file(&report.explanation, outcome),
        }
    }

    /// The text of the file, indented.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan has text keys only")
    }
}

pub(crate) fn objective(mode: Option<Mode>, value: &ObjectiveValue) -> ObjectiveFile {
    ObjectiveFile {
        mode: mode.map_or("scaling", Mode::name).to_owned(),
        step: value.step.map(|s| s.name().to_owned()),
        value: value.value.and_then(finite),
        bound: value.bound.and_then(finite),
        gap: value.gap().and_then(finite),
    }
}

fn pipeline(p: &PipelinePlan) -> PipelinePlanFile {
    PipelinePlanFile {
        name: p.name.clone(),
        demand_qps: p.demand_qps,
        accuracy: p.accuracy,
        serving: ServingFile::from(p.serving),
        assignments: p.assignments.iter().map(assignment).collect(),
        flows: p.flows.iter().map(flow).collect(),
        routing: routing(&p.routing),
        ladder: p.ladder.iter().map(step).collect(),
    }
}

fn step(s: &LadderStep) -> LadderStepFile {
    LadderStepFile { rate_qps: s.rate_qps, replicas: s.replicas.clone() }
}

impl From<ServingPolicy> for ServingFile {
    fn from(s: ServingPolicy) -> Self {
        Self {
            queueing: s.queueing.name().to_owned(),
            batching: s.batching.name().to_owned(),
            routing: s.routing.name().to_owned(),
            dropping: s.dropping.name().to_owned(),
        }
    }
}

fn assignment(a: &Assignment) -> AssignmentFile {
    AssignmentFile {
        task: a.group.task.clone(),
        variant: a.group.variant.clone(),
        hardware: a.group.hardware.clone(),
        share: a.group.share.value(),
        batch: a.batch,
        replicas: a.replicas,
        traffic_share: a.traffic_share,
        latency_budget_ms: a.latency_budget_ms,
        utilisation: a.utilisation,
    }
}

fn flow(f: &Flow) -> FlowFile {
    FlowFile { path: f.path.iter().map(PathNode::from).collect(), share: f.share }
}

impl From<&GroupName> for PathNode {
    fn from(g: &GroupName) -> Self {
        let (task, variant, hardware) = (g.task.clone(), g.variant.clone(), g.hardware.clone());
        if g.share == Share::WHOLE {
            Self::Whole(task, variant, hardware)
        } else {
            Self::Part(task, variant, hardware, g.share.value())
        }
    }
}

impl From<&GroupName> for GroupFile {
    fn from(g: &GroupName) -> Self {
        Self { task: g.task.clone(), variant: g.variant.clone(), hardware: g.hardware.clone(), share: g.share.value() }
    }
}

fn routing(r: &Routing) -> RoutingFile {
    let table = |t: &apportion_domain::RoutingTable| RoutingTableFile {
        from: t.from.as_ref().map(GroupFile::from),
        to: t.to_task.clone(),
        entries: t
            .entries
            .iter()
            .map(|e| RoutingEntryFile {
                variant: e.to.variant.clone(),
                hardware: e.to.hardware.clone(),
                share: e.to.share.value(),
                fraction: e.fraction,
            })
            .collect(),
    };
    let backup = |b: &apportion_domain::BackupEntry| BackupFile {
        task: b.group.task.clone(),
        variant: b.group.variant.clone(),
        hardware: b.group.hardware.clone(),
        share: b.group.share.value(),
        capacity_qps: b.capacity_qps,
    };
    RoutingFile { tables: r.tables.iter().map(table).collect(), backup: r.backup.iter().map(backup).collect() }
}

impl From<&Estimate> for EstimateFile {
    fn from(e: &Estimate) -> Self {
        Self {
            method: e.method.name().to_owned(),
            seed: e.seed,
            requests: e.requests,
            ok: e.ok,
            late: e.late,
            dropped: e.dropped,
            failed: e.failed,
            attainment: e.attainment,
            p50_ms: finite(e.p50_ms),
            p99_ms: finite(e.p99_ms),
            accuracy: finite(e.accuracy),
            cost_per_hour: e.cost_per_hour,
            tasks: e.waiting.iter().map(TaskEstimateFile::from).collect(),
        }
    }
}

impl From<&TaskWaiting> for TaskEstimateFile {
    fn from(w: &TaskWaiting) -> Self {
        Self {
            pipeline: w.pipeline.clone(),
            task: w.task.clone(),
            queries: w.queries,
            waiting_mean_ms: w.mean_ms,
            waiting_p99_ms: w.p99_ms,
            queueing_ms: w.queueing_ms,
            batch_wait_ms: w.batch_wait_ms,
            service_ms: w.service_ms,
            batch: w.batch,
            utilisation: w.utilisation,
        }
    }
}

fn round(mode: Mode, r: &Round) -> RoundFile {
    RoundFile {
        round: r.round,
        headroom: r.headroom.iter().cloned().collect(),
        charge_ms: r.charge_ms.iter().cloned().collect(),
        objective: objective(Some(mode), &r.objective),
        replicas: r.replicas,
        attainment: r.attainment,
        p99_ms: finite(r.p99_ms),
    }
}
