//! Figures of profiles beside those that agents measure: a variant is slower than its profile, and recovers.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const DRIFT: &str = "/v1/pipelines/digits/drift";
const EVENTS: &str = "/v1/events?kind=drift&pipeline=digits";
/// Time of a batch of eight of `find-l` by [`profiles`], in milliseconds.
const BATCH_MS: f64 = 132.0;
/// Mean queries that a query of `find-l` makes at `read` by [`profiles`].
const FANOUT: u64 = 3;

/// What an agent measures of `find-l`, in percent of its profile.
struct Measured {
    latency: AtomicU32,
    fanout: AtomicU32,
}

impl Default for Measured {
    fn default() -> Self {
        Self { latency: AtomicU32::new(100), fanout: AtomicU32::new(100) }
    }
}

/// Two agents of eight devices that keep reporting batches of `find-l`.
struct Fleet {
    s: Service,
    agents: [Arc<Measured>; 2],
    beats: Vec<JoinHandle<()>>,
    /// The streams stay open.
    _streams: Vec<Agent>,
}

impl Fleet {
    async fn new(replan: Value) -> Self {
        let s = service().await;
        let mut spec = spec();
        spec["replan"] = replan;
        assert_eq!(s.put("/v1/pipelines/digits", &spec).await.0, 201);
        assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
        let (mut streams, mut beats) = (Vec::new(), Vec::new());
        let agents = [(); 2].map(|()| Arc::new(Measured::default()));
        for (name, measured) in ["a", "b"].into_iter().zip(&agents) {
            let mut agent = attach(&s, v1::Register { devices: 8, ..register(&s, name) }).await;
            agent.welcome().await;
            beats.push(report_batches(&agent, measured.clone()));
            streams.push(agent);
        }
        Self { s, agents, beats, _streams: streams }
    }

    /// Batches take this many percent of the profile's time from now on, at all agents.
    fn slow_down(&self, percent: u32) {
        self.agents.iter().for_each(|agent| agent.latency.store(percent, Ordering::Relaxed));
    }

    /// The facts of the newest event of this stage.
    async fn event(&self, stage: &str) -> Value {
        let newest = |all: &Value| Some(all[0]["detail"].clone()).filter(|detail| detail["stage"] == stage);
        self.s.until(EVENTS, newest).await
    }

    /// The figure of this kind, once `check` accepts it.
    async fn figure(&self, kind: &str, check: impl Fn(&Value) -> bool) -> Value {
        let of_kind = |document: &Value| {
            document["figures"].as_array()?.iter().find(|figure| figure["kind"] == kind && check(figure)).cloned()
        };
        self.s.until(DRIFT, of_kind).await
    }

    async fn stop(self) {
        self.beats.iter().for_each(JoinHandle::abort);
        self.s.running.stop().await;
    }
}

/// Reports five batches of eight queries four times a second.
fn report_batches(agent: &Agent, measured: Arc<Measured>) -> JoinHandle<()> {
    let outbox = agent.outbox.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        loop {
            let part = |percent: &AtomicU32| f64::from(percent.load(Ordering::Relaxed)) / 100.0;
            let (batches, queries) = (5, 40);
            let children = part(&measured.fanout) * (FANOUT * queries) as f64;
            let group = v1::GroupStats {
                pipeline: "digits".into(),
                group: 1,
                task: "find".into(),
                variant: "find-l".into(),
                hardware: "demo".into(),
                ended_batches: batches,
                expected_ms: batches as f64 * BATCH_MS,
                ended_ms: batches as f64 * BATCH_MS * part(&measured.latency),
                ended_queries: queries,
                children: vec![v1::ChildCount { task: "read".into(), queries: children as u64 }],
                ..Default::default()
            };
            let uptime_ms = begun.elapsed().as_millis() as u64;
            let report = v1::Report { uptime_ms, groups: vec![group], ..Default::default() };
            let message = v1::AgentMessage { message: Some(agent_message::Message::Report(report)) };
            if outbox.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    })
}

