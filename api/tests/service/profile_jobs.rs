//! Profile jobs: simulated agents answer orders to measure.

use crate::support::agent::{Agent, attach, register};
use crate::support::{Service, profiles, service, spec};
use apportion_protocol::v1::{self, agent_message, control_message};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

const JOBS: &str = "/v1/profile-jobs";
const PROFILES: &str = "/v1/pipelines/digits/profiles";

/// An order that an agent got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SeenOrder {
    variant: String,
    batch: u32,
    device: u32,
}

/// An agent that reports and answers orders.
struct Measurer {
    orders: Arc<Mutex<Vec<SeenOrder>>>,
    tasks: [JoinHandle<()>; 2],
}

impl Measurer {
    /// Attaches an agent; `answer` makes its answer to an order, or none.
    async fn attach(
        s: &Service,
        name: &str,
        hardware: &str,
        answer: impl Fn(&v1::Measure) -> Option<v1::Measurement> + Send + 'static,
    ) -> Self {
        let mut agent = attach(s, v1::Register { hardware: hardware.into(), ..register(s, name) }).await;
        agent.welcome().await;
        let (beats, orders) = (agent.report(), Arc::new(Mutex::new(Vec::new())));
        let seen = orders.clone();
        let answers = tokio::spawn(async move {
            while let Some(message) = agent.next().await {
                let control_message::Message::Measure(order) = message else { continue };
                let group = order.group.clone().expect("an order names its variant");
                let one = SeenOrder { variant: group.variant, batch: order.batch, device: order.device };
                seen.lock().expect("no panic").push(one);
                let told = answer(&order);
                if let Some(told) = told {
                    agent.say(agent_message::Message::Measurement(told)).await;
                }
            }
        });
        Self { orders, tasks: [beats, answers] }
    }

    fn orders(&self) -> Vec<SeenOrder> {
        self.orders.lock().expect("no panic").clone()
    }

    fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A calm measurement of this latency.
fn measured(order: &v1::Measure, median_ms: f64) -> v1::Measurement {
    v1::Measurement {
        claim: order.claim,
        point: order.point,
        median_ms,
        p95_ms: 1.1 * median_ms,
        p99_ms: 1.2 * median_ms,
        runs: 400,
        warm_up_runs: 10,
        steady: true,
        noise: 0.01,
        median_low_ms: Some(0.98 * median_ms),
        median_high_ms: Some(1.02 * median_ms),
        device: "a device".into(),
        version: "1".into(),
        ..Default::default()
    }
}

/// A line: 2 ms and 1 ms for each query.
fn line(order: &v1::Measure) -> Option<v1::Measurement> {
    Some(measured(order, 2.0 + f64::from(order.batch)))
}

/// A service with the pipeline and its profile on `demo`.
async fn with_pipeline() -> Service {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put(PROFILES, &profiles()).await.0, 200);
    s
}

/// Starts a job; returns its path.
async fn start(s: &Service, request: &Value) -> String {
    let (status, job) = s.post(JOBS, request).await;
    assert_eq!(status, 202, "{job:#}");
    format!("{JOBS}/{}", job["id"].as_str().expect("an id"))
}

/// The job once it is over.
async fn over(s: &Service, path: &str) -> Value {
    let is_over = |job: &Value| !["queued", "running"].contains(&job["state"].as_str().expect("a state"));
    s.until(path, |job| is_over(job).then(|| job.clone())).await
}

