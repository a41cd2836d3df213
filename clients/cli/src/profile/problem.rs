//! Which problem file does `profile --out` write? `plan` reads it, the service takes it, and another `profile` on other
//! hardware adds to it.

use super::settings::{add_missing_settings, keep_known_names};
use anyhow::Context;
use apportion_domain::Mode;
use apportion_import::{level_accuracies, levelled_note};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{
    BadInput, MeasuredVariant, ProfileSet, TaskSpec, parse_tree, pipeline_spec_from_tree, problem_from_tree,
};
use serde_json::{Value, json};
use std::path::Path;

/// Demand in queries per second if the pipeline names none.
const DEMAND_QPS: f64 = 1.0;

/// Writes a problem file with a pipeline and its measurements to `out`. A problem that is there with this pipeline keeps
/// its hardware, objective, settings and the rows of other hardware types. Figures that belong to no hardware (accuracy,
/// load time, memory) are the last measured ones. If a variant has no accuracy, all count as equally good, as with `plan
/// --profile`; a new file then has the goal `min_cost`. Standard error says so.
///
/// # Errors
/// If there is another file in the way, or it cannot be written.
pub fn write(out: &str, pipeline: &Value, set: &ProfileSet, hardware: &str) -> Result<(), Failure> {
    let mut problem = read_existing(out, &pipeline["name"])?;
    let mut sent = pipeline.clone();
    let list = problem["pipelines"].as_array_mut().expect("a problem has pipelines");
    let had = list.iter().find(|p| p["name"] == sent["name"]).cloned();
    if let Some(had) = &had {
        add_missing_settings(&mut sent, &without_measurements(had.clone(), set));
    }
    if sent.get("demand_qps").is_none_or(Value::is_null) {
        eprintln!("{out}: demand_qps is {DEMAND_QPS}, for the pipeline names none: change it, or plan with --demand");
        sent["demand_qps"] = DEMAND_QPS.into();
    }
    let spec = pipeline_spec_from_tree("the pipeline", sent)?.with_profiles(set).without_registered_keys();
    let mut spec = serde_json::to_value(&spec).expect("a spec is JSON");
    if let Some(had) = &had {
        keep_other_hardware(&mut spec, had, hardware);
    }
    drop_unmeasured(out, &mut spec);
    let is_levelled = level(&mut spec)?;
    let is_new = list.is_empty();
    match list.iter().position(|p| p["name"] == spec["name"]) {
        Some(at) => list[at] = spec,
        None => list.push(spec),
    }
    let types = problem["hardware"].as_array_mut().expect("a problem has hardware");
    if !types.iter().any(|h| h["name"] == hardware) {
        types.push(json!({"name": hardware, "price_per_hour": 1.0}));
    }
    if is_levelled {
        if is_new {
            problem["objective"]["mode"] = Mode::MinCost.name().into();
        }
        eprintln!("{}", levelled_note(out, problem["objective"]["mode"].as_str().unwrap_or_default()));
    }
    // The written file can be read.
    problem_from_tree(out, problem.clone())?;
    let text = output::json(&problem)?;
    output::write_file(out, |w| std::io::Write::write_all(w, format!("{text}\n").as_bytes()))
}

/// Lets all variants of a pipeline count as equally good if one of them has no accuracy. Returns whether it did.
fn level(spec: &mut Value) -> Result<bool, Failure> {
    let tasks = spec["tasks"].take();
    let mut tasks: Vec<TaskSpec> = serde_json::from_value(tasks).context("the tasks of the problem")?;
    let is_levelled = level_accuracies(&mut tasks);
    spec["tasks"] = serde_json::to_value(&tasks).context("the tasks of the problem")?;
    if let Some(settings) = spec.as_object_mut().filter(|_| is_levelled) {
        settings.remove("path_accuracy");
    }
    Ok(is_levelled)
}

/// The problem file at `out`, or an empty one.
fn read_existing(out: &str, pipeline: &Value) -> Result<Value, Failure> {
    let is_empty = Path::new(out).metadata().is_ok_and(|m| m.is_file() && m.len() == 0);
    if !Path::new(out).exists() || is_empty {
        return Ok(json!({"version": 1, "objective": {"mode": Mode::default().name()}, "hardware": [], "pipelines": []}));
    }
    let expected = format!("a problem file with the pipeline {pipeline}, or no file");
    let refused = |found: String| Failure::from(BadInput::one(out, "", found, expected.clone()));
    let tree = parse_tree(out, &input::read_text(out)?).map_err(|e| refused(e.to_string()))?;
    problem_from_tree(out, tree.clone()).map_err(|e| refused(e.to_string()))?;
    match tree["pipelines"].as_array().is_some_and(|all| all.iter().any(|p| p["name"] == *pipeline)) {
        true => Ok(tree),
        false => Err(refused("another file".to_owned())),
    }
}

