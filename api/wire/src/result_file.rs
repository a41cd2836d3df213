//! Which results do commands write as JSON? Plans, simulations, comparisons and frontiers: what a report can show.
//!
//! The records here are checked and not converted: a report shows the keys as they are.

use crate::bad_input::{BadInput, shown};
use crate::check::read;
use crate::explanation::{BindingFile, ShortfallFile};
use crate::plan::{EstimateFile, JudgedPipelineFile, ObjectiveFile, PlanFile};
use crate::problem::check_version;
use crate::record::{FileKind, Record, record};
use crate::tree::parse_tree;
use apportion_domain::{Estimate, JudgedLoad, JudgedVerdict, PlanStatus, StopReason};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The kinds of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// A plan file, of `apportion plan`.
    Plan,
    /// The plan of a scaling problem.
    ScalingPlan,
    /// `apportion simulate --format json`.
    Simulation,
    /// `apportion compare --format json`.
    Comparison,
    /// `apportion frontier --format json`.
    Frontier,
}

impl ResultKind {
    /// The key by which each kind is known, in the order of the search.
    const KEYS: [(&'static str, Self); 5] = [
        ("points", Self::Frontier),
        ("planners", Self::Comparison),
        ("scaling", Self::ScalingPlan),
        ("requests", Self::Simulation),
        ("pipelines", Self::Plan),
    ];

    /// The name, for readers and for the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::ScalingPlan => "scaling_plan",
            Self::Simulation => "simulation",
            Self::Comparison => "comparison",
            Self::Frontier => "frontier",
        }
    }
}

/// A result as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultDocument {
    /// Its kind.
    pub kind: ResultKind,
    /// Its keys and values, checked.
    pub tree: Value,
}

record! {
    /// A comparison of planners on one trace.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct ComparisonFile {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// Root seed of the workload.
        pub seed: u64 => optional,
        /// The samples on which every plan was judged; null without a plan.
        pub judged_on: Option<ComparisonSamplesFile> => optional.or_null(),
        /// One entry for each planner.
        pub planners: Vec<ComparedPlannerFile> => required,
    }
}

record! {
    /// The samples of a comparison.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct ComparisonSamplesFile {
        /// How the samples were made.
        pub load: String => optional.words(JudgedLoad::NAMES),
        /// Number of independent samples.
        pub samples: u64 => optional,
        /// Seed of the first sample.
        pub first_seed: u64 => optional,
    }
}

record! {
    /// One planner with its plan's figures.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct ComparedPlannerFile {
        /// Name of the planner.
        pub planner: String => required,
        /// What it found.
        pub status: String => required.words(PlanStatus::NAMES),
        /// Why it stopped without a proof.
        pub stopped: Option<String> => optional.words(StopReason::NAMES).or_null(),
        /// Value of the objective.
        pub objective: ObjectiveFile => optional,
        /// Price of the devices per hour; null without a plan.
        pub cost_per_hour: Option<f64> => optional.or_null(),
        /// Number of replicas; null without a plan.
        pub replicas: Option<u64> => optional.or_null(),
        /// The promise for each pipeline; null without a plan.
        pub pipelines: Option<Vec<PromisedPipelineFile>> => optional.or_null(),
        /// The figures on the samples; null without a plan.
        pub estimate: Option<ComparedEstimateFile> => optional.or_null(),
        /// Whether every pipeline holds.
        pub holds: Option<bool> => optional.or_null(),
        /// The verdict over all pipelines.
        pub verdict: Option<String> => optional.words(JudgedVerdict::NAMES).or_null(),
        /// The verdict for each pipeline.
        pub pipelines_judged: Option<Vec<JudgedPipelineFile>> => optional.or_null(),
        /// Rounds of the check loop.
        pub rounds: u64 => optional,
        /// The planner's own time.
        pub seconds: f64 => optional,
    }
}