/// Batch sizes and latencies of a variant on a hardware type.
fn rows(profile: &Value, variant: &str, hardware: &str) -> Vec<(u64, f64)> {
    let all = profile["rows"].as_array().expect("rows").iter();
    let of = all.filter(|row| row["variant"] == variant && row["hardware"] == hardware);
    of.map(|row| (row["batch"].as_u64().expect("a batch"), row["latency_ms"].as_f64().expect("a time"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hardware_types_measured_in_turn_are_both_there() {
    let s = with_pipeline().await;
    let before = s.get(PROFILES).await.1;
    let a = Measurer::attach(&s, "a", "demo", line).await;
    let only_read = json!([{"task": "read"}]);
    let job = start(&s, &json!({"pipeline": "digits", "variants": only_read, "batch_max": 8})).await;
    let job = over(&s, &job).await;
    assert_eq!((&job["state"], &job["progress"]), (&json!("done"), &json!({"ready": 2, "total": 2})), "{job:#}");
    assert_eq!(job["request"]["hardware"], json!(["demo"]), "all types of the live agents");
    let b = Measurer::attach(&s, "b", "t4", |order| Some(measured(order, f64::from(order.batch)))).await;
    let job = start(&s, &json!({"pipeline": "digits", "variants": only_read, "hardware": ["t4"], "batches": [1, 8]})).await;
    assert_eq!(over(&s, &job).await["state"], "done");
    let profile = s.get(PROFILES).await.1;
    for variant in ["read-s", "read-l"] {
        let demo = rows(&profile, variant, "demo").into_iter().map(|(batch, ms)| (batch, ms.round())).collect::<Vec<_>>();
        assert_eq!(demo, [(1, 3.0), (2, 4.0), (4, 6.0), (8, 10.0)], "interpolated sizes too");
        assert_eq!(rows(&profile, variant, "t4"), [(1, 1.0), (8, 8.0)]);
    }
    for variant in ["find-s", "find-l"] {
        assert_eq!(rows(&profile, variant, "demo"), rows(&before, variant, "demo"), "what was not measured stays");
    }
    let row = profile["rows"].as_array().expect("rows").iter().find(|row| row["hardware"] == "t4").expect("a row");
    let how = &row["measured"];
    assert_eq!((&how["agent"], &how["device"], &how["runs"]), (&json!("b"), &json!("a device"), &json!(400)), "{row:#}");
    assert!(how["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{row:#}");
    // A plan says how old and sure its profiles are.
    let hardware = json!([{"name": "demo", "price_per_hour": 1.0, "count": 6}]);
    let request = json!({"pipelines": [{"name": "digits", "demand_qps": 5.0}], "hardware": hardware});
    let (_, plan) = s.post("/v1/plans", &request).await;
    let groups = plan["plan"]["explanation"]["profiles"].as_array().expect("profiles").clone();
    let of = |task: &str| groups.iter().find(|group| group["task"] == task).expect("a group").clone();
    assert!(of("read")["measured_at"].is_string() && of("find")["measured_at"].is_null(), "{groups:?}");
    assert!(of("read")["interval"].as_f64().is_some_and(|width| (width - 0.04).abs() < 1e-6), "{groups:?}");
    [a, b].iter().for_each(Measurer::stop);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_measures_nothing_again() {
    let s = with_pipeline().await;
    let answered = Arc::new(Mutex::new(0));
    let count = answered.clone();
    // It answers three orders, and then none.
    let first = Measurer::attach(&s, "a", "demo", move |order| {
        let mut answered = count.lock().expect("no panic");
        *answered += 1;
        (*answered <= 3).then(|| measured(order, 2.0 + f64::from(order.batch)))
    })
    .await;
    let batches: Vec<u32> = vec![1, 2, 4];
    let path = start(&s, &json!({"pipeline": "digits", "batches": batches})).await;
    s.until(&path, |job| (job["points"].as_array().map(Vec::len) == Some(3)).then_some(())).await;
    first.stop();
    let done: BTreeSet<SeenOrder> = first.orders().into_iter().take(3).collect();
    let s = s.restart().await;
    let second = Measurer::attach(&s, "a", "demo", line).await;
    let job = over(&s, &path).await;
    assert_eq!((&job["state"], job["points"].as_array().map(Vec::len)), (&json!("done"), Some(12)), "{job:#}");
    let again: BTreeSet<SeenOrder> = second.orders().into_iter().collect();
    let is_known = |order: &&SeenOrder| again.iter().any(|o| (&o.variant, o.batch) == (&order.variant, order.batch));
    assert_eq!(done.iter().filter(is_known).count(), 0, "{done:?} {again:?}");
    second.stop();
    s.running.stop().await;
}

/// A plan of the pipeline on two devices.
async fn planned(s: &Service) -> Value {
    let hardware = json!([{"name": "demo", "price_per_hour": 1.0, "count": 2}]);
    let request = json!({"pipelines": [{"name": "digits", "demand_qps": 5.0}], "hardware": hardware});
    let (status, plan) = s.post("/v1/plans", &request).await;
    assert_eq!((status, &plan["state"]), (200, &json!("succeeded")), "{plan:#}");
    plan
}

/// The next order of an agent, or `None` if the order is taken back.
async fn next_order(agent: &mut Agent) -> Option<v1::Measure> {
    loop {
        match agent.next().await.expect("the stream lives") {
            control_message::Message::Measure(order) => return Some(order),
            control_message::Message::StopMeasuring(_) => return None,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_replica_goes_to_a_device_that_measures() {
    let s = with_pipeline().await;
    let plan = planned(&s).await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beats = agent.report();
    let path = start(&s, &json!({"pipeline": "digits"})).await;
    let order = next_order(&mut agent).await.expect("an order");
    assert_eq!((order.device, order.batch, order.task.map(|task| task.name)), (0, 1, Some("find".to_owned())));
    let group = order.group.expect("a variant");
    assert_eq!((group.file_digest.as_str(), group.service.len()), ("aa".repeat(32).as_str(), 4));
    let job = s.get(&path).await.1;
    assert_eq!((&job["state"], &job["measuring"][0]["device"]), (&json!("running"), &json!(0)), "{job:#}");
    let (status, refusal) = s.put_target(0, &json!([plan["id"]])).await;
    assert!(status >= 400 && refusal["detail"].as_str().is_some_and(|d| d.contains("no live demo device")), "{refusal:#}");
    let (status, job) = s.post(&format!("{path}/cancel"), &Value::Null).await;
    assert_eq!((status, &job["state"], &job["measuring"]), (202, &json!("cancelled"), &json!([])), "{job:#}");
    assert_eq!(next_order(&mut agent).await, None, "the agent stops");
    assert_eq!(s.put_target(0, &json!([plan["id"]])).await.0, 200, "both devices are there again");
    assert!(agent.target(1).await.agents.iter().all(|peer| peer.measured.is_empty()));
    // Both have replicas now.
    let late = start(&s, &json!({"pipeline": "digits", "time_max_s": 0.5})).await;
    let late = over(&s, &late).await;
    let why = late["error"].as_str().unwrap_or_default();
    assert!(late["state"] == "failed" && why.contains("no live agent had a device without replicas of demo"), "{late:#}");
    assert_eq!(s.post(&format!("{path}/cancel"), &Value::Null).await.0, 409, "it is over");
    assert_eq!(s.delete(&path).await.0, 204);
    assert_eq!(s.get(&path).await.0, 404);
    beats.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_yields_is_replaced_by_another() {
    let s = with_pipeline().await;
    let agent = Measurer::attach(&s, "a", "demo", |order| match order.device {
        0 => Some(v1::Measurement { yielded: "a replica".into(), ..measured(order, 1.0) }),
        _ => line(order),
    })
    .await;
    let path = start(&s, &json!({"pipeline": "digits", "variants": [{"task": "read", "variant": "read-s"}]})).await;
    assert_eq!(over(&s, &path).await["state"], "done");
    let orders = agent.orders();
    assert_eq!((orders[0].device, orders[0].batch), (0, 1));
    assert!(orders[1..].iter().all(|order| order.device == 1) && orders[1].batch == 1, "{orders:?}");
    agent.stop();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_refused_by_strict_jobs_and_failures_are_said() {
    let s = with_pipeline().await;
    let before = s.get(PROFILES).await.1;
    let agent = Measurer::attach(&s, "a", "demo", |order| {
        let variant = order.group.as_ref().map(|group| group.variant.as_str());
        let noisy = v1::Measurement { noise: 0.5, ..measured(order, 5.0) };
        Some(if variant == Some("find-s") { v1::Measurement { error: "no room".into(), ..noisy } } else { noisy })
    })
    .await;
    let only = |variant: &str| {
        let task = if variant.starts_with("find") { "find" } else { "read" };
        json!([{"task": task, "variant": variant}])
    };
    let strict = start(&s, &json!({"pipeline": "digits", "variants": only("read-s"), "strict": true})).await;
    let strict = over(&s, &strict).await;
    let why = strict["error"].as_str().unwrap_or_default();
    assert!(strict["state"] == "failed" && why.contains("read-s on demo: the machine is noisy: noise 0.50"), "{strict:#}");
    let broken = over(&s, &start(&s, &json!({"pipeline": "digits", "variants": only("find-s")})).await).await;
    assert!(broken["error"].as_str().is_some_and(|why| why.ends_with("find-s on demo: no room")), "{broken:#}");
    assert_eq!(s.get(PROFILES).await.1, before, "nothing was measured");
    let kept = over(&s, &start(&s, &json!({"pipeline": "digits", "variants": only("read-s")})).await).await;
    assert_eq!((&kept["state"], &kept["points"][0]["measured"]["measured"]["noise"]), (&json!("done"), &json!(0.5)));
    agent.stop();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_profile_refuses_fail_their_job() {
    let s = with_pipeline().await;
    let mut grown = spec();
    let variants = grown["tasks"][1]["variants"].as_array_mut().expect("a list");
    variants.push(json!({"name": "read-x", "model_digest": "ee".repeat(32), "accuracy": 0.5}));
    assert_eq!(s.put("/v1/pipelines/digits", &grown).await.0, 200);
    let before = s.get(PROFILES).await.1;
    // The agent answers when the pipeline has changed.
    let (changed, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let answer = move |order: &v1::Measure| {
        let _changed = tokio::task::block_in_place(|| wait.lock().expect("no panic").recv());
        line(order)
    };
    let agent = Measurer::attach(&s, "a", "demo", answer).await;
    let request = json!({"pipeline": "digits", "variants": [{"task": "read", "variant": "read-x"}], "batches": [1, 2]});
    let path = start(&s, &request).await;
    // With latencies and without an accuracy it would make every plan of the pipeline impossible.
    let mut unknown = grown.clone();
    unknown["tasks"][1]["variants"][2].as_object_mut().expect("an object").remove("accuracy");
    assert_eq!(s.put("/v1/pipelines/digits", &unknown).await.0, 200);
    drop(changed);
    let job = over(&s, &path).await;
    let why = job["error"].as_str().unwrap_or_default();
    assert_eq!((&job["state"], &job["measuring"]), (&json!("failed"), &json!([])), "{job:#}");
    assert!(why.starts_with("the profile refuses the rows of read-x on demo: "), "{why}");
    assert!(why.contains("/tasks/1/variants/2/accuracy: missing"), "{why}");
    assert_eq!(s.get(PROFILES).await.1, before, "no row went into the profile");
    // Nobody waits for rows that no plan can use.
    let (status, refusal) = s.post(JOBS, &request).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/pipeline")), "{refusal:#}");
    let detail = refusal["errors"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("read/read-x has no accuracy: expected `accuracy` of the variant"), "{refusal:#}");
    // With an accuracy the same rows pass.
    assert_eq!(s.put("/v1/pipelines/digits", &grown).await.0, 200);
    assert_eq!(over(&s, &start(&s, &request).await).await["state"], "done");
    assert_eq!(rows(&s.get(PROFILES).await.1, "read-x", "demo"), [(1, 3.0), (2, 4.0)]);
    agent.stop();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_drift_starts_one_job() {
    let s = with_pipeline().await;
    let mut on = spec();
    on["replan"] = json!({"mode": "off", "profile_on_drift": true});
    assert_eq!(s.put("/v1/pipelines/digits", &on).await.0, 200);
    let agent = Measurer::attach(&s, "a", "demo", line).await;
    let mut db = PgConnection::connect(&s.url).await.expect("our own database");
    sqlx::query(
        "insert into drifts (pipeline, kind, task, variant, place, factor, profile, measured, since)
         values ('digits', 'latency', 'find', 'find-l', 'demo', 1.3, 132, 171.6, now() - interval '1 hour')",
    )
    .execute(&mut db)
    .await
    .expect("a drift");
    let first = s.until(JOBS, |jobs| jobs.as_array()?.first().cloned()).await;
    assert_eq!(first["reason"], "drift of find/find-l on demo", "{first:#}");
    let variants = json!([{"task": "find", "variant": "find-l"}]);
    assert_eq!((&first["request"]["variants"], &first["request"]["hardware"]), (&variants, &json!(["demo"])));
    let path = format!("{JOBS}/{}", first["id"].as_str().expect("an id"));
    assert_eq!(over(&s, &path).await["state"], "done");
    let jobs = s.get(JOBS).await.1;
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "the drift is there still: {jobs:#}");
    let event = |events: &Value| {
        let done = |e: &&Value| e["kind"] == "profile-job" && e["detail"]["state"] == "done";
        events.as_array()?.iter().find(done).cloned()
    };
    assert_eq!(s.until("/v1/events?kind=profile-job", event).await["pipeline"], "digits");
    agent.stop();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_refused_with_their_place() {
    let s = with_pipeline().await;
    let (status, refusal) = s.post(JOBS, &json!({"pipeline": "digits"})).await;
    assert!(status == 409 && refusal["detail"].as_str().is_some_and(|d| d.contains("no agent is live")), "{refusal:#}");
    let agent = Measurer::attach(&s, "a", "demo", |_| None).await;
    for (key, value, place) in [
        ("pipeline", json!("nothing"), "/pipeline"),
        ("variants", json!([{"task": "sort"}]), "/variants/0"),
        ("hardware", json!(["demo", "h100"]), "/hardware/1"),
        ("hardware", json!(["demo", "demo"]), "/hardware/1"),
        ("batches", json!([4, 2]), "/batches"),
        ("batch_max", json!(0), "/batch_max"),
        ("time_max_s", json!(-1.0), "/time_max_s"),
        ("point_time_max_s", json!(1e9), "/point_time_max_s"),
        ("shapes", json!({"x": []}), "/shapes"),
    ] {
        let mut request = json!({"pipeline": "digits"});
        request[key] = value;
        let (status, refusal) = s.post(JOBS, &request).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(place)), "{request}: {refusal:#}");
    }
    assert_eq!(s.get(JOBS).await.1, json!([]), "nothing was stored");
    let send = || {
        let request = s.client.post(format!("{}{JOBS}", s.base)).header("idempotency-key", "one");
        request.json(&json!({"pipeline": "digits"})).send()
    };
    let first: Value = send().await.expect("an answer").json().await.expect("JSON");
    let again: Value = send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(first["id"], again["id"], "the same key is the same job");
    assert_eq!(s.get("/v1/profile-jobs?pipeline=digits").await.1.as_array().map(Vec::len), Some(1));
    assert_eq!(s.get("/v1/profile-jobs?pipeline=other").await.1, json!([]));
    agent.stop();
    s.running.stop().await;
}
