//! Variants of one model file: three precisions of a real detector, made by the real converters, measured and planned.

use apportion_needs::{Need, converters, need};
use apportion_profiler::find_library;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The detector in three precisions, before the reader.
const PIPELINE: &str = "
name: finder
slo_ms: 500
tasks:
  - name: find
VARIANTS
  - name: read
    variants: [{name: read-m, model: MODELS/read-m.onnx}]
validation:
  inputs: {image: MODELS/../validation/image.npy}
  labels: MODELS/../validation/labels.json
  match: {value: label, at: position, within: 4.0}
edges:
  - {from: find, to: read, map: {image: crops, center: centers}}
";

/// The variants of the detector.
const NAMES: [&str; 3] = ["find-s-1t", "find-s-fp16-1t", "find-s-int8-1t"];

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(arguments).current_dir(folder).output().expect("the program runs")
}

fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn parsed(folder: &Path, arguments: &[&str]) -> Value {
    let text = printed(folder, arguments);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"))
}

fn bytes(path: &Path) -> f64 {
    std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).len() as f64
}

/// The figures of a variant of the detector: accuracy, memory, and latency by batch.
fn figures(set: &Value, name: &str) -> (f64, f64, Vec<f64>) {
    let is_it = |one: &&Value| one["task"] == "find" && one["variant"] == name;
    let of = set["variants"].as_array().expect("variants").iter().find(is_it).unwrap_or_else(|| panic!("{name}: {set:#}"));
    let rows = set["rows"].as_array().expect("rows").iter().filter(is_it);
    let latencies = rows.map(|row| row["latency_ms"].as_f64().expect("a time")).collect();
    let number = |key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{name}: {key}: {of}"));
    (number("accuracy"), number("memory_mib"), latencies)
}

/// Whether the first variant is nowhere worse than the second one.
fn covers(set: &Value, one: &str, other: &str) -> bool {
    let (mine, theirs) = (figures(set, one), figures(set, other));
    mine.0 >= theirs.0 && mine.1 <= theirs.1 && mine.2.iter().zip(&theirs.2).all(|(mine, theirs)| mine <= theirs)
}

#[test]
fn precisions_of_one_file_are_measured_and_planned() {
    let Some(python) = converters() else { return };
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let models = apportion_tests::root().join("examples/digits/models");
    let (file, python) = (models.join("find-s.onnx"), python.display().to_string());
    let shown = file.display().to_string();
    let arguments = ["variants", &shown, "--out", "made", "--threads", "1", "--python", &python];
    let entries = printed(folder.path(), &arguments);
    for (name, most) in [("find-s-fp16", 0.7), ("find-s-int8", 0.6)] {
        let part = bytes(&folder.path().join(format!("made/{name}.onnx"))) / bytes(&file);
        assert!(part < most, "{name} has {part} of the bytes");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("made")).expect("a folder").count(), 2, "and nothing else");
    let again = run(folder.path(), &arguments);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(2) && said.contains("find-s-fp16.onnx: a file is there"), "{said}");

    let indented: Vec<String> = entries.lines().map(|line| format!("    {line}")).collect();
    let text = PIPELINE.replace("VARIANTS", &indented.join("\n")).replace("MODELS", &models.display().to_string());
    std::fs::write(folder.path().join("p.yaml"), text).expect("written");
    let profile = ["profile", "p.yaml", "--batch-max", "2", "--out", "p.json", "-o", "json"];
    let set = parsed(folder.path(), &profile);
    let accuracy = |name: &str| figures(&set, name).0;
    let whole = accuracy(NAMES[0]);
    assert!(whole > 0.5, "{set:#}");
    assert!((accuracy(NAMES[1]) - whole).abs() < 0.02, "{} of {whole}", accuracy(NAMES[1]));
    assert!(accuracy(NAMES[2]) > 0.8 * whole, "{} of {whole}", accuracy(NAMES[2]));
    for name in NAMES {
        assert_eq!(figures(&set, name).2.len(), 2, "{name}: {set:#}");
        let is_marked = set["variants"]
            .as_array()
            .expect("variants")
            .iter()
            .any(|one| one["variant"] == name && one["dominated_by"]["cpu"].is_string());
        let beats = |other: &&str| covers(&set, other, name) && (!covers(&set, name, other) || *other < name);
        let is_dominated = NAMES.iter().filter(|other| **other != name).any(beats);
        assert_eq!(is_marked, is_dominated, "{name}: {set:#}");
    }

    let plan = parsed(folder.path(), &["plan", "p.json", "-o", "json", "--out", "plan.json"]);
    assert_eq!(plan["status"], json!("optimal"), "{plan:#}");
    let chosen = plan["pipelines"][0]["assignments"].as_array().expect("assignments");
    let variants: Vec<&str> = chosen.iter().filter_map(|group| group["variant"].as_str()).collect();
    assert!(variants.iter().any(|variant| NAMES.contains(variant)), "{variants:?}");
    printed(folder.path(), &["check", "p.json", "plan.json"]);
}
