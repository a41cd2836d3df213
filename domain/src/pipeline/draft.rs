//! What does a problem file say about a pipeline? Tasks, edges, and their numbers.

use crate::serving::{ServingWishes, named};
use crate::{TaskIndex, Variant, VariantIndex};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Largest number of tasks of one pipeline.
pub const TASKS_MAX: usize = 256;
/// Largest number of edges of one pipeline.
pub const EDGES_MAX: usize = 4_096;
/// Largest number of variants of one task.
pub const VARIANTS_MAX: usize = 1_024;
/// Largest number of profile rows of one variant.
pub const PROFILE_ROWS_MAX: usize = 16_384;
/// Largest batch size.
pub const BATCH_MAX: u32 = 65_536;
/// Largest SLO in milliseconds.
pub const SLO_MS_MAX: f64 = 1e12;
/// Largest value of any other number in a problem. A larger number is a typing error.
pub const NUMBER_MAX: f64 = 1e12;
/// Longest time that the network takes for one MiB, in milliseconds: a line of 8 kbit/s is faster.
pub const NETWORK_MS_PER_MIB_MAX: f64 = 2e6;
/// Largest mean size of the inputs of one query, in KiB: 1 GiB.
pub const KIB_PER_QUERY_MAX: f64 = 1_048_576.0;
/// Every number of at least 0.
pub(crate) const FROM_ZERO: RangeInclusive<f64> = 0.0..=NUMBER_MAX;
/// Every share and every accuracy.
pub(crate) const FROM_ZERO_TO_ONE: RangeInclusive<f64> = 0.0..=1.0;

/// The software of a latency that was measured on another server, whatever runs there.
pub const OTHER_SERVER: &str = "another server";

named! {
    /// How a stage runs its queries.
    TaskKind default Batch {
        /// In batches.
        Batch = "batch",
        /// In slots, each query for its own time (PARD section 7).
        Continuous = "continuous",
    }
}

named! {
    /// Which children a query visits.
    Route default All {
        /// Every child.
        All = "all",
        /// One child, chosen with the edge ratios as probabilities.
        OneOf = "one_of",
    }
}

named! {
    /// How the accuracies of the stages on a path combine.
    AccuracyModel default Product {
        /// Their product.
        Product = "product",
        /// Their mean.
        Mean = "mean",
        /// The mean over tasks of the share-weighted accuracy of each task.
        TaskMean = "task_mean",
    }
}

named! {
    /// What a dropped descendant does to its request.
    Partial default Deny {
        /// It drops the whole request.
        Deny = "deny",
        /// It is left out of the answer.
        Allow = "allow",
    }
}

/// One task of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Unique in its pipeline.
    pub name: String,
    /// How it runs its queries.
    pub kind: TaskKind,
    /// Which children its queries visit.
    pub route: Route,
    /// Fewest replicas over all its groups.
    pub min_replicas: u32,
    /// At least one.
    pub variants: Vec<Variant>,
}

/// An edge: queries of `from` make queries of `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The parent.
    pub from: TaskIndex,
    /// The child.
    pub to: TaskIndex,
    /// Share of the parent's output that goes there; a probability under `one_of`.
    pub ratio: f64,
    /// Whether this edge makes queries. One edge into a join does; the other edges only delay its queries.
    pub primary: bool,
    /// Mean size of the inputs that it brings to one query of the child, in KiB; 0 if it is not known.
    pub kib_per_query: f64,
    /// Child's input name to parent's output name.
    pub map: BTreeMap<String, String>,
}

impl Edge {
    /// The edge that a file has without optional keys: it makes queries of all that the parent puts out.
    #[must_use]
    pub fn between(from: TaskIndex, to: TaskIndex) -> Self {
        Self { from, to, ratio: 1.0, primary: true, kib_per_query: 0.0, map: BTreeMap::new() }
    }
}

/// Measured accuracy of one path, in place of the accuracy model.
#[derive(Clone, Debug, PartialEq)]
pub struct PathAccuracy {
    /// From the root to a sink (or to where the path ends).
    pub path: Vec<(TaskIndex, VariantIndex)>,
    /// 0 to 1.
    pub accuracy: f64,
}

/// A pipeline that is not checked yet. Its names are resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineDraft {
    /// Unique in its problem.
    pub name: String,
    /// Queries entering the root per second.
    pub demand_qps: f64,
    /// End-to-end latency objective, in milliseconds.
    pub slo_ms: f64,
    /// Share of requests, in percent, that must meet the SLO when a trace is replayed.
    pub percentile: f64,
    /// Time of a query at a task over the time of its batch, waiting included: 2 in Loki section 4.1.
    pub queue_factor: f64,
    /// Network time of each hop in milliseconds, without its data. The hop into the root counts too.
    pub network_ms: f64,
    /// Network time of each MiB of a query's inputs, in milliseconds; on top of `network_ms`.
    pub network_ms_per_mib: f64,
    /// Time of one request at its ingress, in milliseconds: reading and decoding. It passes before the hop into the root.
    pub ingress_ms: f64,
    /// Mean size of the inputs of one request, in KiB, for the hop into the root; 0 if it is not known.
    pub ingress_kib_per_query: f64,
    /// Weight in `max_accuracy`.
    pub weight: f64,
    /// Floor on the accuracy.
    pub min_accuracy: Option<f64>,
    /// How the accuracies of a path's stages combine.
    pub accuracy_model: AccuracyModel,
    /// Overrides the model for the paths listed.
    pub path_accuracy: Vec<PathAccuracy>,
    /// Weights of the sinks; empty is uniform. [`super::Pipeline::new`] scales them to a sum of 1.
    pub leaf_weights: BTreeMap<TaskIndex, f64>,
    /// Replicas of any one group that may be lost without losing capacity.
    pub survive: u32,
    /// What a dropped descendant does to its request.
    pub partial: Partial,
    /// Wishes for the plan's serving block.
    pub serving: ServingWishes,
    /// At least one.
    pub tasks: Vec<Task>,
    /// In the file's order.
    pub edges: Vec<Edge>,
}

impl Default for PipelineDraft {
    /// The defaults of a file's optional keys. Name, demand, SLO and tasks have no default:
    /// [`super::Pipeline::new`] refuses a draft without them.
    fn default() -> Self {
        Self {
            name: String::new(),
            demand_qps: 0.0,
            slo_ms: 0.0,
            percentile: 99.0,
            queue_factor: 2.0,
            network_ms: 0.0,
            network_ms_per_mib: 0.0,
            ingress_ms: 0.0,
            ingress_kib_per_query: 0.0,
            weight: 1.0,
            min_accuracy: None,
            accuracy_model: AccuracyModel::default(),
            path_accuracy: Vec::new(),
            leaf_weights: BTreeMap::new(),
            survive: 0,
            partial: Partial::default(),
            serving: ServingWishes::default(),
            tasks: Vec::new(),
            edges: Vec::new(),
        }
    }
}

/// Escapes one token of a JSON pointer (RFC 6901).
#[must_use]
pub fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}
