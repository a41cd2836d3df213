//! How do commands treat scaling problems?

use super::program::{Folder, apportion, code, stderr, stdout};
use serde_json::{Value, json};

/// Two applications on 4 cores: `a` has one fast and one cheap slow variant, `b` runs one replica too many.
const PROBLEM: &str = "
version: 1
scaling:
  lambda: 0.1
  resources: {cpu: 4}
  applications:
    - name: a
      load_qps: 90
      slack_qps: 10
      slo_ms: 50
      variants:
        - {name: fast, saturation_qps: 50, latency_ms: 20, load_s: 5, cost_per_s: 2, resources: {cpu: 1}}
        - {name: slow, saturation_qps: 40, latency_ms: 80, load_s: 1, cost_per_s: 1, resources: {cpu: 1}, running: 2}
    - name: b
      load_qps: 10
      slo_ms: 50
      variants:
        - {name: only, saturation_qps: 10, latency_ms: 20, cost_per_s: 1, resources: {cpu: 1}, running: 2}
";

/// The exit code, stdout and stderr of a command.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = apportion(args);
    (code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

fn json_of(args: &[&str], expected_code: i32) -> Value {
    let (code, stdout, stderr) = run(args);
    assert_eq!(code, expected_code, "{args:?}: {stderr}");
    assert_eq!(stderr, "", "{args:?}");
    serde_json::from_str(&stdout).expect("only JSON on stdout")
}

#[test]
fn a_scaling_plan_is_found_written_and_checked() {
    let folder = Folder::new();
    let problem = folder.file("scaling.yaml", PROBLEM);
    let out = folder.file("plan.json", "");
    let file = json_of(&["plan", &problem, "--format", "json", "--out", &out], 0);
    // `a`: one fast replica beside the two slow ones costs 2 (1 + 0.1 * 5) = 3, two instead of them 6 - 2; `b`: one goes
    // for -1
    assert_eq!((&file["status"], &file["objective"]["value"]), (&json!("optimal"), &json!(2.0)));
    assert_eq!((&file["objective"]["mode"], &file["pipelines"]), (&json!("scaling"), &json!([])));
    let entry = |a: &str, v: &str, running: u32, delta: i64| json!({"application": a, "variant": v, "running": running, "delta": delta});
    let entries = [entry("a", "fast", 1, 1), entry("a", "slow", 2, 0), entry("b", "only", 1, -1)];
    assert_eq!(file["scaling"], json!(entries));
    assert_eq!(file["explanation"]["decisions"][0]["what"], json!("greedy"));
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect("written")).expect("JSON");
    assert_eq!(written, file);
    let (code, stdout, stderr) = run(&["check", &problem, &out]);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    let (code, stdout, stderr) = run(&["plan", &problem]);
    assert_eq!((code, stderr.as_str()), (0, ""), "no progress in a pipe");
    assert!(stdout.contains("objective   scaling: 2 per second") && stdout.contains("\ngreedy      "), "{stdout}");
    let greedy = json_of(&["plan", &problem, "--planner", "greedy", "--format", "json"], 0);
    assert_eq!((&greedy["status"], &greedy["objective"]["bound"]), (&json!("feasible"), &Value::Null));
}

#[test]
fn a_broken_scaling_plan_ends_check_with_4() {
    let folder = Folder::new();
    let problem = folder.file("scaling.yaml", PROBLEM);
    let plan = |fast: u32| {
        let entries = json!([
            {"application": "a", "variant": "fast", "running": fast, "delta": fast},
            {"application": "a", "variant": "slow", "running": 2, "delta": 0},
            {"application": "b", "variant": "only", "running": 1, "delta": -1},
        ]);
        json!({"version": 1, "scaling": entries}).to_string()
    };
    let (good, short) = (folder.file("good.json", &plan(1)), folder.file("short.json", &plan(0)));
    assert_eq!(run(&["check", &problem, &good]).0, 0);
    let findings = json_of_findings(&["check", &problem, &short, "--format", "json"]);
    assert_eq!(findings["findings"][0]["rule"], json!("load"), "{findings}");
    let changes = json_of(&["diff", &good, &short, "--format", "json"], 0);
    let change = json!({"application": "a", "variant": "fast", "from": {"running": 1}, "to": {"running": 0}});
    assert_eq!(changes["changes"], json!([change]));
    let pipelines = folder.file("pipelines.json", r#"{"version": 1, "pipelines": []}"#);
    let (code, stdout, stderr) = run(&["diff", &good, &pipelines]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("pipelines.json: /pipelines: a plan with pipelines: expected a plan with scaling"), "{stderr}");
}

fn json_of_findings(args: &[&str]) -> Value {
    let (code, stdout, stderr) = run(args);
    assert_eq!(code, 4, "{stderr}");
    serde_json::from_str(&stdout).expect("only JSON on stdout")
}

#[test]
fn an_infeasible_scaling_problem_ends_with_3() {
    let folder = Folder::new();
    let problem = folder.file("tight.yaml", &PROBLEM.replace("{cpu: 4}", "{cpu: 2}"));
    let file = json_of(&["plan", &problem, "--format", "json"], 3);
    assert_eq!((&file["status"], &file["scaling"]), (&json!("infeasible"), &json!([])));
    let shortfall = &file["explanation"]["shortfalls"][0];
    let relax = json!({"pointer": "/scaling/resources/cpu", "from": 2.0, "to": 3.0});
    assert_eq!((&shortfall["constraint"], &shortfall["relax"]), (&json!("capacity"), &relax));
    let out = folder.file("none.json", &file.to_string());
    let (code, stdout, stderr) = run(&["check", &problem, &out]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("/status: \"infeasible\""), "{stderr}");
}

#[test]
fn arguments_for_other_problems_end_with_2() {
    let folder = Folder::new();
    let problem = folder.file("scaling.yaml", PROBLEM);
    let trace = folder.file("trace.csv", "arrival_ms\n0\n");
    for args in [&["simulate", &problem, &problem][..], &["plan", &problem, "--trace", &trace]] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}");
        assert!(stderr.contains("a scaling problem"), "{args:?}: {stderr}");
    }
}
