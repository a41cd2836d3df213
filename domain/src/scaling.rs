//! INFaaS's scaling problem (section 4.2.1): how many replicas of each variant of each application run.

use std::collections::BTreeMap;

/// One variant of one application.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingVariant {
    /// Unique in its application.
    pub name: String,
    /// Load at which it saturates.
    pub saturation_qps: f64,
    /// Inference latency.
    pub latency_ms: f64,
    /// Load latency in seconds.
    pub load_s: f64,
    /// Running cost per second.
    pub cost_per_s: f64,
    /// Resource to amount used by one replica; absent is 0.
    pub resources: BTreeMap<String, f64>,
    /// Replicas running now.
    pub running: u32,
}

/// One application (a model architecture).
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Unique in the problem.
    pub name: String,
    /// Its load.
    pub load_qps: f64,
    /// Spare load to provide for.
    pub slack_qps: f64,
    /// Its latency objective.
    pub slo_ms: f64,
    /// Its variants.
    pub variants: Vec<ScalingVariant>,
}

/// The whole problem.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingProblem {
    /// Weight of load latency, 1/s.
    pub lambda: f64,
    /// Resource to total amount.
    pub resources: BTreeMap<String, f64>,
    /// Applications.
    pub applications: Vec<Application>,
}

/// Replicas after the actions, and the change: one entry for each variant of each application, in the problem's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalingPlan {
    /// `(running after, change)` by application and variant.
    pub running: Vec<Vec<(u32, i64)>>,
}
