//! Does a table of latencies lead to a checked plan in two commands?

use super::program::{Folder, apportion, assert_refused, code, example, printed, stderr, stdout};
use serde_json::{Value, json};

/// A report with the header that Triton's Perf Analyzer writes; the numbers are invented.
fn perf_report(compute_us: u32) -> String {
    format!(
        "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute \
         Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n2,99,1,1,900,0,{compute_us},0,0,\
         1,1,1,1\n1,69,1,1,1,0,{compute_us},0,0,1,1,1,1\n"
    )
}

/// The only JSON on stdout. The command may remark on stderr.
fn json_of(args: &[&str]) -> Value {
    let output = apportion(args);
    assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    serde_json::from_str(stdout(&output)).expect("only JSON")
}

#[test]
fn a_report_becomes_a_plan_in_two_commands() {
    let folder = Folder::new();
    let (one, eight) = (folder.file("b1.csv", &perf_report(9_000)), folder.file("b8.csv", &perf_report(30_000)));
    let names = ["--batch", "1,8", "--variant", "resnet50", "--hardware", "t4"];
    for out in ["profile.json", "profile.csv"] {
        let out = folder.path(out);
        let import = ["import", "profile", "--from", "perf-analyzer", &one, &eight, "--out", &out];
        assert_eq!(printed(&[&import[..], &names].concat()), "");
        let problem = folder.path("problem.json");
        let made = ["--qps", "500", "--slo-ms", "200", "--hardware", "cpu=0.05x20,t4=0.53", "--problem-out", &problem];
        let plan = json_of(&[&["plan", &out, "--format", "json"], &made[..]].concat());
        assert_eq!((&plan["status"], &plan["objective"]["mode"]), (&json!("optimal"), &json!("min_cost")), "{out}");
        // 500 queries each second at 8 in 30 ms are 1.9 devices.
        assert_eq!((&plan["replicas"], &plan["cost_per_hour"]), (&json!(2), &json!(1.06)), "{out}");
        let file = folder.file("plan.json", &plan.to_string());
        printed(&["simulate", &problem, &file]);
        assert_eq!(code(&apportion(&["check", &problem, &file])), 0);
    }
}

#[test]
fn several_tables_are_a_chain_and_a_trace_is_a_demand() {
    let folder = Folder::new();
    let table = |name: &str, ms: u32| folder.file(name, &format!("hardware,batch,latency_ms,accuracy\nt4,4,{ms},0.9\n"));
    let (find, read) = (table("find.csv", 20), table("read.csv", 10));
    let log = folder.file("log.csv", "user,timestamp_s\na,7\nb,7.5\na,8\nc,8.9\n");
    let trace = folder.path("trace.csv");
    assert_eq!(printed(&["import", "trace", "--from", "csv", &log, "--out", &trace]), "");
    let made = ["--slo-ms", "200", "--hardware", "t4=0.53x4", "--trace", &trace, "--format", "json"];
    let plan = json_of(&[&["plan", &find, &read], &made[..]].concat());
    let pipeline = &plan["pipelines"][0];
    let tasks: Vec<&Value> = pipeline["assignments"].as_array().into_iter().flatten().map(|a| &a["task"]).collect();
    assert_eq!(tasks, [&json!("find"), &json!("read")]);
    assert_eq!((&pipeline["demand_qps"], &pipeline["accuracy"]), (&json!(2.0), &json!(0.81)), "4 queries in 2 s");
    assert_eq!(plan["objective"]["mode"], json!("hardware_then_accuracy"));
}

