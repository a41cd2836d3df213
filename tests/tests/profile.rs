//! `apportion profile` with a service and a second hardware type: what is there already stays.

use apportion_needs::{Need, need};
use apportion_profiler::find_library;
use apportion_tests::cluster::Cluster;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// One task of the example, with its two quickest variants.
const PIPELINE: &str = "
name: finder
slo_ms: 500
tasks:
  - name: find
    variants: [{name: find-s, model: MODELS/find-s.onnx}, {name: find-l, model: MODELS/find-l.onnx}]
  - name: read
    variants: [{name: read-s, model: MODELS/read-s.onnx}]
edges:
  - {from: find, to: read, map: {image: crops, center: centers}}
validation:
  inputs: {image: MODELS/../validation/image.npy}
  labels: MODELS/../validation/labels.json
  match: {value: label, at: position, within: 4.0}
";

fn apportion(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    let output = command.args(arguments).current_dir(folder).output().expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {out}"))
}

/// Peak memory that a profile says of a variant.
fn memory_mib(profile: &Value, variant: &str) -> f64 {
    let all = profile["variants"].as_array().expect("variants");
    let found = all.iter().find(|v| v["variant"] == variant).unwrap_or_else(|| panic!("{variant}: {profile}"));
    found["memory_mib"].as_f64().unwrap_or_else(|| panic!("its memory: {found}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_profile_keeps_settings_and_the_first_hardware() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let cluster = Cluster::start(0, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let models = apportion_tests::root().join("examples/digits/models").display().to_string();
    std::fs::write(folder.path().join("p.yaml"), PIPELINE.replace("MODELS", &models)).expect("written");
    let url = cluster.service();
    let profile = |hardware: &str, batch_max: &str| {
        let to = ["profile", "p.yaml", "--register", &url, "--out", "p.json", "--format", "json"];
        apportion(folder.path(), &[&to[..], &["--hardware", hardware, "--batch-max", batch_max]].concat())
    };
    let small = profile("first", "1");
    let path = "/v1/pipelines/finder";
    let mut registered = cluster.get(path).await;
    registered["replan"] = json!({"mode": "advisory", "period_s": 3600.0});
    registered["weight"] = json!(3.0);
    cluster.put(path, &registered).await;
    let large = profile("second", "32");

    let now = cluster.get(path).await;
    assert_eq!((&now["replan"]["mode"], &now["replan"]["period_s"]), (&json!("advisory"), &json!(3600.0)), "{now:#}");
    assert_eq!(now["weight"], json!(3.0));
    let profiles = cluster.get(&format!("{path}/profiles")).await;
    let of =
        |hardware: &str| profiles["rows"].as_array().map_or(0, |r| r.iter().filter(|r| r["hardware"] == hardware).count());
    assert_eq!((of("first"), of("second")), (3, 18), "{profiles:#}");

    let file_mib = std::fs::metadata(format!("{models}/find-l.onnx")).expect("the file").len() as f64 / f64::from(1 << 20);
    let (one, many) = (memory_mib(&small, "find-l"), memory_mib(&large, "find-l"));
    eprintln!("find-l: file {file_mib:.2} MiB, peak {one:.2} MiB at batch 1 and {many:.2} MiB at batch 32");
    assert!(one > file_mib && many > 2.0 * one, "{file_mib} < {one} < {many} MiB");

    // What was written is a problem with both types, which `plan` reads.
    let plan =
        apportion(folder.path(), &["plan", "p.json", "--demand", "finder=5", "--format", "json", "--out", "plan.json"]);
    assert_eq!((&plan["status"], &plan["pipelines"][0]["demand_qps"]), (&json!("optimal"), &json!(5.0)), "{plan:#}");
    let problem: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("p.json")).expect("p.json")).expect("JSON");
    let names: Vec<_> = problem["hardware"].as_array().expect("hardware").iter().map(|h| h["name"].clone()).collect();
    assert_eq!(names, ["first", "second"]);
}
