//! How do stored documents become specs, profiles and problems of the domain, and back?

use crate::decide::offers::Offering;
use crate::decide::target::PipelineFacts;
use crate::decide::tensors::TaskTensors;
use crate::store::pipelines::PipelineRow;
use apportion_domain::transform::TaskGlue;
use apportion_domain::{ArrivalTrace, NOTES_MAX, Problem};
use apportion_protocol::v1;
use apportion_wire::{
    BadInput, HardwareSpec, ObjectiveSpec, PipelineSpec, ProblemFile, ProblemSpec, ProfileSet, TaskSpec, TensorSpec,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Parses a problem document.
///
/// # Errors
/// Every refused value. The service does not plan scaling problems.
pub fn problem(document: &Value) -> Result<Problem, BadInput> {
    const FILE: &str = "problem.json";
    match apportion_wire::problem_from_tree(FILE, document.clone())? {
        ProblemFile::Allocation(problem) => Ok(problem),
        ProblemFile::Scaling(_) => Err(BadInput::one(FILE, "/scaling", "a scaling problem", "pipelines")),
    }
}

/// A registered pipeline with its measurements.
///
/// # Errors
/// If the profile names a task or variant that the spec does not have, or its tensors do not fit the transforms.
pub fn measured(row: &PipelineRow) -> Result<PipelineSpec, BadInput> {
    let file = format!("pipeline {}", row.name);
    let spec = apportion_wire::pipeline_spec_from_tree(&file, row.spec.clone())?;
    match &row.profile {
        None => Ok(spec),
        Some(profile) => {
            let profiles = profiles(&format!("profiles of {}", row.name), profile)?;
            spec.check_glue(&profiles).map_err(|e| BadInput::refused(&file, e))?;
            Ok(spec.with_profiles(&profiles))
        }
    }
}

/// Registered pipelines with their measurements, in the same order. Pipelines whose profile does not fit are left out: they
/// are reported where they are planned.
///
/// Thousands of them take half a second, so a thread parses them that answers no requests.
///
/// # Panics
/// If the parser does.
pub async fn measured_fitting(rows: Vec<PipelineRow>) -> Vec<PipelineSpec> {
    let parse = move || rows.iter().filter_map(|row| measured(row).ok()).collect();
    tokio::task::spawn_blocking(parse).await.expect("the parser does not panic")
}

/// Parses a stored profile document.
///
/// # Errors
/// Every refused value.
pub fn profiles(file: &str, document: &Value) -> Result<ProfileSet, BadInput> {
    apportion_wire::profile_set_from_tree(file, document.clone())
}

/// How complete is a profile after new measurements were merged into it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileExtent {
    /// The pipeline can be planned with it.
    Complete,
    /// Other variants may follow, as in a job that measures one after the other. A profile that was complete stays so.
    Growing,
}

/// The registered measurements of a pipeline merged with new ones, valid.
///
/// # Errors
/// Names that the pipeline does not have, tensors that do not fit its transforms, and values that no plan could use.
pub fn merged_profile(row: &PipelineRow, new: ProfileSet, extent: ProfileExtent) -> Result<Value, BadInput> {
    const FILE: &str = "profiles";
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", row.spec.clone())?;
    check_names(&spec, &new)?;
    let old = match &row.profile {
        Some(profile) => profiles(&format!("profiles of {}", row.name), profile)?,
        None => ProfileSet::default(),
    };
    let mut all = old.clone();
    all.merge(new);
    spec.check_glue(&all).map_err(|e| BadInput::refused(FILE, e))?;
    let merged = spec.with_profiles(&all);
    if let Err(refusal) = facts(&merged) {
        let was_complete = || facts(&spec.with_profiles(&old)).is_ok();
        if extent == ProfileExtent::Complete || was_complete() {
            return Err(refusal);
        }
        merged.check_graph().map_err(|e| BadInput::refused(FILE, e))?;
    }
    Ok(serde_json::to_value(&all).expect("a profile is JSON"))
}

/// A stored profile as clients see it: with its dominated variants. One that does not fit its pipeline is shown as it is.
#[must_use]
pub fn shown_profile(spec: &Value, profile: Value) -> Value {
    let spec = apportion_wire::pipeline_spec_from_tree("pipeline", spec.clone());
    match (spec, profiles("profiles", &profile)) {
        (Ok(spec), Ok(mut set)) => {
            set.mark_dominated(&spec);
            serde_json::to_value(&set).expect("a profile is JSON")
        }
        _ => profile,
    }
}