#[test]
fn what_a_profile_cannot_say_is_asked_for() {
    let folder = Folder::new();
    let table = folder.file("net.csv", "hardware,batch,latency_ms\nt4,1,5\ncpu,1,30\n");
    assert_refused(&["plan", &table], "net.csv: a profile, without prices: expected --hardware cpu=PRICE,t4=PRICE");
    let priced = ["plan", &table, "--hardware", "t4=0.5"];
    assert_refused(&priced, "net.csv: a profile, without a demand: expected --qps QPS, or --trace FILE");
    let with = |more: &[&'static str]| [&priced[..], more].concat();
    assert_refused(&with(&["--slo-ms", "50"]), "net.csv: a profile, without a demand: expected --qps QPS, or --trace FILE");
    assert_refused(&with(&["--slo-ms", "-1", "--qps", "5"]), "expected a number from 0 to 1e9");
    assert_refused(&with(&["--slo-ms", "0", "--qps", "5"]), "net.csv: /pipelines/0/slo_ms: 0: expected");
    assert_refused(&["plan", &table, "--hardware", "t4:0.5"], "--hardware: \"t4:0.5\": expected NAME=PRICE");
    let problem = example("chain.json");
    assert_refused(&["plan", &problem, "--qps", "5"], "a problem file, with --qps: expected --demand");
    assert_refused(&["plan", &problem, &table], "chain.json: no profile, and one of 2 files");
    let report = folder.file("perf.csv", &perf_report(9_000));
    let import = ["import", "profile", "--from", "perf-analyzer", &report];
    assert_refused(&import, "perf.csv: the report names no model: expected --variant NAME");
    assert_refused(&[&import[..], &["--batch", "1,2"]].concat(), "--batch: 2 batch sizes for 1 files");
    let wrong = folder.file("wrong.csv", "arrival_s\n1\nsoon\n");
    let refused = "wrong.csv: line 3, column \"arrival_s\": \"soon\": expected a time of at least 0";
    assert_refused(&["import", "trace", "--from", "csv", &wrong], refused);
}

#[test]
fn a_profile_is_planned_without_an_objective() {
    let folder = Folder::new();
    let table = folder.file("net.csv", "hardware,batch,latency_ms\ncpu,1,30\nt4,1,5\nt4,8,20\n");
    let problem = folder.path("problem.json");
    let args = ["plan", &table, "--qps", "500", "--hardware", "cpu=0.05x20,t4=0.53", "--problem-out", &problem];
    let planned = apportion(&args);
    assert_eq!(code(&planned), 0, "{}", stderr(&planned));
    assert!(
        stderr(&planned).contains("no --slo-ms: the objective is 25 ms, 5 times a query alone"),
        "{}",
        stderr(&planned)
    );
    let written = std::fs::read_to_string(&problem).expect("written");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["pipelines"][0]["slo_ms"], json!(25.0));
}

#[test]
fn a_file_of_another_kind_is_told_what_to_do() {
    let folder = Folder::new();
    let pipeline = folder.file("p.yaml", "name: p\nslo_ms: 9\ntasks: [{name: t, variants: [{name: v, model: v.onnx}]}]\n");
    for more in [&[][..], &["--qps", "5"]] {
        let plan = [&["plan", &pipeline][..], more].concat();
        assert_refused(
            &plan,
            "p.yaml: a pipeline file: expected a problem file, a profile, or a table of latencies; `apportion",
        );
    }
    let profile = folder.file("profile.json", r#"{"rows": []}"#);
    let checked = |file: &str, refused: &str| assert_refused(&["check", file, file], refused);
    checked(&pipeline, "p.yaml: a pipeline file: expected a problem file: apportion profile");
    checked(&profile, "profile.json: a profile: expected a problem file: apportion plan");
    let model = folder.file("v.onnx", "no text");
    assert_refused(&["plan", &model], "v.onnx: a model file: expected a problem file");
    assert_refused(&["profile", &model], "v.onnx: a model file: expected a pipeline file; `apportion init");
}

#[test]
fn a_profile_in_csv_has_no_shares() {
    let folder = Folder::new();
    let table = folder.file("net.csv", "variant,hardware,batch,latency_ms,share\nv,t4,1,5,0.5\n");
    let (csv, json) = (folder.path("out.csv"), folder.path("out.json"));
    let import = ["import", "profile", "--from", "csv", &table, "--out"];
    assert_refused(
        &[&import[..], &[&csv]].concat(),
        "out.csv: a row with the share 0.5: expected a name that ends in .json",
    );
    assert_eq!(printed(&[&import[..], &[&json]].concat()), "");
    let written = std::fs::read_to_string(&json).expect("written");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["rows"][0]["share"], json!(0.5));
    assert_eq!(json_of(&["import", "profile", "--from", "csv", &table]), written, "stdout has the same");
}

#[test]
fn a_folder_above_a_repository_has_no_models() {
    let folder = Folder::new();
    let out = folder.path("p.yaml");
    let import = |path: &str| ["import", "pipeline", "--from", "triton-repository", path, "--out", &out].map(str::to_owned);
    let refused = |path: &str| {
        let args = import(path);
        assert_refused(&args.each_ref().map(String::as_str), "no models: expected a folder for each model, with a config");
    };
    refused(&example("triton"));
    refused(&example("triton/models/small"));
    let args = import(&example("triton/models"));
    assert_refused(
        &args.each_ref().map(String::as_str),
        "2 models and 0 ensembles: expected --model with one of large, small",
    );
}
