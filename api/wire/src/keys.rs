//! The tables of known keys of every file.

use crate::shape::{Key, Shape, optional, required};
use crate::spec::{DATATYPES, REPLAN_MODES};
use Shape::{Count, Distribution, Flag, Integer, Large, List, Number, OrNull, Record, Table, Text, Word};
use apportion_domain::{
    AccuracyModel, AlternativeKind, Batching, Constraint, Dropping, EstimateMethod, LatencyRule, Mode, ObjectiveStep,
    Partial, PlanStatus, Queueing, Route, RoutingPolicy, StopReason, TaskKind,
};

/// A problem file with pipelines.
pub(crate) const PROBLEM: &[Key] = &[
    required("version", &Count),
    required("objective", &Record(OBJECTIVE)),
    required("hardware", &List(&Record(HARDWARE))),
    required("pipelines", &List(&Record(PIPELINE))),
    optional("deployed", &List(&Record(DEPLOYED))),
    optional("switching", &Record(SWITCHING)),
];

const OBJECTIVE: &[Key] = &[
    required("mode", &Word(Mode::NAMES, &[])),
    optional("latency_rule", &Word(LatencyRule::NAMES, &[])),
    optional("budget_per_hour", &OrNull(&Number)),
];

/// One hardware type.
pub(crate) const HARDWARE: &[Key] = &[
    required("name", &Text),
    optional("price_per_hour", &Number),
    optional("count", &OrNull(&Count)),
    optional("memory_mib", &OrNull(&Number)),
];

const SERVING: &[Key] = &[
    optional("queueing", &Word(Queueing::NAMES, &[])),
    optional("batching", &Word(Batching::NAMES, &[])),
    optional("routing", &Word(RoutingPolicy::NAMES, &[])),
    optional("dropping", &Word(Dropping::NAMES, &["none"])),
];

const PIPELINE: &[Key] = &[
    required("name", &Text),
    required("demand_qps", &Number),
    required("slo_ms", &Number),
    optional("percentile", &Number),
    optional("queue_factor", &Number),
    optional("network_ms", &Number),
    optional("weight", &Number),
    optional("min_accuracy", &OrNull(&Number)),
    optional("accuracy_model", &Word(AccuracyModel::NAMES, &[])),
    optional("path_accuracy", &Table(&Number)),
    optional("leaf_weights", &Table(&Number)),
    optional("survive", &Count),
    optional("partial", &Word(Partial::NAMES, &[])),
    optional("serving", &Record(SERVING)),
    required("tasks", &List(&Record(TASK))),
    optional("edges", &List(&Record(EDGE))),
];

const TASK: &[Key] = &[
    required("name", &Text),
    optional("kind", &Word(TaskKind::NAMES, &[])),
    optional("route", &Word(Route::NAMES, &[])),
    optional("min_replicas", &Count),
    required("variants", &List(&Record(VARIANT))),
];

const VARIANT: &[Key] = &[
    required("name", &Text),
    required("accuracy", &Number),
    optional("fanout", &Number),
    optional("fanout_to", &Table(&Number)),
    optional("fanout_counts", &Table(&Distribution)),
    optional("load_ms", &Number),
    optional("memory_mib", &OrNull(&Number)),
    required("profile", &List(&Record(PROFILE_ROW))),
];

const PROFILE_ROW: &[Key] = &[
    required("hardware", &Text),
    required("batch", &Count),
    required("latency_ms", &Number),
    optional("p99_ms", &OrNull(&Number)),
    optional("share", &Number),
];

const EDGE: &[Key] = &[
    required("from", &Text),
    required("to", &Text),
    optional("ratio", &Number),
    optional("primary", &Flag),
    optional("map", &Table(&Text)),
];

const DEPLOYED: &[Key] = &[
    required("pipeline", &Text),
    required("task", &Text),
    required("variant", &Text),
    required("hardware", &Text),
    optional("share", &Number),
    required("batch", &Count),
    required("replicas", &Count),
];

const SWITCHING: &[Key] = &[optional("weight", &Number)];

