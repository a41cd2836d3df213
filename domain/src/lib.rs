//! Which nouns do all other crates use? Problems, pipelines, profiles, plans, estimates and outcomes.
//!
//! What belongs here: the nouns of planning and serving. Each is validated when it is made, so no planner and no agent
//! receives an invalid one. What never does: async, input and output, clocks, randomness, SQL, HTTP, JSON, solver types,
//! policies.
//!
//! Units are last in the name of a field: `_ms` is milliseconds, `_qps` queries per second, `_mib` mebibytes. `_per_hour`
//! is an amount of the currency of `price_per_hour` per hour. The event clock, [`Moment`] and [`TimeSpan`], counts whole
//! nanoseconds.
//!
//! The commonest addition is a field of a pipeline. Add it to the struct in [`pipeline`] with its default and range. Check
//! the range in `Pipeline::new`, with the pointer at which the problem file has it. Then read it in `api/wire`.

mod accuracy;
pub mod estimate;
pub mod evidence;
pub mod execution;
pub mod hardware;
pub mod ids;
pub mod invalid;
mod isotonic;
pub mod outcome;
pub mod pipeline;
pub mod plan;
pub mod problem;
pub mod profile;
mod rank;
pub mod scaling;
mod service_times;
pub mod serving;
mod shapes;
mod slack;
pub mod tensor;
pub mod trace;
pub mod transform;
pub mod units;
pub mod variant;

pub use estimate::{Estimate, EstimateMethod, JudgedLoad, JudgedOn, JudgedPipeline, JudgedVerdict, TaskWaiting};
pub use evidence::ProfileEvidence;
pub use execution::{Provider, UnknownProvider, VARIANT_THREADS_MAX, VariantExecution};
pub use hardware::{Hardware, Share};
pub use ids::{HardwareIndex, PipelineIndex, QueryId, RequestId, TaskIndex, VariantIndex};
pub use invalid::{Invalid, Invalids};
pub use isotonic::isotonic;
pub use outcome::{
    Alternative, AlternativeKind, Binding, Change, CheckRound, Consequence, Constraint, Decision, Explanation,
    ObjectiveStep, ObjectiveValue, PlanOutcome, PlanStatus, PlannerAnswer, PlanningReport, Price, Relaxation, SecondsOf,
    Shortfall, StopReason,
};
pub use pipeline::{AccuracyModel, Edge, Partial, PathAccuracy, Pipeline, PipelineDraft, Route, Task, TaskKind};
pub use plan::{
    Assignment, BackupEntry, Fence, Flow, Generation, GroupName, GroupSize, LadderStep, PipelinePlan, Plan, PlanChange,
    Routing, RoutingEntry, RoutingTable,
};
pub use problem::{Deployed, DeviceQuota, LatencyRule, MEDIANS_NOTE, Mode, NOTES_MAX, Objective, Problem, ProblemDraft};
pub use profile::{INTERFERENCE_MAX, INTERFERENCE_MIN, Profile, ProfileRow};
pub use rank::nearest_rank;
pub use scaling::{Application, ScalingAction, ScalingChange, ScalingOutcome, ScalingPlan, ScalingProblem, ScalingVariant};
pub use service_times::{TimeDistribution, lognormal_sigma};
pub use serving::{Batching, Dropping, Queueing, RoutingPolicy, ServingPolicy, ServingWishes};
pub use shapes::{
    MIXTURE_SLACK, MixtureTimes, SHAPES_MAX, SHARES_SLACK, ShapeTimes, are_shapes, mixture_quantile, mixture_times,
};
pub use slack::SLACK;
pub use trace::ArrivalTrace;
pub use units::{Moment, TimeSpan};
pub use variant::{FanoutCounts, Variant, VariantRuntime};
