//! A week of operations, replayed within minutes: the service and an agent take no more memory at its end than after its
//! first days.
//!
//! Each day here has all that a process could remember of a day: plans and simulations under keys of their own, targets,
//! tokens, and clients without one. Pipelines and agents come and go. Events are streamed, requests answered, each list is
//! read. The clock is not moved, so all that is forgotten by its age alone is still there at the end. The rows of a week
//! and the disk are in `api/tests/service/retention.rs`.

use crate::{chain, inputs, profile};
use apportion_tests::cluster::Cluster;
use apportion_tests::load::{Ingresses, Load, Traffic, attainment};
use apportion_tests::resources;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::time::Duration;

/// The first days warm up: connections, threads and caches reach their size.
const WARM_DAYS: usize = 2;
/// Days without `APPORTION_TRIAL_DAYS`.
const DAYS: usize = 7;
/// What the days after the first may add, as a share.
const GROWTH_MAX: f64 = 0.1;
/// A process that is smaller counts as this large: its memory grows by steps.
const SMALL_MIB: f64 = 64.0;
/// Plans of a day. Every third is applied.
const PLANS: usize = 12;
/// Pipelines that are registered in the morning and deleted in the evening.
const PIPELINES: usize = 30;
/// Those of them that the leader watches.
const WATCHED: usize = 3;
/// Tokens that are made, used and revoked.
const TOKENS: usize = 40;
/// Clients that follow the events until the evening.
const STREAMS: usize = 16;
/// Times that an agent is killed and comes back.
const RESTARTS: usize = 2;
/// Reads of each list by clients without a token.
const READS: usize = 120;
/// Lists are read by pages: more rows make no larger answer.
const LISTS: [&str; 10] = [
    "/v1/agents",
    "/v1/decisions?limit=20",
    "/v1/events?limit=20",
    "/v1/pipelines?limit=20",
    "/v1/plans?limit=20",
    "/v1/pipelines/chain",
    "/v1/pipelines/chain/drift",
    "/v1/target",
    "/v1/target/history?limit=20",
    "/metrics",
];

/// How many days pass: three at least.
fn days() -> usize {
    let asked = std::env::var("APPORTION_TRIAL_DAYS").ok().and_then(|days| days.parse().ok());
    asked.unwrap_or(DAYS).max(WARM_DAYS + 1)
}

/// A request to the service.
fn ask(cluster: &Cluster, method: Method, path: &str) -> RequestBuilder {
    cluster.client().request(method, format!("{}{path}", cluster.service()))
}

