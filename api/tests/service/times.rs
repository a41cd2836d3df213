//! Times that agents measured, beside those of a pipeline's file.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A service with a profiled pipeline and two agents that keep reporting.
struct Fleet {
    s: Service,
    agents: [Agent; 2],
    numbers: [u64; 2],
    beats: Vec<JoinHandle<()>>,
}

impl Fleet {
    async fn new() -> Self {
        let s = service().await;
        assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
        assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
        let mut agents = [attach(&s, register(&s, "a")).await, attach(&s, register(&s, "b")).await];
        let numbers = [agents[0].welcome().await.agent, agents[1].welcome().await.agent];
        let beats = agents.iter().map(Agent::report).collect();
        Self { s, agents, numbers, beats }
    }

    /// The first agent reports this time of a hop to the second one.
    async fn report_hop(&self, hop_ms: f64) {
        let hops = vec![v1::HopTime { agent: self.numbers[1], hop_ms, samples: 12 }];
        let report = v1::Report { hops, ..Default::default() };
        self.agents[0].say(agent_message::Message::Report(report)).await;
        let measured = |times: &Value| (times["network_ms"]["measured"]["median_ms"] == json!(hop_ms)).then_some(());
        self.s.until("/v1/pipelines/digits/times", measured).await;
    }

    async fn stop(self) {
        self.beats.iter().for_each(JoinHandle::abort);
        self.s.running.stop().await;
    }
}

fn load(variant: &str, download_ms: f64, start_ms: f64) -> v1::LoadTime {
    v1::LoadTime {
        pipeline: "digits".into(),
        task: "find".into(),
        variant: variant.into(),
        hardware: "demo".into(),
        download_ms,
        start_ms,
    }
}

/// The spec with this time of a hop.
fn with_hop(network_ms: f64) -> Value {
    let mut spec = spec();
    spec["network_ms"] = json!(network_ms);
    spec
}

