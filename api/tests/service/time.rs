//! Agents during faults of the service: a stalled database, broken streams, another leader, a lost fleet.

use crate::support::agent::{Agent, attach, register};
use crate::support::{PATIENCE, Service, plans::store_plan, profiles, service, service_on, spec};
use apportion_protocol::v1;
use serde_json::{Value, json};
use sqlx::Connection;
use std::time::{Duration, Instant};

fn state<'a>(agents: &'a Value, name: &str) -> Option<&'a str> {
    agents.as_array()?.iter().find(|a| a["name"] == name)?["state"].as_str()
}

/// A service with a plan in force on reporting agents with these names: this many replicas of find, and one of read.
async fn in_force(names: &[&str], replicas: u32) -> (Service, Vec<Agent>, Vec<tokio::task::JoinHandle<()>>) {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let mut agents = Vec::new();
    for name in names {
        let mut agent = attach(&s, register(&s, name)).await;
        agent.welcome().await;
        agents.push(agent);
    }
    let beats = agents.iter().map(Agent::report).collect();
    let plan = store_plan(&s, replicas).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    for agent in &mut agents {
        agent.target(1).await;
    }
    (s, agents, beats)
}

async fn target(s: &Service) -> (i64, Value) {
    let target = s.get("/v1/target").await.1;
    (target["generation"].as_i64().expect("a generation"), target["placement"]["replicas"].clone())
}

