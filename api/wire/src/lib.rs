//! The forms in which the outside world reads and writes Apportion's nouns: JSON and YAML files, CSV, the bodies of the
//! HTTP interface.
//!
//! What belongs here: serde types, the tables of known keys, and conversions into `domain` and back, with errors that name
//! file, place, value and what would be right. What never does: reading files, HTTP, SQL, planning.
//!
//! The commonest addition is a key of a file: add it to the struct in [`spec`] (or [`plan`]), to the table in `keys`, and
//! to the conversion in [`convert`] (or [`plan_read`]).

pub mod bad_input;
pub mod convert;
pub mod explanation;
mod keys;
pub mod plan;
pub mod plan_read;
pub mod problem;
pub mod profile_csv;
pub mod profile_set;
pub mod result_csv;
pub mod scaling_plan;
mod shape;
pub mod spec;
pub mod states;
pub mod trace_csv;
pub mod tree;
mod yaml_bounds;

pub use bad_input::BadInput;
pub use convert::objective_of;
pub use plan::{EstimateFile, PlanFile, PlannerFile, TaskEstimateFile};
pub use plan_read::{plan_from_tree, read_plan, read_plan_for};
pub use problem::{ProblemFile, hardware_from_tree, problem_from_tree, read_problem};
pub use profile_csv::{AccuracyUnit, ProfileCsvRow, read_profile_csv, write_profile_csv};
pub use profile_set::{
    MeasuredRow, MeasuredTask, MeasuredVariant, ProfileSet, pipeline_spec_from_tree, profile_set_from_tree,
    read_pipeline_spec, read_profile_set,
};
pub use result_csv::{RequestOutcome, RequestRow, write_requests};
pub use scaling_plan::{AnyPlan, read_any_plan, read_scaling_plan_for};
pub use spec::{
    HardwareSpec, MatchSpec, ObjectiveSpec, PipelineSpec, ProblemSpec, ReplanSpec, TaskSpec, TensorSpec, ValidationSpec,
    VariantSpec,
};
pub use states::{AgentState, DecisionKind, PlanState, ReplanMode, TraceKind, UnknownState};
pub use trace_csv::{TraceSummary, read_trace, summarise, write_trace};
pub use tree::parse_tree;
