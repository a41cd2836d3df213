//! The loop that replans: a fleet appears, its load doubles and falls, an agent dies.

mod support;

use apportion_protocol::v1::{self, agent_message};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::agent::{Agent, attach, register};
use support::{PATIENCE, Service, profiles, service, spec};

/// Reports this many arrivals each tenth of a second, as an agent would of its ingress.
fn load(agent: &Agent, tenth: Arc<AtomicU32>) -> tokio::task::JoinHandle<()> {
    let outbox = agent.outbox.clone();
    tokio::spawn(async move {
        for uptime_ms in (0_u64..).step_by(100) {
            let bins = vec![tenth.load(Ordering::Relaxed)];
            let part = v1::Arrivals { pipeline: "digits".into(), first_bin_ms: uptime_ms, bins, ..v1::Arrivals::default() };
            let report = v1::Report { uptime_ms, arrivals: vec![part], groups: vec![], ..Default::default() };
            let message = v1::AgentMessage { message: Some(agent_message::Message::Report(report)) };
            if outbox.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

async fn with_mode(mode: &str) -> Service {
    let s = service().await;
    let mut spec = spec();
    spec["replan"] = json!({"mode": mode, "period_s": 2.0, "headroom": 1.2, "min_qps": 5.0});
    assert_eq!(s.put("/v1/pipelines/digits", &spec).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    s
}

/// Waits until the plan in force is made for a demand of which `check` approves.
async fn until_demand(s: &Service, check: impl Fn(f64) -> bool) -> (Value, u64) {
    let begin = Instant::now();
    loop {
        let target = s.get("/v1/target").await.1;
        let (demand, replicas) = in_force(s, &target).await;
        if check(demand) {
            return (target, replicas);
        }
        assert!(begin.elapsed() < PATIENCE, "the plan is still for {demand}: {:#}", s.get("/v1/decisions").await.1);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Demand and replicas of the plan in force.
async fn in_force(s: &Service, target: &Value) -> (f64, u64) {
    let id = target["plans"][0].as_str().expect("a plan");
    let (_, plan) = s.get(&format!("/v1/plans/{id}")).await;
    (
        plan["problem"]["pipelines"][0]["demand_qps"].as_f64().expect("a demand"),
        plan["plan"]["replicas"].as_u64().expect("replicas"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_follows_the_load_and_the_fleet() {
    let s = with_mode("apply").await;
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let mut agent = attach(&s, register(&s, name)).await;
        agent.welcome().await;
        agents.push(agent);
    }
    let tenth = Arc::new(AtomicU32::new(2));
    let beats: Vec<_> = agents.iter().skip(1).map(Agent::report).collect();
    let traffic = load(&agents[0], tenth.clone());

    let first = s.until("/v1/target", |t| (t["generation"].as_i64()? > 0).then(|| t.clone())).await;
    let (_, before) = in_force(&s, &first).await;
    tenth.store(8, Ordering::Relaxed);
    let risen = until_demand(&s, |demand| demand > 50.0).await;
    assert!(risen.1 > before, "{before} replicas became {}", risen.1);
    assert!(risen.0["reason"].as_str().is_some_and(|r| r.contains("digits")), "{}", risen.0);

    let (_, list) = s.get("/v1/agents").await;
    let number = list[2]["number"].as_u64().expect("a number");
    beats[1].abort();
    drop(agents.pop());
    s.until("/v1/target", |t| {
        let gone = t["placement"]["replicas"].as_array()?.iter().all(|r| r["agent"].as_u64() != Some(number));
        (gone && t["generation"].as_i64() > risen.0["generation"].as_i64()).then_some(())
    })
    .await;
    let why = |d: &Value| d["reason"].as_str().is_some_and(|r| r.starts_with("the fleet has changed"));
    s.until("/v1/decisions", |all| all.as_array()?.iter().any(why).then_some(())).await;

    tenth.store(2, Ordering::Relaxed);
    until_demand(&s, |demand| demand < 40.0).await;
    traffic.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_is_stored_and_nothing_is_deployed() {
    let s = with_mode("advisory").await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let _beat = agent.report();
    let advice = s.until("/v1/decisions", |all| all.as_array()?.first().cloned()).await;
    assert_eq!(advice["decision"], "advised", "{advice:#}");
    let plan = advice["plan"].as_str().expect("a plan");
    assert_eq!(s.get(&format!("/v1/plans/{plan}")).await.1["state"], "succeeded");
    assert_eq!(s.get("/v1/target").await.1["generation"], 0);
    s.running.stop().await;
}
