//! What can be deleted, and what is still needed.

use crate::support::agent::{attach, register};
use crate::support::plans::store_plan;
use crate::support::{Service, problem, profiles, service, spec};
use apportion_api::store::analyses::{self, NewAnalysis};
use apportion_api::store::plans;
use apportion_protocol::v1::{self, agent_message};
use apportion_wire::AnalysisKind;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

async fn upload_trace(s: &Service) -> String {
    let post = s.client.post(format!("{}/v1/traces", s.base)).header("content-type", "text/csv");
    let answer = post.body("second,qps\n0,5\n").send().await.expect("an answer");
    let document: Value = answer.json().await.expect("JSON");
    document["id"].as_str().expect("an identifier").to_owned()
}

async fn connect(s: &Service) -> PgConnection {
    PgConnection::connect(&s.url).await.expect("our own database")
}

/// The detail of a refused deletion.
async fn conflict(s: &Service, path: &str) -> String {
    let (status, refusal) = s.delete(path).await;
    assert_eq!(status, 409, "{refusal:#}");
    refusal["detail"].as_str().expect("a detail").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_one_trace_until_it_is_deleted() {
    let s = service().await;
    let upload = async |name: &str, rows: &'static str| {
        let post = s.client.post(format!("{}/v1/traces?name={name}", s.base)).header("content-type", "text/csv");
        let response = post.header("idempotency-key", "one").body(rows).send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.expect("JSON"))
    };
    let (status, made) = upload("peak", "second,qps\n0,5\n").await;
    assert_eq!(status, 201, "{made}");
    let (status, again) = upload("peak", "second,qps\n0,5\n").await;
    assert_eq!((status, &again["id"]), (201, &made["id"]), "it is the same trace");
    assert_eq!(upload("peak", "second,qps\n0,6\n").await.0, 422, "other rows");
    assert_eq!(upload("other", "second,qps\n0,5\n").await.0, 422, "another name");
    assert_eq!(s.get("/v1/traces").await.1.as_array().map(Vec::len), Some(1));
    let path = format!("/v1/traces/{}", made["id"].as_str().expect("an identifier"));
    assert_eq!(s.delete(&path).await.0, 204);
    let (status, next) = upload("other", "second,qps\n0,5\n").await;
    assert!(status == 201 && next["id"] != made["id"], "{next}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_deleted_once_and_audited() {
    let s = service().await;
    let path = format!("/v1/traces/{}", upload_trace(&s).await);
    assert_eq!(s.delete(&path).await.0, 204);
    assert_eq!((s.get(&path).await.0, s.delete(&path).await.0), (404, 404));
    assert_eq!(s.get("/v1/traces").await.1, json!([]));
    let (_, audit) = s.get("/v1/audit").await;
    let made = |entry: &Value| entry["method"] == "DELETE" && entry["path"] == path.as_str() && entry["status"] == 204;
    assert!(audit.as_array().is_some_and(|entries| entries.iter().any(made)), "{audit:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_stays_while_open_work_needs_it() {
    let s = service().await;
    let trace = upload_trace(&s).await;
    let path = format!("/v1/traces/{trace}");
    let (mut db, at) = (connect(&s).await, chrono::Utc::now());
    // Without jobs no worker begins them.
    let plan = Uuid::now_v7();
    plans::insert(&mut db, plan, &problem(1.0), &json!({"trace": trace}), None, at).await.expect("a row");
    let mut kept = Vec::new();
    for request in [json!({"trace": trace}), json!({"traces": {"p": trace}}), json!({"samples": {"p": trace}})] {
        let new = NewAnalysis {
            id: Uuid::now_v7(),
            kind: AnalysisKind::Simulation,
            request,
            problem: problem(1.0),
            plan: None,
            pipelines: vec!["p".into()],
            created_at: at,
        };
        analyses::insert(&mut db, &new).await.expect("a row");
        kept.push(new.id);
    }
    let why = conflict(&s, &path).await;
    assert!(why.contains(&format!("plan {plan}")), "{why}");
    assert_eq!(s.delete(&format!("/v1/plans/{plan}")).await.0, 202);
    for id in kept {
        let why = conflict(&s, &path).await;
        assert!(why.contains(&format!("simulation {id}")) && !why.contains("plan "), "{why}");
        assert_eq!(s.post(&format!("/v1/simulations/{id}/cancel"), &json!({})).await.0, 202);
    }
    assert_eq!(s.delete(&path).await.0, 204, "what is over needs it no more");
    let (status, refusal) = s.post("/v1/plans", &json!({"problem": problem(1.0), "trace": trace})).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/trace")));
    s.running.stop().await;
}

/// The pipeline of the tests, with this model file of one variant.
fn spec_with(digest: &str) -> Value {
    let mut spec = spec();
    spec["tasks"][0]["variants"][0]["model_digest"] = json!(digest);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_stays_while_a_variant_has_it() {
    let s = service().await;
    let digest: String = Sha256::digest(b"a model").iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("/v1/files/{digest}");
    let upload = || async {
        s.client.put(format!("{}{path}", s.base)).body("a model").send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(upload().await, 201);
    assert_eq!(s.put("/v1/pipelines/digits", &spec_with(&digest)).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let why = conflict(&s, &path).await;
    assert!(why.contains("pipeline digits") && !why.contains("target"), "{why}");

    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let _beat = agent.report();
    assert_eq!(s.put_target(0, &json!([store_plan(&s, 1).await])).await.0, 200);
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 200);
    let why = conflict(&s, &path).await;
    assert!(why.contains("the target's digits") && !why.contains("pipeline digits"), "{why}");
    let (_, target) = s.get("/v1/target").await;
    let generation = target["generation"].as_i64().expect("a number");
    assert_eq!(s.put_target(generation, &json!([])).await.0, 200);

    let bytes = s.dir.path().join("files").join(&digest);
    assert!(bytes.exists());
    assert_eq!(s.delete(&path).await.0, 204);
    assert!(!bytes.exists(), "its room is free");
    assert_eq!((s.get(&path).await.0, s.delete(&path).await.0), (404, 404));
    assert_eq!(upload().await, 201, "it can be stored again");
    assert_eq!(s.get(&path).await, (200, json!("a model")));
    s.running.stop().await;
}

fn number(agents: &Value, name: &str, state: &str) -> Option<i64> {
    agents.as_array()?.iter().find(|a| a["name"] == name && a["state"] == state)?["number"].as_i64()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_forgotten_once_it_is_gone() {
    let s = service().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let live = s.until("/v1/agents", |list| number(list, "a", "live")).await;
    let path = format!("/v1/agents/{live}");
    let why = conflict(&s, &path).await;
    assert!(why.contains("a is live"), "{why}");
    let (status, shown) = s.get(&path).await;
    assert_eq!((status, &shown["number"], &shown["name"]), (200, &json!(live), &json!("a")), "{shown:#}");
    beat.abort();
    drop(agent);
    let lost = s.until("/v1/agents", |list| number(list, "a", "lost")).await;
    assert_eq!(s.delete(&format!("/v1/agents/{lost}")).await.0, 204);
    assert_eq!(s.get("/v1/agents").await.1, json!([]));
    assert_eq!((s.delete(&path).await.0, s.get(&path).await.0), (404, 404), "it had the number {lost}");

    let mut again = attach(&s, register(&s, "a")).await;
    assert_ne!(again.welcome().await.agent, lost as u64, "it is a new agent");
    again.say(agent_message::Message::Leaving(v1::Leaving {})).await;
    let left = s.until("/v1/agents", |list| number(list, "a", "left")).await;
    assert_eq!(s.delete(&format!("/v1/agents/{left}")).await.0, 204);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_target_stays() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    assert_eq!(s.put_target(0, &json!([store_plan(&s, 1).await])).await.0, 200);
    beat.abort();
    drop(agent);
    // A fleet that is lost as a whole keeps its target.
    let lost = s.until("/v1/agents", |list| number(list, "a", "lost")).await;
    let why = conflict(&s, &format!("/v1/agents/{lost}")).await;
    assert!(why.contains("2 replicas of the target"), "{why}");
    assert_eq!(s.put_target(1, &json!([])).await.0, 200);
    assert_eq!(s.delete(&format!("/v1/agents/{lost}")).await.0, 204);
    s.running.stop().await;
}
