//! Autoscalers follow the advice: KEDA's calls, the trigger by way of Prometheus, Nomad's query, a real
//! HorizontalPodAutoscaler, and a real Ray Serve.

use apportion_scalers::METRIC;
use apportion_scalers::proto::external_scaler_client::ExternalScalerClient;
use apportion_scalers::proto::{GetMetricsRequest, ScaledObjectRef};
use apportion_tests::cluster::Cluster;
use apportion_tests::kubernetes::ControlPlane;
use apportion_tests::prometheus::{Exporter, PrometheusProcess};
use apportion_tests::ray::RayProcess;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// How long anything may take; nothing is asserted about how long it does take, but for the age that is stale.
const PATIENCE: Duration = Duration::from_secs(120);
const PROFILE: &str = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n\
                       photos,find,find-l,t4,4,50,1\nphotos,read,read-m,t4,8,30,1\n";

/// The pipeline of `examples/photos.yaml` with one variant for each task, and a source of demand.
fn pipeline(demand: &Value) -> Value {
    let task = |name: &str, variant: Value| json!({"name": name, "variants": [variant]});
    json!({
        "name": "photos", "slo_ms": 250,
        "tasks": [task("find", json!({"name": "find-l", "fanout": 2})), task("read", json!({"name": "read-m"}))],
        "edges": [{"from": "find", "to": "read"}],
        "replan": {"mode": "advisory", "period_s": 1, "demand": demand}
    })
}

