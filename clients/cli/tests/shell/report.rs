//! What does `report` write, and what does it refuse?

use super::program::{Folder, assert_refused, example, printed};
use serde_json::Value;

/// The data of a report, as its page reads them.
fn data(html: &str) -> Value {
    let (_, tail) = html.split_once("id=\"result\">").expect("the data");
    let (text, _) = tail.split_once("</script>").expect("its end");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn every_kind_of_result_becomes_a_page() {
    let folder = Folder::new();
    let problem = example("chain.json");
    let (plan, requests, html) = (folder.path("plan.json"), folder.path("requests.csv"), folder.path("out.html"));
    printed(&["plan", &problem, "--out", &plan]);
    let json = |name: &str, args: &[&str]| folder.file(name, &printed(&[args, &["--format", "json"]].concat()));
    let simulation = json("simulation.json", &["simulate", &problem, &plan, "--requests", &requests]);
    let comparison = json("comparison.json", &["compare", &problem, "--planner", "milp,proteus"]);
    let frontier = json("frontier.json", &["frontier", &problem, "--sweep", "slo", "--points", "3"]);
    for (kind, args) in [
        ("plan", vec![plan.as_str(), "--problem", &problem]),
        ("simulation", vec![&simulation, "--requests", &requests]),
        ("comparison", vec![&comparison]),
        ("frontier", vec![&frontier]),
    ] {
        assert_eq!(printed(&[&["report"], args.as_slice(), &["-o", &html]].concat()), "");
        let data = data(&std::fs::read_to_string(&html).expect("written"));
        let given: Value = serde_json::from_str(&std::fs::read_to_string(args[0]).expect("read")).expect("JSON");
        assert_eq!((data["kind"].as_str(), &data["result"]), (Some(kind), &given));
        assert_eq!(data["problem"].is_null(), kind != "plan");
        if kind == "simulation" {
            assert_eq!(data["requests"]["total"], given["requests"], "the figures are of the same requests");
        }
    }
}

#[test]
fn a_wrong_result_is_refused_with_its_place() {
    let folder = Folder::new();
    let html = folder.path("out.html");
    let check = |args: &[&str], expected: &str| {
        assert_refused(&[&["report"], args, &["-o", &html]].concat(), expected);
        assert!(!std::path::Path::new(&html).exists(), "{args:?} wrote a page");
    };
    let problem = example("chain.json");
    let plan = folder.file("plan.json", r#"{"version": 1, "pipelines": []}"#);
    let simulation = folder.file("simulation.json", r#"{"requests": 1, "pipelines": []}"#);
    let requests = folder.file("requests.csv", "arrival_ms,latency_ms,outcome\n1,soon,ok\n");
    check(&[&problem], "chain.json: /hardware: a problem: expected a plan, a simulation, a comparison or a frontier");
    check(&[&folder.file("list.json", "[]")], "list.json: a list of 0: expected a plan");
    check(&[&folder.file("half.json", "{\"version\": 1,")], "half.json: line 1 column");
    check(&[&folder.path("none.json")], "none.json: cannot be read");
    check(&[&folder.file("k.json", r#"{"version": 1, "pipelines": [], "costs": 1}"#)], "/costs: unknown key \"costs\"");
    check(&[&simulation, "--problem", &problem], "--problem: beside a simulation: expected it beside a plan");
    check(&[&plan, "--requests", &requests], "--requests: beside a plan: expected it beside a simulation");
    check(&[&simulation, "--requests", &requests], "requests.csv: line 2: \"soon\": expected a time");
    assert_refused(&["report", &plan], "--out");
}

#[test]
fn a_plan_of_another_problem_is_refused() {
    let folder = Folder::new();
    let (plan, html) = (folder.path("plan.json"), folder.path("out.html"));
    printed(&["plan", &example("chain.json"), "--out", &plan]);
    assert_refused(
        &["report", &plan, "--problem", &example("photos.yaml"), "-o", &html],
        "/pipelines/0/name: \"chain\": expected the name of a pipeline",
    );
}
