//! The service advises a pipeline that has no agent: a real Prometheus says its demand.

use apportion_tests::cluster::Cluster;
use apportion_tests::prometheus::{Exporter, PrometheusProcess};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
const RATE: &str = "sum(rate(nv_inference_request_success[4s]))";
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       photos,find,find-l,t4,4,50,1\nphotos,read,read-m,t4,8,30,1\n";

/// The pipeline of `examples/photos.yaml` with one variant for each task, and a source of demand.
fn pipeline(url: &str, query: &str) -> Value {
    let task = |name: &str, variant: Value| json!({"name": name, "variants": [variant]});
    let source = json!({"prometheus": {"url": url, "query": query, "timeout_s": 2}});
    json!({
        "name": "photos", "slo_ms": 250,
        "tasks": [task("find", json!({"name": "find-l", "fanout": 2})), task("read", json!({"name": "read-m"}))],
        "edges": [{"from": "find", "to": "read"}],
        "replan": {"mode": "advisory", "period_s": 1, "demand": source}
    })
}

/// Registers the pipeline: the status and the answer.
async fn put(cluster: &Cluster, spec: &Value) -> (u16, String) {
    let url = format!("{}/v1/pipelines/photos", cluster.service());
    let answer = reqwest::Client::new().put(url).json(spec).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("text"))
}

/// The values of a metric of the service, added up; `None` without one.
async fn metric(cluster: &Cluster, name: &str) -> Option<f64> {
    let page = reqwest::get(format!("{}/metrics", cluster.service())).await.expect("an answer");
    let page = page.text().await.expect("text");
    let values = page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).map(|line| {
        let value = line.rsplit(' ').next().expect("a value");
        value.parse::<f64>().unwrap_or_else(|e| panic!("{line}: {e}"))
    });
    values.reduce(|a, b| a + b)
}

/// Waits until a metric is as it should be.
async fn until(cluster: &Cluster, name: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    let begun = Instant::now();
    loop {
        let value = metric(cluster, name).await;
        if let Some(value) = value.filter(|value| is_right(*value)) {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "{name}: {value:?}\n{}", cluster.log("service"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const DESIRED: &str = "apportion_desired_replicas";
const AGE: &str = "apportion_seen_demand_age_seconds";

/// The replicas that are advised once a round has found them right for this rate.
async fn settled(cluster: &Cluster, per_second: f64) -> f64 {
    let newest = |list: &Value| {
        let decision = &list.as_array()?.first()?;
        let is_for = (decision["demand_qps"].as_f64()? / (1.2 * per_second) - 1.0).abs() < 0.03;
        (is_for && decision["reason"].as_str()?.contains("within 5 % of the best")).then_some(())
    };
    cluster.until("/v1/decisions", newest).await;
    metric(cluster, DESIRED).await.expect("there is advice")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_without_agents_is_advised_and_stale_demand_holds() {
    let Some(program) = apportion_needs::prometheus() else { return };
    let exporter = Exporter::start(60.0);
    let mut prometheus = PrometheusProcess::start(&program, &exporter.scrape(), |_| {}, &[]);
    let url = format!("http://{}", prometheus.address());
    let mut cluster = Cluster::serve_with(&["--prometheus", &url]).await;
    cluster.put("/v1/hardware/t4", &json!({"price_per_hour": 0.53, "count_max": 6})).await;

    let begun = Instant::now();
    let spec = pipeline(&url, RATE);
    loop {
        let (status, said) = put(&cluster, &spec).await;
        if status == 201 {
            break;
        }
        assert!(said.contains("/replan/demand/prometheus"), "refused while there is no series: {said}");
        assert!(begun.elapsed() < PATIENCE, "{said}\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (status, said) = put(&cluster, &pipeline(&url, "sum(rate(x[1m])")).await;
    assert!(status >= 400 && said.contains("parse error"), "{status}: {said}");
    let mut apply = spec.clone();
    apply["replan"]["mode"] = json!("apply");
    let (status, said) = put(&cluster, &apply).await;
    assert!(status >= 400 && said.contains("expected the mode advisory"), "{status}: {said}");
    cluster.register(&spec, PROFILE).await;

    let quiet = settled(&cluster, 60.0).await;
    assert!(until(&cluster, "apportion_advised_attainment", |share| share > 0.9).await <= 1.0);
    let price = until(&cluster, "apportion_advised_cost_per_hour", |price| price > 0.0).await;
    exporter.set_rate(120.0);
    let busy = settled(&cluster, 120.0).await;
    assert!(busy > quiet, "{busy} against {quiet}");
    assert!(until(&cluster, "apportion_advised_cost_per_hour", |new| new > price).await > price);
    exporter.set_rate(60.0);
    let held = settled(&cluster, 60.0).await;
    assert!(held < busy, "{held} against {busy}");

    prometheus.kill();
    let reason = cluster.until("/v1/decisions", |list| {
        let reasons = list.as_array()?.iter().filter_map(|d| d["reason"].as_str());
        reasons.filter(|r| r.contains("the demand is unknown")).map(str::to_owned).next()
    });
    let reason = reason.await;
    assert!(reason.contains("the last advice stays") && reason.contains("cannot be reached"), "{reason}");
    let age = metric(&cluster, AGE).await.expect("an age");
    until(&cluster, AGE, |now| now > age + 3.0).await;
    assert_eq!(metric(&cluster, DESIRED).await, Some(held), "held, and never zero");
    cluster.stop_service().await;
    cluster.start_service().await;
    until(&cluster, AGE, |now| now > age + 3.0).await;
    assert_eq!(metric(&cluster, DESIRED).await, Some(held), "a restart holds it too");
}