/// The documents of a YAML file of the examples.
fn documents(file: &str) -> Vec<Value> {
    let path = apportion_tests::root().join("examples/kubernetes").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let documents = text.split("\n---\n").map(serde_saphyr::from_str);
    documents.collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The metadata of a file's trigger.
fn trigger(file: &str) -> HashMap<String, String> {
    let object = documents(file).remove(0);
    assert_eq!(object["kind"], "ScaledObject");
    serde_json::from_value(object["spec"]["triggers"][0]["metadata"].clone()).expect("texts")
}

/// KEDA's calls for one trigger.
struct Keda {
    client: ExternalScalerClient<Channel>,
    object: ScaledObjectRef,
}

impl Keda {
    async fn connect(port: u16, metadata: HashMap<String, String>) -> Self {
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL").connect_lazy();
        let object = ScaledObjectRef { name: "triton".into(), namespace: "default".into(), scaler_metadata: metadata };
        Self { client: ExternalScalerClient::new(channel), object }
    }

    /// As KEDA does in each poll: the metric of the spec, its value, and whether it is active.
    async fn poll(&self) -> Result<Polled, Status> {
        let mut client = self.client.clone();
        let specs = client.get_metric_spec(self.object.clone()).await?.into_inner().metric_specs;
        assert_eq!((specs.len(), specs[0].target_size_float), (1, 1.0));
        let metric_name = specs[0].metric_name.clone();
        let request = GetMetricsRequest { scaled_object_ref: Some(self.object.clone()), metric_name };
        let answer = client.get_metrics(request).await?;
        let header = |name: &str| answer.metadata().get(name).expect(name).to_str().expect("text").to_owned();
        let is_active = client.is_active(self.object.clone()).await?.into_inner().result;
        let replicas = answer.get_ref().metric_values[0].metric_value_float;
        assert_eq!(is_active, replicas > 0.0);
        let age_s = header("apportion-demand-age-seconds").parse().expect("a number");
        Ok(Polled { replicas, age_s, advice: header("apportion-advice") })
    }
}

/// One poll.
#[derive(Clone, Debug, PartialEq)]
struct Polled {
    replicas: f64,
    age_s: f64,
    advice: String,
}

/// The value of a metric of the service for one variant.
async fn gauge(cluster: &Cluster, variant: &str) -> Option<f64> {
    let page = reqwest::get(format!("{}/metrics", cluster.service())).await.ok()?.text().await.ok()?;
    let prefix = format!("{METRIC}{{");
    let line = page.lines().find(|l| l.starts_with(&prefix) && l.contains(&format!("variant=\"{variant}\"")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The newest decision, once a round has found the advice right for this rate.
async fn settled(cluster: &Cluster, per_second: f64) {
    let newest = |list: &Value| {
        let decision = list.as_array()?.first()?;
        let is_for = (decision["demand_qps"].as_f64()? / (1.2 * per_second) - 1.0).abs() < 0.03;
        (is_for && decision["reason"].as_str()?.contains("within 5 % of the best")).then_some(())
    };
    cluster.until("/v1/decisions", newest).await;
}

/// Waits until a poll is as it should be.
async fn until(keda: &Keda, is_right: impl Fn(&Result<Polled, Status>) -> bool) -> Result<Polled, Status> {
    let begun = Instant::now();
    loop {
        let polled = keda.poll().await;
        if is_right(&polled) {
            return polled;
        }
        assert!(begun.elapsed() < PATIENCE, "{polled:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Notes each change of a number, four times a second.
fn watch(keda: Keda) -> Arc<Mutex<Vec<f64>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            if let Ok(polled) = keda.poll().await {
                let mut seen = shared.lock().expect("no thread panics");
                if seen.last() != Some(&polled.replicas) {
                    seen.push(polled.replicas);
                }
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    });
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn keda_follows_a_rate_that_doubles_and_falls_back() {
    let Some(program) = apportion_needs::prometheus() else { return };
    let exporter = Exporter::start(40.0);
    let mut prometheus = PrometheusProcess::start(&program, &exporter.scrape(), |_| {}, &[]);
    let (url, port) = (format!("http://{}", prometheus.address()), apportion_tests::free_port());
    let address = format!("127.0.0.1:{port}");
    let cluster = Cluster::serve_with(&["--prometheus", &url, "--scalers", &address]).await;
    let keda = Keda::connect(port, trigger("keda-external.yaml")).await;
    cluster.put("/v1/hardware/t4", &json!({"price_per_hour": 0.53, "count_max": 6})).await;
    let is_unknown = |polled: &Result<Polled, Status>| polled.as_ref().is_err_and(|s| s.code() == Code::NotFound);
    let status = until(&keda, is_unknown).await.expect_err("no pipeline");
    assert!(status.message().contains("photos"), "{status}");
    let query = "sum(rate(nv_inference_request_success[4s]))";
    let begun = Instant::now();
    while prometheus_has_no(&url, query).await {
        assert!(begun.elapsed() < PATIENCE, "{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let spec = pipeline(&json!({"prometheus": {"url": url, "query": query, "timeout_s": 2}}));
    cluster.register(&spec, PROFILE).await;

    settled(&cluster, 40.0).await;
    let low = until(&keda, Result::is_ok).await.expect("advice");
    assert_eq!((Some(low.replicas), low.advice.as_str()), (gauge(&cluster, "find-l").await, "current"));
    let changes = watch(Keda::connect(port, trigger("keda-external.yaml")).await);
    let scraped = scrape(&program, &cluster);
    exporter.set_rate(80.0);
    settled(&cluster, 80.0).await;
    let high = until(&keda, |polled| polled.as_ref().is_ok_and(|p| p.replicas > low.replicas)).await.expect("advice");
    assert_eq!(Some(high.replicas), gauge(&cluster, "find-l").await);
    by_way_of_prometheus(&scraped, high.replicas).await;
    as_nomad_asks(&scraped, high.replicas).await;
    exporter.set_rate(40.0);
    settled(&cluster, 40.0).await;
    until(&keda, |polled| polled.as_ref().is_ok_and(|p| p.replicas == low.replicas)).await.expect("advice");
    assert_eq!(gauge(&cluster, "find-l").await, Some(low.replicas));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*changes.lock().expect("no thread panics"), [low.replicas, high.replicas, low.replicas], "once each way");

    let killed = Instant::now();
    prometheus.kill();
    let held = until(&keda, |polled| polled.as_ref().is_ok_and(|p| p.advice == "held")).await.expect("held");
    assert!(killed.elapsed() < Duration::from_secs(30), "stale within 30 s: {:?}", killed.elapsed());
    assert_eq!(held.replicas, low.replicas);
    let event = |list: &Value| {
        let reasons = list.as_array()?.iter().filter_map(|d| d["reason"].as_str());
        reasons.filter(|r| r.contains("the demand is unknown")).map(str::to_owned).next()
    };
    let event = cluster.until("/v1/decisions", event).await;
    assert!(event.contains("the last advice stays") && event.contains("cannot be reached"), "{event}");
    let older = until(&keda, |polled| polled.as_ref().is_ok_and(|p| p.age_s > held.age_s + 2.0)).await.expect("held");
    assert_eq!(older.replicas, low.replicas, "held, and never zero");
    is_answered_from_memory(&cluster, &keda, low.replicas).await;
}

/// Without its database the service answers for a while, and then with an error.
async fn is_answered_from_memory(cluster: &Cluster, keda: &Keda, replicas: f64) {
    cluster.stall_database();
    let asked = Instant::now();
    assert_eq!(keda.poll().await.map(|p| p.replicas).ok(), Some(replicas), "from memory");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    let status = until(keda, Result::is_err).await.expect_err("an error rather than 0");
    assert!(status.code() == Code::Unavailable && status.message().contains("expected at most 30 s"), "{status}");
    cluster.resume_database();
    until(keda, Result::is_ok).await.expect("known again");
}

async fn prometheus_has_no(url: &str, query: &str) -> bool {
    let answer = reqwest::Client::new().get(format!("{url}/api/v1/query?query={}", query.replace('+', "%2B"))).send().await;
    let Ok(answer) = answer else { return true };
    let Ok(document) = answer.json::<Value>().await else { return true };
    document["data"]["result"].as_array().is_none_or(Vec::is_empty)
}

/// A Prometheus that scrapes the service, as people have one for KEDA.
fn scrape(program: &Path, cluster: &Cluster) -> PrometheusProcess {
    let target = cluster.service().trim_start_matches("http://").to_owned();
    let jobs = format!("scrape_configs: [{{job_name: apportion, static_configs: [{{targets: ['{target}']}}]}}]");
    PrometheusProcess::start(program, &format!("global: {{scrape_interval: 250ms}}\n{jobs}\n"), |_| {}, &[])
}

/// The query of the other trigger has the same number.
async fn by_way_of_prometheus(prometheus: &PrometheusProcess, replicas: f64) {
    let query = trigger("keda-prometheus.yaml").remove("query").expect("a query");
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let url = format!("http://{}/api/v1/query?query={escaped}", prometheus.address());
    let begun = Instant::now();
    loop {
        let answer = reqwest::get(&url).await;
        let document = match answer {
            Ok(answer) => answer.json::<Value>().await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        let value = document["data"]["result"][0]["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
        if value == Some(replicas) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{document}\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A policy file of the Nomad Autoscaler, with the keys that its policies may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NomadPolicies {
    scaling: HashMap<String, NomadScaling>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NomadScaling {
    enabled: bool,
    r#type: String,
    min: u32,
    max: u32,
    policy: NomadPolicy,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NomadPolicy {
    cooldown: String,
    evaluation_interval: String,
    on_check_error: String,
    check: HashMap<String, NomadCheck>,
    target: HashMap<String, HashMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NomadCheck {
    source: String,
    query: String,
    query_window: String,
    strategy: HashMap<String, HashMap<String, String>>,
}

/// The seconds of a duration of Go such as `20s`.
fn go_seconds(text: &str) -> u64 {
    text.strip_suffix('s').and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// The check of the example, whose policy is as the Nomad Autoscaler needs it: a policy of a file is for clients of Nomad
/// unless its type is `horizontal`, and a check that fails must change nothing.
fn nomad_check() -> NomadCheck {
    let path = apportion_tests::root().join("examples/nomad/find-l.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut policies: NomadPolicies = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let scaling = policies.scaling.remove("photos-find-l").expect("the policy");
    assert!(scaling.enabled && scaling.min >= 1 && scaling.min <= scaling.max, "{scaling:?}");
    let mut policy = scaling.policy;
    assert_eq!((scaling.r#type.as_str(), policy.on_check_error.as_str()), ("horizontal", "fail"));
    assert!(go_seconds(&policy.evaluation_interval) <= go_seconds(&policy.cooldown), "{policy:?}");
    let target = policy.target.remove("nomad-target").expect("a task group of Nomad");
    for key in ["Namespace", "Job", "Group"] {
        assert!(target.get(key).is_some_and(|name| !name.is_empty()), "{target:?}");
    }
    let check = policy.check.remove("advice").expect("the check");
    assert_eq!(check.source, "prometheus");
    assert_eq!(check.strategy.keys().collect::<Vec<_>>(), ["pass-through"], "the number is the count");
    check
}

/// Asks Prometheus as the Nomad Autoscaler does: each second of the window, of which the last value counts.
async fn as_nomad_asks(prometheus: &PrometheusProcess, replicas: f64) {
    let check = nomad_check();
    let begun = Instant::now();
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let start = now - go_seconds(&check.query_window);
        let escaped: String = check.query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let range = format!("query={escaped}&start={start}&end={now}&step=1");
        let answer = reqwest::get(format!("http://{}/api/v1/query_range?{range}", prometheus.address())).await;
        let document: Value = answer.expect("an answer").json().await.expect("JSON");
        let streams = document["data"]["result"].as_array().cloned().unwrap_or_default();
        assert!(streams.len() <= 1, "one stream is expected there: {document}");
        let last: Option<f64> =
            streams.first().and_then(|stream| stream["values"].as_array()?.last()?[1].as_str()?.parse().ok());
        if last == Some(replicas) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{document}\n{}", prometheus.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Posts the demand of the pipeline.
async fn post_demand(cluster: &Cluster, qps: f64) {
    let url = format!("{}/v1/pipelines/photos/demand", cluster.service());
    let answer = reqwest::Client::new().post(url).json(&json!({"qps": qps})).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
}

/// Waits until Ray has as many replicas as are advised, and at least so many.
async fn ray_follows(ray: &RayProcess, cluster: &Cluster, least: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let (advised, replicas) = (gauge(cluster, "find-l").await, ray.replicas("photos").await);
        match replicas {
            Some(replicas) if replicas >= least && advised == Some(replicas as f64) => return replicas,
            _ => {}
        }
        let (said, ray) = (ray.log("follow"), ray.log("ray"));
        assert!(begun.elapsed() < PATIENCE, "{advised:?} {replicas:?}\n{said}\n{ray}\n{}", cluster.log("service"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ray_serve_follows_two_plans_by_its_scale_endpoint() {
    let Some(python) = apportion_needs::ray() else { return };
    let mut ray = RayProcess::start(&python);
    let port = apportion_tests::free_port();
    let address = format!("127.0.0.1:{port}");
    let cluster = Cluster::serve_with(&["--scalers", &address]).await;
    cluster.put("/v1/hardware/t4", &json!({"price_per_hour": 0.53, "count_max": 6})).await;
    cluster.register(&pipeline(&json!({"pushed": {"age_max_s": 600}})), PROFILE).await;
    post_demand(&cluster, 40.0).await;
    ray.follow(port);
    let low = ray_follows(&ray, &cluster, 1).await;
    post_demand(&cluster, 80.0).await;
    let high = ray_follows(&ray, &cluster, low + 1).await;
    assert!(high > low, "{high} against {low}");

    let entry = |application: &str, variant: &str| {
        let labels = json!({"pipeline": "photos", "task": "find", "variant": variant, "hardware": "t4"});
        json!([{"application": application, "deployment": "find-l", "labels": labels}])
    };
    let other = json!([{"application": "photos", "deployment": "absent", "labels": {"pipeline": "photos"}}]);
    for (entries, expected) in [
        (entry("photos", "find-x"), "no group has these labels"),
        (entry("closed", "find-l"), "external_scaler_enabled"),
        (other, "Ray has no such deployment"),
    ] {
        let output = ray.follow_once(port, &entries);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("its replicas stay") && said.contains(expected), "{said}");
    }
    assert_eq!((ray.replicas("photos").await, ray.replicas("closed").await), (Some(high), Some(1)));
}

/// Makes a certificate of its own authority, for the name by which Kubernetes asks.
fn certificate(folder: &Path) {
    let run = |arguments: &str| {
        let output = std::process::Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
        let output = output.expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-authority -keyout ca.key -out ca.pem");
    run("req -newkey rsa:2048 -nodes -subj /CN=scalers -keyout leaf.key -out leaf.csr");
    std::fs::write(folder.join("san"), "subjectAltName=DNS:scalers.apportion.svc\n").expect("written");
    run("x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile san -out leaf.pem");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_autoscaler_follows_two_plans_over_tls() {
    let Some(plane) = ControlPlane::start() else { return };
    let (folder, port) = (tempfile::tempdir().expect("a folder"), apportion_tests::free_port());
    certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (address, chain, key) = (format!("127.0.0.1:{port}"), file("leaf.pem"), file("leaf.key"));
    let arguments = ["--scalers", &address, "--scalers-certificate", &chain, "--scalers-key", &key];
    let cluster = Cluster::serve_with(&arguments).await;
    cluster.put("/v1/hardware/t4", &json!({"price_per_hour": 0.53, "count_max": 6})).await;
    let spec = pipeline(&json!({"pushed": {"age_max_s": 600}}));
    cluster.register(&spec, PROFILE).await;
    post_demand(&cluster, 40.0).await;

    let authority = std::fs::read(file("ca.pem")).expect("an authority");
    let mut objects = documents("external-metrics.yaml");
    assert_eq!(objects.len(), 4);
    objects[1]["spec"]["externalName"] = json!("localhost");
    objects[1]["spec"]["ports"][0]["port"] = json!(port);
    objects[2]["spec"]["service"]["port"] = json!(port);
    objects[2]["spec"]["caBundle"] = json!(ControlPlane::base64(&authority));
    // This API server is older than autoscaling/v2, and has the same fields under another name.
    objects[3]["apiVersion"] = json!("autoscaling/v2beta2");
    let container = json!({"name": "triton", "image": "triton"});
    let labels = json!({"app": "triton-find-l"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    objects.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "triton-find-l"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}}));
    for object in &objects {
        plane.apply(object);
    }
    let begun = Instant::now();
    let follows = async |least: f64| loop {
        let advised = gauge(&cluster, "find-l").await;
        let deployment = plane.reader().get("/apis/apps/v1/namespaces/default/deployments/triton-find-l");
        let deployed = deployment.and_then(|found| found["spec"]["replicas"].as_f64());
        if advised.is_some_and(|replicas| replicas >= least) && deployed == advised {
            return advised.expect("a number");
        }
        let said = || plane.kubectl(&["describe", "hpa"]);
        assert!(begun.elapsed() < PATIENCE, "{advised:?} {deployed:?}\n{}\n{}", said(), cluster.log("service"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let low = follows(1.0).await;
    assert!(low < 3.0, "fewer than at the start");
    post_demand(&cluster, 80.0).await;
    let high = follows(low + 1.0).await;
    assert!(high > low, "{high} against {low}");
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{METRIC}");
    let list: Value = serde_json::from_str(&plane.kubectl(&["get", "--raw", &path])).expect("JSON");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list:#}");
    let wrong = plane.kubectl(&["get", "--raw", &format!("{path}?labelSelector=variant%3Dfind-x")]);
    assert!(wrong.contains("no group has these labels"), "{wrong}");
}