/// A pipeline as it is registered with the service: what is measured may be absent.
pub(crate) const REGISTERED_PIPELINE: &[Key] = &[
    required("name", &Text),
    optional("demand_qps", &Number),
    required("slo_ms", &Number),
    optional("percentile", &Number),
    optional("queue_factor", &Number),
    optional("network_ms", &Number),
    optional("weight", &Number),
    optional("min_accuracy", &OrNull(&Number)),
    optional("accuracy_model", &Word(AccuracyModel::NAMES, &[])),
    optional("path_accuracy", &Table(&Number)),
    optional("leaf_weights", &Table(&Number)),
    optional("survive", &Count),
    optional("partial", &Word(Partial::NAMES, &[])),
    optional("serving", &Record(SERVING)),
    required("tasks", &List(&Record(REGISTERED_TASK))),
    optional("edges", &List(&Record(EDGE))),
    optional("validation", &OrNull(&Record(VALIDATION))),
    optional("replan", &OrNull(&Record(REPLAN))),
];

const REGISTERED_TASK: &[Key] = &[
    required("name", &Text),
    optional("kind", &Word(TaskKind::NAMES, &[])),
    optional("route", &Word(Route::NAMES, &[])),
    optional("min_replicas", &Count),
    optional("inputs", &OrNull(&List(&Record(TENSOR)))),
    optional("outputs", &OrNull(&List(&Record(TENSOR)))),
    required("variants", &List(&Record(REGISTERED_VARIANT))),
];

const TENSOR: &[Key] =
    &[required("name", &Text), required("datatype", &Word(DATATYPES, &[])), required("shape", &List(&Integer))];

const REGISTERED_VARIANT: &[Key] = &[
    required("name", &Text),
    optional("accuracy", &OrNull(&Number)),
    optional("fanout", &Number),
    optional("fanout_to", &Table(&Number)),
    optional("fanout_counts", &Table(&Distribution)),
    optional("load_ms", &Number),
    optional("memory_mib", &OrNull(&Number)),
    optional("profile", &OrNull(&List(&Record(PROFILE_ROW)))),
    optional("model", &OrNull(&Text)),
    optional("model_digest", &OrNull(&Text)),
];

const VALIDATION: &[Key] =
    &[required("inputs", &Table(&Text)), required("labels", &Text), required("match", &Record(MATCH))];

const MATCH: &[Key] = &[required("value", &Text), optional("at", &OrNull(&Text)), optional("within", &OrNull(&Number))];

const REPLAN: &[Key] = &[
    optional("mode", &Word(REPLAN_MODES, &[])),
    optional("period_s", &Number),
    optional("headroom", &Number),
    optional("min_qps", &Number),
    optional("ladder", &OrNull(&Number)),
    optional("ladder_headroom", &OrNull(&Number)),
    optional("objective", &OrNull(&Record(OBJECTIVE))),
];

/// What `apportion profile` measured.
pub(crate) const PROFILE_SET: &[Key] = &[
    required("rows", &List(&Record(MEASURED_ROW))),
    optional("variants", &List(&Record(MEASURED_VARIANT))),
    optional("path_accuracy", &Table(&Number)),
    optional("tasks", &List(&Record(MEASURED_TASK))),
];

const MEASURED_ROW: &[Key] = &[
    required("task", &Text),
    required("variant", &Text),
    required("hardware", &Text),
    optional("share", &Number),
    required("batch", &Count),
    required("latency_ms", &Number),
    optional("p99_ms", &OrNull(&Number)),
];

const MEASURED_VARIANT: &[Key] = &[
    required("task", &Text),
    required("variant", &Text),
    optional("accuracy", &OrNull(&Number)),
    optional("load_ms", &OrNull(&Number)),
    optional("memory_mib", &OrNull(&Number)),
    optional("fanout_counts", &Table(&Distribution)),
];

const MEASURED_TASK: &[Key] =
    &[required("name", &Text), required("inputs", &List(&Record(TENSOR))), required("outputs", &List(&Record(TENSOR)))];

