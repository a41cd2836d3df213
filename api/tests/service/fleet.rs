//! Agents and the service: admission, targets, silence.

use crate::support::agent::{attach, register, without_link_keys};
use crate::support::plans::{store_document, store_plan};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message, refused::Reason};
use serde_json::{Value, json};

fn state<'a>(agents: &'a Value, name: &str) -> Option<&'a str> {
    agents.as_array()?.iter().find(|a| a["name"] == name)?["state"].as_str()
}

async fn with_pipeline() -> Service {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_agents_get_the_reason() {
    let s = service().await;
    let with = |change: fn(&mut v1::Register)| {
        let mut r = register(&s, "a");
        change(&mut r);
        r
    };
    let cases: [(v1::Register, Reason, &str); 6] = [
        (with(|r| r.token = "guess".into()), Reason::Token, "token"),
        (with(|r| r.protocol_version = 0), Reason::Version, "protocol version 0"),
        (with(|r| r.devices = 0), Reason::Invalid, "devices: 0"),
        (with(|r| r.devices = 5_000), Reason::Invalid, "devices: 5000"),
        (with(|r| r.name = String::new()), Reason::Invalid, "name"),
        (with(|r| r.fence = Some(v1::Fence { incarnation: u64::MAX, generation: 1 })), Reason::Stale, "older"),
    ];
    for (register, reason, word) in cases {
        let (seen, detail) = attach(&s, register).await.refused().await;
        assert_eq!(seen, reason, "{detail}");
        assert!(detail.contains(word), "{detail}");
    }
    assert_eq!(s.get("/v1/agents").await.1, json!([]), "nobody was registered");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_one_living_agent() {
    let s = service().await;
    let mut first = attach(&s, register(&s, "a")).await;
    let number = first.welcome().await.agent;
    let beat = first.report();
    let mut other = register(&s, "a");
    other.process_id = "another process".into();
    let (reason, _) = attach(&s, other.clone()).await.refused().await;
    assert_eq!(reason, Reason::NameTaken);
    // The same process again: its old connection is broken.
    let mut again = attach(&s, register(&s, "a")).await;
    assert_eq!(again.welcome().await.agent, number);
    beat.abort();
    first.say(agent_message::Message::Report(v1::Report::default())).await;
    assert_eq!(first.refused().await.0, Reason::NameTaken, "the older stream is told so");
    drop(again);
    s.until("/v1/agents", |a| (state(a, "a") == Some("lost")).then_some(())).await;
    let mut successor = attach(&s, other).await;
    assert_eq!(successor.welcome().await.agent, number, "the name keeps its number");
    successor.say(agent_message::Message::Leaving(v1::Leaving {})).await;
    s.until("/v1/agents", |a| (state(a, "a") == Some("left")).then_some(())).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_is_lost() {
    let s = service().await;
    let mut agent = attach(&s, register(&s, "quiet")).await;
    agent.welcome().await;
    s.until("/v1/agents", |a| (state(a, "quiet") == Some("lost")).then_some(())).await;
    assert!(agent.next().await.is_none(), "its stream is closed, so that it comes back");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_compared_placed_pushed_and_acknowledged() {
    let s = with_pipeline().await;
    let (mut a, mut b) = (attach(&s, register(&s, "a")).await, attach(&s, register(&s, "b")).await);
    let numbers = [a.welcome().await.agent, b.welcome().await.agent];
    let beats = [a.report(), b.report()];
    let (small, large) = (store_plan(&s, 2).await, store_plan(&s, 9).await);

    let bare = s.client.put(format!("{}/v1/target", s.base)).json(&json!({"plans": [small]})).send().await;
    assert_eq!(bare.expect("an answer").status(), 428);
    assert_eq!(s.put_target(7, &json!([small])).await.0, 412);
    let (status, refusal) = s.put_target(0, &json!([large])).await;
    assert_eq!(status, 422);
    assert!(refusal["detail"].as_str().is_some_and(|d| d.contains("replicas of digits/find/find-s/demo")), "{refusal}");
    assert_eq!(s.put_target(0, &json!([uuid::Uuid::now_v7()])).await.0, 422);
    assert_eq!(s.put_target(0, &json!([small, large])).await.0, 422, "one pipeline in two plans");
    let (status, target) = s.put_target(0, &json!([small])).await;
    assert_eq!((status, &target["generation"]), (200, &json!(1)), "{target:#}");
    assert_eq!(s.put_target(0, &json!([small])).await.0, 412, "the generation was used");

    let pushed = a.target(1).await;
    assert_eq!(without_link_keys(pushed.clone()), without_link_keys(b.target(1).await));
    let pipeline = &pushed.pipelines[0];
    assert_eq!((pipeline.groups.len(), pipeline.replicas.len(), pushed.agents.len()), (2, 3, 2));
    assert!(pipeline.replicas.iter().all(|r| numbers.contains(&r.agent)));
    assert_eq!(pipeline.tasks[0].inputs[0].name, "image");
    assert_eq!(pipeline.groups[0].file_digest, "aa".repeat(32));

    let replicas =
        vec![v1::ReplicaState { replica: 1, state: v1::replica_state::State::Ready.into(), ..Default::default() }];
    a.say(agent_message::Message::Ack(v1::Ack { fence: pushed.fence, applied: true, error: String::new(), replicas }))
        .await;
    // Either of the two may have registered first, and comes first in the list.
    let applied =
        |list: &Value| list.as_array()?.iter().any(|l| l["name"] == "a" && l["ack"]["applied"] == true).then_some(());
    s.until("/v1/agents", applied).await;
    let history = s.get("/v1/target/history").await.1;
    assert_eq!(history.as_array().map(Vec::len), Some(1));
    beats.iter().for_each(tokio::task::JoinHandle::abort);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_agents_get_the_replicas_of_a_dead_one() {
    let s = with_pipeline().await;
    let (mut a, mut b) = (attach(&s, register(&s, "a")).await, attach(&s, register(&s, "b")).await);
    let (_, number) = (a.welcome().await, b.welcome().await.agent);
    let beats = [a.report(), b.report()];
    let plan = store_plan(&s, 1).await;
    let generation = s.get("/v1/target").await.1["generation"].as_i64().expect("a number");
    assert_eq!(s.put_target(generation, &json!([plan])).await.0, 200);
    let before = b.target(1).await;
    beats[0].abort();
    drop(a);
    let after = b.target(before.fence.expect("a fence").generation + 1).await;
    let replicas = &after.pipelines[0].replicas;
    assert_eq!(replicas.len(), 2);
    assert!(replicas.iter().all(|r| r.agent == number), "all at the survivor: {replicas:?}");
    let kept = before.pipelines[0].replicas.iter().filter(|r| r.agent == number);
    assert!(kept.clone().count() > 0 && kept.clone().all(|r| replicas.contains(r)), "what was loaded stays");
    assert_eq!(after.agents.len(), 1);

    let (_, target) = s.get("/v1/target").await;
    // The service restarts, and its agent must not count as lost.
    let s = s.restart().await;
    beats[1].abort();
    drop(b);
    let (_, again) = s.get("/v1/target").await;
    assert_eq!((&again["incarnation"], &again["placement"]), (&target["incarnation"], &target["placement"]));
    assert!(again["generation"].as_i64() >= target["generation"].as_i64());
    let mut b = attach(&s, register(&s, "b")).await;
    assert_eq!(b.welcome().await.agent, number);
    assert_eq!(b.target(1).await.pipelines[0].replicas, *replicas, "the same replicas where they are loaded");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_arrivals_are_counted_by_second() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let part = v1::Arrivals {
        pipeline: "digits".into(),
        first_bin_ms: 4_000,
        bins: vec![3; 100],
        ok: 250,
        late: 50,
        dropped: 0,
        failed: 0,
    };
    agent
        .say(agent_message::Message::Report(v1::Report {
            uptime_ms: 5_000,
            arrivals: vec![part],
            groups: vec![],
            ..Default::default()
        }))
        .await;
    let sums = s
        .until("/v1/pipelines/digits/arrivals", |rows| {
            let rows = rows.as_array().filter(|r| !r.is_empty())?;
            let sum = |key: &str| rows.iter().filter_map(|r| r[key].as_i64()).sum::<i64>();
            Some((sum("offered"), sum("ok"), sum("late")))
        })
        .await;
    assert_eq!(sums, (300, 250, 50));
    let (status, all) = s.get("/v1/arrivals?seconds=600").await;
    let newest = all[0]["newest_second"].as_i64().expect("a second");
    let expected = json!([{"pipeline": "digits", "newest_second": newest, "offered": 300, "ok": 250, "late": 50,
                           "dropped": 0, "failed": 0}]);
    assert_eq!((status, all), (200, expected));
    for seconds in ["0", "86401"] {
        assert_eq!(s.get(&format!("/v1/arrivals?seconds={seconds}")).await.0, 422, "{seconds}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn device_use_is_shown_with_null_for_unknown_values() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let (_, agents) = s.get("/v1/agents").await;
    assert_eq!(agents[0]["device_use"], json!([]), "nothing was said yet");
    let known = v1::DeviceStats {
        uuid: "GPU-1".into(),
        memory_used: Some(5),
        memory_total: Some(9),
        utilisation: Some(0.25),
        ..Default::default()
    };
    let unknown = v1::DeviceStats { device: 1, uuid: "GPU-2".into(), ..Default::default() };
    let report = v1::Report { uptime_ms: 5_000, devices: vec![known, unknown], ..Default::default() };
    agent.say(agent_message::Message::Report(report)).await;
    let seen = s.until("/v1/agents", |a| Some(a[0]["device_use"].clone()).filter(|d| *d != json!([]))).await;
    let one = |device, uuid: &str, used: Value, total: Value, ratio: Value| json!({"device": device, "uuid": uuid, "memory_used": used, "memory_total": total, "utilisation": ratio});
    let null = || Value::Null;
    assert_eq!(seen, json!([one(0, "GPU-1", 5.into(), 9.into(), 0.25.into()), one(1, "GPU-2", null(), null(), null())]));
    s.running.stop().await;
}

/// Reports that a replica of the target could not be loaded.
async fn fail(agent: &crate::support::agent::Agent, target: &v1::Target, replica: u64) {
    let (state, error) = (v1::replica_state::State::Failed.into(), "out of memory".to_string());
    let replicas = vec![v1::ReplicaState { replica, state, error: error.clone(), ..Default::default() }];
    agent.say(agent_message::Message::Ack(v1::Ack { fence: target.fence, applied: false, error, replicas })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_cannot_be_loaded_moves_to_another_device() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let only_read = json!({"version": 1, "pipelines": [{"name": "digits", "assignments": [
        {"task": "read", "variant": "read-s", "hardware": "demo", "batch": 2, "replicas": 1}]}]});
    let plan = store_document(&s, &only_read).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let first = agent.target(1).await;
    let at = |t: &v1::Target| t.pipelines[0].replicas.iter().map(|r| (r.replica, r.device)).collect::<Vec<_>>();
    let [(replica, device)] = at(&first)[..] else { panic!("one replica") };
    fail(&agent, &first, replica).await;
    let second = agent.target(2).await;
    let [(moved, elsewhere)] = at(&second)[..] else { panic!("one replica: {:?}", at(&second)) };
    assert!(moved > replica && elsewhere != device, "{:?}", at(&second));
    assert!(s.get("/v1/target").await.1["reason"].as_str().is_some_and(|r| r.contains("replicas have failed")));
    // The other of its two devices fails too: there is no third.
    fail(&agent, &second, moved).await;
    let third = agent.target(3).await;
    assert_eq!(at(&third), []);
    let plan = store_document(&s, &only_read).await;
    assert_eq!(s.put_target(3, &json!([plan])).await.0, 200, "who applies a plan gives everything another chance");
    assert_eq!(at(&agent.target(4).await).len(), 1);
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_failures_stay_visible_with_their_reason() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plan = store_plan(&s, 1).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let target = agent.target(1).await;
    let failed = target.pipelines[0].replicas[0].replica;
    let state = |replica: u64, state: v1::replica_state::State, error: &str| v1::ReplicaState {
        replica,
        state: state.into(),
        error: error.into(),
        ..Default::default()
    };
    let ack = |replicas: Vec<v1::ReplicaState>| {
        agent_message::Message::Ack(v1::Ack { fence: target.fence, applied: false, error: String::new(), replicas })
    };
    let broken = state(failed, v1::replica_state::State::Failed, "out of memory\0");
    agent.say(ack(vec![broken.clone()])).await;
    agent.say(ack(vec![broken])).await;
    // The next acknowledgement does not name it any more.
    agent.say(ack(vec![state(failed + 100, v1::replica_state::State::Ready, "")])).await;
    let seen = |list: &Value| {
        let agent = &list[0];
        (agent["ack"]["replicas"][0]["state"] == "ready").then(|| agent["load_failures"].clone())
    };
    let failures = s.until("/v1/agents", seen).await;
    let one = &failures[0];
    assert_eq!(failures.as_array().map(Vec::len), Some(1), "{failures:#}");
    assert_eq!((&one["replica"], &one["pipeline"]), (&json!(failed), &json!("digits")), "{failures:#}");
    assert!(
        one["error"].as_str().is_some_and(|e| e.starts_with("out of memory")) && one["device"].is_u64(),
        "{failures:#}"
    );
    assert!(["find", "read"].contains(&one["task"].as_str().unwrap_or_default()), "{failures:#}");
    beat.abort();
    s.running.stop().await;
}
