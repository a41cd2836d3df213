//! `apportion deploy` and `apportion status` with a service and agents: a second pipeline leaves the first as it is.

use apportion_tests::backend::Backend;
use apportion_tests::cluster::Cluster;
use apportion_tests::{digits, programs};
use serde_json::{Value, json};
use std::process::Output;

/// Runs `apportion` with the service's address, without holding up the test's own tasks.
async fn apportion(cluster: &Cluster, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(programs().join("apportion"));
    command.args(arguments).args(["--server", &cluster.service()]);
    tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("the program runs")
}

/// Exit code, stdout and stderr.
fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("an exit code"), text(&output.stdout), text(&output.stderr))
}

async fn register(cluster: &Cluster, name: &str, digest: &str) {
    let variants = [("read-s", digest, 0.9)];
    cluster.register(&digits::pipeline(name, &variants, &json!({})), &digits::profile(name, &variants)).await;
}

async fn status(cluster: &Cluster) -> (i32, Value) {
    let (code, out, err) = told(&apportion(cluster, &["status", "--format", "json"]).await);
    (code, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_deployed_beside_the_others() {
    let cluster = Cluster::start(1, 3).await;
    let (code, out, err) = told(&apportion(&cluster, &["status"]).await);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("target 0, 1 live agents") && out.contains("nothing is deployed"), "{out}");
    let digest = cluster.upload(digits::model("read-s.onnx")).await;
    register(&cluster, "one", &digest).await;
    register(&cluster, "two", &digest).await;

    let (code, out, err) = told(&apportion(&cluster, &["deploy", "one", "--qps", "5"]).await);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("status      optimal") && err.contains("one: target 1, answers at http://"), "{out}{err}");
    let (code, out, err) = told(&apportion(&cluster, &["deploy", "two", "--qps", "5"]).await);
    assert_eq!(code, 0, "{out}{err}");
    cluster.ready("one").await;
    let before = cluster.get("/v1/target").await;
    assert_eq!(before["plans"].as_array().map(Vec::len), Some(2), "{before:#}");

    // Again, for more load: its own plan is replaced, and the other one stays.
    let (code, out, err) = told(&apportion(&cluster, &["deploy", "two", "--qps", "7"]).await);
    assert_eq!(code, 0, "{out}{err}");
    let after = cluster.get("/v1/target").await;
    assert_eq!((&after["plans"][0], after["plans"].as_array().map(Vec::len)), (&before["plans"][0], Some(2)), "{after:#}");
    let (code, now) = status(&cluster).await;
    assert_eq!((code, &now["generation"], &now["live_agents"]), (0, &json!(3), &json!(1)), "{now:#}");
    let pipelines = now["pipelines"].as_array().expect("pipelines");
    let shown: Vec<_> = pipelines.iter().map(|p| (&p["pipeline"], &p["planned_qps"], &p["promise"])).collect();
    assert_eq!(shown, [(&json!("one"), &json!(5.0), &json!("idle")), (&json!("two"), &json!(7.0), &json!("idle"))]);
    assert!(pipelines.iter().all(|p| p["ready"] == p["replicas"] && p["ready"] != 0), "{now:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deployed_changes_nothing() {
    let cluster = Cluster::start(1, 1).await;
    let digest = cluster.upload(digits::model("read-s.onnx")).await;
    register(&cluster, "one", &digest).await;
    let (code, out, _) = told(&apportion(&cluster, &["deploy", "one", "--qps", "100000"]).await);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("infeasible"), "{out}");
    let (code, _, err) = told(&apportion(&cluster, &["deploy", "other", "--qps", "5"]).await);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("/v1/pipelines/other: not found"), "{err}");
    assert_eq!(cluster.get("/v1/target").await["generation"], json!(0));
    // All devices are the first pipeline's.
    let (code, out, err) = told(&apportion(&cluster, &["deploy", "one", "--qps", "5"]).await);
    assert_eq!(code, 0, "{out}{err}");
    register(&cluster, "two", &digest).await;
    let (code, out, err) = told(&apportion(&cluster, &["deploy", "two", "--qps", "5"]).await);
    assert_eq!(code, 3, "{out}{err}");
    assert_eq!(cluster.get("/v1/target").await["generation"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continuous_task_is_not_registered_before_another_server() {
    let cluster = Cluster::start_with(2, 1, Backend::Remote).await;
    let digest = cluster.upload(digits::model("read-s.onnx")).await;
    let mut pipeline = digits::pipeline("one", &[("read-s", digest.as_str(), 0.9)], &json!({}));
    pipeline["tasks"][0]["kind"] = json!("continuous");
    let url = format!("{}/v1/pipelines/one", cluster.service());
    let answer = reqwest::Client::new().put(url).json(&pipeline).send().await.expect("an answer");
    assert_eq!(answer.status(), 422);
    let refusal = answer.text().await.expect("a body");
    assert!(refusal.contains("/tasks/0/kind") && refusal.contains("--backend remote"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_fails_on_every_device_ends_the_wait() {
    let cluster = Cluster::start_with(2, 1, Backend::Onnx).await;
    let digest = cluster.upload(b"no variant".to_vec()).await;
    register(&cluster, "one", &digest).await;
    let (code, out, err) = told(&apportion(&cluster, &["deploy", "one", "--qps", "5", "--wait", "10m"]).await);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("one cannot answer\n  agent ") && err.contains("cannot load read/read-s: "), "{err}");
}
