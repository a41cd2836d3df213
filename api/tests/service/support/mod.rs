//! One private PostgreSQL for each test process, a database of its own for each test, and a service on it.

#![allow(unsafe_code, missing_docs)] // atexit is the only end that a test process has

pub mod agent;
#[path = "../../../../tests/src/database_template.rs"]
mod database_template;
pub mod plans;
pub mod receiver;
#[path = "../../../../tests/src/relay.rs"]
pub mod relay;
pub mod stream;
pub mod traffic;

use apportion_api::database::PrivateDatabase;
use apportion_api::{AccessConfig, RunningService, ServiceConfig, TokenRule, serve};
use serde_json::{Value, json};
use sqlx::Connection;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    database: std::sync::Mutex<Option<PrivateDatabase>>,
    dir: std::sync::Mutex<Option<TempDir>>,
    url: String,
}

static CLUSTER: OnceLock<Cluster> = OnceLock::new();

extern "C" fn stop_cluster() {
    if let Some(cluster) = CLUSTER.get() {
        drop(cluster.database.lock().ok().and_then(|mut d| d.take()));
        drop(cluster.dir.lock().ok().and_then(|mut d| d.take()));
    }
}

fn cluster() -> &'static Cluster {
    CLUSTER.get_or_init(|| {
        let dir = open_dir();
        let path = dir.path().join("postgres");
        let start = move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let templates = Path::new(env!("CARGO_TARGET_TMPDIR")).join("databases");
                database_template::copy_to(&path, &templates, "template1").await;
                PrivateDatabase::start(&path).await.expect("PostgreSQL is installed and starts")
            })
        };
        let database = std::thread::spawn(start).join().expect("it does not panic");
        // SAFETY: the handler only stops what this process started.
        unsafe {
            libc::atexit(stop_cluster);
        }
        let url = database.url();
        Cluster { database: Some(database).into(), dir: Some(dir).into(), url }
    })
}

/// A temporary folder that other users may enter.
pub fn open_dir() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).expect("our own folder");
    dir
}

/// URL of a new database without rows.
pub async fn new_database() -> String {
    let url = cluster().url.clone();
    let name = format!("t{}", uuid::Uuid::new_v4().simple());
    let mut connection = sqlx::PgConnection::connect(&url).await.expect("our own cluster");
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {name}")))
        .execute(&mut connection)
        .await
        .expect("a database");
    let at = url.rfind('/').expect("a URL");
    format!("{}/{name}", &url[..at])
}

