//! The main job end to end: real queries through real variants on several agents, one of which is killed under load.

use serde_json::Value;
use std::process::{Command, Stdio};

fn demo(args: &[&str]) -> Value {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.arg("demo").args(args).args(["--format", "json"]).current_dir(apportion_tests::root());
    let output = command.stdin(Stdio::null()).output().expect("the demo runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\nstdout: {out}\nstderr: {err}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("only the result is on stdout: {e}\n{out}"))
}

fn count(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("{key} in {summary}"))
}

#[test]
fn an_agent_killed_under_load_loses_nothing_silently_and_the_next_plan_does_without_it() {
    let summary = demo(&["--seconds", "36", "--kill-at", "6", "--seed", "7"]);
    let outcomes: u64 = ["ok", "late", "dropped", "failed"].map(|key| count(&summary, key)).iter().sum();
    assert!(count(&summary, "requests") > 100, "{summary}");
    assert_eq!(outcomes, count(&summary, "requests"), "every request has one outcome: {summary}");
    assert_eq!(count(&summary, "failed"), 0, "those on the killed agent were sent again elsewhere: {summary}");
    let plans = summary["plans"].as_array().expect("plans");
    assert!(plans.len() >= 2, "{summary}");
    assert!(plans.iter().skip(1).all(|p| count(p, "replicas") <= 4), "two agents have four devices: {summary}");
    let planned = summary["accuracy_planned"].as_f64().expect("a number");
    let measured = summary["accuracy_measured"].as_f64().expect("a number");
    assert!((planned - measured).abs() <= 0.05, "{summary}");
}