/// Locks the tables of the control plane for a while.
async fn stall(s: &Service, length: Duration) {
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let mut tx = db.begin().await.expect("a transaction");
    sqlx::raw_sql("lock table agents, processes, target, arrivals in access exclusive mode")
        .execute(&mut *tx)
        .await
        .expect("a lock");
    tokio::time::sleep(length).await;
    tx.rollback().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_database_loses_no_agent() {
    let (s, agents, _beats) = in_force(&["a", "b"], 2).await;
    let before = target(&s).await;
    stall(&s, Duration::from_secs(5)).await;
    // Longer than every limit on silence.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let (_, list) = s.get("/v1/agents").await;
        assert_eq!((state(&list, "a"), state(&list, "b")), (Some("live"), Some("live")), "{list:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(target(&s).await, before);
    // Their streams are the same, and their messages arrive.
    let ack = v1::Ack { applied: true, ..Default::default() };
    agents[0].say(v1::agent_message::Message::Ack(ack)).await;
    let has_come = |list: &Value| list.as_array()?.iter().any(|a| a["ack"]["applied"] == true).then_some(());
    s.until("/v1/agents", has_come).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_answer_is_not_ready() {
    let s = service().await;
    assert_eq!(s.get("/readyz").await.0, 200);
    let (refused, ()) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            s.get("/readyz").await
        },
        stall(&s, Duration::from_secs(4))
    );
    assert_eq!(refused.0, 503, "{}", refused.1);
    assert!(refused.1["detail"].as_str().is_some_and(|d| d.contains("database")), "{}", refused.1);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconnected_stream_changes_nothing() {
    let (s, mut agents, beats) = in_force(&["a", "b"], 2).await;
    let before = target(&s).await;
    for _ in 0..3 {
        beats[0].abort();
        drop(agents.remove(0));
        let mut again = attach(&s, register(&s, "a")).await;
        again.welcome().await;
        assert_eq!(again.target(1).await.fence.map(|f| f.generation), Some(1));
        again.report();
        agents.insert(0, again);
        tokio::time::sleep(Duration::from_millis(700)).await;
        let (_, list) = s.get("/v1/agents").await;
        assert_eq!(state(&list, "a"), Some("live"));
    }
    assert_eq!(target(&s).await, before);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completely_lost_fleet_keeps_its_target() {
    let (s, mut agents, beats) = in_force(&["a", "b"], 1).await;
    let before = target(&s).await;
    beats.iter().for_each(tokio::task::JoinHandle::abort);
    agents.clear();
    let lost = |l: &Value| (state(l, "a") == Some("lost") && state(l, "b") == Some("lost")).then_some(());
    s.until("/v1/agents", lost).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(target(&s).await, before, "nobody is there to do better");
    // The first agent that is back has its replicas; the other one gets time.
    let mut a = attach(&s, register(&s, "a")).await;
    a.welcome().await;
    assert_eq!(a.target(1).await.fence.map(|f| f.generation), Some(1));
    let _beat = a.report();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(target(&s).await, before);
    let alone = a.target(2).await;
    assert_eq!(alone.agents.len(), 1, "in the end the survivor gets everything");
    let replicas = before.1.as_array().map(Vec::len);
    assert_eq!(Some(alone.pipelines[0].replicas.len()), replicas);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_changes_no_target() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    // The first service leads; the agents join the second.
    let second = service_on(s.url.clone(), crate::support::open_dir()).await;
    let mut agents = Vec::new();
    for name in ["a", "b"] {
        let mut agent = attach(&second, register(&second, name)).await;
        agent.welcome().await;
        agents.push(agent);
    }
    let beats: Vec<_> = agents.iter().map(Agent::report).collect();
    let plan = store_plan(&s, 2).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let before = target(&s).await;
    s.running.stop().await;
    // Longer than a leader's grace period.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(target(&second).await, before);
    // It does lead.
    beats[0].abort();
    drop(agents.remove(0));
    let after = agents[0].target(2).await;
    assert_eq!(after.agents.len(), 1);
    second.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_dead_process_become_lost() {
    let (s, mut agents, beats) = in_force(&["a", "b"], 2).await;
    // As after a killed process: the agents are live, and no live process holds them.
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let gone = "update agents set holder = '00000000-0000-0000-0000-000000000001', session = holder where name = 'a'";
    beats[0].abort();
    sqlx::raw_sql(gone).execute(&mut db).await.expect("a row");
    let begun = Instant::now();
    let after = agents[1].target(2).await;
    assert_eq!(after.agents.len(), 1);
    assert!(begun.elapsed() < PATIENCE);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_keep_their_numbers_in_an_empty_database() {
    let s = service().await;
    let with = |name: &str, number: u64| v1::Register {
        number,
        fence: Some(v1::Fence { incarnation: 5, generation: 9 }),
        ..register(&s, name)
    };
    let mut numbers = Vec::new();
    let mut agents = Vec::new();
    for register in
        [with("a", 7), register(&s, "new"), with("b", 3), with("c", 7), with("d", u64::MAX), register(&s, "last")]
    {
        let mut agent = attach(&s, register).await;
        numbers.push(agent.welcome().await.agent);
        agents.push(agent);
    }
    assert_eq!(numbers[0], 7);
    assert_eq!(numbers[2], 3);
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len(), "{numbers:?}");
    let silence = tokio::time::timeout(Duration::from_secs(1), agents[0].next()).await;
    assert!(silence.is_err(), "no target is sent before one is made: {silence:?}");
    let target = s.get("/v1/target").await.1;
    assert!(
        target["placement"]["next_id"].as_i64() >= target["incarnation"].as_i64(),
        "numbers begin above all older ones: {target}"
    );
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_agents_take_targets_again() {
    let (s, agents, _) = in_force(&["a"], 1).await;
    let backed_up = s.get("/v1/target").await.1;
    let (dir, url) = (s.dir, s.url);
    drop(agents);
    s.running.stop().await;
    let backup = crate::support::copy_database(&url).await;
    // The fleet gets later targets.
    let s = service_on(url, dir).await;
    let mut a = attach(&s, register(&s, "a")).await;
    a.welcome().await;
    let _beat = a.report();
    let more = store_plan(&s, 1).await;
    assert_eq!(s.put_target(1, &json!([more])).await.0, 200);
    let ahead = a.target(2).await.fence;
    let dir = s.dir;
    s.running.stop().await;
    // The backup takes its place.
    let s = service_on(backup.clone(), dir).await;
    let of_a = |s: &Service| v1::Register { fence: ahead, number: 1, ..register(s, "a") };
    let (reason, detail) = attach(&s, of_a(&s)).await.refused().await;
    assert_eq!(reason, v1::refused::Reason::Stale);
    assert!(detail.contains("restore-finish"), "{detail}");
    let restored = apportion_api::finish_restore(Some(&backup), s.dir.path()).await.expect("it works beside a service");
    assert_eq!(Some(restored.before), backed_up["incarnation"].as_i64());
    let newest = s.get("/v1/events?kind=target&limit=1").await.1[0].clone();
    let is_of_restore = newest["detail"]["generation"].as_i64() == Some(restored.generation);
    assert!(is_of_restore && newest["id"].as_i64() > Some(restored.incarnation), "{newest:#}");
    let mut a = attach(&s, of_a(&s)).await;
    assert_eq!(a.welcome().await.agent, 1);
    let _beat = a.report();
    // The process may still send the older target first, which an agent refuses.
    let now = a.target(restored.generation as u64).await;
    let fence = now.fence.expect("a fence");
    assert_eq!((fence.incarnation as i64, fence.generation as i64), (restored.incarnation, restored.generation));
    assert!(Some(fence.incarnation) > ahead.map(|f| f.incarnation));
    let replicas: Vec<u64> = now.pipelines[0].replicas.iter().map(|r| r.replica).collect();
    let before: Vec<u64> =
        backed_up["placement"]["replicas"].as_array().into_iter().flatten().filter_map(|r| r["id"].as_u64()).collect();
    assert_eq!(replicas, before, "what the backup knows has its numbers");
    let one = store_plan(&s, 1).await;
    let generation = s.get("/v1/target").await.1["generation"].as_i64().expect("a number");
    assert_eq!(s.put_target(generation, &json!([one])).await.0, 200);
    assert_eq!(a.target(generation as u64 + 1).await.fence.map(|f| f.incarnation), Some(fence.incarnation));
    s.running.stop().await;
}