/// The plan in force, once `check` accepts it.
async fn plan_in_force(s: &Service, check: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let target = s.get("/v1/target").await.1;
        if let Some(id) = target["plans"][0].as_str() {
            let (_, plan) = s.get(&format!("/v1/plans/{id}")).await;
            if plan["state"] == "succeeded" && check(&plan) {
                return plan;
            }
        }
        let decisions = s.get("/v1/decisions").await.1;
        assert!(begin.elapsed() < crate::support::PATIENCE, "no such plan: {target:#} {decisions:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn replicas(plan: &Value) -> u64 {
    plan["plan"]["replicas"].as_u64().expect("replicas")
}

/// The warnings of a plan.
fn warnings(plan: &Value) -> Vec<&str> {
    plan["plan"]["planner"]["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The latency of one query of `find-l` in a plan's problem, in milliseconds.
fn planned_latency_ms(plan: &Value) -> f64 {
    let variants = plan["problem"]["pipelines"][0]["tasks"][0]["variants"].as_array().expect("variants");
    let slow = variants.iter().find(|variant| variant["name"] == "find-l").expect("find-l");
    let row = slow["profile"].as_array().expect("rows").iter().find(|row| row["batch"] == 1).expect("a batch of one");
    row["latency_ms"].as_f64().expect("a time")
}

/// A plan of the pipeline on four devices.
async fn planned(s: &Service) -> Value {
    let hardware = json!([{"name": "demo", "price_per_hour": 1.0, "count": 4}]);
    let request = json!({"pipelines": [{"name": "digits", "demand_qps": 5.0}], "hardware": hardware});
    let (status, plan) = s.post("/v1/plans", &request).await;
    assert_eq!((status, &plan["state"]), (200, &json!("succeeded")), "{plan:#}");
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_variant_gets_more_replicas_until_it_recovers() {
    // Only drifts bring rounds: the load is the floor, and the period is long.
    let fleet = Fleet::new(json!({"mode": "apply", "period_s": 3600.0, "min_qps": 100.0})).await;
    let s = &fleet.s;
    let before = replicas(&plan_in_force(s, |_| true).await);
    let calm = fleet.figure("latency", |figure| figure["measured"]["ratio"] == json!(1.0)).await;
    assert_eq!((&calm["drift"], &calm["measured"]["profile"]), (&Value::Null, &json!(BATCH_MS)), "{calm}");
    fleet.slow_down(200);
    let begun = fleet.event("begun").await;
    assert_eq!(
        (&begun["variant"], &begun["hardware"], &begun["kind"]),
        (&json!("find-l"), &json!("demo"), &json!("latency"))
    );
    // The first of three windows may have begun before the change.
    let factor = begun["factor"].as_f64().expect("a factor");
    assert!((1.6..=2.0).contains(&factor) && begun["profile"] == json!(BATCH_MS), "{begun:#}");
    let is_for_drift = |d: &Value| d["reason"].as_str().is_some_and(|r| r.starts_with("find-l on demo takes "));
    let decision = |all: &Value| all.as_array()?.iter().find(|d| is_for_drift(d)).cloned();
    let decision = s.until("/v1/decisions", decision).await;
    assert_eq!(decision["decision"], "applied", "{decision:#}");
    let slowed = plan_in_force(s, |plan| replicas(plan) > before).await;
    let is_named =
        |w: &&str| w.starts_with("pipeline digits: find-l on demo takes ") && w.ends_with("plans count with this");
    assert!(warnings(&slowed).iter().any(is_named), "{:?}", warnings(&slowed));
    assert!(planned_latency_ms(&slowed) > 1.5 * 34.0, "{}", planned_latency_ms(&slowed));
    let drifting = fleet.figure("latency", |figure| figure["drift"]["factor"].is_number()).await;
    assert!(drifting["measured"]["ratio"].as_f64() > Some(1.15), "{drifting}");
    let (_, metrics) = s.get("/metrics").await;
    let series = "apportion_profile_drift_ratio{pipeline=\"digits\",task=\"find\",variant=\"find-l\",hardware=\"demo\"} ";
    let ratio = metrics.as_str().and_then(|text| text.lines().find_map(|line| line.strip_prefix(series)));
    assert!(ratio.is_some_and(|ratio| ratio.parse::<f64>().is_ok_and(|ratio| ratio > 1.15)), "{metrics}");
    fleet.slow_down(100);
    let over = fleet.event("over").await;
    assert_eq!(over["why"], "find-l on demo is as its profile says again", "{over:#}");
    // A plan may count with a smaller drift before that.
    let again = plan_in_force(s, |plan| planned_latency_ms(plan) == 34.0).await;
    assert!(replicas(&again) < replicas(&slowed), "{again:#}");
    assert!(!warnings(&again).iter().any(is_named), "{:?}", warnings(&again));
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_count_with_drifts_unless_that_is_switched_off() {
    let fleet = Fleet::new(json!({"mode": "off"})).await;
    let s = &fleet.s;
    assert_eq!(planned_latency_ms(&planned(s).await), 34.0);
    fleet.slow_down(130);
    fleet.agents.iter().for_each(|agent| agent.fanout.store(150, Ordering::Relaxed));
    for kind in ["latency", "fanout"] {
        fleet.figure(kind, |figure| figure["drift"]["factor"].is_number()).await;
    }
    let plan = planned(s).await;
    assert!((36.0..=34.0 * 1.3 + 1e-6).contains(&planned_latency_ms(&plan)), "{}", planned_latency_ms(&plan));
    let find_l = &plan["problem"]["pipelines"][0]["tasks"][0]["variants"][1];
    assert!(find_l["fanout_to"]["read"].as_f64().is_some_and(|mean| (3.4..=4.5).contains(&mean)), "{find_l:#}");
    assert_eq!(find_l["fanout_counts"]["read"], Value::Null, "the mean replaces the distribution");
    let named = ["find-l on demo takes 1.", "find-l makes 1."].map(|start| format!("pipeline digits: {start}"));
    for start in &named {
        assert!(warnings(&plan).iter().any(|w| w.starts_with(start)), "{start}: {:?}", warnings(&plan));
    }
    let mut off = spec();
    off["replan"] = json!({"mode": "off", "correct_profiles": false});
    assert_eq!(s.put("/v1/pipelines/digits", &off).await.0, 200);
    let plan = planned(s).await;
    assert_eq!(planned_latency_ms(&plan), 34.0);
    assert!(!warnings(&plan).iter().any(|w| w.starts_with(&named[0])), "{:?}", warnings(&plan));
    let (_, document) = s.get(DRIFT).await;
    assert_eq!(document["corrected"], false);
    let mut warned = document["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    assert!(warned.any(|w| w.ends_with("plans count with the profile")), "{document:#}");
    assert_eq!(s.get("/v1/pipelines/nothing/drift").await.0, 404);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_disturbed_agent_makes_no_drift() {
    let fleet = Fleet::new(Value::Null).await;
    fleet.agents[0].latency.store(200, Ordering::Relaxed);
    // Three whole windows of the slow time: the mean over both agents is 1.5 times the profile's.
    let is_slow = |figure: &Value| {
        let measured = &figure["measured"];
        measured["seconds"] == json!(15) && measured["measured"].as_f64() > Some(1.45 * BATCH_MS)
    };
    let figure = fleet.figure("latency", is_slow).await;
    assert_eq!((&figure["measured"]["ratio"], &figure["drift"]), (&json!(1.0), &Value::Null), "{figure}");
    assert_eq!(fleet.s.get(EVENTS).await.1, json!([]));
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_profile_ends_a_drift() {
    let fleet = Fleet::new(json!({"mode": "off"})).await;
    let s = &fleet.s;
    let plan = planned(s).await;
    assert_eq!(s.put_target(0, &json!([plan["id"]])).await.0, 200);
    fleet.slow_down(130);
    fleet.event("begun").await;
    let mut slower = profiles();
    for row in slower["rows"].as_array_mut().expect("rows") {
        row["latency_ms"] = json!(1.3 * row["latency_ms"].as_f64().expect("a time"));
    }
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &slower).await.0, 200);
    let over = fleet.event("over").await;
    assert_eq!(over["why"], "find-l on demo has another profile", "{over:#}");
    fleet.stop().await;
}
