//! What do `frontier` and `compare` print?

use super::program::{apportion, assert_refused, example, printed, stderr, stdout};
use serde_json::{Value, json};

#[test]
fn every_format_shows_the_same_points() {
    let problem = example("traffic.yaml");
    let args = |format: &'static str| {
        let of = ["frontier", &problem, "--sweep", "count", "--from", "1", "--to", "4", "--format", format];
        printed(&of)
    };
    let document: Value = serde_json::from_str(&args("json")).expect("only JSON");
    assert_eq!((&document["sweep"], &document["unit"], &document["of"]), (&json!("count"), &json!("count"), &json!("gpu")));
    assert_eq!(document["present"], json!(12.0));
    let points = document["points"].as_array().expect("a list");
    let values: Vec<f64> = points.iter().map(|p| p["value"].as_f64().expect("a number")).collect();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
    let csv = args("csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows[0][..6], ["count", "status", "step", "cost_per_hour", "accuracy", "replicas"]);
    assert_eq!(rows.len(), 5);
    let table = args("table");
    assert_eq!(table.lines().count(), 5);
    for ((point, row), line) in points.iter().zip(&rows[1..]).zip(table.lines().skip(1)) {
        assert_eq!(point["status"], json!(row[1]));
        assert!(line.contains(row[1]), "{line}");
        let cost = point["cost_per_hour"].as_f64().map_or_else(String::new, |c| c.to_string());
        assert_eq!(cost, row[3]);
    }
    assert_eq!((&points[1]["status"], &points[3]["status"]), (&json!("infeasible"), &json!("optimal")));
    assert_eq!(points[1]["shortfalls"][0]["relax"], json!({"pointer": "/hardware/0/count", "from": 2.0, "to": 3.0}));
    assert_eq!(points[2]["binding"][0]["where"], json!("gpu"));
    let svg = args("svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("accuracy") && svg.contains("no plan"), "titles and the legend of what is infeasible");
}

#[test]
fn the_name_of_a_file_sets_its_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let problem = example("chain.json");
    for (name, starts) in [("f.svg", "<svg"), ("f.csv", "slo_ms,status"), ("f.json", "{"), ("f.txt", "slo_ms")] {
        let file = folder.path().join(name).display().to_string();
        let table = printed(&["frontier", &problem, "--sweep", "slo", "--points", "5", "--out", &file]);
        assert!(table.starts_with("slo_ms"), "{table}");
        let written = std::fs::read_to_string(&file).expect("written");
        assert!(written.starts_with(starts), "{name}: {written}");
        assert_eq!(written == table, name == "f.txt");
    }
}

#[test]
fn wrong_ranges_and_names_are_refused() {
    let problem = example("chain.json");
    let frontier =
        |more: &[&'static str]| [&["frontier", &problem], more].concat().iter().map(|s| (*s).to_owned()).collect();
    let check = |more: &[&'static str], expected: &str| {
        let args: Vec<String> = frontier(more);
        assert_refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    };
    check(&["--sweep", "count"], "--hardware: nothing: expected one of \"cpu\", \"gpu\"");
    check(&["--sweep", "count", "--hardware", "tpu"], "--hardware: \"tpu\": expected one of \"cpu\", \"gpu\"");
    check(&["--sweep", "slo", "--hardware", "gpu"], "it goes with sweep count");
    check(&["--sweep", "budget", "--pipeline", "chain"], "it goes with sweep demand or slo");
    check(&["--sweep", "demand", "--pipeline", "train"], "--pipeline: \"train\": expected one of \"chain\"");
    check(&["--sweep", "slo", "--from", "9", "--to", "3"], "--to: 3: expected at least 9");
    check(&["--sweep", "slo", "--from", "0", "--to", "3"], "/pipelines/0/slo_ms: 0: expected a number above 0");
    check(&["--sweep", "slo", "--points", "0"], "1..=10000");
    check(&["--sweep", "price"], "possible values: demand, slo, budget, count");
    assert_refused(&["frontier", &problem], "--sweep");
}

#[test]
fn a_frontier_without_any_plan_ends_with_3() {
    let problem = example("chain.json");
    let all = apportion(&["frontier", &problem, "--sweep", "slo", "--from", "1", "--to", "5", "--points", "3"]);
    assert_eq!(all.status.code(), Some(3), "{}", stderr(&all));
    assert_eq!(stdout(&all).lines().count(), 4, "{}", stdout(&all));
    let folder = tempfile::tempdir().expect("a folder");
    let tight = folder.path().join("tight.json").display().to_string();
    let text = std::fs::read_to_string(&problem).expect("the example");
    std::fs::write(&tight, text.replace("\"slo_ms\": 200", "\"slo_ms\": 5")).expect("written");
    let none = apportion(&["frontier", &tight, "--sweep", "demand"]);
    assert_eq!((none.status.code(), stdout(&none)), (Some(3), ""));
    assert!(stderr(&none).contains("infeasible at every demand: latency of chain"), "{}", stderr(&none));
}

#[test]
fn planners_are_compared_on_one_trace() {
    let (problem, trace) = (example("traffic.yaml"), example("step.csv"));
    let args = ["compare", &problem, "--trace", &trace, "--planner", "milp,proteus,cg-peak", "--format", "json"];
    let document: Value = serde_json::from_str(&printed(&args)).expect("only JSON");
    let rows = document["planners"].as_array().expect("a list");
    let names: Vec<&str> = rows.iter().map(|r| r["planner"].as_str().expect("a name")).collect();
    assert_eq!(names, ["milp", "proteus", "cg-peak"]);
    for row in rows {
        assert_eq!(row["estimate"]["requests"], rows[0]["estimate"]["requests"], "{row}");
        assert!(row["cost_per_hour"].as_f64() >= rows[0]["cost_per_hour"].as_f64(), "{row}");
    }
    assert_eq!((&rows[1]["replicas"], &rows[1]["status"]), (&json!(12), &json!("feasible")), "every device");
    let table = printed(&["compare", &problem]);
    assert_eq!(table.lines().count(), 10, "a heading, seven planners, and on what they are judged: {table}");
    assert!(table.contains("every plan is judged on"), "{table}");
    assert!(table.contains("milp-unchecked"), "{table}");
    assert_refused(&["compare", &problem, "--planner", "oracle"], "possible values: milp, milp-unchecked, greedy");
}

#[test]
fn baselines_plan_by_name() {
    let problem = example("traffic.yaml");
    for planner in ["hardware-only", "proteus", "cg-mean", "cg-peak"] {
        let file: Value =
            serde_json::from_str(&printed(&["plan", &problem, "--planner", planner, "--format", "json"])).expect("JSON");
        assert_eq!((&file["planner"]["name"], &file["status"]), (&json!(planner), &json!("feasible")));
        assert_eq!((&file["objective"]["bound"], &file["planner"]["stopped"]), (&Value::Null, &Value::Null));
    }
}
