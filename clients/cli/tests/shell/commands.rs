//! What do exit codes, stdout and stderr of the basic commands say?

use super::program::{Folder, apportion, assert_refused, code, example, stderr, stdout};
use serde_json::{Value, json};

#[test]
fn bad_input_ends_with_2() {
    let folder = Folder::new();
    let problem = std::fs::read_to_string(example("chain.json")).expect("the example");
    let with = |name: &str, from: &str, to: &str| {
        assert!(problem.contains(from), "{from}");
        folder.file(name, &problem.replacen(from, to, 1))
    };
    let cycle = with(
        "cycle.json",
        r#"[{"from": "embed", "to": "rank"}]"#,
        r#"[{"from": "embed", "to": "rank"}, {"from": "rank", "to": "embed"}]"#,
    );
    assert_refused(&["plan", &cycle], "cycle.json: /pipelines/0/edges: a cycle");
    let price = with("price.json", "0.12", "-0.12");
    assert_refused(&["plan", &price], "price.json: /hardware/0/price_per_hour: -0.12: expected a price of at least 0");
    let key = with("key.json", "\"slo_ms\"", "\"slo_msec\"");
    assert_refused(
        &["plan", &key, "--format", "json"],
        "/pipelines/0/slo_msec: unknown key \"slo_msec\": expected the key \"slo_ms\"",
    );
    assert_refused(&["check", &key, &key], "expected the key \"slo_ms\"");
    assert_refused(
        &["plan", &folder.file("nan.yaml", "version: .nan")],
        "nan.yaml: /version: NaN: expected a finite number",
    );
    assert_refused(&["plan", &folder.file("syntax.json", "{")], "syntax.json: line 1 column 1");
    assert_refused(&["plan", &folder.path("none.json")], "none.json: cannot be read");
}

#[test]
fn bad_arguments_end_with_2() {
    let problem = example("chain.json");
    assert_refused(
        &["plan", &problem, "--planner", "oracle"],
        "[possible values: milp, price-and-branch, greedy, hardware-only, proteus, cg-mean, cg-peak]",
    );
    assert_refused(&["plan", &problem, "--latency-rule", "fast"], "[possible values: task_budget, path]");
    assert_refused(&["plan", &problem, "--time-limit", "soon"], "for example 10s");
    assert_refused(&["plan", &problem, "--gap", "-1"], "expected a number from 0 to 1");
    assert_refused(&["simulate", &problem, &problem, "--arrivals", "gamma:0"], "gamma:2");
    assert_refused(&["simulate", &problem, &problem, "--policy", "pards"], "a similar value exists");
}

#[test]
fn a_bad_trace_ends_with_2() {
    let folder = Folder::new();
    let backwards = folder.file("back.csv", "arrival_ms\n5\n4\n");
    assert_refused(&["plan", &example("chain.json"), "--trace", &backwards], "back.csv: line 3: 4 after 5");
    assert_refused(&["trace", "inspect", &folder.file("empty.csv", "")], "empty.csv: line 1: an empty file");
    assert_refused(&["trace", "inspect", &folder.file("head.csv", "arrival_ms\n")], "head.csv: line 1: 0 rows");
    let rates = folder.file("rates.csv", "second,qps,b\n0,1,2\n");
    assert_refused(&["trace", "inspect", &rates, "--column", "c"], "column \"c\"");
    let unknown = format!("other={rates}");
    assert_refused(&["plan", &example("chain.json"), "--trace", &unknown], "unknown pipeline \"other\"");
    let twice = format!("chain={rates}");
    let args = ["plan", &example("chain.json"), "--trace", &twice, "--trace", &rates];
    assert_refused(&args, "a second trace for \"chain\"");
}