record! {
    /// The figures of a compared plan on the samples, all pipelines together.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct ComparedEstimateFile {
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
        pub attainment: f64 => optional,
        /// Median latency; null if no request was answered.
        pub p50_ms: Option<f64> => optional.or_null(),
        /// 99th percentile of the latency; null if no request was answered.
        pub p99_ms: Option<f64> => optional.or_null(),
        /// Mean accuracy of answered requests; null if there is none.
        pub accuracy: Option<f64> => optional.or_null(),
    }
}

impl From<&Estimate> for ComparedEstimateFile {
    fn from(e: &Estimate) -> Self {
        let EstimateFile { requests, ok, late, dropped, failed, attainment, p50_ms, p99_ms, accuracy, .. } =
            EstimateFile::from(e);
        Self { requests, ok, late, dropped, failed, attainment, p50_ms, p99_ms, accuracy }
    }
}

record! {
    /// What a plan of a comparison promises for a pipeline.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct PromisedPipelineFile {
        /// The pipeline.
        pub name: String => required,
        /// The demand of the plan.
        pub demand_qps: f64 => optional,
        /// The promised accuracy.
        pub accuracy: Option<f64> => optional.or_null(),
    }
}

record! {
    /// Plans while one value varies.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct FrontierFile {
        /// Version of the format: 1.
        pub version: u32 => required,
        /// The value that was varied.
        pub sweep: String => required.words(&["demand", "slo", "budget", "count"]),
        /// Its unit.
        pub unit: String => optional,
        /// The pipeline or the hardware of that value.
        pub of: Option<String> => optional.or_null(),
        /// The value in the problem file.
        pub present: Option<f64> => optional.or_null(),
        /// By rising value.
        pub points: Vec<FrontierPointFile> => required,
        /// Why no value has a plan, if no range of values was found for that reason. Then there are no points.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub shortfalls: Vec<ShortfallFile> => optional,
    }
}

record! {
    /// The plan at one value.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct FrontierPointFile {
        /// The value.
        pub value: f64 => required,
        /// What the planner found.
        pub status: String => required.words(PlanStatus::NAMES),
        /// Why it stopped without a proof.
        pub stopped: Option<String> => optional.words(StopReason::NAMES).or_null(),
        /// Where the plan comes from: `solved`, `harder_point` or `easier_point`.
        pub origin: String => optional,
        /// Value of the objective.
        pub objective: ObjectiveFile => optional,
        /// Price of the devices per hour; null without a plan.
        pub cost_per_hour: Option<f64> => optional.or_null(),
        /// The promised accuracy; null without a plan.
        pub accuracy: Option<f64> => optional.or_null(),
        /// Number of replicas; null without a plan.
        pub replicas: Option<u64> => optional.or_null(),
        /// Devices by hardware type; null without a plan.
        pub devices: Option<BTreeMap<String, u64>> => optional.or_null(),
        /// Groups with their replicas; null without a plan.
        pub assignments: Option<Vec<FrontierGroupFile>> => optional.or_null(),
        /// Limits that the plan uses up.
        pub binding: Vec<BindingFile> => optional,
        /// Limits that cannot be met.
        pub shortfalls: Vec<ShortfallFile> => optional,
    }
}

record! {
    /// Replicas of one group at a point of a frontier.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct FrontierGroupFile {
        /// Replicas of the group.
        pub replicas: u32 => required,
        /// Its batch size.
        pub batch: u32 => required,
        /// Its pipeline.
        pub pipeline: String => required,
        /// Its task.
        pub task: String => required,
        /// Its variant.
        pub variant: String => required,
        /// Its hardware type.
        pub hardware: String => required,
        /// Its fraction of a device.
        pub share: f64 => optional,
    }
}

