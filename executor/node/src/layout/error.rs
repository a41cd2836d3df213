//! Why does an agent refuse a target?

use apportion_domain::transform::GlueError;
use apportion_domain::{Dropping, Provider, VariantRuntime};
use apportion_protocol::UnknownTransform;
use apportion_serving::modules::TooManyPaths;

use super::model::WAITS_MAX;

/// Why an agent refuses a target.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// The target does not say its incarnation and generation.
    #[error("the target has no fence")]
    NoFence,
    /// One of its pipelines cannot be served.
    #[error("pipeline {pipeline}: {cause}")]
    Pipeline {
        /// Name of the pipeline.
        pipeline: String,
        /// Why not.
        cause: PipelineError,
    },
}

/// Why an agent cannot serve a pipeline of a target.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PipelineError {
    /// A replica names a group that is not there.
    #[error("replica {0} is of no group")]
    ReplicaOfNoGroup(u64),
    /// A group names a task that is not there.
    #[error("group {0} is of no task")]
    GroupOfNoTask(u64),
    /// An edge names a task that is not there.
    #[error("an edge of no task")]
    EdgeOfNoTask,
    /// The dropping policy looks at all paths, and there are too many.
    #[error("dropping {0}: {1}")]
    Paths(Dropping, TooManyPaths),
    /// Agents whose variants run on another server do not serve continuous tasks.
    #[error(
        "task {0}: kind continuous: this agent's variants run on another server, which forms its own batches: expected \
         kind batch, or agents with --backend onnx or emulated"
    )]
    Continuous(String),
    /// A tensor has a datatype that agents do not know.
    #[error("task {task}: {tensor}: datatype {datatype}")]
    Datatype {
        /// Name of the task.
        task: String,
        /// Name of the tensor.
        tensor: String,
        /// The unknown datatype.
        datatype: String,
    },
    /// A transform of a task is not known here.
    #[error("task {task}: {cause}")]
    Transform {
        /// Name of the task.
        task: String,
        /// Why not.
        cause: UnknownTransform,
    },
    /// The transforms of a task are refused.
    #[error("task {task}: {cause}")]
    Glue {
        /// Name of the task.
        task: String,
        /// Why.
        cause: Box<GlueError>,
    },
    /// A group's file is run by something that this agent does not know.
    #[error("group {group}: runtime {asked}: expected one of {}", VariantRuntime::NAMES.join(", "))]
    Runtime {
        /// Number of the group.
        group: u64,
        /// The unknown runtime.
        asked: String,
    },
    /// A group's variant asks for a provider that this agent does not know.
    #[error("group {group}: provider {asked}: expected one of {}", Provider::NAMES.join(", "))]
    Provider {
        /// Number of the group.
        group: u64,
        /// The unknown provider.
        asked: String,
    },
    /// Not exactly one edge into a task makes queries of it.
    #[error("task {task}: {count} of its edges make queries: expected one, and that the others delay")]
    Makers {
        /// Name of the task.
        task: String,
        /// Edges that make queries of it.
        count: usize,
    },
    /// The root is no task, or has a parent.
    #[error("its root is no root")]
    Root,
    /// The service points of a group are not sorted by batch.
    #[error("group {0}: its service points are not by increasing batch")]
    ServicePoints(u64),
    /// A choice does not name one group of each task.
    #[error("choice {0:?}: expected one group of each task, in the order of tasks")]
    Choice(Vec<u64>),
    /// The rates of the ladder do not rise from step to step.
    #[error("the rates of its ladder do not rise")]
    LadderRates,
    /// A step of the ladder has not one count for each group.
    #[error("a step of its ladder has {counts} counts: expected one for each of {groups} groups")]
    LadderCounts {
        /// Counts of the step.
        counts: usize,
        /// Groups of the pipeline.
        groups: usize,
    },
    /// The promised share of misses is no share.
    #[error("its share of misses is {0}: expected a number above 0 and below 1, or 0 for none")]
    MissedShare(f64),
    /// The target has not one hop for each task.
    #[error("it has {hops} hops: expected one for each of {tasks} tasks, or none")]
    Hops {
        /// Hops of the target.
        hops: usize,
        /// Tasks of the pipeline.
        tasks: usize,
    },
    /// A policy has an unknown name.
    #[error("{key} {asked}: expected one of {}", expected.join(", "))]
    Policy {
        /// The kind of policy.
        key: &'static str,
        /// The unknown name.
        asked: String,
        /// The known names.
        expected: &'static [&'static str],
    },
    /// No path leads from the root to a task.
    #[error("task {0}: the root does not lead to it")]
    Unreachable(String),
    /// The edges that make queries have a cycle.
    #[error("its edges have a cycle")]
    Cycle,
    /// A task delays one of its ancestors.
    #[error("task {0} delays a task that leads to it")]
    DelaysAncestor(String),
    /// More edges into joins than an agent keeps track of.
    #[error("{0} edges into joins: expected at most {WAITS_MAX}")]
    Joins(usize),
}