#[test]
fn inspect_agrees_with_generate() {
    let folder = Folder::new();
    let file = folder.path("step.csv");
    let made = apportion(&["trace", "generate", "--shape", "step", "--qps", "10", "--seconds", "30", "--out", &file]);
    assert_eq!((code(&made), stdout(&made)), (0, ""), "{}", stderr(&made));
    let seen = apportion(&["trace", "inspect", &file, "--format", "json"]);
    assert_eq!(code(&seen), 0);
    let summary: Value = serde_json::from_str(stdout(&seen)).expect("only JSON");
    assert_eq!((&summary["rows"], &summary["queries"]), (&json!(30), &json!(400.0)));
    assert_eq!(summary["peak_qps"], json!(20.0));
    let printed = apportion(&["trace", "generate", "--shape", "step", "--qps", "10", "--seconds", "30"]);
    assert_eq!(stdout(&printed), std::fs::read_to_string(&file).expect("written"));
}

#[test]
fn diff_lists_the_changes() {
    let folder = Folder::new();
    let plan = |batch: u32, replicas: u32| {
        let group = json!({"task": "a", "variant": "v", "hardware": "h", "batch": batch, "replicas": replicas});
        json!({"version": 1, "pipelines": [{"name": "p", "assignments": [group]}]}).to_string()
    };
    let (before, after) = (folder.file("before.json", &plan(1, 2)), folder.file("after.json", &plan(4, 3)));
    let same = apportion(&["diff", &before, &before]);
    assert_eq!((code(&same), stdout(&same)), (0, ""));
    let text = apportion(&["diff", &before, &after]);
    assert_eq!(code(&text), 0);
    assert!(stdout(&text).contains("2 x batch 1  3 x batch 4"), "{}", stdout(&text));
    let changes = apportion(&["diff", &before, &after, "--format", "json"]);
    let changes: Value = serde_json::from_str(stdout(&changes)).expect("only JSON");
    assert_eq!(changes["changes"][0]["to"], json!({"replicas": 3, "batch": 4}));
}

/// A plan for the example `chain.json` with only what a plan cannot do without.
fn hand_made(replicas: u32) -> String {
    let group = |task: &str, variant: &str| json!({"task": task, "variant": variant, "hardware": "gpu", "batch": 8, "replicas": replicas});
    let assignments = [group("embed", "embed-s"), group("rank", "rank-m")];
    json!({"version": 1, "pipelines": [{"name": "chain", "assignments": assignments}]}).to_string()
}

#[test]
fn check_ends_with_4_on_findings() {
    let folder = Folder::new();
    let problem = example("chain.json");
    let valid = apportion(&["check", &problem, &folder.file("valid.json", &hand_made(1))]);
    assert_eq!((code(&valid), stdout(&valid)), (0, ""), "{}", stderr(&valid));
    let broken = folder.file("broken.json", &hand_made(9));
    let findings = apportion(&["check", &problem, &broken]);
    assert_eq!(code(&findings), 4, "{}", stderr(&findings));
    assert!(stdout(&findings).contains("gpu: 18 devices"), "{}", stdout(&findings));
    let findings = apportion(&["check", &problem, &broken, "--format", "json"]);
    assert_eq!(code(&findings), 4);
    let list: Value = serde_json::from_str(stdout(&findings)).expect("only JSON");
    assert_eq!(list["findings"][0]["place"], json!("gpu"));
}

#[test]
fn drawn_arrivals_repeat_with_their_seed() {
    let folder = Folder::new();
    let make = |name: &str, seed: &str| {
        let file = folder.path(name);
        let args = ["trace", "generate", "--form", "arrivals", "--qps", "200", "--seconds", "50", "--arrivals", "gamma:2"];
        let made = apportion(&[&args[..], &["--seed", seed, "--out", &file]].concat());
        assert_eq!(code(&made), 0, "{}", stderr(&made));
        file
    };
    let (one, again, other) = (make("one.csv", "7"), make("again.csv", "7"), make("other.csv", "8"));
    let text = |file: &str| std::fs::read_to_string(file).expect("written");
    assert_eq!(text(&one), text(&again));
    assert_ne!(text(&one), text(&other));
    let seen = apportion(&["trace", "inspect", &one, "--format", "json"]);
    let summary: Value = serde_json::from_str(stdout(&seen)).expect("only JSON");
    let mean = summary["mean_qps"].as_f64().expect("a rate");
    let burstiness = summary["gap_cv"].as_f64().expect("gaps");
    assert!((180.0..220.0).contains(&mean) && (1.7..2.3).contains(&burstiness), "{summary}");
}

