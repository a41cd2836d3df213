//! Broken problem and plan files, with the messages that their authors get.

use apportion_wire::{read_pipeline_spec, read_plan, read_problem};
use serde_json::{Value, json};

fn row(hardware: &str, batch: u32) -> Value {
    json!({"hardware": hardware, "batch": batch, "latency_ms": 10.0})
}

fn problem() -> Value {
    let task = |name: &str| {
        let variants = json!([{"name": "v", "accuracy": 0.9, "profile": [row("h", 1), row("h", 2)]}]);
        json!({"name": name, "variants": variants})
    };
    json!({
        "version": 1,
        "objective": {"mode": "min_cost"},
        "hardware": [{"name": "h", "price_per_hour": 1.0, "count": 4}],
        "pipelines": [{
            "name": "p", "demand_qps": 10.0, "slo_ms": 100,
            "tasks": [task("a"), task("b")],
            "edges": [{"from": "a", "to": "b"}],
        }],
    })
}

/// The problem with the value at `pointer` replaced or added.
fn with(pointer: &str, value: Value) -> Value {
    let mut tree = problem();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match tree.pointer_mut(parent).expect("a place") {
        Value::Object(keys) => {
            keys.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        other => panic!("{other} has no {key}"),
    }
    tree
}

/// The problem without the value at `pointer`.
fn without(pointer: &str) -> Value {
    let mut tree = problem();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let removed = tree.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").remove(key);
    assert!(removed.is_some(), "{pointer} was there");
    tree
}

const P: &str = "/pipelines/0";
const V: &str = "/pipelines/0/tasks/0/variants/0";

#[test]
fn the_untouched_problem_is_read() {
    read_problem("f.json", &problem().to_string()).expect("valid");
}

fn refused(cases: &[(Value, &str)]) {
    for (tree, expected) in cases {
        let found = read_problem("f.json", &tree.to_string()).expect_err(expected).to_string();
        assert!(found.lines().any(|l| l.starts_with(&format!("f.json: {expected}"))), "found {found}\nnot {expected}");
    }
}

#[test]
fn graphs_that_are_no_tree_of_tasks_are_refused() {
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    refused(&[
        (with("/pipelines/0/edges/-", edge("b", "a")), "/pipelines/0/edges: a cycle through or before \"a\", \"b\""),
        (with("/pipelines/0/edges", json!([])), "/pipelines/0/tasks: 2 roots (\"a\", \"b\"): expected one task without"),
        (
            with("/pipelines/0/edges/0", edge("a", "bb")),
            "/pipelines/0/edges/0/to: unknown task \"bb\": expected the task \"b\"",
        ),
        (with("/pipelines/0/edges/-", edge("a", "b")), "/pipelines/0/edges/1: \"a\" to \"b\": expected each pair"),
        (with("/pipelines/0/tasks", json!([])), "/pipelines/0/tasks: 0 tasks: expected 1 to 256 tasks"),
        (with("/pipelines/0/tasks/0/name", json!("b")), "/pipelines/0/tasks/1/name: \"b\": expected a name that no other"),
    ]);
}

#[test]
fn values_out_of_range_are_refused() {
    refused(&[
        (with("/hardware/0/price_per_hour", json!(-1)), "/hardware/0/price_per_hour: -1: expected a price of at least 0"),
        (with(&format!("{P}/slo_ms"), json!(0)), "/pipelines/0/slo_ms: 0: expected a number above 0"),
        (with(&format!("{P}/slo_ms"), json!(1e13)), "/pipelines/0/slo_ms: 10000000000000: expected a number above 0"),
        (with(&format!("{P}/percentile"), json!(100)), "/pipelines/0/percentile: 100: expected a number between"),
        (with(&format!("{P}/queue_factor"), json!(0.5)), "/pipelines/0/queue_factor: 0.5: expected a number of at least 1"),
        (with(&format!("{P}/ingress_ms"), json!(-1)), "/pipelines/0/ingress_ms: -1: expected a number of at least 0"),
        (
            with(&format!("{P}/network_ms_per_mib"), json!(3e6)),
            "/pipelines/0/network_ms_per_mib: 3000000: expected a number of at least 0, at most 2e6",
        ),
        (
            with(&format!("{P}/ingress_kib_per_query"), json!(1_048_577)),
            "/pipelines/0/ingress_kib_per_query: 1048577: expected a size of at least 0 KiB, at most 1048576 KiB",
        ),
        (
            with(&format!("{P}/edges/0/kib_per_query"), json!(-1)),
            "/pipelines/0/edges/0/kib_per_query: -1: expected a size of at least 0 KiB",
        ),
        (with(&format!("{P}/demand_qps"), json!(-1)), "/pipelines/0/demand_qps: -1: expected a number of at least 0"),
        (with(&format!("{V}/accuracy"), json!(1.5)), &format!("{V}/accuracy: 1.5: expected an accuracy from 0 to 1")),
        (with(&format!("{V}/profile"), json!([])), &format!("{V}/profile: 0 rows: expected 1 to")),
        (
            with(&format!("{V}/profile/-"), row("h", 2)),
            &format!("{V}/profile: h batch 2 share 1: expected one row for each hardware, batch and share"),
        ),
        (
            with(&format!("{V}/profile/1"), row("hh", 2)),
            &format!("{V}/profile/1/hardware: unknown hardware type \"hh\": expected the hardware type \"h\""),
        ),
        (with(&format!("{V}/profile/0/batch"), json!(0)), &format!("{V}/profile: h batch 0 share 1: expected a batch")),
        (
            with(&format!("{V}/profile/0/share"), json!(0.3)),
            &format!("{V}/profile/0/share: 0.3: expected a share of 1, 0.5, 0.25 or 0.125"),
        ),
        (with("/version", json!(2)), "/version: 2: expected 1"),
        (
            with(&format!("{V}/fanout_counts"), json!({"b": {"0": 0.5, "2": 0.4}})),
            &format!("{V}/fanout_counts/b: a sum of 0.9: expected probabilities"),
        ),
    ]);
}

#[test]
fn keys_words_and_types_are_refused_at_their_place() {
    refused(&[
        (with("/hardwear", json!([])), "/hardwear: unknown key \"hardwear\": expected the key \"hardware\""),
        (with(&format!("{P}/slo"), json!(1)), "/pipelines/0/slo: unknown key \"slo\": expected the key \"slo_ms\""),
        (
            with(&format!("{V}/profile/0/latency"), json!(1)),
            &format!("{V}/profile/0/latency: unknown key \"latency\": expected the key \"latency_ms\""),
        ),
        (without("/pipelines/0/slo_ms"), "/pipelines/0/slo_ms: missing: expected a number"),
        (without(&format!("{V}/profile")), &format!("{V}/profile: missing: expected a list")),
        (with(&format!("{P}/demand_qps"), json!("10")), "/pipelines/0/demand_qps: \"10\": expected a number"),
        (with(&format!("{P}/tasks"), json!({"a": 1})), "/pipelines/0/tasks: an object of 1 keys: expected a list"),
        (with(&format!("{P}/survive"), json!(-1)), "/pipelines/0/survive: -1: expected a whole number"),
        (with("/hardware/0/count", json!(1.5)), "/hardware/0/count: 1.5: expected a whole number"),
        (with("/objective/mode", json!("min_costs")), "/objective/mode: \"min_costs\": expected \"min_cost\""),
        (
            with("/objective/latency_rule", json!("fast")),
            "/objective/latency_rule: \"fast\": expected one of \"task_budget\", \"path\"",
        ),
        (
            with(&format!("{P}/serving"), json!({"dropping": "pards"})),
            "/pipelines/0/serving/dropping: \"pards\": expected \"pard",
        ),
        (
            with(&format!("{P}/path_accuracy"), json!({"a:v>b:w": 1.0})),
            "/pipelines/0/path_accuracy/a:v>b:w: unknown variant \"w\": expected the variant \"v\"",
        ),
        (
            with(&format!("{P}/path_accuracy"), json!({"b:v": 1.0})),
            "/pipelines/0/path_accuracy/b:v: b:v: expected a path of edges that starts at the root",
        ),
        (with(&format!("{P}/path_accuracy"), json!({"a": 1.0})), "/pipelines/0/path_accuracy/a: \"a\": expected stages"),
        (
            with(&format!("{V}/fanout_to"), json!({"c": 1})),
            &format!("{V}/fanout_to/c: unknown task \"c\": expected one of the tasks \"a\", \"b\""),
        ),
        (
            with(&format!("{V}/fanout_counts"), json!({"b": {"x": 1}})),
            &format!("{V}/fanout_counts/b/x: \"x\": expected a whole number"),
        ),
        (
            with(
                "/deployed",
                json!([{"pipeline": "p", "task": "a", "variant": "w", "hardware": "h", "batch": 1, "replicas": 1}]),
            ),
            "/deployed/0/variant: unknown variant \"w\": expected the variant \"v\"",
        ),
    ]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let mut tree = with(&format!("{P}/slo"), json!(1));
    tree["objective"]["mode"] = json!("cheap");
    tree["hardware"][0]["count"] = json!("many");
    let found = read_problem("f.json", &tree.to_string()).expect_err("three errors");
    assert_eq!(found.problems.len(), 3, "{found}");
}

#[test]
fn ten_thousand_tasks_are_one_error() {
    let mut tree = problem();
    let task = tree["pipelines"][0]["tasks"][0].clone();
    let named = |i: usize| {
        let mut task = task.clone();
        task["name"] = json!(format!("t{i}"));
        task
    };
    tree["pipelines"][0]["tasks"] = (0..10_000).map(named).collect();
    tree["pipelines"][0]["edges"] = (1..10_000).map(|i| json!({"from": "t0", "to": format!("t{i}")})).collect();
    let found = read_problem("f.json", &tree.to_string()).expect_err("too many").to_string();
    assert_eq!(found, "f.json: /pipelines/0/tasks: 10000 tasks: expected 1 to 256 tasks");
}

#[test]
fn not_a_number_is_refused_in_yaml() {
    let yaml = "version: 1\nobjective: {mode: min_cost}\nhardware:\n  - {name: h, price_per_hour: .nan}\npipelines: []\n";
    let found = read_problem("f.yaml", yaml).expect_err("NaN").to_string();
    assert_eq!(found, "f.yaml: /hardware/0/price_per_hour: NaN: expected a finite number");
}

#[test]
fn plans_are_refused_at_their_place() {
    let plan = |pipelines: Value| json!({"version": 1, "pipelines": pipelines});
    let group = |share: f64, batch: u32, replicas: u32| json!({"task": "a", "variant": "v", "hardware": "h", "share": share, "batch": batch, "replicas": replicas});
    let one = |a: Value| plan(json!([{"name": "p", "assignments": [a]}]));
    let at = "/pipelines/0/assignments/0";
    let cases = [
        (json!({"version": 1}), "/pipelines: missing: expected a list".to_owned()),
        (json!({"version": 3, "pipelines": []}), "/version: 3: expected 1".to_owned()),
        (one(group(0.3, 1, 1)), format!("{at}/share: 0.3: expected a share")),
        (one(group(1.0, 0, 1)), format!("{at}/batch: 0: expected a batch")),
        (one(group(1.0, 1, 0)), format!("{at}/replicas: 0: expected at least 1 replica")),
        (one(json!({"task": "a"})), format!("{at}/variant: missing: expected text")),
        (
            plan(json!([{"name": "p", "assignments": [group(1.0, 1, 1), group(1.0, 2, 1)]}])),
            "/pipelines/0/assignments/1: a/v/h: expected each group once".to_owned(),
        ),
        (
            plan(json!([{"name": "p", "assignments": [], "flows": [{"path": [["a", "v"]], "share": 1}]}])),
            "/pipelines/0/flows/0/path/0: [\"a\",\"v\"]: expected [task, variant, hardware]".to_owned(),
        ),
        (
            json!({"version": 1, "status": "infeasible", "pipelines": []}),
            "/status: \"infeasible\": expected a plan".to_owned(),
        ),
        (
            json!({"version": 1, "pipelines": [], "estimat": null}),
            "/estimat: unknown key \"estimat\": expected the key \"estimate\"".to_owned(),
        ),
    ];
    for (tree, expected) in cases {
        let found = read_plan("f.json", &tree.to_string()).expect_err(&expected).to_string();
        assert!(found.starts_with(&format!("f.json: {expected}")), "found {found}\nnot {expected}");
    }
}

#[test]
fn a_registered_pipeline_is_checked_without_its_measurements() {
    let good = "name: p\nslo_ms: 100\ntasks:\n  - {name: a, variants: [{name: v, model: a.onnx}]}\n";
    read_pipeline_spec("f.yaml", good).expect("valid without profile and accuracy");
    let cases = [
        (format!("{good}edges: [{{from: a, to: b}}]\n"), "/edges/0/to: unknown task \"b\""),
        (format!("{good}replan: {{mode: aply}}\n"), "/replan/mode: \"aply\": expected \"apply\""),
        (format!("{good}replan: {{headroom: 0.5}}\n"), "/replan/headroom: 0.5: expected a factor"),
        (
            format!("{good}replan: {{objective: {{mode: cheapest}}}}\n"),
            "/replan/objective/mode: \"cheapest\": expected one of \"hardware_then_accuracy\", \"min_cost\", \"max_accuracy\"",
        ),
        (
            format!("{good}replan: {{objective: {{mode: max_accuracy, budget_per_hour: -1}}}}\n"),
            "/replan/objective/budget_per_hour: -1: expected a number of at least 0",
        ),
        (format!("{good}replan: {{objective: {{budget_per_hour: 1}}}}\n"), "/replan/objective/mode: missing"),
        (format!("{good}replan: {{ladder_headroom: 1.2}}\n"), "/replan/ladder_headroom: 1.2: expected `ladder` beside it"),
        (
            format!("{good}replan: {{ladder: 2, ladder_headroom: 3}}\n"),
            "/replan/ladder_headroom: 3: expected a factor from 0.1 to 2,",
        ),
        (format!("{good}replan: {{project: \"\"}}\n"), "/replan/project: \"\": expected a name of 1 to 128 characters"),
        (
            format!("{good}replan: {{priority: 1001}}\n"),
            "/replan/priority: 1001: expected a whole number from -1000 to 1000",
        ),
        (format!("{good}replan: {{on_demand: {{}}}}\n"), "/replan/on_demand: loads for requests with the mode off"),
        (
            format!("{good}replan: {{mode: apply, on_demand: {{idle_s: 0.5}}}}\n"),
            "/replan/on_demand/idle_s: 0.5: expected a number from 1 to 540",
        ),
        (
            format!("{good}replan: {{mode: apply, on_demand: {{replicas_max: 0}}}}\n"),
            "/replan/on_demand/replicas_max: 0: expected a number from 1 to 1000",
        ),
        (format!("{good}replan: {{mode: apply, on_demand: {{idle: 3}}}}\n"), "/replan/on_demand/idle: unknown key"),
        (format!("{good}validation: {{label: x}}\n"), "/validation/label: unknown key"),
        (good.replace("100", "-1"), "/slo_ms: -1: expected a number above 0"),
    ];
    for (text, expected) in cases {
        let found = read_pipeline_spec("f.yaml", &text).expect_err(expected).to_string();
        assert!(found.starts_with(&format!("f.yaml: {expected}")), "found {found}\nnot {expected}");
    }
}

#[test]
fn rules_that_judge_nothing_are_refused() {
    let with = |labels: &str, rule: &str| {
        format!(
            "name: p\nslo_ms: 100\ntasks:\n  - {{name: a, variants: [{{name: v, model: a.onnx}}]}}\n\
             validation: {{inputs: {{x: x.npy}}, {labels}match: {{{rule}}}}}\n"
        )
    };
    let labels = "labels: l.json, ";
    let good = [
        (labels, "value: y, at: p, within: 0"),
        (labels, "value: y, top: 5"),
        (labels, "mean_average_precision: {boxes: b, scores: s, classes: c, iou: 0.5}"),
        (labels, "mean_average_precision: {boxes: b, scores: s}"),
        ("", "cosine: y"),
        ("", "command: [python3, judge.py], outputs: [y], timeout_s: 5"),
    ];
    for (labels, rule) in good {
        let read = read_pipeline_spec("f.yaml", &with(labels, rule)).unwrap_or_else(|e| panic!("{rule}: {e}"));
        assert!(read.validation.is_some(), "{rule}");
    }
    let rules = "expected one of value, mean_average_precision, cosine and command";
    let cases = [
        (labels, "", format!("/match: no rule: {rules}")),
        (labels, "value: y, cosine: y", format!("/match: value, cosine: {rules}")),
        (labels, "cosine: y, top: 5", "/match/top: given: expected this key beside value only".to_owned()),
        (labels, "value: y, outputs: [y]", "/match/outputs: given: expected this key beside command only".to_owned()),
        (labels, "value: y, top: 0", "/match/top: 0: expected a whole number from 1 to 1000".to_owned()),
        (labels, "value: y, within: -1", "/match/within: -1: expected a number of at least 0".to_owned()),
        (
            labels,
            "mean_average_precision: {boxes: b, scores: s, iou: 0}",
            "/match/mean_average_precision/iou: 0: expected a number above 0, at most 1".to_owned(),
        ),
        (labels, "mean_average_precision: {boxes: b}", "/match/mean_average_precision/scores: missing".to_owned()),
        ("", "command: [judge]", "/match/outputs: missing: expected the names of the outputs".to_owned()),
        (
            "",
            "command: [judge], outputs: [y], timeout_s: 86401",
            "/match/timeout_s: 86401: expected a number above 0, at most 86400".to_owned(),
        ),
        ("", "value: y", "/labels: missing: expected a JSON or CSV file with the labels of the examples".to_owned()),
    ];
    for (labels, rule, expected) in cases {
        let found = read_pipeline_spec("f.yaml", &with(labels, rule)).expect_err(&expected).to_string();
        assert!(found.starts_with(&format!("f.yaml: /validation{expected}")), "found {found}\nnot {expected}");
    }
}

#[test]
fn settings_that_contradict_scaling_actions_are_refused() {
    let good = "name: p\nslo_ms: 100\ntasks:\n  - {name: a, variants: [{name: v, model: a.onnx}]}\n";
    let least_cost = format!("{good}replan: {{mode: apply, objective: {{mode: min_cost}}, scaling: {{lambda: 0}}}}\n");
    let read = read_pipeline_spec("f.yaml", &least_cost).expect("valid settings");
    let scaling = read.replan.and_then(|replan| replan.scaling).expect("scaling settings");
    assert_eq!((scaling.planner.as_str(), scaling.lambda), ("milp", 0.0));
    let cases = [
        (
            format!("{good}replan: {{scaling: {{planner: best}}}}\n"),
            "/replan/scaling/planner: \"best\": expected one of \"milp\", \"greedy\"",
        ),
        (
            format!("{good}replan: {{scaling: {{lambda: -1}}}}\n"),
            "/replan/scaling/lambda: -1: expected a number from 0 to 1000",
        ),
        (
            format!("{good}replan: {{ladder: 2, scaling: {{}}}}\n"),
            "/replan/ladder: 2: expected no such member beside `scaling`",
        ),
        (
            format!("{good}replan: {{ladder_headroom: 1.5, scaling: {{}}}}\n"),
            "/replan/ladder_headroom: 1.5: expected no such member beside `scaling`",
        ),
        (
            format!("{good}replan: {{objective: {{mode: max_accuracy}}, scaling: {{}}}}\n"),
            "/replan/objective/mode: \"max_accuracy\": expected \"min_cost\" beside `scaling`",
        ),
        (format!("{good}survive: 1\nreplan: {{scaling: {{}}}}\n"), "/survive: 1: expected 0 beside `replan/scaling`"),
    ];
    for (text, expected) in cases {
        let found = read_pipeline_spec("f.yaml", &text).expect_err(expected).to_string();
        assert!(found.starts_with(&format!("f.yaml: {expected}")), "found {found}\nnot {expected}");
    }
}
