//! Scaling actions of rounds: more replicas of a variant, a variant on cheaper hardware where room is short, fewer replicas
//! after the load.

use crate::support::agent::{Agent, attach, register};
use crate::support::traffic::{Tenth, load};
use crate::support::{Service, service};
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn row(variant: &str, hardware: &str, latency_ms: f64) -> Value {
    json!({"task": "classify", "variant": variant, "hardware": hardware, "batch": 1, "latency_ms": latency_ms})
}

fn figures(variant: &str, accuracy: f64) -> Value {
    json!({"task": "classify", "variant": variant, "accuracy": accuracy, "load_ms": 100.0})
}

/// One task. `large` serves 50 queries per second of a `demo` device, and `small` 10 of a `cheap` one.
async fn registered(s: &Service, scaling: Value, min_accuracy: Option<f64>) {
    for (name, price) in [("demo", 2.0), ("cheap", 1.99)] {
        assert_eq!(s.put(&format!("/v1/hardware/{name}"), &json!({"price_per_hour": price})).await.0, 201);
    }
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 8]}]);
    let variants = [("large", "aa"), ("small", "bb")].map(|(name, d)| json!({"name": name, "model_digest": d.repeat(32)}));
    let task = json!({"name": "classify", "inputs": tensor("image"), "outputs": tensor("label"), "variants": variants});
    let replan = json!({"mode": "apply", "period_s": 2.0, "headroom": 1.2, "min_qps": 25.0, "scaling": scaling});
    let mut pipeline = json!({"name": "digits", "slo_ms": 400.0, "tasks": [task], "replan": replan});
    if let Some(floor) = min_accuracy {
        pipeline["min_accuracy"] = floor.into();
    }
    let (status, answer) = s.put("/v1/pipelines/digits", &pipeline).await;
    assert_eq!(status, 201, "{answer:#}");
    let (_, read) = s.get("/v1/pipelines/digits").await;
    assert_eq!(read["replan"]["scaling"]["planner"], scaling["planner"], "{read:#}");
    let profiles = json!({
        "rows": [row("large", "demo", 20.0), row("small", "cheap", 100.0)],
        "variants": [figures("large", 0.9), figures("small", 0.85)]
    });
    let (status, answer) = s.put("/v1/pipelines/digits/profiles", &profiles).await;
    assert_eq!(status, 200, "{answer:#}");
}

/// An agent of each pair: hardware type and devices.
async fn agents(s: &Service, kinds: &[(&str, u32)]) -> Vec<Agent> {
    let mut agents = Vec::new();
    for &(hardware, devices) in kinds {
        let own = v1::Register { hardware: hardware.into(), devices, ..register(s, hardware) };
        let mut agent = attach(s, own).await;
        agent.welcome().await;
        agents.push(agent);
    }
    agents
}

/// Variants and replicas of the plan in force.
async fn groups_in_force(s: &Service, target: &Value) -> Vec<(String, u64)> {
    let id = target["plans"][0].as_str().expect("a plan");
    let (_, plan) = s.get(&format!("/v1/plans/{id}")).await;
    let groups = plan["plan"]["pipelines"][0]["assignments"].as_array().expect("assignments").clone();
    let group = |g: &Value| (g["variant"].as_str().expect("a name").to_owned(), g["replicas"].as_u64().expect("a count"));
    groups.iter().map(group).collect()
}

/// The groups of the first plan, which the floor of the load needs.
async fn first_groups(s: &Service) -> Vec<(String, u64)> {
    let target = s.until("/v1/target", |t| (t["generation"].as_i64()? > 0).then(|| t.clone())).await;
    groups_in_force(s, &target).await
}