#[test]
fn simulate_writes_every_request() {
    let folder = Folder::new();
    let problem = example("chain.json");
    let plan = folder.file("plan.json", &hand_made(1));
    let trace = folder.file("trace.csv", "arrival_ms\n0\n1\n500.5\n");
    let results = folder.path("requests.csv");
    let named = format!("chain={trace}");
    let args = ["simulate", &problem, &plan, "--trace", &named, "--format", "json", "--requests", &results];
    let output = apportion(&args);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let estimate: Value = serde_json::from_str(stdout(&output)).expect("only JSON");
    assert_eq!((&estimate["requests"], &estimate["ok"]), (&json!(3), &json!(3)));
    assert_eq!((&estimate["method"], &estimate["attainment"]), (&json!("simulation"), &json!(1.0)));
    assert_eq!(estimate["pipelines"][0]["name"], json!("chain"));
    let rows = std::fs::read_to_string(&results).expect("written");
    let rows: Vec<_> = rows.lines().collect();
    assert_eq!(rows[0], "request,arrival_ms,finish_ms,latency_ms,outcome,drop_task,reason,accuracy");
    // A lone query takes embed-s 4 ms and rank-m 3 ms at batch 1; the second waits for the first to leave embed-s.
    assert_eq!(rows[1], "0,0.000000,7.000000,7.000000,ok,,,0.8924");
    assert_eq!(rows[2], "1,1.000000,11.000000,10.000000,ok,,,0.8924");
    assert_eq!(rows[3], "2,500.500000,507.500000,7.000000,ok,,,0.8924");
    let table = apportion(&["simulate", &problem, &plan, "--trace", &trace, "--queueing", "central"]);
    assert_eq!(code(&table), 0, "{}", stderr(&table));
    assert!(stdout(&table).contains("attainment"), "{}", stdout(&table));
    let unknown = hand_made(1).replace("embed-s", "embed-xxl");
    assert_refused(&["simulate", &problem, &folder.file("unknown.json", &unknown)], "embed-xxl");
}

#[test]
fn a_plan_is_found_written_checked_and_replayed() {
    let folder = Folder::new();
    for name in ["chain.json", "traffic.yaml"] {
        let problem = example(name);
        let out = folder.path("plan.json");
        let planned = apportion(&["plan", &problem, "--format", "json", "--out", &out]);
        assert_eq!(code(&planned), 0, "{name}: {}", stderr(&planned));
        let file: Value = serde_json::from_str(stdout(&planned)).expect("only JSON");
        assert_eq!(file["status"], json!("optimal"), "{name}");
        assert_eq!(stdout(&planned), std::fs::read_to_string(&out).expect("written"));
        let checked = apportion(&["check", &problem, &out]);
        assert_eq!((code(&checked), stdout(&checked)), (0, ""), "{name}");
        let replayed = apportion(&["simulate", &problem, &out, "--format", "json"]);
        assert_eq!(code(&replayed), 0, "{name}: {}", stderr(&replayed));
        let estimate: Value = serde_json::from_str(stdout(&replayed)).expect("only JSON");
        let attainment = |of: &Value| of["attainment"].as_f64().expect("a share");
        assert_eq!(file["estimate"]["judged_on"], Value::Null, "{name}: without a trace nothing is promised");
        assert_eq!(attainment(&estimate), attainment(&file["estimate"]), "{name}: the same load of one minute");
        let table = apportion(&["plan", &problem]);
        assert!(stdout(&table).contains("status      optimal"), "{}", stdout(&table));
        assert_eq!(stderr(&table), "", "no progress in a pipe");
        let warnings = file["planner"]["warnings"].as_array().expect("sentences");
        assert!(warnings.iter().any(|w| w.as_str().is_some_and(|w| w.contains("network_ms is 0"))), "{name}: {warnings:?}");
        assert!(stdout(&table).contains("\nwarning     pipeline "), "{}", stdout(&table));
    }
}