/// A scaling problem file.
pub(crate) const SCALING_FILE: &[Key] = &[required("version", &Count), required("scaling", &Record(SCALING))];

const SCALING: &[Key] = &[
    required("lambda", &Number),
    required("resources", &Table(&Number)),
    required("applications", &List(&Record(APPLICATION))),
];

const APPLICATION: &[Key] = &[
    required("name", &Text),
    required("load_qps", &Number),
    optional("slack_qps", &Number),
    required("slo_ms", &Number),
    required("variants", &List(&Record(SCALING_VARIANT))),
];

const SCALING_VARIANT: &[Key] = &[
    required("name", &Text),
    required("saturation_qps", &Number),
    required("latency_ms", &Number),
    optional("load_s", &Number),
    required("cost_per_s", &Number),
    optional("resources", &Table(&Number)),
    optional("running", &Count),
];

/// A plan file.
pub(crate) const PLAN: &[Key] = &[
    required("version", &Count),
    optional("status", &Word(PlanStatus::NAMES, &[])),
    optional("objective", &Record(PLAN_OBJECTIVE)),
    optional("cost_per_hour", &OrNull(&Number)),
    optional("replicas", &OrNull(&Large)),
    required("pipelines", &List(&Record(PLAN_PIPELINE))),
    optional("scaling", &List(&Record(PLAN_SCALING))),
    optional("estimate", &OrNull(&Record(ESTIMATE))),
    optional("planner", &Record(PLANNER)),
    optional("explanation", &Record(EXPLANATION)),
];

/// The plan file of a scaling problem.
pub(crate) const SCALING_PLAN: &[Key] = &[
    required("version", &Count),
    optional("status", &Word(PlanStatus::NAMES, &[])),
    optional("objective", &Record(PLAN_OBJECTIVE)),
    optional("cost_per_hour", &OrNull(&Number)),
    optional("replicas", &OrNull(&Large)),
    optional("pipelines", &List(&Record(PLAN_PIPELINE))),
    required("scaling", &List(&Record(PLAN_SCALING))),
    optional("estimate", &OrNull(&Record(ESTIMATE))),
    optional("planner", &Record(PLANNER)),
    optional("explanation", &Record(EXPLANATION)),
];

const PLAN_OBJECTIVE: &[Key] = &[
    optional("mode", &Word(Mode::NAMES, &["scaling"])),
    optional("step", &OrNull(&Word(ObjectiveStep::NAMES, &[]))),
    optional("value", &OrNull(&Number)),
    optional("bound", &OrNull(&Number)),
    optional("gap", &OrNull(&Number)),
];

const PLAN_PIPELINE: &[Key] = &[
    required("name", &Text),
    optional("demand_qps", &Number),
    optional("accuracy", &OrNull(&Number)),
    optional("serving", &Record(SERVING)),
    required("assignments", &List(&Record(ASSIGNMENT))),
    optional("flows", &List(&Record(FLOW))),
    optional("routing", &Record(ROUTING)),
    optional("ladder", &List(&Record(LADDER_STEP))),
];

const LADDER_STEP: &[Key] = &[required("rate_qps", &Number), required("replicas", &List(&Count))];

const ASSIGNMENT: &[Key] = &[
    required("task", &Text),
    required("variant", &Text),
    required("hardware", &Text),
    optional("share", &Number),
    required("batch", &Count),
    required("replicas", &Count),
    optional("traffic_share", &Number),
    optional("latency_budget_ms", &Number),
    optional("utilisation", &Number),
];

const FLOW: &[Key] = &[required("path", &List(&List(&Shape::Any))), required("share", &Number)];

const ROUTING: &[Key] = &[optional("tables", &List(&Record(TABLE))), optional("backup", &List(&Record(BACKUP)))];

const TABLE: &[Key] =
    &[optional("from", &OrNull(&Record(GROUP))), required("to", &Text), required("entries", &List(&Record(ENTRY)))];

const GROUP: &[Key] =
    &[required("task", &Text), required("variant", &Text), required("hardware", &Text), optional("share", &Number)];

