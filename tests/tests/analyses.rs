//! `apportion simulate`, `frontier` and `compare` with `--server` print what they print without it.

use apportion_tests::cluster::Cluster;
use apportion_tests::{printed, root};
use serde_json::Value;

fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_prints_the_frontier_of_this_machine() {
    let cluster = Cluster::serve_with(&[]).await;
    let server = cluster.service();
    let problem = example("chain.json");
    for format in ["json", "table", "csv"] {
        let here = ["frontier", &problem, "--sweep", "slo", "--points", "6", "--format", format];
        let there = [&here[..], &["--server", &server]].concat();
        assert_eq!(printed(&there).await, printed(&here).await, "{format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_prints_the_simulation_of_this_machine() {
    let cluster = Cluster::serve_with(&[]).await;
    let server = cluster.service();
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.json").display().to_string();
    let (problem, trace) = (example("traffic.yaml"), example("step.csv"));
    printed(&["plan", &problem, "--out", &plan]).await;
    let series = ["--format", "json", "--autoscaler", "tuner", "--series", "20"];
    for more in [&["--format", "json"][..], &["--autoscaler", "tuner"], &["--policy", "none", "--seed", "5"], &series] {
        let here = [&["simulate", &problem, &plan, "--trace", &trace][..], more].concat();
        let there = [&here[..], &["--server", &server]].concat();
        assert_eq!(printed(&there).await, printed(&here).await, "{more:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_prints_the_comparison_of_this_machine() {
    let cluster = Cluster::serve_with(&[]).await;
    let server = cluster.service();
    let (problem, trace) = (example("traffic.yaml"), example("step.csv"));
    let here = ["compare", &problem, "--trace", &trace, "--planner", "hardware-only,proteus,cg-peak", "--format", "json"];
    let there = [&here[..], &["--server", &server]].concat();
    let read = |text: String| {
        let mut document: Value = serde_json::from_str(&text).expect("JSON");
        // The only figure that depends on the machine's load.
        for planner in document["planners"].as_array_mut().expect("planners") {
            assert!(planner["seconds"].take().is_number());
        }
        document
    };
    let (there, here) = (read(printed(&there).await), read(printed(&here).await));
    assert_eq!(there, here);
    assert_eq!(there["planners"].as_array().map(Vec::len), Some(3));
}
