//! `apportion plan explain` and `plan diff` print what `plan` and `diff` print for the files of the same plans.

use apportion_tests::cluster::Cluster;
use apportion_tests::{printed, root};
use serde_json::{Value, json};

/// Has the service make a plan; returns its document.
async fn planned(server: &str, request: &Value) -> Value {
    let post = reqwest::Client::new().post(format!("{server}/v1/plans")).header("prefer", "wait=60").json(request);
    let document: Value = post.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(document["state"], "succeeded", "{document:#}");
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_plans_are_shown_as_their_files() {
    let cluster = Cluster::serve_with(&[]).await;
    let server = cluster.service();
    let text = std::fs::read_to_string(root().join("examples/chain.json")).expect("the example");
    let problem: Value = serde_json::from_str(&text).expect("JSON");
    let mut pipelines = problem["pipelines"].clone();
    pipelines[0]["demand_qps"] = json!(240.0);
    let first = planned(&server, &json!({"problem": problem})).await;
    let second = planned(&server, &json!({"from": first["id"], "patch": {"pipelines": pipelines}})).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, plan: &Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, plan["plan"].to_string()).expect("room");
        path.display().to_string()
    };
    let (before, after) = (file("before.json", &first), file("after.json", &second));
    let id = |plan: &Value| plan["id"].as_str().expect("an identifier").to_owned();
    let (first_id, second_id) = (id(&first), id(&second));
    for format in ["json", "table"] {
        let here = printed(&["diff", &before, &after, "--format", format]).await;
        let stored = ["plan", "diff", &second_id, "--against", &first_id, "--server", &server, "--format", format];
        assert_eq!(printed(&stored).await, here);
        assert!(here.contains("chain"), "four times the load needs more: {here}");
    }
    let explained = printed(&["plan", "explain", &first_id, "--stored", "--server", &server, "--format", "json"]).await;
    let explained: Value = serde_json::from_str(&explained).expect("JSON");
    assert_eq!(explained["explanation"]["decisions"], first["plan"]["explanation"]["decisions"]);
    let table = printed(&["plan", "explain", &first_id, "--server", &server]).await;
    assert!(table.starts_with("why\n"), "{table}");
}