const ENTRY: &[Key] =
    &[required("variant", &Text), required("hardware", &Text), optional("share", &Number), required("fraction", &Number)];

const BACKUP: &[Key] = &[
    required("task", &Text),
    required("variant", &Text),
    required("hardware", &Text),
    optional("share", &Number),
    required("capacity_qps", &Number),
];

const PLAN_SCALING: &[Key] =
    &[required("application", &Text), required("variant", &Text), required("running", &Count), required("delta", &Integer)];

const ESTIMATE: &[Key] = &[
    optional("method", &Word(EstimateMethod::NAMES, &[])),
    optional("seed", &Large),
    optional("requests", &Large),
    optional("ok", &Large),
    optional("late", &Large),
    optional("dropped", &Large),
    optional("failed", &Large),
    optional("attainment", &OrNull(&Number)),
    optional("p50_ms", &OrNull(&Number)),
    optional("p99_ms", &OrNull(&Number)),
    optional("accuracy", &OrNull(&Number)),
    optional("cost_per_hour", &OrNull(&Number)),
    optional("tasks", &List(&Record(TASK_ESTIMATE))),
];

const TASK_ESTIMATE: &[Key] = &[
    optional("pipeline", &Text),
    optional("task", &Text),
    optional("queries", &Large),
    optional("waiting_mean_ms", &Number),
    optional("waiting_p99_ms", &Number),
    optional("queueing_ms", &Number),
    optional("batch_wait_ms", &Number),
    optional("service_ms", &Number),
    optional("batch", &Number),
    optional("utilisation", &Number),
];

const PLANNER: &[Key] = &[
    optional("name", &Text),
    optional("seconds", &Number),
    optional("stopped", &OrNull(&Word(StopReason::NAMES, &[]))),
    optional("rounds", &List(&Record(ROUND))),
];

const ROUND: &[Key] = &[
    optional("round", &Count),
    optional("headroom", &Table(&Number)),
    optional("charge_ms", &Table(&Number)),
    optional("objective", &Record(PLAN_OBJECTIVE)),
    optional("replicas", &Large),
    optional("attainment", &OrNull(&Number)),
    optional("p99_ms", &OrNull(&Number)),
];

const EXPLANATION: &[Key] = &[
    optional("decisions", &List(&Record(DECISION))),
    optional("binding", &List(&Record(BINDING))),
    optional("shortfalls", &List(&Record(SHORTFALL))),
    optional("prices", &List(&Record(PRICE))),
    optional("left_out", &List(&Text)),
];

const DECISION: &[Key] = &[
    required("what", &Text),
    required("why", &Text),
    optional("binding", &List(&Record(BINDING))),
    optional("alternatives", &List(&Record(ALTERNATIVE))),
];

const ALTERNATIVE: &[Key] = &[
    required("kind", &Word(AlternativeKind::NAMES, &[])),
    required("to", &Text),
    required("feasible", &Flag),
    required("change", &OrNull(&Record(CHANGE))),
    required("effect", &Text),
];

const CHANGE: &[Key] = &[required("replicas", &Integer), required("cost_per_hour", &Number), required("accuracy", &Number)];

const PRICE: &[Key] = &[
    required("where", &Text),
    required("unit", &Text),
    required("change", &Record(RELAX)),
    required("gain", &OrNull(&Number)),
    required("buys", &Record(CHANGE)),
    required("effect", &Text),
];

const BINDING: &[Key] = &[
    required("constraint", &Word(Constraint::NAMES, &[])),
    required("where", &Text),
    required("used", &OrNull(&Number)),
    required("limit", &OrNull(&Number)),
];

const SHORTFALL: &[Key] = &[
    required("constraint", &Word(Constraint::NAMES, &[])),
    required("where", &Text),
    required("asked", &OrNull(&Number)),
    required("best", &OrNull(&Number)),
    required("relax", &OrNull(&Record(RELAX))),
];

const RELAX: &[Key] = &[required("pointer", &Text), required("from", &OrNull(&Number)), required("to", &OrNull(&Number))];
