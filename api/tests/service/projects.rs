//! Projects: quotas in targets and rounds, priorities, and what is deployed as the starting point.

use crate::support::agent::{Agent, attach, fleet, register};
use crate::support::plans::{store_document, store_plan};
use crate::support::{Service, service, spec};
use apportion_protocol::v1;
use serde_json::{Value, json};

/// A pipeline of one task. A device serves 100 queries per second with the variant of 10 ms, and 50 with the other one.
async fn one_task(s: &Service, name: &str, replan: &Value, load_ms: f64) {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let variant = |name: &str, byte: &str| json!({"name": name, "model_digest": byte.repeat(32)});
    let task = json!({
        "name": "read", "inputs": tensor("image"), "outputs": tensor("label"),
        "variants": [variant("read-s", "aa"), variant("read-l", "bb")],
    });
    let pipeline = json!({"name": name, "slo_ms": 400.0, "tasks": [task], "replan": replan});
    let (status, answer) = s.put(&format!("/v1/pipelines/{name}"), &pipeline).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    let row = |variant: &str, latency_ms: f64| json!({"task": "read", "variant": variant, "hardware": "demo", "batch": 1, "latency_ms": latency_ms});
    let measured = |variant: &str, accuracy: f64| json!({"task": "read", "variant": variant, "accuracy": accuracy, "load_ms": load_ms});
    let profiles = json!({
        "rows": [row("read-s", 10.0), row("read-l", 20.0)],
        "variants": [measured("read-s", 0.90), measured("read-l", 0.91)],
    });
    assert_eq!(s.put(&format!("/v1/pipelines/{name}/profiles"), &profiles).await.0, 200);
}

/// Settings with this demand, of a pipeline of this project.
fn replan(project: &str, qps: f64, mode: &str) -> Value {
    let objective = json!({"mode": mode});
    json!({"mode": "apply", "period_s": 1.0, "headroom": 1.0, "min_qps": qps, "project": project, "objective": objective})
}

/// An agent with this many devices.
async fn devices(s: &Service, count: u32) -> Agent {
    let mut agent = attach(s, v1::Register { devices: count, ..register(s, "a") }).await;
    agent.welcome().await;
    agent.report();
    agent
}

async fn put_project(s: &Service, name: &str, project: &Value) {
    let (status, answer) = s.put(&format!("/v1/projects/{name}"), project).await;
    assert!([200, 201].contains(&status), "{answer:#}");
}

/// The replicas of a pipeline in a target.
fn replicas(target: &Value, pipeline: &str) -> usize {
    let list = |name: &str| target["placement"][name].as_array().cloned().unwrap_or_default();
    let groups: Vec<Value> = list("groups").into_iter().filter(|group| group["pipeline"] == pipeline).collect();
    list("replicas").iter().filter(|replica| groups.iter().any(|group| group["id"] == replica["group"])).count()
}