/// URL of a copy of a database without connections.
pub async fn copy_database(url: &str) -> String {
    let at = url.rfind('/').expect("a URL");
    let (name, copy) = (&url[at + 1..], format!("t{}", uuid::Uuid::new_v4().simple()));
    let mut connection = sqlx::PgConnection::connect(&cluster().url).await.expect("our own cluster");
    let begin = Instant::now();
    // Closed connections may take a moment to disappear.
    while let Err(error) =
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {copy} template {name}"))).execute(&mut connection).await
    {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    format!("{}/{copy}", &url[..at])
}

/// A service with its client.
pub struct Service {
    pub running: RunningService,
    pub base: String,
    pub client: reqwest::Client,
    pub dir: TempDir,
    pub url: String,
}

/// A service on a database of its own, on free ports.
pub async fn service() -> Service {
    service_on(new_database().await, open_dir()).await
}

pub async fn service_on(url: String, dir: TempDir) -> Service {
    let config = config_on(&url, &dir);
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    Service { running, base, client: reqwest::Client::new(), dir, url }
}

/// The configuration of a service on this database, on free ports of loopback.
pub fn config_on(url: &str, dir: &TempDir) -> ServiceConfig {
    let mut config = ServiceConfig::new(dir.path());
    config.database_url = Some(url.to_owned());
    config.http.set_port(0);
    config.grpc.set_port(0);
    config
}

/// A service on a database of its own, with a configuration that `change` has changed.
pub async fn service_on_config(change: impl FnOnce(&mut ServiceConfig)) -> Service {
    let (url, dir) = (new_database().await, open_dir());
    let mut config = config_on(&url, &dir);
    change(&mut config);
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    Service { running, base, client: reqwest::Client::new(), dir, url }
}

/// The token that allows everything at a service of [`service_with_tokens`].
pub const ADMIN_TOKEN: &str = "the-admin-token-of-the-tests";

/// A service that asks every client for a token. Its own client shows [`ADMIN_TOKEN`].
pub async fn service_with_tokens() -> Service {
    let (url, dir) = (new_database().await, open_dir());
    let mut config = config_on(&url, &dir);
    config.access =
        AccessConfig { admin_token: Some(ADMIN_TOKEN.into()), token: TokenRule::Always, ..AccessConfig::default() };
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    let authorization = format!("Bearer {ADMIN_TOKEN}").parse().expect("a header");
    let headers = [(reqwest::header::AUTHORIZATION, authorization)].into_iter().collect();
    let client = reqwest::Client::builder().default_headers(headers).build().expect("a client");
    Service { running, base, client, dir, url }
}

impl Service {
    /// Stops it and starts another on the same database and folder.
    pub async fn restart(self) -> Service {
        let Service { running, dir, url, .. } = self;
        running.stop().await;
        service_on(url, dir).await
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.client.get(format!("{}{path}", self.base)).send().await).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.client.put(format!("{}{path}", self.base)).json(body).send().await).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.client.post(format!("{}{path}", self.base)).json(body).header("prefer", "wait=60").send().await).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        answer(self.client.delete(format!("{}{path}", self.base)).send().await).await
    }

    pub async fn put_target(&self, generation: i64, plans: &Value) -> (u16, Value) {
        let request = self.client.put(format!("{}/v1/target", self.base)).header("if-match", format!("\"{generation}\""));
        answer(request.json(&json!({"plans": plans})).send().await).await
    }

    /// Waits until `check` accepts the document at `path`.
    pub async fn until<T>(&self, path: &str, check: impl Fn(&Value) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            let (_, document) = self.get(path).await;
            if let Some(found) = check(&document) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "{path} never got there: {document:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn answer(response: reqwest::Result<reqwest::Response>) -> (u16, Value) {
    let response = response.expect("an answer");
    let status = response.status().as_u16();
    let media = response.headers().get("content-type").map(|v| v.to_str().unwrap_or("").to_string()).unwrap_or_default();
    if status >= 400 {
        assert_eq!(media, "application/problem+json");
    }
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Two tasks, two variants each, like the digits example.
pub fn spec() -> Value {
    json!({
        "name": "digits",
        "slo_ms": 400.0,
        "tasks": [
            {"name": "find",
             "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 8]}],
             "outputs": [{"name": "crops", "datatype": "FP32", "shape": [-1, 4]}, {"name": "parent", "datatype": "INT64", "shape": [-1]}],
             "variants": [{"name": "find-s", "model_digest": "aa".repeat(32)}, {"name": "find-l", "model_digest": "bb".repeat(32)}]},
            {"name": "read",
             "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 4]}],
             "outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}],
             "variants": [{"name": "read-s", "model_digest": "cc".repeat(32)}, {"name": "read-l", "model_digest": "dd".repeat(32)}]}
        ],
        "edges": [{"from": "find", "to": "read", "map": {"image": "crops"}}]
    })
}

/// The measurements of [`spec`].
pub fn profiles() -> Value {
    let mut rows = Vec::new();
    for (task, variant, base, step) in [
        ("find", "find-s", 8.0, 4.0),
        ("find", "find-l", 20.0, 14.0),
        ("read", "read-s", 1.0, 0.4),
        ("read", "read-l", 3.0, 1.5),
    ] {
        for batch in [1, 2, 4, 8] {
            let latency_ms = base + step * f64::from(batch);
            rows.push(
                json!({"task": task, "variant": variant, "hardware": "demo", "batch": batch, "latency_ms": latency_ms}),
            );
        }
    }
    let variant = |task: &str, variant: &str, accuracy: f64| json!({"task": task, "variant": variant, "accuracy": accuracy, "load_ms": 50.0});
    let mut variants = vec![
        variant("find", "find-s", 0.90),
        variant("find", "find-l", 0.99),
        variant("read", "read-s", 0.92),
        variant("read", "read-l", 0.98),
    ];
    for v in &mut variants[..2] {
        v["fanout_counts"] = json!({"read": {"2": 0.5, "4": 0.5}});
    }
    json!({"rows": rows, "variants": variants})
}

/// A small problem file of one task.
pub fn problem(demand_qps: f64) -> Value {
    json!({
        "version": 1,
        "objective": {"mode": "hardware_then_accuracy"},
        "hardware": [{"name": "h", "price_per_hour": 1.0, "count": 4}],
        "pipelines": [{"name": "p", "demand_qps": demand_qps, "slo_ms": 200.0, "tasks": [{"name": "t", "variants": [
            {"name": "good", "accuracy": 0.9, "profile": [{"hardware": "h", "batch": 1, "latency_ms": 20.0}, {"hardware": "h", "batch": 4, "latency_ms": 40.0}]},
            {"name": "fast", "accuracy": 0.8, "profile": [{"hardware": "h", "batch": 1, "latency_ms": 5.0}, {"hardware": "h", "batch": 4, "latency_ms": 10.0}]}
        ]}]}]
    })
}

/// Four tasks with ten variants on three kinds of device, at any accuracy above a floor: seconds of search.
pub fn hard_problem() -> Value {
    let variant = |t: usize, v: usize| {
        let (size, wobble) = (1.0 + v as f64, 1.0 + 0.1 * ((7 * t + 3 * v) % 5) as f64);
        let rows = ["a", "b", "c"].iter().enumerate().flat_map(|(h, hardware)| {
            [1, 2, 4, 8, 16].map(|batch| {
                let latency_ms = (2.0 * size + 0.9 * size * f64::from(batch)) * wobble / (1.0 + 0.7 * h as f64);
                json!({"hardware": hardware, "batch": batch, "latency_ms": latency_ms})
            })
        });
        json!({"name": format!("v{v}"), "accuracy": 0.6 + 0.039 * v as f64, "profile": rows.collect::<Vec<_>>()})
    };
    let task = |t: usize| json!({"name": format!("t{t}"), "variants": (0..10).map(|v| variant(t, v)).collect::<Vec<_>>()});
    let edges: Vec<_> = (1..4).map(|t| json!({"from": format!("t{}", t - 1), "to": format!("t{t}")})).collect();
    let hardware: Vec<_> =
        [("a", 0.5), ("b", 0.83), ("c", 1.17)].map(|(name, price)| json!({"name": name, "price_per_hour": price})).into();
    let pipeline = json!({
        "name": "p", "demand_qps": 731.0, "slo_ms": 260.0, "min_accuracy": 0.61,
        "tasks": (0..4).map(task).collect::<Vec<_>>(), "edges": edges,
    });
    json!({"version": 1, "objective": {"mode": "min_cost"}, "hardware": hardware, "pipelines": [pipeline]})
}
