//! Pipelines without agents: posted demand and deployment, and the servers that the service may ask.

use crate::support::{Service, new_database, open_dir, profiles, service, spec};
use apportion_api::{AllowedPrometheus, ServiceConfig, TokenPlace, serve};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// An advised pipeline with these sources.
fn advised(demand: &Value, deployed: &Value) -> Value {
    let mut spec = spec();
    spec["replan"] = json!({"mode": "advisory", "period_s": 0.5, "demand": demand});
    if !deployed.is_null() {
        spec["replan"]["deployed"] = deployed.clone();
    }
    spec
}

async fn registered(demand: &Value, deployed: &Value) -> Service {
    let s = service().await;
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 2.0, "count_max": 20})).await.0, 201);
    let (status, answer) = s.put("/v1/pipelines/digits", &advised(demand, deployed)).await;
    assert_eq!(status, 201, "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    s
}

/// The sum of a metric.
async fn metric(s: &Service, name: &str) -> Option<f64> {
    let page = s.client.get(format!("{}/metrics", s.base)).send().await.expect("an answer").text().await.expect("text");
    let lines = page.lines().filter(|line| line.starts_with(&format!("apportion_{name}{{")));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).reduce(|a, b| a + b)
}

/// The reason of the newest decision that has these words.
async fn reason(s: &Service, words: &str) -> String {
    s.until("/v1/decisions", |list| {
        let reasons = list.as_array()?.iter().filter_map(|d| d["reason"].as_str());
        reasons.filter(|reason| reason.contains(words)).map(str::to_owned).next()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posted_demand_is_planned_for_and_held_when_it_is_old() {
    let s = registered(&json!({"pushed": {"age_max_s": 2.0}}), &Value::Null).await;
    let (status, before) = s.get("/v1/pipelines/digits/demand").await;
    assert_eq!((status, &before["qps"], &before["source"]), (200, &Value::Null, &json!("pushed")));
    assert!(before["unknown"].as_str().is_some_and(|why| why.contains("no client has posted it")), "{before:#}");
    let (status, posted) = s.post("/v1/pipelines/digits/demand", &json!({"qps": 40.0})).await;
    assert_eq!((status, &posted["qps"], &posted["unknown"]), (200, &json!(40.0), &Value::Null), "{posted:#}");
    let older = s.post("/v1/pipelines/digits/demand", &json!({"qps": 900.0, "age_s": 60.0})).await.1;
    assert_eq!(older["qps"], json!(40.0), "an older one is ignored: {older:#}");

    let kept = reason(&s, "the demand is unknown").await;
    assert!(kept.contains("the last advice stays") && kept.contains("expected at most 2 s"), "{kept}");
    let (known, desired) = (metric(&s, "seen_demand_known").await, metric(&s, "desired_replicas").await);
    assert_eq!(known, Some(0.0));
    assert!(desired.is_some_and(|replicas| replicas > 0.0), "held, and never zero: {desired:?}");
    let old = s.get("/v1/pipelines/digits/demand").await.1;
    assert!(old["age_s"].as_f64().is_some_and(|age| age > 2.0) && old["qps"] == json!(40.0), "{old:#}");
    assert!(old["unknown"].is_string(), "{old:#}");

    s.post("/v1/pipelines/digits/demand", &json!({"qps": 160.0})).await;
    s.until("/v1/decisions", |list| (list[0]["demand_qps"].as_f64()? > 150.0).then_some(())).await;
    assert!(metric(&s, "desired_replicas").await > desired, "four times the demand");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posted_facts_are_refused_by_their_place() {
    let s = registered(&json!({"pushed": {}}), &Value::Null).await;
    let path = "/v1/pipelines/digits/demand";
    for (body, words) in [
        (json!({"qps": -1.0}), "/qps"),
        (json!({"qps": 1e10}), "1e9"),
        (json!({"qps": 1.0, "age_s": 4000.0}), "/age_s"),
        (json!({"qps": 1.0, "rate": 2.0}), "rate"),
        (json!({}), "qps"),
    ] {
        let (status, refusal) = s.post(path, &body).await;
        assert!(status == 422 && refusal.to_string().contains(words), "{body}: {status} {refusal:#}");
    }
    let group = json!({"groups": [{"variant": "find-s", "replicas": 1}]});
    let (status, refusal) = s.post("/v1/pipelines/digits/deployment", &group).await;
    assert!(status == 409 && refusal.to_string().contains("/replan/deployed"), "{refusal:#}");
    assert_eq!(s.post("/v1/pipelines/other/demand", &json!({"qps": 1.0})).await.0, 404);
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 200);
    assert_eq!(s.post(path, &json!({"qps": 1.0})).await.0, 404, "a pipeline of agents has no such source");
    let both = json!({"pushed": {}, "prometheus": {"url": "http://p", "query": "up"}});
    for (demand, deployed, words) in [
        (both, Value::Null, "either prometheus or pushed"),
        (json!({}), Value::Null, "either prometheus or pushed"),
        (json!({"pushed": {"age_max_s": 0.1}}), Value::Null, "/replan/demand/pushed/age_max_s"),
        (Value::Null, json!({"pushed": {}}), "/replan/deployed"),
    ] {
        let (status, refusal) = s.put("/v1/pipelines/digits", &advised(&demand, &deployed)).await;
        assert!(status == 422 && refusal.to_string().contains(words), "{words}: {status} {refusal:#}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_posted_deployment_is_compared_with_the_advice() {
    let s = registered(&json!({"pushed": {}}), &json!({"pushed": {"age_max_s": 600.0}})).await;
    let path = "/v1/pipelines/digits/deployment";
    let unknown = json!({"groups": [{"variant": "find-s", "replicas": 1}, {"variant": "find-x", "replicas": 1}]});
    let (status, refusal) = s.post(path, &unknown).await;
    assert!(status == 422 && refusal["errors"][0]["pointer"] == "/groups/1/task", "{refusal:#}");
    let groups = json!([{"task": "find", "variant": "find-s", "hardware": "demo", "batch": 4, "replicas": 9},
                        {"variant": "read-s", "replicas": 9}]);
    assert_eq!(s.post(path, &json!({"groups": groups})).await.0, 202);
    s.post("/v1/pipelines/digits/demand", &json!({"qps": 20.0})).await;
    let seen = s.until(path, |document| document["deployed"].is_object().then(|| document.clone())).await;
    assert_eq!((&seen["deployed"]["cost_per_hour"], &seen["demand_qps"]), (&json!(36.0), &json!(20.0)), "{seen:#}");
    assert_eq!(seen["groups"][1]["batch"], json!(8), "the largest batch of the profile");
    assert!(seen["advised"]["cost_per_hour"].as_f64() < Some(36.0) && seen["unknown"].is_null(), "{seen:#}");
    assert_eq!(metric(&s, "deployed_replicas").await, Some(18.0));
    assert_eq!(metric(&s, "deployed_cost_per_hour").await, Some(36.0));
    let saved = metric(&s, "following_saves_per_hour").await;
    assert_eq!(saved, seen["advised"]["cost_per_hour"].as_f64().map(|price| 36.0 - price));
    for name in ["deployed_accuracy", "deployed_attainment", "following_gains_attainment", "deployed_age_seconds"] {
        assert!(metric(&s, name).await.is_some(), "{name}");
    }
    s.running.stop().await;
}

/// Answers each query with a demand of 7, and tells the heads of the requests.
fn server() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (heads, told) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4_096];
            let length = stream.read(&mut head).unwrap_or(0);
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let value = if head.contains("timestamp") { now.to_string() } else { "7".to_owned() };
            let result = json!([{"metric": {}, "value": [now, value]}]);
            let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            let _gone = stream.write_all(answer.as_bytes());
            if heads.send(head).is_err() {
                return;
            }
        }
    });
    (url, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_servers_are_asked_with_their_token() {
    let ((listed, asked), (other, others)) = (server(), server());
    let (url, dir) = (new_database().await, open_dir());
    let token = dir.path().join("prometheus-token");
    std::fs::write(&token, "abc.def\n").expect("written");
    let mut config = ServiceConfig::new(dir.path());
    config.database_url = Some(url.clone());
    config.http.set_port(0);
    config.grpc.set_port(0);
    let place = Some(TokenPlace::File(token.clone()));
    config.prometheus = vec![AllowedPrometheus { url: listed.clone(), token: place, authorities: None }];
    let running = serve(config.clone()).await.expect("it starts");
    let base = format!("http://{}", running.http());
    let s = Service { running, base, client: reqwest::Client::new(), dir, url };

    let source = |url: &str| json!({"prometheus": {"url": url, "query": "sum(rate(requests[1m]))"}});
    let (status, refusal) = s.put("/v1/pipelines/digits", &advised(&source(&other), &Value::Null)).await;
    let said = refusal.to_string();
    assert!(status == 422 && said.contains("/replan/demand/prometheus") && said.contains("may ask"), "{status} {said}");
    assert!(said.contains(&listed) && said.contains("--prometheus"), "{said}");
    let deployed = advised(&json!({"pushed": {}}), &source(&other));
    let (status, refusal) = s.put("/v1/pipelines/digits", &deployed).await;
    assert!(status == 422 && refusal.to_string().contains("/replan/deployed/prometheus"), "{refusal:#}");
    assert!(others.recv_timeout(Duration::from_millis(300)).is_err(), "it was not even connected to");

    let (status, answer) = s.put("/v1/pipelines/digits", &advised(&source(&listed), &Value::Null)).await;
    assert_eq!(status, 201, "{answer:#}");
    assert!(!answer.to_string().contains("abc.def"));
    let head = asked.recv_timeout(Duration::from_secs(30)).expect("a request");
    assert!(head.to_lowercase().contains("authorization: bearer abc.def"), "{head}");
    s.running.stop().await;
    std::fs::remove_file(&token).expect("it is there");
    let error = serve(config).await.err().map(|error| format!("{:?}", error)).expect("no token, no start");
    assert!(error.contains("prometheus-token"), "{error}");
}