/// Refuses names that the pipeline does not have.
fn check_names(spec: &PipelineSpec, new: &ProfileSet) -> Result<(), BadInput> {
    let has_task = |task: &str| spec.tasks.iter().any(|t| t.name == task);
    let has = |task: &str, variant: &str| {
        spec.tasks.iter().any(|t| t.name == task && t.variants.iter().any(|v| v.name == variant))
    };
    let stage = |text: &str| text.trim().split_once(':').is_some_and(|(task, variant)| has(task, variant));
    let strange = |at: String, found: String| {
        let expected = format!("names of tasks and variants of pipeline {}", spec.name);
        Err(BadInput::one("profiles", at, found, expected))
    };
    if let Some(i) = new.rows.iter().position(|r| !has(&r.task, &r.variant)) {
        return strange(format!("/rows/{i}"), format!("{}/{}", new.rows[i].task, new.rows[i].variant));
    }
    if let Some(i) = new.variants.iter().position(|v| !has(&v.task, &v.variant)) {
        return strange(format!("/variants/{i}"), format!("{}/{}", new.variants[i].task, new.variants[i].variant));
    }
    if let Some(i) = new.tasks.iter().position(|t| !has_task(&t.name)) {
        return strange(format!("/tasks/{i}"), new.tasks[i].name.clone());
    }
    if let Some(path) = new.path_accuracy.keys().find(|path| !path.split('>').all(stage)) {
        return strange(format!("/path_accuracy/{}", apportion_domain::pipeline::escape(path)), path.clone());
    }
    Ok(())
}

/// The problem document for these pipelines on this hardware. Profile rows for other hardware are left out, and so are
/// variants without rows.
///
/// # Errors
/// If a task has no variant left. The pointer is that of the pipeline in the request, `/pipelines/i`.
pub fn problem_document(
    objective: ObjectiveSpec,
    hardware: Vec<HardwareSpec>,
    pipelines: Vec<PipelineSpec>,
) -> Result<Value, BadInput> {
    let names: BTreeSet<String> = hardware.iter().map(|h| h.name.clone()).collect();
    let mut restricted = Vec::with_capacity(pipelines.len());
    for (i, pipeline) in pipelines.into_iter().enumerate() {
        let mut pipeline = pipeline.without_registered_keys();
        for task in &mut pipeline.tasks {
            task.variants.retain_mut(|variant| {
                let rows = variant.profile.get_or_insert_default();
                rows.retain(|row| names.contains(&row.hardware));
                !rows.is_empty()
            });
            if task.variants.is_empty() {
                let have = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let expected = format!("a profile of at least one of its variants on {have}");
                return Err(BadInput::one("plan", format!("/pipelines/{i}"), format!("task {}", task.name), expected));
            }
        }
        drop_paths_without_variants(&mut pipeline);
        restricted.push(pipeline);
    }
    let spec = ProblemSpec {
        version: 1,
        objective,
        hardware,
        pipelines: restricted,
        deployed: Vec::new(),
        switching: None,
        notes: Vec::new(),
    };
    Ok(serde_json::to_value(spec).expect("a problem is JSON"))
}

/// Adds sentences about a problem's figures to its document. The report of its plan repeats them.
pub fn add_notes(problem: &mut Value, mut notes: Vec<String>) {
    notes.truncate(NOTES_MAX);
    if !notes.is_empty() {
        problem["notes"] = notes.into();
    }
}

/// Removes the accuracies of paths through variants that were left out.
fn drop_paths_without_variants(pipeline: &mut PipelineSpec) {
    let known: BTreeSet<String> =
        pipeline.tasks.iter().flat_map(|t| t.variants.iter().map(move |v| format!("{}:{}", t.name, v.name))).collect();
    pipeline.path_accuracy.retain(|path, _| path.split('>').all(|node| known.contains(node.trim())));
}

