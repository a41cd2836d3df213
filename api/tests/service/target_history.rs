//! Targets: what one would change, what one has changed, and the way back. Holds.

use crate::support::agent::{Agent, attach, register};
use crate::support::plans::store_plan;
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message};
use serde_json::{Value, json};
use std::time::Duration;

/// A service with the pipeline, two agents of two devices each, and plans with one and with two replicas of the first task.
async fn fleet() -> (Service, Vec<Agent>, [String; 2]) {
    let s = service().await;
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 2.0})).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let agents = join(&s).await;
    let plans = [store_plan(&s, 1).await, store_plan(&s, 2).await];
    (s, agents, plans)
}

/// Two agents of two devices each, which report.
async fn join(s: &Service) -> Vec<Agent> {
    let mut agents = Vec::new();
    for name in ["a", "b"] {
        let mut agent = attach(s, register(s, name)).await;
        agent.welcome().await;
        agent.report();
        agents.push(agent);
    }
    agents
}

/// A request for a change of the target that replaces this generation.
async fn change(s: &Service, path: &str, generation: i64, body: &Value) -> (u16, Value) {
    let method = if path.contains("rollback") { reqwest::Method::POST } else { reqwest::Method::PUT };
    let request = s.client.request(method, format!("{}{path}", s.base)).header("if-match", format!("\"{generation}\""));
    let response = request.json(body).send().await.expect("an answer");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

fn fates(change: &Value) -> Vec<(&str, &str)> {
    let replicas = change["replicas"].as_array().expect("replicas");
    replicas.iter().map(|r| (r["task"].as_str().expect("a task"), r["fate"].as_str().expect("a fate"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_the_target_then_does() {
    let (s, _agents, [one, two]) = fleet().await;
    let (status, first) = change(&s, "/v1/target?dry_run=true", 0, &json!({"plans": [one]})).await;
    assert_eq!(status, 200, "{first:#}");
    assert_eq!(fates(&first), [("find", "loaded"), ("read", "loaded")]);
    assert_eq!((&first["cost_per_hour_before"], &first["cost_per_hour_after"]), (&json!(0.0), &json!(4.0)));
    assert_eq!(s.get("/v1/target").await.1["generation"], 0, "nothing was deployed");

    assert_eq!(s.put_target(0, &json!([one])).await.0, 200);
    let (_, dry) = change(&s, "/v1/target?dry_run=true", 1, &json!({"plans": [two]})).await;
    assert_eq!(fates(&dry), [("find", "kept"), ("find", "loaded"), ("read", "kept")]);
    let find = &dry["tasks"][0];
    assert_eq!(
        (&find["task"], &find["kept"], &find["loaded"], &find["load_s"]),
        (&json!("find"), &json!(1), &json!(1), &json!(0.05))
    );
    // find-s takes 16 ms for a batch of 2.
    assert_eq!((&find["capacity_meanwhile_qps"], &find["capacity_after_qps"]), (&json!(125.0), &json!(250.0)));

    assert_eq!(s.put_target(1, &json!([two])).await.0, 200);
    let (_, real) = s.get("/v1/target/diff?from=1").await;
    assert_eq!((&real["replicas"], &real["tasks"]), (&dry["replicas"], &dry["tasks"]), "the dry run was right");
    assert_eq!((&real["from"], &real["to"]), (&json!(1), &json!(2)));
    let (status, _) = change(&s, "/v1/target?dry_run=true", 1, &json!({"plans": [two]})).await;
    assert_eq!(status, 412, "another target is in force");
    let (_, same) = change(&s, "/v1/target?dry_run=true", 2, &json!({"plans": [two]})).await;
    assert_eq!(same["changed"], false);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_missing_devices() {
    let (s, _agents, _) = fleet().await;
    let large = store_plan(&s, 9).await;
    let (status, dry) = change(&s, "/v1/target?dry_run=true", 0, &json!({"plans": [large]})).await;
    assert_eq!(status, 200);
    let shortages = dry["shortages"].as_array().expect("shortages");
    assert!(shortages.iter().any(|s| s.as_str().is_some_and(|s| s.contains("of 9 replicas"))), "{dry:#}");
    assert_eq!(s.put_target(0, &json!([large])).await.0, 422, "the target itself is refused");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_brings_earlier_plans_and_holds_the_fleet() {
    let (s, _agents, [one, two]) = fleet().await;
    assert_eq!(s.put_target(0, &json!([one])).await.0, 200);
    assert_eq!(s.put_target(1, &json!([two])).await.0, 200);
    let (status, dry) = change(&s, "/v1/target/rollback?dry_run=true", 2, &json!({})).await;
    assert_eq!((status, &dry["plans"]), (200, &json!([one])), "{dry:#}");
    assert_eq!(s.get("/v1/holds").await.1, json!([]), "a dry run holds nothing");

    let (status, target) = change(&s, "/v1/target/rollback", 2, &json!({})).await;
    assert_eq!((status, &target["plans"], &target["generation"]), (200, &json!([one]), &json!(3)), "{target:#}");
    assert!(target["reason"].as_str().is_some_and(|r| r.contains("target 1")), "{target:#}");
    let (_, holds) = s.get("/v1/holds").await;
    assert_eq!((holds.as_array().map(Vec::len), &holds[0]["pipeline"]), (Some(1), &Value::Null), "{holds:#}");
    let (_, former) = s.get("/v1/target/history/2").await;
    assert_eq!(former["plans"], json!([two]));
    assert_eq!(s.get("/v1/target/history/9").await.0, 404);
    assert_eq!(change(&s, "/v1/target/rollback", 3, &json!({"generation": 9})).await.0, 404);
    assert_eq!(change(&s, "/v1/target/rollback", 2, &json!({"generation": 2})).await.0, 412);
    let (status, target) = change(&s, "/v1/target/rollback", 3, &json!({"generation": 2, "hold_s": 0})).await;
    assert_eq!((status, &target["plans"]), (200, &json!([two])));
    assert_eq!(s.get("/v1/holds").await.1, holds, "a longer hold stays");
    s.running.stop().await;
}

/// Reports five requests each tenth of a second.
fn load(agent: &Agent) -> tokio::task::JoinHandle<()> {
    let outbox = agent.outbox.clone();
    tokio::spawn(async move {
        for tenth in 0_u64.. {
            let part =
                v1::Arrivals { pipeline: "digits".into(), first_bin_ms: tenth * 100, bins: vec![5], ..Default::default() };
            let report = v1::Report { uptime_ms: tenth * 100, arrivals: vec![part], ..Default::default() };
            let message = v1::AgentMessage { message: Some(agent_message::Message::Report(report)) };
            if outbox.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_deploy_nothing_for_a_held_pipeline() {
    let s = service().await;
    let hold = |reason: &str| json!({"reason": reason});
    assert_eq!(s.put("/v1/pipelines/digits/hold", &hold("early")).await.0, 404, "no such pipeline");
    let (status, put) = s.put("/v1/hold", &hold("a launch")).await;
    assert_eq!((status, &put["made_by"], &put["until"]), (200, &json!("loopback"), &Value::Null));
    let mut planned = spec();
    planned["replan"] = json!({"mode": "apply", "period_s": 1.0, "min_qps": 5.0});
    assert_eq!(s.put("/v1/pipelines/digits", &planned).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let agents = join(&s).await;
    let traffic = load(&agents[0]);
    let advice = s.until("/v1/decisions", |all| all.as_array()?.first().cloned()).await;
    assert_eq!(advice["decision"], "advised", "{advice:#}");
    let reason = advice["reason"].as_str().expect("a reason");
    assert!(reason.contains("held by loopback until it is released (a launch)"), "{reason}");
    assert_eq!(s.get("/v1/target").await.1["generation"], 0);

    // A person approves the advice. The next rounds leave it alone.
    let plan = advice["plan"].as_str().expect("a plan");
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    assert_eq!(s.delete("/v1/hold").await.0, 404);
    assert_eq!(s.put("/v1/pipelines/digits/hold", &json!({"reason": "", "for_s": 5})).await.0, 422);
    assert_eq!(s.put("/v1/pipelines/digits/hold", &json!({"reason": "x", "for_s": 0})).await.0, 422);
    let is_free = |d: &Value| d["reason"].as_str().is_some_and(|reason| !reason.contains("held by"));
    s.until("/v1/decisions", |all| all.as_array()?.first().filter(|d| is_free(d)).cloned()).await;
    traffic.abort();
    s.running.stop().await;
}