/// Waits for an applied decision whose reason has these texts; also the groups of its plan.
async fn applied(s: &Service, texts: &[&str]) -> (Value, Vec<(String, u64)>) {
    let says = |reason: &str| texts.iter().all(|text| reason.contains(text));
    let has = |d: &&Value| d["decision"] == "applied" && d["reason"].as_str().is_some_and(says);
    let decision = s.until("/v1/decisions", |all| all.as_array()?.iter().find(has).cloned()).await;
    let plan = decision["plan"].as_str().expect("a plan").to_owned();
    let (_, planned) = s.get(&format!("/v1/plans/{plan}")).await;
    let groups = groups_in_force(s, &json!({"plans": [plan]})).await;
    assert!(
        planned["problem"]["deployed"].as_array().is_some_and(|d| !d.is_empty()),
        "the plan says what ran: {planned:#}"
    );
    (decision, groups)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_step_replicates_and_its_end_removes() {
    for planner in ["milp", "greedy"] {
        let s = service().await;
        registered(&s, json!({"planner": planner}), Some(0.9)).await;
        let agents = agents(&s, &[("demo", 6)]).await;
        let tenth = Arc::new(Tenth { offered: AtomicU32::new(2), ..Tenth::default() });
        let traffic = load(&agents[0], tenth.clone());
        assert_eq!(first_groups(&s).await, [("large".to_owned(), 1)], "{planner}");
        tenth.offered.store(12, Ordering::Relaxed);
        let (_, risen) = applied(&s, &["actions: replicate classify/large/demo from 1 to "]).await;
        assert!(matches!(risen.as_slice(), [(variant, 2..)] if variant == "large"), "{planner}: {risen:?}");
        tenth.offered.store(2, Ordering::Relaxed);
        let (decision, fallen) = applied(&s, &["actions: remove classify/large/demo from ", " to 1"]).await;
        assert!(decision["reason"].as_str().is_some_and(|r| r.contains("the load needs less: they save")), "{decision:#}");
        assert_eq!(fallen, [("large".to_owned(), 1)], "{planner}");
        traffic.abort();
        s.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_room_downgrades_to_cheaper_hardware() {
    let s = service().await;
    registered(&s, json!({"planner": "milp", "lambda": 1.0}), None).await;
    let agents = agents(&s, &[("demo", 2), ("cheap", 8)]).await;
    let beat = agents[1].report();
    let tenth = Arc::new(Tenth { offered: AtomicU32::new(2), ..Tenth::default() });
    let traffic = load(&agents[0], tenth.clone());
    assert_eq!(first_groups(&s).await, [("large".to_owned(), 1)]);
    tenth.offered.store(11, Ordering::Relaxed);
    let (decision, groups) = applied(&s, &["downgrade classify/small/cheap from 0 to "]).await;
    // both devices of the dearer type are in use: a query per second is cheaper there
    let large = groups.iter().find(|(variant, _)| variant == "large");
    assert_eq!(large.map(|(_, replicas)| *replicas), Some(2), "{decision:#}: {groups:?}");
    traffic.abort();
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_scaling_settings_are_refused_with_their_place() {
    let s = service().await;
    let mut pipeline = crate::support::spec();
    for (replan, pointer, said) in [
        (json!({"mode": "apply", "scaling": {"planner": "best"}}), "/replan/scaling/planner", "milp"),
        (json!({"mode": "apply", "scaling": {"lambda": -0.5}}), "/replan/scaling/lambda", "0 to 1000"),
        (json!({"mode": "apply", "scaling": {}, "ladder": 2.0}), "/replan/ladder", "no such member beside `scaling`"),
        (
            json!({"mode": "apply", "scaling": {}, "objective": {"mode": "max_accuracy"}}),
            "/replan/objective/mode",
            "\"min_cost\" beside `scaling`",
        ),
    ] {
        pipeline["replan"] = replan;
        let (status, refusal) = s.put("/v1/pipelines/digits", &pipeline).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{refusal:#}");
        assert!(refusal["errors"][0]["detail"].as_str().is_some_and(|d| d.contains(said)), "{refusal:#}");
    }
    s.running.stop().await;
}
