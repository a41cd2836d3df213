//! What does `apportion advise` say without a Prometheus?

use super::program::{Folder, apportion, assert_refused, code, example, printed, stderr, stdout};
use serde_json::{Value, json};

fn advice(args: &[&str]) -> Value {
    let output = apportion(&[&["advise", &example("photos.yaml"), "--format", "json"], args].concat());
    assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).expect("only JSON")
}

#[test]
fn its_own_plan_is_a_deployment_without_differences() {
    let folder = Folder::new();
    let out = folder.path("now.json");
    let first = advice(&["--qps", "60", "--headroom", "1", "--out", &out]);
    assert_eq!((&first["deployed"], &first["saving_per_hour"]), (&Value::Null, &Value::Null));
    let again = advice(&["--qps", "photos=60", "--headroom", "1", "--deployed", &out]);
    assert_eq!(again["advised"], again["deployed"]);
    assert_eq!(again["saving_per_hour"], json!(0.0));
    let groups = again["groups"].as_array().expect("groups");
    assert!(!groups.is_empty() && groups.iter().all(|g| g["difference"] == json!(0)), "{again}");
    let checked = apportion(&["check", &example("photos.yaml"), &out]);
    assert_eq!(code(&checked), 0, "the example has this demand too: {}", stdout(&checked));
}

#[test]
fn headroom_is_a_factor_on_the_demand() {
    assert_eq!(advice(&["--qps", "60"])["demand"][0]["planned_qps"], json!(72.0), "that of the service");
    assert_eq!(advice(&["--qps", "60", "--headroom", "1"])["demand"][0]["planned_qps"], json!(60.0));
    assert_eq!(advice(&["--qps", "60", "--headroom", "1.5"])["demand"][0]["planned_qps"], json!(90.0));
    assert_eq!(advice(&["--qps", "0"])["demand"][0]["planned_qps"], json!(1.0), "the floor of the service");
    assert_refused(&["advise", &example("photos.yaml"), "--qps", "1", "--headroom", "0.5"], "a factor from 1 to 10");
}

#[test]
fn a_trace_is_replayed_whole_and_planned_at_its_peak() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|s| format!("{s},{}\n", if s < 20 { 30 } else { 90 })).collect();
    let trace = folder.file("day.csv", &format!("second,qps\n{rows}"));
    let seen = advice(&["--trace", &format!("photos={trace}")]);
    assert_eq!((&seen["demand"][0]["seen_qps"], &seen["demand"][0]["source"]), (&json!(90.0), &json!("trace")));
    let requests = seen["advised"]["requests"].as_f64().expect("a count");
    assert!((requests / (20.0 * 120.0) - 1.0).abs() < 0.1, "all of the trace: {requests}");
}

#[test]
fn a_group_has_a_row_for_each_batch_size() {
    let folder = Folder::new();
    let group = |task: &str, variant: &str, batch: u32| json!({"task": task, "variant": variant, "hardware": "t4", "batch": batch, "replicas": 3});
    let groups = [group("find", "find-s", 1), group("read", "read-m", 8)];
    let plan = json!({"version": 1, "pipelines": [{"name": "photos", "assignments": groups}]});
    let file = folder.file("now.json", &plan.to_string());
    let seen = advice(&["--qps", "60", "--deployed", &file]);
    let row = |variant: &str, batch: u32| {
        let rows = seen["groups"].as_array().expect("groups");
        rows.iter().find(|g| g["variant"] == variant && g["batch"] == batch).unwrap_or_else(|| panic!("{seen}")).clone()
    };
    let old = row("find-s", 1);
    assert_eq!((&old["desired"], &old["deployed"], &old["difference"]), (&json!(0), &json!(3), &json!(-3)));
    assert_eq!(row("find-l", 4)["deployed"], json!(0));
    assert!(seen["saving_per_hour"].as_f64().is_some_and(|saving| saving > 0.0), "{seen}");
    let table = printed(&["advise", &example("photos.yaml"), "--qps", "60", "--deployed", &file]);
    assert!(table.contains("advised") && table.contains("deployed") && table.contains("effect"), "{table}");
}