/// The status of an answer and its JSON; null if it has another form.
async fn answered(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("the service answers");
    let (status, text) = (response.status().as_u16(), response.text().await.expect("a whole answer"));
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Sends a request whose answer must have this status, and gives its JSON.
async fn expect_status(status: u16, request: RequestBuilder) -> Value {
    let (found, document) = answered(request).await;
    assert_eq!(found, status, "{document}");
    document
}

/// Makes a plan the target. The leader may replace the target at the same time, when an agent comes or goes.
async fn deploy(cluster: &Cluster, plan: &Value) {
    loop {
        let generation = cluster.get("/v1/target").await["generation"].clone();
        let request = ask(cluster, Method::PUT, "/v1/target").header("if-match", format!("\"{generation}\""));
        match answered(request.json(&json!({"plans": [plan["id"]]}))).await {
            (200, _) => return,
            (412, _) => {}
            (status, document) => panic!("{status}: {document}"),
        }
    }
}

/// Plans, targets and a simulation.
async fn make_plans(cluster: &Cluster, day: usize) {
    for number in 0..PLANS {
        let demand_qps = if number % 2 == 0 { 10.0 } else { 110.0 };
        let body = json!({"pipelines": [{"name": "chain", "demand_qps": demand_qps}]});
        let key = format!("plan {number} of day {day}");
        let request =
            || ask(cluster, Method::POST, "/v1/plans").header("idempotency-key", &key).header("prefer", "wait=60");
        let made = expect_status(200, request().json(&body)).await;
        assert_eq!(made["state"], "succeeded", "{made}");
        assert_eq!(expect_status(200, request().json(&body)).await["id"], made["id"], "one key makes one plan");
        if number % 3 == 0 {
            deploy(cluster, &made).await;
        }
        if number == 0 {
            let request = ask(cluster, Method::POST, "/v1/simulations").header("idempotency-key", &key);
            let made = expect_status(202, request.json(&json!({"plan": made["id"]}))).await;
            let path = format!("/v1/simulations/{}", made["id"].as_str().expect("an identifier"));
            cluster.until(&path, |found| (found["state"] == "done").then_some(())).await;
        }
    }
}

/// Clients that come once and never again.
async fn send_clients(cluster: &Cluster, day: usize) {
    for number in 0..TOKENS {
        let request = ask(cluster, Method::POST, "/v1/tokens");
        let wanted = json!({"name": format!("client {number} of day {day}"), "scope": "read"});
        let made = expect_status(201, request.json(&wanted)).await;
        let [id, token] = ["id", "token"].map(|key| made[key].as_str().expect("a text"));
        for path in LISTS {
            expect_status(200, ask(cluster, Method::GET, path).bearer_auth(token)).await;
        }
        expect_status(204, ask(cluster, Method::DELETE, &format!("/v1/tokens/{id}"))).await;
        expect_status(401, ask(cluster, Method::GET, "/v1/access").bearer_auth(token)).await;
        expect_status(401, ask(cluster, Method::GET, "/v1/access").bearer_auth(format!("stranger {number} of day {day}")))
            .await;
        expect_status(404, ask(cluster, Method::GET, &format!("/v1/nothing/{day}/{number}"))).await;
    }
    for _ in 0..READS {
        for path in LISTS {
            expect_status(200, ask(cluster, Method::GET, path)).await;
        }
    }
}

/// One day from morning to evening.
async fn pass_day(cluster: &mut Cluster, day: usize) {
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = ask(cluster, Method::GET, "/v1/events/stream").send().await.expect("a stream");
        assert!(stream.chunk().await.expect("it begins").is_some());
        streams.push(stream);
    }
    let name = |number: usize| format!("chain-{day}-{number}");
    for number in 0..PIPELINES {
        let mode = if number < WATCHED { "advisory" } else { "off" };
        let spec = chain(&["v"], json!({"name": name(number), "replan": {"mode": mode, "period_s": 1.0, "min_qps": 1.0}}));
        cluster.register(&spec, &profile(&["v"]).replace("chain,", &format!("{},", name(number)))).await;
    }
    make_plans(cluster, day).await;
    for _ in 0..RESTARTS {
        cluster.kill_agent(1);
        cluster.live(1).await;
        cluster.start_agent(1);
        cluster.live(2).await;
    }
    send_clients(cluster, day).await;
    for number in 0..PIPELINES {
        expect_status(204, ask(cluster, Method::DELETE, &format!("/v1/pipelines/{}", name(number)))).await;
    }
    drop(streams);
}

/// Resident memory at the end of each day, in MiB.
#[derive(Debug, Default)]
struct Memory(Vec<f64>);

impl Memory {
    fn note(&mut self, process: Option<u32>) {
        self.0.push(process.and_then(resources).expect("it runs").0);
    }

    fn last(&self) -> f64 {
        *self.0.last().expect("a day has passed")
    }

    /// What the days after the first have added, as a share. A process that keeps something of each day has added it on the
    /// last two days in any case; one that has needed more on one of them only has not.
    fn growth(&self) -> f64 {
        let warm = self.0[..WARM_DAYS].iter().copied().fold(0.0, f64::max);
        let last = self.0[self.0.len() - 2..].iter().copied().fold(f64::INFINITY, f64::min);
        (last - warm) / warm.max(SMALL_MIB)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_keeps_memory_flat() {
    let mut cluster = Cluster::start(2, 4).await;
    cluster.register(&chain(&["v"], json!({})), &profile(&["v"])).await;
    let first = cluster.plan(&json!({"pipelines": [{"name": "chain", "demand_qps": 10.0}]})).await;
    deploy(&cluster, &first).await;
    cluster.ready("chain").await;
    let rates = vec![(Duration::ZERO, 20.0)];
    let load = Load { pipeline: "chain".into(), inputs: inputs(), rates, length: Duration::from_secs(5), seed: 7 };
    let traffic = Traffic::start(load, Ingresses::new(vec![cluster.ingress(0)]));
    let (mut service, mut agent) = (Memory::default(), Memory::default());
    eprintln!("day  service MiB  agent MiB");
    let days = days();
    for day in 1..=days {
        pass_day(&mut cluster, day).await;
        service.note(cluster.service_process());
        agent.note(cluster.process(0));
        eprintln!("{day:3}  {:11.1}  {:9.1}", service.last(), agent.last());
    }
    let sent = traffic.stop().await;
    let kept = attainment(&sent);
    assert!(kept > 0.5, "the week had no load: {kept} of {} requests", sent.len());
    for (what, memory) in [("service", &service), ("agent", &agent)] {
        let growth = memory.growth();
        eprintln!("{what}: {:+.1} % from day {WARM_DAYS} to day {days}", 100.0 * growth);
        assert!(growth <= GROWTH_MAX, "the {what} grows: {memory:?}");
    }
}