/// The warnings of a plan of the pipeline on four devices, and its problem's `network_ms`.
async fn planned(s: &Service) -> (Vec<String>, Value) {
    let hardware = json!([{"name": "demo", "price_per_hour": 1.0, "count": 4}]);
    let request = json!({"pipelines": [{"name": "digits", "demand_qps": 5.0}], "hardware": hardware});
    let (status, plan) = s.post("/v1/plans", &request).await;
    assert_eq!((status, &plan["state"]), (200, &json!("succeeded")), "{plan:#}");
    let warnings = plan["plan"]["planner"]["warnings"].as_array().cloned().unwrap_or_default();
    let warnings = warnings.iter().map(|w| w.as_str().expect("a sentence").to_owned()).collect();
    (warnings, plan["problem"]["pipelines"][0]["network_ms"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn hops_and_loads_stand_beside_the_files_times() {
    let fleet = Fleet::new().await;
    let s = &fleet.s;
    let (_, none) = s.get("/v1/pipelines/digits/times").await;
    assert_eq!(none["network_ms"], json!({"given": null, "measured": null, "used": 0.0}));
    assert!(none["warnings"][0].as_str().is_some_and(|w| w.contains("network_ms is 0 in the file and no agent")), "{none}");
    fleet.report_hop(0.4).await;
    for (start_ms, agent) in [(30.0, 0), (40.0, 1)] {
        let loads = vec![load("find-s", 100.0, start_ms), load("", 1.0, 1.0)];
        let report = v1::Report { loads, ..Default::default() };
        fleet.agents[agent].say(agent_message::Message::Report(report)).await;
    }
    let of_find_s = |times: &Value| times["load_ms"].as_array()?.iter().find(|load| load["variant"] == "find-s").cloned();
    let both = |times: &Value| of_find_s(times).filter(|load| load["measured"]["count"] == 2);
    let found = s.until("/v1/pipelines/digits/times", both).await;
    assert_eq!((&found["given"], &found["used"]), (&json!(50.0), &json!(50.0)), "the profile's");
    let measured = &found["measured"];
    assert_eq!((&measured["median_ms"], &measured["download_ms"]), (&json!(130.0), &json!(100.0)));
    assert_eq!(measured["start_ms"], json!(30.0));
    let (_, times) = s.get("/v1/pipelines/digits/times").await;
    assert_eq!((&times["network_ms"]["used"], &times["network_ms"]["measured"]["count"]), (&json!(0.4), &json!(1)));
    let (_, agents) = s.get("/v1/agents").await;
    let first = agents.as_array().into_iter().flatten().find(|agent| agent["number"] == json!(fleet.numbers[0]));
    let first = first.expect("the agent that reported");
    assert_eq!((&first["hops"][0]["to"], &first["hops"][0]["samples"]), (&json!(fleet.numbers[1]), &json!(12)));
    assert_eq!(first["load_times"].as_array().map(Vec::len), Some(1), "a load without a variant is none: {agents}");
    let (_, metrics) = s.get("/metrics").await;
    let metrics = metrics.as_str().expect("text");
    assert!(metrics.contains("apportion_measured_hop_seconds 0.0004\n"), "{metrics}");
    let series =
        "apportion_measured_load_seconds{pipeline=\"digits\",task=\"find\",variant=\"find-s\",hardware=\"demo\"} 0.13";
    assert!(metrics.contains(series), "{metrics}");
    assert_eq!(s.get("/v1/pipelines/nothing/times").await.0, 404);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_use_the_measured_hop_where_the_file_has_none() {
    let fleet = Fleet::new().await;
    let s = &fleet.s;
    let (warnings, network_ms) = planned(s).await;
    assert_eq!(network_ms, Value::Null);
    assert!(warnings.iter().any(|w| w.contains("network_ms is 0: hops between tasks count as no time")), "{warnings:?}");
    fleet.report_hop(0.4123).await;
    let (warnings, network_ms) = planned(s).await;
    assert_eq!(network_ms, json!(0.41));
    let expected =
        "pipeline digits: network_ms is 0 in the file: plans use 0.41 ms, the median of 1 measurements of agents";
    assert_eq!(warnings, [expected]);
    assert_eq!(s.put("/v1/pipelines/digits", &with_hop(9.0)).await.0, 200);
    let (warnings, network_ms) = planned(s).await;
    assert_eq!(network_ms, json!(9.0), "the file decides");
    assert_eq!(warnings, ["pipeline digits: network_ms is 9 ms in the file, and agents measured 0.41 ms (1 measurements)"]);
    assert_eq!(s.put("/v1/pipelines/digits", &with_hop(0.5)).await.0, 200);
    assert_eq!(planned(s).await, (Vec::new(), json!(0.5)), "it agrees");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_far_value_is_one_event_until_it_agrees() {
    const EVENTS: &str = "/v1/events?kind=times&pipeline=digits";
    let fleet = Fleet::new().await;
    let s = &fleet.s;
    assert_eq!(s.put("/v1/pipelines/digits", &with_hop(9.0)).await.0, 200);
    fleet.report_hop(0.4).await;
    let count = |events: &Value| events.as_array().map_or(0, Vec::len);
    let first = s.until(EVENTS, |events| (count(events) > 0).then(|| events[0]["detail"]["differ"].clone())).await;
    assert_eq!(first, json!([{"time": "network_ms", "given_ms": 9.0, "measured_ms": 0.4, "count": 1}]));
    // Other values of the same time are no news.
    fleet.report_hop(0.3).await;
    assert_eq!(s.put("/v1/pipelines/digits", &with_hop(0.3)).await.0, 200);
    let last = s.until(EVENTS, |events| (count(events) > 1).then(|| events.clone())).await;
    assert_eq!((count(&last), &last[0]["detail"]["differ"]), (2, &json!([])), "{last}");
    fleet.stop().await;
}