/// The facts about a pipeline that a target needs beyond its plan.
///
/// # Errors
/// If the spec has no complete profile.
pub fn facts(spec: &PipelineSpec) -> Result<PipelineFacts, BadInput> {
    let rows = spec.tasks.iter().flat_map(|t| &t.variants).flat_map(|v| v.profile.iter().flatten());
    let names: BTreeSet<&str> = rows.map(|r| r.hardware.as_str()).collect();
    let hardware =
        |name: &&str| HardwareSpec { name: (*name).to_string(), price_per_hour: 1.0, count: None, memory_mib: None };
    let document = problem_document(ObjectiveSpec::default(), names.iter().map(hardware).collect(), vec![spec.clone()])?;
    let problem = problem(&document)?;
    let tensors = |list: &Option<Vec<TensorSpec>>| list.iter().flatten().map(tensor).collect::<Vec<_>>();
    let of_task = |(task, glue): (&TaskSpec, TaskGlue)| TaskTensors {
        inputs: tensors(&task.inputs),
        outputs: tensors(&task.outputs),
        glue,
    };
    let mut digests = BTreeMap::new();
    let (mut runtimes, mut executions) = (BTreeMap::new(), BTreeMap::new());
    for task in &spec.tasks {
        for variant in &task.variants {
            let place = (task.name.clone(), variant.name.clone());
            digests.insert(place.clone(), variant.model_digest.clone().unwrap_or_default());
            executions.insert(place.clone(), variant.execution());
            runtimes.insert(place, variant.file_runtime());
        }
    }
    let interference = problem.evidence.iter().filter_map(|known| Some((known.group.clone(), known.interference?)));
    Ok(PipelineFacts {
        interference: interference.collect(),
        pipeline: problem.pipelines[0].clone(),
        hardware: problem.hardware.clone(),
        tensors: spec.tasks.iter().zip(spec.glue()).map(of_task).collect(),
        digests,
        loads_on_demand: Offering::of(spec.replan.as_ref()) == Offering::Loaded,
        // The plan says, not the spec.
        has_feedback: false,
        runtimes,
        executions,
    })
}

/// A tensor, as agents receive it.
#[must_use]
pub fn tensor(spec: &TensorSpec) -> v1::TensorSpec {
    v1::TensorSpec { name: spec.name.clone(), datatype: spec.datatype.clone(), shape: spec.shape.clone() }
}

/// A constant load of `qps` queries per second.
#[must_use]
pub fn steady(qps: f64, seconds: u64) -> ArrivalTrace {
    ArrivalTrace::rates((0..seconds).map(|second| (second, qps)).collect()).expect("a rate in range")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A pipeline of two tasks, with one variant each; `find` has an accuracy.
    fn row(profile: Option<Value>) -> PipelineRow {
        let spec = json!({"name": "p", "slo_ms": 100.0, "edges": [{"from": "find", "to": "read"}], "tasks": [
            {"name": "find", "variants": [{"name": "f", "accuracy": 0.9}]},
            {"name": "read", "variants": [{"name": "r"}]},
        ]});
        let profile_version = profile.as_ref().map(|_| 1);
        PipelineRow { name: "p".into(), spec, version: 1, profile, profile_version }
    }

    fn set(rows: Value) -> ProfileSet {
        profiles("test", &json!({"rows": rows})).expect("a profile")
    }

    fn latency(task: &str, variant: &str, latency_ms: f64) -> Value {
        json!({"task": task, "variant": variant, "hardware": "h", "batch": 1, "latency_ms": latency_ms})
    }

    #[test]
    fn a_profile_grows_variant_by_variant() {
        let first = || set(json!([latency("find", "f", 5.0)]));
        let half = merged_profile(&row(None), first(), ProfileExtent::Growing).expect("half a profile");
        merged_profile(&row(None), first(), ProfileExtent::Complete).expect_err("`read` has no latency");
        let second = set(json!([latency("read", "r", 2.0)]));
        let all = merged_profile(&row(Some(half)), second, ProfileExtent::Growing).expect("both");
        assert_eq!(all["rows"].as_array().map(Vec::len), Some(2), "{all:#}");
    }

    #[test]
    fn wrong_rows_are_refused_in_half_a_profile() {
        for (wrong, said) in [
            (latency("find", "f", -5.0), "/tasks/0/variants/0/profile: h batch 1 share 1: latency_ms -5"),
            (latency("find", "g", 5.0), "/rows/0: find/g: expected names of tasks and variants of pipeline p"),
        ] {
            let refused = merged_profile(&row(None), set(json!([wrong])), ProfileExtent::Growing).expect_err(said);
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn a_complete_profile_stays_complete() {
        let mut complete = json!({"rows": [latency("find", "f", 5.0), latency("read", "r", 2.0)]});
        complete["variants"] = json!([{"task": "read", "variant": "r", "accuracy": 0.9}]);
        let mut row = row(Some(complete));
        row.spec["tasks"][1]["variants"] = json!([{"name": "r"}, {"name": "unknown"}]);
        let new = || set(json!([latency("read", "unknown", 3.0)]));
        let refused = merged_profile(&row, new(), ProfileExtent::Growing).expect_err("it has no accuracy");
        assert!(refused.to_string().contains("/variants/1/accuracy: missing"), "{refused}");
        row.spec["tasks"][1]["variants"][1]["accuracy"] = json!(0.5);
        merged_profile(&row, new(), ProfileExtent::Growing).expect("an accuracy, too");
    }
}
