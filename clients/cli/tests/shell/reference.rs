//! What does `plan --formulation reference` print?

use crate::program::{Folder, apportion, assert_refused, code, example, printed, stderr, stdout};
use serde_json::{Value, json};

/// One application, and a core for one replica.
const SCALING: &str = "
version: 1
scaling:
  lambda: 0.1
  resources: {cpu: 1}
  applications:
    - name: a
      load_qps: 40
      slo_ms: 50
      variants:
        - {name: fast, saturation_qps: 50, latency_ms: 20, load_s: 5, cost_per_s: 2, resources: {cpu: 1}}
";

fn json_of(args: &[&str], expected_code: i32) -> Value {
    let output = apportion(&[args, &["--format", "json"]].concat());
    assert_eq!(code(&output), expected_code, "{args:?}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).expect("only JSON on stdout")
}

#[test]
fn both_formulations_and_both_solvers_agree() {
    let problem = example("chain.json");
    let production = json_of(&["plan", &problem], 0);
    for solver in ["highs", "microlp"] {
        let plan = json_of(&["plan", &problem, "--formulation", "reference", "--reference-solver", solver], 0);
        assert_eq!(plan["planner"]["name"], json!(format!("reference-{solver}")));
        assert_eq!((&plan["status"], &plan["objective"]["step"]), (&json!("optimal"), &production["objective"]["step"]));
        let value = |file: &Value| file["objective"]["value"].as_f64().expect("a value");
        let (ours, theirs) = (value(&plan), value(&production));
        assert!((ours - theirs).abs() <= 2e-4 * theirs.abs().max(1.0), "{solver}: {ours}, not {theirs}");
        assert!(plan["estimate"]["requests"].as_u64().is_some_and(|n| n > 0), "the plan is replayed: {}", plan["estimate"]);
        let tables = plan["pipelines"][0]["routing"]["tables"].as_array().expect("tables");
        assert!(!tables.is_empty(), "the plan has routing tables");
    }
}

#[test]
fn a_reference_plan_passes_the_checker() {
    let folder = Folder::new();
    let (problem, out) = (example("chain.json"), folder.path("plan.json"));
    let shown = printed(&["plan", &problem, "--formulation", "reference", "--out", &out]);
    assert!(shown.contains("planner     reference-highs"), "{shown}");
    let checked = apportion(&["check", &problem, &out]);
    assert_eq!((code(&checked), stdout(&checked)), (0, ""), "{}", stderr(&checked));
}

#[test]
fn the_reference_says_that_there_is_no_plan() {
    let folder = Folder::new();
    let scaling = folder.file("scaling.yaml", SCALING);
    let plan = json_of(&["plan", &scaling, "--formulation", "reference"], 0);
    assert_eq!(plan["objective"]["value"], json!(3.0));
    let tight = folder.file("tight.yaml", &SCALING.replace("load_qps: 40", "load_qps: 60"));
    let plan = json_of(&["plan", &tight, "--formulation", "reference"], 3);
    assert_eq!((&plan["status"], &plan["objective"]["value"]), (&json!("infeasible"), &Value::Null));
    let left_out = plan["explanation"]["left_out"][0].as_str().expect("a sentence");
    assert!(left_out.contains("--formulation production"), "{left_out}");
}

#[test]
fn arguments_that_the_reference_does_not_know_are_refused() {
    let problem = example("chain.json");
    let wrong: [(&[&str], &str); 4] = [
        (&["--formulation", "reference", "--ladder", "2"], "no --ladder"),
        (&["--formulation", "reference", "--planner", "greedy"], "milp"),
        (&["--formulation", "reference", "--trace", "load.csv"], "no --trace"),
        (&["--reference-solver", "microlp"], "--formulation reference"),
    ];
    for (args, expected) in wrong {
        assert_refused(&[&["plan", &problem], args].concat(), expected);
    }
}