record! {
    /// The figures of a simulation in which replicas changed.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct SimulatedChangesFile {
        /// The cost of all devices over the run.
        pub cost: f64 => optional,
        /// The same per hour.
        pub cost_per_hour: f64 => optional.or_null(),
        /// Busy time over the time of the replicas that served.
        pub utilisation: f64 => optional.or_null(),
        /// Device time spent on requests that were not answered in time, over all device time spent.
        pub invalid_rate: f64 => optional.or_null(),
        /// Changes of replica counts.
        pub changes: u64 => optional,
        /// Plans that came into force.
        pub plans: u64 => optional,
        /// Tables of stewards that came into force.
        pub steerings: u64 => optional,
    }
}

record! {
    /// The requests of a simulation by class, in windows of their arrival. All lists have one entry for each window.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct SimulatedSeriesFile {
        /// Length of a window in seconds. The first one begins with the trace.
        pub window_s: u64 => required,
        /// One entry for each pipeline, in the order of the problem.
        pub pipelines: Vec<SimulatedClassesFile> => required,
        /// Mean number of replicas that serve, of all pipelines. Absent if replicas could not change.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub replicas: Vec<f64> => optional,
    }
}

record! {
    /// The requests of one pipeline by class. `ok`, `late`, `dropped` and `failed` add up to `arrived`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    pub struct SimulatedClassesFile {
        /// Its name.
        pub name: String => required,
        /// Requests that arrived.
        pub arrived: Vec<u64> => required,
        /// Requests within the SLO.
        pub ok: Vec<u64> => required,
        /// Requests of `ok` with a query that was served by a variant for which its task has a more accurate one.
        pub fallback: Vec<u64> => required,
        /// Requests after the SLO.
        pub late: Vec<u64> => required,
        /// Dropped requests.
        pub dropped: Vec<u64> => required,
        /// Failed requests.
        pub failed: Vec<u64> => required,
    }
}

/// Reads a result of a command, JSON or YAML. Its kind follows from its keys.
///
/// # Errors
/// Every refused value, and a file that is no result.
pub fn read_result(file: &str, text: &str) -> Result<ResultDocument, BadInput> {
    let tree = parse_tree(file, text)?;
    check_version(file, &tree)?;
    let kind = kind_of(file, &tree)?;
    let checked = |kind, record: &'static Record| read::<Value>(file, tree.clone(), kind, record);
    let tree = match kind {
        ResultKind::Plan => checked(FileKind::Plan, &PlanFile::RECORD)?,
        ResultKind::ScalingPlan => checked(FileKind::ScalingPlan, &PlanFile::RECORD)?,
        ResultKind::Comparison => checked(FileKind::OtherResult, &ComparisonFile::RECORD)?,
        ResultKind::Frontier => checked(FileKind::OtherResult, &FrontierFile::RECORD)?,
        ResultKind::Simulation => {
            check_simulation(file, &tree)?;
            tree
        }
    };
    Ok(ResultDocument { kind, tree })
}

fn kind_of(file: &str, tree: &Value) -> Result<ResultKind, BadInput> {
    let expected = "a plan, a simulation, a comparison or a frontier: the JSON of such a command";
    if tree.get("hardware").is_some() {
        return Err(BadInput::one(file, "/hardware", "a problem", expected));
    }
    let has = |key: &str| tree.get(key).is_some_and(|value| !value.is_null());
    let found = ResultKind::KEYS.iter().find(|(key, _)| has(key));
    found.map(|(_, kind)| *kind).ok_or_else(|| BadInput::one(file, "", shown(tree), expected))
}