/// The settings of a pipeline without its measurements. Those of variants that `set` has not measured stay, and so do
/// accuracies and fan-outs if it was made without a validation set.
fn without_measurements(mut pipeline: Value, set: &ProfileSet) -> Value {
    let measured =
        |task: &str, variant: &str| set.variants.iter().find(|known| known.task == task && known.variant == variant);
    let is_measured = |task: &str, variant: &str| measured(task, variant).is_some_and(|known| known.accuracy.is_some());
    if let Some(paths) = pipeline.get_mut("path_accuracy").and_then(Value::as_object_mut) {
        let is_new = |node: &str| node.trim().split_once(':').is_some_and(|(task, variant)| is_measured(task, variant));
        paths.retain(|path, _| !path.split('>').all(is_new));
    }
    for task in pipeline["tasks"].as_array_mut().into_iter().flatten() {
        let name = task["name"].as_str().unwrap_or_default().to_owned();
        for variant in task["variants"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let known = measured(&name, variant.get("name").and_then(Value::as_str).unwrap_or_default());
            match known {
                Some(MeasuredVariant { accuracy: Some(_), .. }) => {
                    variant
                        .retain(|key, _| !["accuracy", "load_ms", "memory_mib", "fanout_counts"].contains(&key.as_str()));
                }
                Some(_) => variant.retain(|key, _| !["load_ms", "memory_mib"].contains(&key.as_str())),
                None => {}
            }
        }
    }
    pipeline
}

/// Adds the rows that variants of the same name had for other hardware types.
fn keep_other_hardware(spec: &mut Value, had: &Value, hardware: &str) {
    let list = |v: &Value, key: &str| v[key].as_array().cloned().unwrap_or_default();
    let named = |all: Vec<Value>, name: &Value| all.into_iter().find(|v| v["name"] == *name);
    for task in spec["tasks"].as_array_mut().into_iter().flatten() {
        let Some(old_task) = named(list(had, "tasks"), &task["name"]) else { continue };
        for variant in task["variants"].as_array_mut().into_iter().flatten() {
            let Some(old) = named(list(&old_task, "variants"), &variant["name"]) else { continue };
            let mut rows: Vec<Value> = list(&old, "profile").into_iter().filter(|r| r["hardware"] != hardware).collect();
            rows.extend(list(variant, "profile").into_iter().filter(|r| r["hardware"] == hardware));
            variant["profile"] = rows.into();
        }
    }
}