#[test]
fn an_overload_lowers_the_demand_and_says_so() {
    let seen = advice(&["--qps", "1000"]);
    let planned = seen["demand"][0]["planned_qps"].as_f64().expect("a rate");
    assert!(seen["demand"][0]["asked_qps"] == json!(1200.0) && planned < 600.0, "{seen}");
    let table = printed(&["advise", &example("photos.yaml"), "--qps", "1000"]);
    assert!(table.contains("the devices cannot serve 1200/s"), "{table}");
}

#[test]
fn each_pipeline_needs_one_demand() {
    let photos = example("photos.yaml");
    assert_refused(&["advise", &photos], "pipeline photos: no demand: expected --query PIPELINE=PROMQL");
    assert_refused(&["advise", &photos, "--qps", "1", "--qps", "photos=2"], "a second demand for \"photos\"");
    assert_refused(&["advise", &photos, "--qps", "other=2"], "--qps: other=2: an unknown pipeline");
    assert_refused(&["advise", &photos, "--qps", "many"], "no rate");
    assert_refused(&["advise", &photos, "--trace", "photos=none.csv"], "none.csv: cannot be read");
    let unnamed = ["advise", &photos, "--prometheus", "http://127.0.0.1:9", "--query", "sum(up)"];
    assert_refused(&unnamed, "expected PIPELINE=PROMQL with one of photos");
}

#[test]
fn a_wrong_server_is_refused_before_it_is_asked() {
    let photos = example("photos.yaml");
    let with = |more: &[&str], expected: &str| {
        assert_refused(&[&["advise", &photos, "--query", "photos=up"], more].concat(), expected);
    };
    with(&[], "a query without a server: expected --prometheus URL beside it");
    with(&["--prometheus", "127.0.0.1:9090"], "--prometheus: \"127.0.0.1:9090\": expected a URL such as http://");
    with(&["--prometheus", "http://me:secret@127.0.0.1"], "without a user");
    let folder = Folder::new();
    let (empty, url) = (folder.file("empty", "\n"), "http://127.0.0.1:9");
    with(&["--prometheus", url, "--token-file", &empty], "empty: expected a token: one line");
    with(&["--prometheus", url, "--token-file", &folder.path("none")], "none: cannot be read");
    with(&["--prometheus", url, "--ca", &empty], "--ca");
    with(&["--token-file", &empty], "--prometheus <URL>");
    with(&["--prometheus", url, "--age-max", "old"], "for example 10s");
    let unreachable = apportion(&["advise", &photos, "--query", "photos=up", "--prometheus", url]);
    assert_eq!((code(&unreachable), stdout(&unreachable)), (1, ""), "{}", stderr(&unreachable));
    assert!(stderr(&unreachable).contains("http://127.0.0.1:9: cannot be reached"), "{}", stderr(&unreachable));
}

#[test]
fn the_service_refuses_a_wrong_list_of_servers() {
    let with = |arguments: &[&str], expected: &str| assert_refused(&[&["serve"], arguments].concat(), expected);
    let listed = ["--prometheus", "http://10.0.0.4:9090"];
    with(&["--prometheus", "10.0.0.4:9090"], "--prometheus: \"10.0.0.4:9090\": expected a URL such as");
    with(&["--prometheus-token-file", "http://10.0.0.4=f"], "the URL of a --prometheus beside it");
    with(&[&listed[..], &["--prometheus-ca", "https://10.0.0.4:9090=f"]].concat(), "a server that is not listed");
    with(&[&listed[..], &["--prometheus-token-env", "NAME"]].concat(), "expected URL=VALUE");
    with(&["--scalers-key", "k"], "--scalers-certificate");
    with(&["--scalers-certificate", "c", "--scalers-key", "k"], "--scalers");
}