/// A simulation is an estimate with estimates by pipeline, and with its changes and its series if it has them.
pub(crate) fn check_simulation(file: &str, tree: &Value) -> Result<(), BadInput> {
    let mut total = tree.as_object().cloned().unwrap_or_default();
    let pipelines = total.remove("pipelines").unwrap_or_else(|| Value::Array(Vec::new()));
    if let Some(replay) = total.remove("replay") {
        let checked = read::<Value>(file, replay, FileKind::OtherResult, &SimulatedChangesFile::RECORD);
        checked.map_err(|e| below("/replay", e))?;
    }
    if let Some(series) = total.remove("series") {
        let checked = read::<Value>(file, series, FileKind::OtherResult, &SimulatedSeriesFile::RECORD);
        checked.map_err(|e| below("/series", e))?;
    }
    check_estimate(file, total)?;
    let Value::Array(pipelines) = pipelines else {
        return Err(BadInput::one(file, "/pipelines", shown(&pipelines), "a list of estimates with names"));
    };
    for (at, pipeline) in pipelines.into_iter().enumerate() {
        let place = format!("/pipelines/{at}");
        let Value::Object(mut entry) = pipeline else {
            return Err(BadInput::one(file, place, shown(&pipeline), "an estimate with a name"));
        };
        let name = entry.remove("name").unwrap_or_default();
        if !name.is_string() {
            return Err(BadInput::one(file, format!("{place}/name"), shown(&name), "the name of a pipeline"));
        }
        check_estimate(file, entry).map_err(|e| below(&place, e))?;
    }
    Ok(())
}

fn check_estimate(file: &str, keys: Map<String, Value>) -> Result<(), BadInput> {
    read::<Value>(file, Value::Object(keys), FileKind::OtherResult, &EstimateFile::RECORD).map(drop)
}

/// The same refusals at places below `pointer`.
fn below(pointer: &str, mut bad: BadInput) -> BadInput {
    for problem in &mut bad.problems {
        problem.pointer = format!("{pointer}{}", problem.pointer);
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_follows_from_the_keys() {
        let rows = [
            (r#"{"version": 1, "pipelines": []}"#, ResultKind::Plan),
            (r#"{"version": 1, "scaling": []}"#, ResultKind::ScalingPlan),
            (r#"{"requests": 2, "pipelines": [{"name": "photos", "ok": 2}]}"#, ResultKind::Simulation),
            (r#"{"version": 1, "planners": [{"planner": "milp", "status": "optimal"}]}"#, ResultKind::Comparison),
            (r#"{"version": 1, "sweep": "slo", "points": []}"#, ResultKind::Frontier),
        ];
        for (text, kind) in rows {
            assert_eq!(read_result("r.json", text).map(|r| r.kind), Ok(kind), "{text}");
        }
    }

    #[test]
    fn a_wrong_result_is_refused_at_its_place() {
        let rows = [
            ("{}", "r.json: an object of 0 keys: expected a plan, a simulation, a comparison or a frontier"),
            ("[1]", "r.json: a list of 1: expected a plan"),
            (r#"{"hardware": [], "pipelines": []}"#, "/hardware: a problem: expected a plan"),
            (r#"{"version": 2, "points": []}"#, "/version: 2: expected 1"),
            (r#"{"version": 1, "pipelines": 5}"#, "/pipelines: 5: expected a list"),
            (r#"{"requests": 2, "okay": 2}"#, "/okay: unknown key \"okay\": expected the key \"ok\""),
            (r#"{"requests": 2, "pipelines": [{"ok": 2}]}"#, "/pipelines/0/name: null: expected the name of a pipeline"),
            (r#"{"requests": 2, "pipelines": [{"name": "a", "ok": -2}]}"#, "/pipelines/0/ok: -2: expected a whole number"),
            (r#"{"requests": 2, "pipelines": [7]}"#, "/pipelines/0: 7: expected an estimate"),
            (r#"{"requests": 2, "replay": {"cost": "dear"}}"#, "/replay/cost: \"dear\": expected a number"),
            (r#"{"requests": 2, "series": {"window_s": 0.5}}"#, "/series/window_s: 0.5: expected a whole number"),
            (r#"{"version": 1, "planners": [{"planner": "milp"}]}"#, "/planners/0/status: missing"),
            (r#"{"version": 1, "sweep": "slo", "points": [{"value": "1", "status": "x"}]}"#, "/points/0/value: \"1\""),
        ];
        for (text, expected) in rows {
            let refused = read_result("r.json", text).expect_err(text).to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
