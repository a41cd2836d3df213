//! Variants that requests want: the leader loads them on free devices, within its bounds, and unloads what is idle.

use crate::support::agent::{Agent, attach, register};
use crate::support::plans::store_plan;
use crate::support::{Service, profiles, service, spec};
use apportion_api::store::wants::WANT_AGE_S_MAX;
use apportion_protocol::v1::{self, agent_message};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

/// A service whose pipeline has these replan settings, and an agent with four devices.
async fn with_settings(replan: &Value) -> (Service, Agent) {
    let s = service().await;
    let mut agent = attach(&s, v1::Register { devices: 4, ..register(&s, "a") }).await;
    agent.welcome().await;
    agent.report();
    register_pipeline(&s, replan).await;
    (s, agent)
}

async fn register_pipeline(s: &Service, replan: &Value) {
    let mut spec = spec();
    spec["replan"] = replan.clone();
    let (status, answer) = s.put("/v1/pipelines/digits", &spec).await;
    assert!([200, 201].contains(&status), "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
}

/// The next target of at least this generation that offers groups.
async fn offering(agent: &mut Agent, mut generation: u64) -> v1::PipelineTarget {
    loop {
        let target = agent.target(generation).await;
        generation = target.fence.expect("a fence").generation + 1;
        let pipeline = target.pipelines.into_iter().next();
        if let Some(found) = pipeline.filter(|of| of.groups.iter().any(|group| group.offered)) {
            return found;
        }
    }
}

/// The next target with a number of replicas of offered groups.
async fn with_loaded(agent: &mut Agent, count: usize) -> v1::PipelineTarget {
    loop {
        let of = offering(agent, 1).await;
        if loaded(&of).len() == count {
            return of;
        }
    }
}

/// The groups on offer that have replicas, one for each replica.
fn loaded(of: &v1::PipelineTarget) -> Vec<u64> {
    let offered: Vec<u64> = of.groups.iter().filter(|group| group.offered).map(|group| group.group).collect();
    of.replicas.iter().map(|replica| replica.group).filter(|group| offered.contains(group)).collect()
}

/// The offered group of a variant.
fn offer(of: &v1::PipelineTarget, variant: &str) -> u64 {
    let found = of.groups.iter().find(|group| group.offered && group.variant == variant);
    found.unwrap_or_else(|| panic!("no offer of {variant}: {:?}", of.groups)).group
}

async fn want(agent: &Agent, groups: &[u64]) {
    let want =
        v1::VariantWant { pipeline: "digits".into(), groups: groups.to_vec(), accuracy_min: 0.9, ..Default::default() };
    agent.say(agent_message::Message::Want(want)).await;
}

/// The facts of the newest event about a want with this change.
async fn noted(s: &Service, change: &str) -> Value {
    let is_it = |event: &&Value| event["detail"]["change"] == change;
    s.until("/v1/events?kind=on-demand", |all| all.as_array()?.iter().find(is_it).map(|event| event["detail"].clone()))
        .await
}

fn manual(mode: &str, on_demand: &Value) -> Value {
    json!({"mode": mode, "period_s": 3600.0, "on_demand": on_demand})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_want_loads_one_replica_and_idleness_unloads_it() {
    let (s, mut agent) = with_settings(&manual("apply", &json!({"idle_s": 1.5}))).await;
    let first = offering(&mut agent, 1).await;
    assert!(first.loads_on_demand && loaded(&first).is_empty());
    let planned: Vec<u64> = first.replicas.iter().map(|replica| replica.replica).collect();
    let group = first.groups.iter().find(|group| group.offered).map(|group| group.group).expect("an offer");
    assert!(first.choices.iter().any(|choice| choice.groups.contains(&group)), "{:?}", first.choices);
    for _ in 0..3 {
        want(&agent, &[group]).await;
    }
    let second = with_loaded(&mut agent, 1).await;
    assert_eq!(loaded(&second), [group]);
    assert!(planned.iter().all(|id| second.replicas.iter().any(|r| r.replica == *id)), "the plan's replicas stay");
    let on_its_device = second.replicas.iter().filter(|r| r.group == group).map(|r| r.device).next().expect("it is there");
    assert_eq!(second.replicas.iter().filter(|r| r.device == on_its_device).count(), 1, "on a free device");
    let event = noted(&s, "loaded").await;
    assert!(event["reason"].as_str().is_some_and(|why| why.starts_with("requests of digits need ")), "{event:#}");
    assert_eq!(event["asked"]["accuracy_min"], 0.9, "{event:#}");
    let third = with_loaded(&mut agent, 0).await;
    assert_eq!(third.groups.iter().filter(|of| of.group == group && of.offered).count(), 1, "it is on offer again");
    let event = noted(&s, "unloaded").await;
    assert!(event["reason"].as_str().is_some_and(|why| why.contains("for 1.5 s")), "{event:#}");
    let (_, all) = s.get("/v1/events?kind=on-demand").await;
    let loads = all.as_array().expect("a list").iter().filter(|event| event["detail"]["change"] == "loaded").count();
    assert_eq!(loads, 1, "three wants load once: {all:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_want_is_forgotten() {
    let (s, mut agent) = with_settings(&manual("apply", &json!({}))).await;
    let first = offering(&mut agent, 1).await;
    let offered: Vec<i64> = first.groups.iter().filter(|g| g.offered).map(|g| g.group.cast_signed()).collect();
    assert_eq!(offered.len(), 2, "the plan has one variant of each task: {:?}", first.groups);
    let mut db = PgConnection::connect(&s.url).await.expect("our own database");
    let old = "insert into variant_wants (pipeline, groups, accuracy_min, variants, wanted_at)
               values ('digits', $1, 0.9, '{}', now() - make_interval(secs => $2))";
    let old = sqlx::query(old).bind(&offered[..1]).bind(2.0 * WANT_AGE_S_MAX);
    old.execute(&mut db).await.expect("a want of long ago");
    let fresh = offered[1].cast_unsigned();
    want(&agent, &[fresh]).await;
    assert_eq!(loaded(&with_loaded(&mut agent, 1).await), [fresh]);
    let left: i64 = sqlx::query_scalar("select count(*) from variant_wants").fetch_one(&mut db).await.expect("a number");
    assert_eq!(left, 0, "both are taken");
    noted(&s, "loaded").await;
    let (_, all) = s.get("/v1/events?kind=on-demand").await;
    assert_eq!(all.as_array().map(Vec::len), Some(1), "only the new one is answered: {all:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_advisory_mode_a_want_is_an_event() {
    let (s, mut agent) = with_settings(&manual("advisory", &json!({}))).await;
    let plan = store_plan(&s, 1).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let first = offering(&mut agent, 1).await;
    assert!(!first.loads_on_demand);
    let generation = s.get("/v1/target").await.1["generation"].clone();
    want(&agent, &[offer(&first, "read-l")]).await;
    let event = noted(&s, "refused").await;
    assert!(event["reason"].as_str().is_some_and(|why| why.contains("advisory")), "{event:#}");
    assert_eq!(event["groups"], "read:read-l on demo", "{event:#}");
    assert_eq!(s.get("/v1/target").await.1["generation"], generation);
    // The mode is a setting and no part of the plan: the target in force follows it.
    register_pipeline(&s, &manual("apply", &json!({}))).await;
    while !offering(&mut agent, 1).await.loads_on_demand {}
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_and_quotas_are_respected() {
    let (s, mut agent) = with_settings(&manual("apply", &json!({"replicas_max": 1}))).await;
    let first = offering(&mut agent, 1).await;
    let offered: Vec<u64> = first.groups.iter().filter(|group| group.offered).map(|group| group.group).collect();
    assert_eq!(offered.len(), 2, "the plan has one variant of each task: {:?}", first.groups);
    want(&agent, &offered).await;
    let event = noted(&s, "refused").await;
    assert!(event["reason"].as_str().is_some_and(|why| why.contains("replicas_max 1")), "{event:#}");
    assert_eq!(s.put("/v1/pipelines/digits/hold", &json!({"reason": "an audit"})).await.0, 200);
    want(&agent, &offered[..1]).await;
    s.until("/v1/events?kind=on-demand", |all| {
        let is_held =
            |event: &Value| event["detail"]["reason"].as_str().is_some_and(|why| why.contains("a hold is in force"));
        all.as_array()?.iter().any(is_held).then_some(())
    })
    .await;
    assert_eq!(s.delete("/v1/pipelines/digits/hold").await.0, 204);
    want(&agent, &offered[..1]).await;
    let loaded_now = with_loaded(&mut agent, 1).await;
    assert_eq!(loaded(&loaded_now), offered[..1]);
    s.running.stop().await;
}
