//! How do stored documents become specs, profiles and problems of the domain, and back?

use crate::decide::target::PipelineFacts;
use crate::decide::tensors::TaskTensors;
use crate::store::pipelines::PipelineRow;
use apportion_domain::transform::TaskGlue;
use apportion_domain::{ArrivalTrace, NOTES_MAX, Problem};
use apportion_protocol::v1;
use apportion_wire::{
    BadInput, HardwareSpec, ObjectiveSpec, PipelineSpec, ProblemFile, ProblemSpec, ProfileSet, ReplanMode, TaskSpec,
    TensorSpec,
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
    let mut runtimes = BTreeMap::new();
    for task in &spec.tasks {
        for variant in &task.variants {
            let place = (task.name.clone(), variant.name.clone());
            digests.insert(place.clone(), variant.model_digest.clone().unwrap_or_default());
            runtimes.insert(place, variant.file_runtime());
        }
    }
    Ok(PipelineFacts {
        pipeline: problem.pipelines[0].clone(),
        hardware: problem.hardware.clone(),
        tensors: spec.tasks.iter().zip(spec.glue()).map(of_task).collect(),
        digests,
        loads_on_demand: spec.replan.as_ref().is_some_and(|r| r.on_demand.is_some() && r.mode == ReplanMode::Apply.name()),
        runtimes,
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