/// Removes the variants that were measured nowhere, for example because they ask for another provider: a problem has none
/// without a profile. Standard error names them.
fn drop_unmeasured(out: &str, spec: &mut Value) {
    let mut dropped = 0;
    for task in spec["tasks"].as_array_mut().into_iter().flatten() {
        let name = task["name"].clone();
        if let Some(variants) = task["variants"].as_array_mut() {
            variants.retain(|variant| {
                let is_measured = variant["profile"].as_array().is_some_and(|rows| !rows.is_empty());
                if !is_measured {
                    eprintln!("{out}: without the variant {} of task {name}: it was not measured", variant["name"]);
                    dropped += 1;
                }
                is_measured
            });
        }
    }
    if let Some(settings) = spec.as_object_mut().filter(|_| dropped > 0) {
        keep_known_names(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_wire::MeasuredRow;

    fn measured(hardware: &str, latency_ms: f64) -> ProfileSet {
        let (task, variant) = ("t".to_owned(), "v".to_owned());
        let row = MeasuredRow {
            task: task.clone(),
            variant: variant.clone(),
            hardware: hardware.to_owned(),
            share: 1.0,
            batch: 1,
            latency_ms,
            p99_ms: None,
            measured: None,
        };
        let of =
            MeasuredVariant { task, variant, accuracy: Some(0.9), memory_mib: Some(12.0), ..MeasuredVariant::default() };
        ProfileSet { rows: vec![row], variants: vec![of], ..ProfileSet::default() }
    }

    fn pipeline() -> Value {
        json!({
            "name": "p", "slo_ms": 100, "replan": {"mode": "apply"},
            "tasks": [{"name": "t", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "outputs": [],
                "variants": [{"name": "v", "model": "v.onnx"}]}],
            "validation": {"inputs": {"x": "x.npy"}, "labels": "l.json", "match": {"value": "y"}},
        })
    }

    #[test]
    fn a_second_hardware_type_is_added_to_the_problem() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("p.json").display().to_string();
        write(&out, &pipeline(), &measured("cpu", 5.0), "cpu").unwrap_or_else(|e| panic!("{e:?}"));
        let mut edited: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect("a file")).expect("JSON");
        edited["pipelines"][0]["demand_qps"] = json!(70.0);
        edited["hardware"][0]["price_per_hour"] = json!(0.5);
        std::fs::write(&out, edited.to_string()).expect("written");
        for latency_ms in [3.0, 2.0] {
            write(&out, &pipeline(), &measured("gpu", latency_ms), "gpu").unwrap_or_else(|e| panic!("{e:?}"));
        }
        let problem = input::read_allocation_problem(&out).unwrap_or_else(|e| panic!("`plan` reads it: {e:?}"));
        assert_eq!(problem.pipelines[0].demand_qps, 70.0);
        let prices: Vec<f64> = problem.hardware.iter().map(|h| h.price_per_hour).collect();
        assert_eq!(prices, [0.5, 1.0]);
        let text = std::fs::read_to_string(&out).expect("a file");
        let written: Value = serde_json::from_str(&text).expect("JSON");
        let row = |hardware: &str, latency_ms: f64| json!({"hardware": hardware, "batch": 1, "latency_ms": latency_ms});
        let variant = &written["pipelines"][0]["tasks"][0]["variants"][0];
        assert_eq!(variant["profile"], json!([row("cpu", 5.0), row("gpu", 2.0)]));
        assert_eq!(variant["memory_mib"], json!(12.0));
    }

    #[test]
    fn variants_of_other_providers_come_with_their_own_measurement() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("p.json").display().to_string();
        let mut pipeline = pipeline();
        let more = json!({"name": "w", "model": "v.onnx", "provider": "cuda"});
        pipeline["tasks"][0]["variants"].as_array_mut().expect("variants").push(more);
        pipeline["path_accuracy"] = json!({"t:v": 0.9, "t:w": 0.8});
        let names = || {
            let problem = input::read_allocation_problem(&out).unwrap_or_else(|e| panic!("`plan` reads it: {e:?}"));
            problem.pipelines[0].tasks[0].variants.iter().map(|v| v.name.clone()).collect::<Vec<_>>()
        };
        write(&out, &pipeline, &measured("cpu", 5.0), "cpu").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(names(), ["v"]);
        let mut on_gpu = measured("gpu", 1.0);
        (on_gpu.rows[0].variant, on_gpu.variants[0].variant) = ("w".to_owned(), "w".to_owned());
        write(&out, &pipeline, &on_gpu, "gpu").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(names(), ["v", "w"], "and the rows of the other type stay");
    }

    #[test]
    fn without_accuracies_the_goal_is_the_least_cost() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("p.json").display().to_string();
        let mut open = measured("cpu", 5.0);
        open.variants[0].accuracy = None;
        write(&out, &pipeline(), &open, "cpu").unwrap_or_else(|e| panic!("{e:?}"));
        let read = || input::read_allocation_problem(&out).unwrap_or_else(|e| panic!("`plan` reads it: {e:?}"));
        let problem = read();
        assert_eq!(problem.objective.mode, Mode::MinCost);
        assert_eq!(problem.pipelines[0].tasks[0].variants[0].accuracy, 1.0);
        // An accuracy that was measured once stays when latencies alone are measured again.
        write(&out, &pipeline(), &measured("cpu", 5.0), "cpu").unwrap_or_else(|e| panic!("{e:?}"));
        open.rows[0].hardware = "gpu".to_owned();
        write(&out, &pipeline(), &open, "gpu").unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(read().pipelines[0].tasks[0].variants[0].accuracy, 0.9);
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("notes.json").display().to_string();
        for text in ["{\"notes\": 1}", "no JSON", r#"{"version": 1, "scaling": {}}"#] {
            std::fs::write(&out, text).expect("written");
            let refused = write(&out, &pipeline(), &measured("cpu", 5.0), "cpu");
            assert!(matches!(refused, Err(Failure::BadInput(_))), "{text}: {refused:?}");
            assert_eq!(std::fs::read_to_string(&out).expect("still there"), text);
        }
    }
}