#[test]
fn a_plan_on_medians_says_so() {
    let folder = Folder::new();
    let text = std::fs::read_to_string(example("chain.json")).expect("the example");
    // the percentile of the first row alone
    let (row, with_p99) = (r#""latency_ms": 22.0}"#, r#""latency_ms": 22.0, "p99_ms": 30.0}"#);
    assert!(text.contains(row), "{text}");
    let problem = folder.file("p99.json", &text.replacen(row, with_p99, 1));
    let warnings = |arguments: &[&str]| {
        let planned = apportion(&[&["plan", &problem, "--format", "json"][..], arguments].concat());
        assert_eq!(code(&planned), 0, "{}", stderr(&planned));
        let file: Value = serde_json::from_str(stdout(&planned)).expect("only JSON");
        file["planner"]["warnings"].to_string()
    };
    assert!(warnings(&["--service", "median"]).contains("planned on medians"));
    for arguments in [&[][..], &["--service", "p99-matched"]] {
        assert!(!warnings(arguments).contains("planned on medians"), "{arguments:?}");
    }
}

#[test]
fn an_infeasible_problem_ends_with_3() {
    let folder = Folder::new();
    let problem = std::fs::read_to_string(example("chain.json")).expect("the example");
    let tight = folder.file("tight.json", &problem.replace("\"slo_ms\": 200", "\"slo_ms\": 5"));
    let planned = apportion(&["plan", &tight, "--format", "json"]);
    assert_eq!(code(&planned), 3, "{}", stderr(&planned));
    let file: Value = serde_json::from_str(stdout(&planned)).expect("only JSON");
    assert_eq!((&file["status"], &file["pipelines"]), (&json!("infeasible"), &json!([])));
    let shortfall = &file["explanation"]["shortfalls"][0];
    assert_eq!(shortfall["constraint"], json!("latency"), "{shortfall}");
    let out = folder.file("none.json", stdout(&planned));
    assert_refused(&["check", &tight, &out], "/status: \"infeasible\"");
}

#[test]
fn a_time_limit_covers_the_replay_of_a_million_children() {
    let folder = Folder::new();
    let problem = std::fs::read_to_string(example("traffic.yaml")).expect("the example");
    let fanouts = ["fanout: 2.4", "fanout: 3.0"];
    for (n, fanout) in fanouts.into_iter().enumerate() {
        assert!(problem.contains(fanout), "{fanout}");
        let file = folder.file(&format!("million-{n}.yaml"), &problem.replacen(fanout, "fanout: 1000000", 1));
        let begun = std::time::Instant::now();
        let output = apportion(&["plan", &file, "--time-limit", "1s", "--format", "json"]);
        // some thirty times the limit, for machines that are busy with other work
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
        let file: Value = serde_json::from_str(stdout(&output)).expect("only JSON");
        let stopped = &file["planner"]["stopped"];
        let seen = format!("{} {stopped} {}", file["status"], file["explanation"]["left_out"]);
        assert!(code(&output) == 0 || file["status"] == "infeasible", "{seen}");
        let is_cut = file["estimate"].is_null();
        assert!(!is_cut || stopped == "time_limit" || stopped == "replay_too_large" || code(&output) == 3, "{seen}");
    }
}

#[test]
fn a_file_that_nests_too_deep_is_refused_at_its_place() {
    let folder = Folder::new();
    let deep = |name: &str| folder.file(name, &format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)));
    let expected = "another list or object inside: expected at most 64 lists and objects in each other";
    assert_refused(&["plan", &deep("deep.yaml")], &format!("deep.yaml: line 1 column 65: {expected}"));
    assert_refused(&["plan", &deep("deep.json")], expected);
}
