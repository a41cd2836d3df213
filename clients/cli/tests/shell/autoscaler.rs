//! What does `simulate --autoscaler` do?

use super::program::apportion;
use serde_json::Value;
use std::path::Path;

struct Files {
    _folder: tempfile::TempDir,
    problem: String,
    plan: String,
    trace: String,
    windows: String,
}

/// A plan for the demand of the example, and a trace that triples it after half a minute.
fn files() -> Files {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (problem, plan, trace, windows) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/chain.json"),
        path("plan"),
        path("trace"),
        path("windows"),
    );
    let problem = problem.display().to_string();
    let planned = apportion(&["plan", &problem, "--format", "json", "--out", &plan]);
    assert_eq!(planned.status.code(), Some(0), "{}", String::from_utf8_lossy(&planned.stderr));
    let file: Value = serde_json::from_slice(&std::fs::read(&plan).expect("a plan")).expect("JSON");
    let demand = file["pipelines"][0]["demand_qps"].as_f64().expect("a demand");
    let rate = |second: usize| if second < 30 { demand } else { 3.0 * demand };
    let rows: String = (0..90).map(|s| format!("{s},{}\n", rate(s))).collect();
    std::fs::write(&trace, format!("second,qps\n{rows}")).expect("written");
    Files { _folder: folder, problem, plan, trace, windows }
}

/// The replay's part of the result under one autoscaler.
fn scaled(files: &Files, more: &[&str]) -> Value {
    let args =
        ["simulate", &files.problem, &files.plan, "--trace", &files.trace, "--format", "json", "--windows", &files.windows];
    let output = apportion(&[&args, more].concat());
    assert_eq!(output.status.code(), Some(0), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).expect("only JSON")["replay"].clone()
}

#[test]
fn each_autoscaler_follows_a_rising_load() {
    let files = files();
    let fixed = scaled(&files, &["--autoscaler", "none"]);
    assert_eq!(fixed["changes"], 0);
    for who in ["tuner", "hpa", "ray-serve", "coarse"] {
        let replay = scaled(&files, &["--autoscaler", who]);
        assert!(replay["changes"].as_u64().is_some_and(|n| n > 0), "{who}: {replay}");
        assert!(replay["cost_per_hour"].as_f64().is_some_and(|c| c > 0.0), "{who}: {replay}");
        let rows = std::fs::read_to_string(&files.windows).expect("written");
        assert!(rows.starts_with("start_s,length_s,arrived,") && rows.lines().count() >= 90, "{who}: {rows}");
    }
    assert_eq!(scaled(&files, &["--autoscaler", "hpa"]), scaled(&files, &["--autoscaler", "hpa"]), "a run repeats");
}

#[test]
fn simulate_follows_the_ladder_of_a_plan() {
    let files = files();
    assert_eq!(scaled(&files, &[])["changes"], 0);
    let planned = apportion(&["plan", &files.problem, "--ladder", "4", "--format", "json", "--out", &files.plan]);
    assert_eq!(planned.status.code(), Some(0), "{}", String::from_utf8_lossy(&planned.stderr));
    let file: Value = serde_json::from_slice(&std::fs::read(&files.plan).expect("a plan")).expect("JSON");
    let steps = file["pipelines"][0]["ladder"].as_array().map_or(0, Vec::len);
    assert!(steps > 3, "{file}");
    assert!(scaled(&files, &[])["changes"].as_u64().is_some_and(|n| n > 0));
    assert_eq!(scaled(&files, &["--autoscaler", "none"])["changes"], 0);
    let refused = apportion(&["plan", &files.problem, "--ladder", "0.5"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("expected a number from 1 to 100"));
}

#[test]
fn requests_without_an_answer_are_given_up_as_by_agents() {
    let files = files();
    let run = |more: &[&str]| {
        let args = ["simulate", &files.problem, &files.plan, "--trace", &files.trace, "--policy", "none", "-o", "json"];
        let output = apportion(&[&args, more].concat());
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("only JSON")
    };
    let (waits, gives_up) = (run(&[]), run(&["--give-up"]));
    let count = |of: &Value, key: &str| of[key].as_u64().expect("a count");
    assert_eq!(count(&waits, "requests"), count(&gives_up, "requests"), "the same arrivals");
    assert_eq!(count(&waits, "dropped"), 0, "{waits}");
    assert!(count(&gives_up, "dropped") > 0, "three times the demand for a minute: {gives_up}");
    assert!(count(&gives_up, "ok") >= count(&waits, "ok"), "{gives_up}\n{waits}");
}

#[test]
fn a_lower_target_of_utilisation_costs_more() {
    let files = files();
    let cost = |target: &str| {
        let replay = scaled(&files, &["--autoscaler", "hpa", "--hpa-target", target]);
        replay["cost"].as_f64().expect("a cost")
    };
    assert!(cost("0.2") > cost("0.9"));
}

#[test]
fn wrong_autoscaler_arguments_are_refused() {
    let files = files();
    for (args, expected) in [
        (["--autoscaler", "keda"], "possible values: plan, none, tuner, hpa, ray-serve, coarse"),
        (["--hpa-target", "0"], "must be above 0 and at most 1"),
        (["--sample", "no-such-file.csv"], ""),
    ] {
        let command = ["simulate", &files.problem, &files.plan, "--autoscaler", "tuner"];
        let command: Vec<&str> = if args[0] == "--autoscaler" { command[..3].to_vec() } else { command.to_vec() };
        let output = apportion(&[command.as_slice(), &args].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(expected) && output.stdout.is_empty(), "{args:?}: {text}");
    }
}