/// The first decision about a pipeline whose reason contains this text.
async fn decision(s: &Service, pipeline: &str, text: &str) -> Value {
    let path = format!("/v1/decisions?pipeline={pipeline}");
    let says = |d: &&Value| d["reason"].as_str().is_some_and(|reason| reason.contains(text));
    s.until(&path, |all| all.as_array()?.iter().find(says).cloned()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_are_written_read_and_deleted() {
    let s = service().await;
    let project = json!({"priority": 5, "quota": {"hardware": {"t4": 4}, "devices": 6, "cost_per_hour": 12.5}});
    assert_eq!(s.put("/v1/projects/team-a", &project).await.0, 201);
    assert_eq!(s.put("/v1/projects/team-a", &project).await.0, 200);
    let (status, document) = s.get("/v1/projects/team-a").await;
    assert_eq!((status, &document["quota"], &document["priority"]), (200, &project["quota"], &json!(5)), "{document:#}");
    assert_eq!(s.put("/v1/projects/team-a", &document).await.0, 200, "what was read can be written");
    for (refused, pointer) in [
        (json!({"priority": 1001}), "/priority"),
        (json!({"quota": {"devices": 2_000_000}}), "/quota/devices"),
        (json!({"quota": {"cost_per_hour": -1.0}}), "/quota/cost_per_hour"),
        (json!({"quota": {"hardware": {"t4": 2_000_000}}}), "/quota/hardware/t4"),
        (json!({"name": "team-b"}), "/name"),
    ] {
        let (status, refusal) = s.put("/v1/projects/team-a", &refused).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{refusal:#}");
    }

    let mut pipeline = spec();
    pipeline["replan"] = json!({"project": "team-b"});
    let (status, refusal) = s.put("/v1/pipelines/digits", &pipeline).await;
    assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/replan/project")), "{refusal:#}");
    pipeline["replan"] = json!({"project": "team-a", "priority": 3});
    assert_eq!(s.put("/v1/pipelines/digits", &pipeline).await.0, 201);
    let (status, refusal) = s.delete("/v1/projects/team-a").await;
    assert_eq!(status, 409, "{refusal:#}");
    pipeline["replan"] = json!({"project": "default"});
    assert_eq!(s.put("/v1/pipelines/digits", &pipeline).await.0, 200, "it needs no registration");
    assert_eq!(s.delete("/v1/projects/team-a").await.0, 204);
    assert_eq!(s.get("/v1/projects/team-a").await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_over_a_quota_is_refused() {
    let (s, _agents) = fleet().await;
    put_project(&s, "team-a", &json!({"quota": {"hardware": {"demo": 3}}})).await;
    let mut pipeline = spec();
    pipeline["replan"] = json!({"project": "team-a"});
    assert_eq!(s.put("/v1/pipelines/digits", &pipeline).await.0, 200);
    let (three, four) = (store_plan(&s, 2).await, store_plan(&s, 3).await);

    let dry = s.client.put(format!("{}/v1/target?dry_run=true", s.base)).header("if-match", "\"0\"");
    let dry = dry.json(&json!({"plans": [four]})).send().await.expect("an answer");
    assert_eq!(dry.status().as_u16(), 409);
    let (status, refusal) = s.put_target(0, &json!([four])).await;
    let detail = "project team-a may have 3 demo, its pipelines need 4";
    assert_eq!((status, refusal["detail"].as_str()), (409, Some(detail)), "{refusal:#}");
    assert_eq!(s.put_target(0, &json!([three])).await.0, 200);

    put_project(&s, "team-a", &json!({"quota": {"devices": 4}})).await;
    assert_eq!(s.put_target(1, &json!([four])).await.0, 200);
    // With a smaller quota the excess that is in force may become smaller, and not larger again.
    put_project(&s, "team-a", &json!({"quota": {"cost_per_hour": 2.0}})).await;
    assert_eq!(s.put_target(2, &json!([three])).await.0, 200);
    let (status, refusal) = s.put_target(3, &json!([four])).await;
    let detail = "project team-a may cost 2.0000 per hour, its pipelines need 4.0000";
    assert_eq!((status, refusal["detail"].as_str()), (409, Some(detail)), "{refusal:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_keeps_to_the_quota_of_a_project() {
    let s = service().await;
    let _agent = devices(&s, 12).await;
    put_project(&s, "team-a", &json!({"quota": {"hardware": {"demo": 3}}})).await;
    for name in ["a", "b"] {
        one_task(&s, name, &replan("team-a", 250.0, "min_cost"), 50.0).await;
    }
    one_task(&s, "c", &replan("default", 150.0, "min_cost"), 50.0).await;
    let limited = decision(&s, "a", "project team-a may have 3 demo").await;
    assert!(limited["reason"].as_str().is_some_and(|r| r.contains("its pipelines need 6")), "{limited:#}");
    let target = s
        .until("/v1/target", |target| ["a", "b", "c"].iter().all(|p| replicas(target, p) > 0).then(|| target.clone()))
        .await;
    assert!(replicas(&target, "a") + replicas(&target, "b") <= 3, "{target:#}");
    assert!(replicas(&target, "c") >= 2, "what a quota leaves is for others: {target:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_priority_has_its_demand_first() {
    let s = service().await;
    put_project(&s, "first", &json!({"priority": 10})).await;
    for (name, project) in [("low", "default"), ("high", "first")] {
        one_task(&s, name, &replan(project, 250.0, "min_cost"), 50.0).await;
    }
    let _agent = devices(&s, 5).await;
    let yields = decision(&s, "low", "went first, by priority").await;
    assert!(yields["reason"].as_str().is_some_and(|reason| reason.contains("high")), "{yields:#}");
    // The alternative follows the plans.
    let of_yielding = |d: &&Value| d["reason"].as_str().is_some_and(|reason| reason.contains("went first, by priority"));
    let devices_alone = |d: &Value| d["alternative"]["devices"]["demo"].as_u64();
    let first = |all: &Value| all.as_array()?.iter().filter(of_yielding).find_map(devices_alone);
    let alone = s.until("/v1/decisions?pipeline=low", first).await;
    assert!(alone >= 3, "alone it would have its demand: {alone} devices");
    let served = |d: &Value| d["decision"] == "applied" && d["demand_qps"].as_f64() == Some(250.0);
    s.until("/v1/decisions?pipeline=high", |all| all.as_array()?.iter().any(served).then_some(())).await;
    let has_both = |target: &Value| replicas(target, "high") > 0;
    let target = s.until("/v1/target", |target| has_both(target).then(|| target.clone())).await;
    assert!(replicas(&target, "high") > replicas(&target, "low"), "{target:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_stay_where_another_division_gains_little() {
    let s = service().await;
    let off = json!({"mode": "off"});
    for name in ["a", "b"] {
        one_task(&s, name, &off, 30_000.0).await;
    }
    let _agent = devices(&s, 8).await;
    let group = json!({"task": "read", "variant": "read-s", "hardware": "demo", "batch": 1, "replicas": 4});
    let part = |name: &str| json!({"name": name, "accuracy": 0.9, "assignments": [group]});
    let plan = store_document(&s, &json!({"version": 1, "pipelines": [part("a"), part("b")]})).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    // With six devices for `a` and two for `b`, all queries would have the better variant: 0.01 more, and eight loads.
    for (name, qps) in [("a", 300.0), ("b", 90.0)] {
        one_task(&s, name, &replan("default", qps, "max_accuracy"), 30_000.0).await;
    }
    for name in ["a", "b"] {
        let kept = decision(&s, name, "it has 4 of 8 demo").await;
        assert_eq!(kept["decision"], "kept", "{kept:#}");
    }
    assert_eq!(s.get("/v1/target").await.1["plans"], json!([plan]));
    s.running.stop().await;
}
