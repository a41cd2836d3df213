//! Which forms do Apportion's nouns have outside: JSON and YAML files, CSV, and the bodies of the HTTP interface?
//!
//! What belongs here: the records of the files, and conversions into `domain` and back, with errors that name file, place,
//! value and what would be right. What never does: reading files from disk, HTTP, SQL, planning.
//!
//! The commonest addition is a key of a file. Add it to its record in [`spec`] (or [`plan`]) and to the conversion in
//! [`convert`] (or [`plan_read`]). Then write the JSON Schemas again: `APPORTION_WRITE=1 cargo test -p apportion-wire
//! --test schemas`. The test `files_page` of `apportion-tidy` writes the tables of the documents from them.

pub mod bad_input;
mod check;
pub mod convert;
pub mod csv_lines;
pub mod demand_source;
pub mod dominance;
mod evidence;
mod execution;
pub mod explanation;
pub mod glue;
pub mod json_schema;
mod merge_patch;
pub mod on_demand;
pub mod plan;
pub mod plan_diff;
pub mod plan_read;
mod plan_write;
pub mod problem;
pub mod profile_csv;
pub mod profile_set;
mod record;
pub mod result_csv;
pub mod result_file;
pub mod row_measurement;
mod scaling_check;
pub mod scaling_plan;
pub mod scaling_replan;
pub mod scaling_spec;
mod shape_check;
pub mod shape_latency;
pub mod simulation_file;
mod slot_check;
pub mod spec;
pub mod states;
pub mod trace_csv;
pub mod transform_spec;
pub mod tree;
pub mod utc_time;
pub mod validation;
mod workload_check;
pub mod workloads;
mod yaml_bounds;

pub use bad_input::BadInput;
pub use convert::objective_of;
pub use csv_lines::CsvLines;
pub use demand_source::{DemandSourceSpec, DeploymentSourceSpec, PrometheusQuerySpec, PushedFactSpec};
pub use dominance::DominatedVariant;
pub use merge_patch::merge_patch;
pub use on_demand::OnDemandSpec;
pub use plan::{EstimateFile, JudgedOnFile, PlanFile, PlannerFile, TaskEstimateFile};
pub use plan_diff::{GroupChangeFile, GroupSizeFile, PlanDiffFile};
pub use plan_read::{plan_for_from_tree, plan_from_tree, read_plan, read_plan_for};
pub use problem::{ProblemFile, hardware_from_tree, problem_from_tree, read_problem};
pub use profile_csv::{AccuracyUnit, ProfileCsvRow, read_profile_csv, write_profile_csv};
pub use profile_set::{
    MeasuredRow, MeasuredTask, MeasuredVariant, PRIORITY_MAX, ProfileSet, pipeline_spec_from_tree, profile_set_from_tree,
    read_pipeline_spec, read_profile_set,
};
pub use result_csv::{RecordedOutcome, RequestRow, write_requests};
pub use result_file::{
    ComparedEstimateFile, ComparedPlannerFile, ComparisonFile, ComparisonSamplesFile, FrontierFile, FrontierGroupFile,
    FrontierPointFile, PromisedPipelineFile, ResultDocument, ResultKind, SimulatedChangesFile, SimulatedClassesFile,
    SimulatedSeriesFile, read_result,
};
pub use row_measurement::{GroupProfileFile, RowMeasurement};
pub use scaling_plan::{AnyPlan, read_any_plan, read_scaling_plan_for};
pub use scaling_replan::ScalingReplanSpec;
pub use shape_latency::ShapeLatency;
pub use simulation_file::{SimulatedPipelineFile, SimulationFile};
pub use spec::{
    HardwareSpec, ObjectiveSpec, PipelineSpec, ProblemSpec, ProfileRowSpec, ReplanSpec, TaskSpec, TensorSpec, VariantSpec,
};
pub use states::{
    AgentState, AnalysisKind, AnalysisState, DecisionKind, FiringState, PlanState, ProfileJobState, ReplanMode,
    ReplicaState, ScalingPlanner, Scope, TraceKind, UnknownState,
};
pub use trace_csv::{TraceSummary, read_trace, summarise, write_trace};
pub use transform_spec::TransformSpec;
pub use tree::parse_tree;
pub use utc_time::{parse_utc, utc_text};
pub use validation::{BoxMatchSpec, COMMAND_SECONDS_MAX, MatchSpec, TOP_MAX, ValidationSpec};
pub use workloads::{KubernetesSpec, WorkloadSpec};
