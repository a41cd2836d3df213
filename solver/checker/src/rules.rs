//! Names of the rules, as findings print them.

/// The plan has a pipeline that the problem does not know.
pub const UNKNOWN_PIPELINE: &str = "unknown_pipeline";
/// The plan has a pipeline twice.
pub const DUPLICATE_PIPELINE: &str = "duplicate_pipeline";
/// The plan leaves a pipeline out.
pub const MISSING_PIPELINE: &str = "missing_pipeline";
/// A group of a task that the pipeline does not have.
pub const UNKNOWN_TASK: &str = "unknown_task";
/// A group of a variant that the task does not have.
pub const UNKNOWN_VARIANT: &str = "unknown_variant";
/// A group on hardware that the problem does not have.
pub const UNKNOWN_HARDWARE: &str = "unknown_hardware";
/// A group is listed twice (it runs one batch size).
pub const DUPLICATE_GROUP: &str = "duplicate_group";
/// The batch size was not measured for this variant on this hardware and share.
pub const BATCH: &str = "batch";
/// A group without replicas.
pub const REPLICAS: &str = "replicas";
/// A task with fewer replicas than `min_replicas`.
pub const MIN_REPLICAS: &str = "min_replicas";
/// A variant does not fit into the memory of its share.
pub const MEMORY: &str = "memory";
/// A task gets queries and has no group.
pub const MISSING_TASK: &str = "missing_task";
/// More devices of a hardware type than there are.
pub const DEVICES: &str = "devices";
/// The devices cost more than the budget.
pub const BUDGET: &str = "budget";
/// Pipelines of a quota have more devices, or more expensive ones, than it permits.
pub const QUOTA: &str = "quota";
/// A group's load exceeds `(replicas - survive) * q`.
pub const CAPACITY: &str = "capacity";
/// A flow is no root-to-sink sequence of the plan's groups.
pub const FLOW_PATH: &str = "flow_path";
/// The shares of a sink do not sum to 1.
pub const FLOW_SHARES: &str = "flow_shares";
/// A shared prefix carries different traffic for different sinks.
pub const FLOW_PREFIX: &str = "flow_prefix";
/// The latency rule.
pub const LATENCY: &str = "latency";
/// The accuracy floor.
pub const ACCURACY: &str = "accuracy";
/// The claimed accuracy is not the computed one.
pub const CLAIMED_ACCURACY: &str = "claimed_accuracy";
/// The claimed cost is not the computed one.
pub const CLAIMED_COST: &str = "claimed_cost";
/// A claimed traffic share is not the computed one.
pub const CLAIMED_TRAFFIC: &str = "claimed_traffic_share";
/// A claimed latency budget is not `queue_factor * latency + hop`.
pub const CLAIMED_LATENCY: &str = "claimed_latency_budget";
/// A claimed utilisation is not load over capacity.
pub const CLAIMED_UTILISATION: &str = "claimed_utilisation";
/// An application that the scaling problem does not have.
pub const UNKNOWN_APPLICATION: &str = "unknown_application";
/// A scaling plan lists a variant twice.
pub const DUPLICATE_ACTION: &str = "duplicate_action";
/// A scaling plan leaves a variant out.
pub const MISSING_ACTION: &str = "missing_action";
/// Replicas before and the change do not make the replicas after.
pub const DELTA: &str = "delta";
/// A variant that is slower than the SLO grows (INFaaS section 4.2.1, constraint 2).
pub const GROWTH: &str = "growth";
/// An application's capacity is below its load with slack (constraint 1).
pub const LOAD: &str = "load";
/// More of a resource is used than there is (constraint 3).
pub const RESOURCE: &str = "resource";
/// The claimed objective of a scaling plan is not the computed one.
pub const CLAIMED_VALUE: &str = "claimed_value";
