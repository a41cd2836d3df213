//! What do the page's tests share? The pipeline, its fleet, loads, looks, and what a reader does.

use apportion_tests::browser::{Browser, Look};
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::load::{Ingresses, Load, Sent};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Agents of a fleet.
pub const AGENTS: usize = 2;
/// Devices of each.
pub const DEVICES: u32 = 4;
/// The load for which the first plan is made.
pub const BASE_QPS: f64 = 8.0;
/// More than the plan for the base load serves.
pub const STEP_QPS: f64 = 40.0;
/// Longer than any test.
const LENGTH: Duration = Duration::from_secs(600);
/// A usual window.
pub const WIDE: Look = Look { scheme: "light", width: 1280, height: 900 };
/// The same in the dark.
pub const DARK: Look = Look { scheme: "dark", ..WIDE };
/// A telephone.
pub const NARROW: Look = Look { scheme: "light", width: 390, height: 844 };
/// Tab.
pub const TAB: &str = "\u{e004}";
/// Enter.
pub const ENTER: &str = "\u{e007}";

/// `find -> read` and `find -> classify`, replanned in this mode.
pub fn photos(mode: &str) -> Value {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let task = |name: &str, input: &str, output: &str, variants: Value| json!({"name": name, "inputs": tensor(input), "outputs": tensor(output), "variants": variants});
    let edge = |to: &str, ratio: f64| json!({"from": "find", "to": to, "ratio": ratio, "map": {"crop": "crops"}});
    let variant = |name: &str, fanout: f64| json!({"name": name, "load_ms": 200.0, "fanout": fanout});
    json!({
        "name": "photos", "slo_ms": 500.0,
        "tasks": [
            task("find", "image", "crops", json!([variant("find-s", 2.0), variant("find-l", 2.0)])),
            task("read", "crop", "text", json!([variant("read-s", 1.0), variant("read-m", 1.0)])),
            task("classify", "crop", "kind", json!([variant("classify-m", 1.0)])),
        ],
        "edges": [edge("read", 0.7), edge("classify", 0.3)],
        "replan": {"mode": mode, "period_s": 3.0, "headroom": 1.2, "min_qps": 5.0},
    })
}

pub fn profile() -> String {
    let variants = [
        ("find", "find-s", 10.0, 0.85),
        ("find", "find-l", 40.0, 0.95),
        ("read", "read-s", 8.0, 0.9),
        ("read", "read-m", 20.0, 0.97),
        ("classify", "classify-m", 15.0, 0.92),
    ];
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_owned();
    for (task, variant, latency_ms, accuracy) in variants {
        for (batch, factor) in [(1, 1.0), (2, 1.5), (4, 2.5)] {
            csv += &format!("photos,{task},{variant},{HARDWARE},{batch},{},{accuracy}\n", latency_ms * factor);
        }
    }
    csv
}

/// A load that goes on until it is dropped.
pub struct RunningLoad {
    ends: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<Vec<Sent>>>,
}

impl RunningLoad {
    /// Begins to send this many requests per second.
    pub fn start(cluster: &Cluster, qps: f64) -> Self {
        let inputs = json!([{"name": "image", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}]);
        let rates = vec![(Duration::ZERO, qps)];
        let load = Load { pipeline: "photos".into(), inputs, rates, length: LENGTH, seed: 1 };
        let ingresses = Ingresses::new((0..AGENTS).map(|at| cluster.ingress(at)).collect());
        let (ends, ended) = oneshot::channel();
        let running = tokio::spawn(async move { load.run_until(ingresses, Instant::now(), ended).await });
        Self { ends: Some(ends), running: Some(running) }
    }

    /// Stops sending, and waits for all answers.
    pub async fn stop(mut self) {
        drop(self.ends.take());
        let sent = self.running.take().expect("it was started").await.expect("clients end");
        assert!(!sent.is_empty(), "the load sent nothing");
    }
}

/// A fleet that serves the pipeline by a plan for the base load, and replans it in this mode.
pub async fn start_fleet(mode: &str) -> Cluster {
    let cluster = Cluster::start(AGENTS, DEVICES).await;
    cluster.register(&photos(mode), &profile()).await;
    let plan = cluster.plan(&json!({"pipelines": [{"name": "photos", "demand_qps": BASE_QPS}]})).await;
    cluster.apply(&plan).await;
    cluster.ready("photos").await;
    cluster
}

/// Looks at a view for everything that axe-core calls serious, light, dark and narrow.
pub async fn has_no_barriers(browser: &Browser, view: &str) {
    for look in [WIDE, DARK, NARROW] {
        browser.set_look(look).await;
        let barriers = browser.barriers().await;
        assert!(barriers.is_empty(), "{view}, {look:?}: {barriers:#?}");
        // Only tables and the graph scroll sideways, and not the page.
        let overhang =
            browser.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(overhang, json!(0), "{view}, {look:?} is wider than the window");
    }
    browser.set_look(WIDE).await;
}

/// A browser with the fleet's view of a service.
pub async fn browser_at(cluster: &Cluster, driver: &Path) -> Browser {
    let browser = Browser::start(driver).await;
    browser.set_look(WIDE).await;
    browser.open(&cluster.service()).await;
    browser.shows("Promises kept").await;
    browser
}

/// Clicks the button with these words, once it is there.
pub async fn click(browser: &Browser, words: &str) {
    let button = format!("[...document.querySelectorAll('button')].find((b) => b.innerText === '{words}')");
    browser.until(&format!("Boolean({button})")).await;
    browser.script(&format!("{button}.click()")).await;
}

/// Stores a load of these seconds at the base rate, of which the middle third is at another rate; returns its identifier.
pub async fn upload_step(cluster: &Cluster, name: &str, seconds: u32, peak_qps: f64) -> String {
    let rate = |second: u32| if (seconds / 3..2 * seconds / 3).contains(&second) { peak_qps } else { BASE_QPS };
    let rows = (0..seconds).map(|second| format!("{second},{}\n", rate(second)));
    upload_trace(cluster, name, format!("second,qps\n{}", rows.collect::<String>())).await
}

/// Stores a trace; returns its identifier.
pub async fn upload_trace(cluster: &Cluster, name: &str, csv: String) -> String {
    let url = format!("{}/v1/traces?name={name}", cluster.service());
    let answer = cluster.client().post(url).header("content-type", "text/csv").body(csv).send().await;
    let trace: Value = answer.expect("an answer").json().await.expect("JSON");
    trace["id"].as_str().unwrap_or_else(|| panic!("{trace}")).to_owned()
}

/// Asks for a simulation as a program would; returns its status and its document.
pub async fn post_simulation(cluster: &Cluster, request: &Value) -> (u16, Value) {
    let url = format!("{}/v1/simulations", cluster.service());
    let answer = cluster.client().post(url).json(request).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// The identifier of a document.
pub fn id_of(document: &Value) -> &str {
    document["id"].as_str().unwrap_or_else(|| panic!("no identifier: {document}"))
}
