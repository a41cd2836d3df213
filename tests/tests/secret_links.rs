//! Three agents serve a pipeline, and somebody reads the network between them.

use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::wiretap::Wiretap;
use apportion_tests::{digits, free_port, programs};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
/// What the images of the requests say.
const SECRET: &[u8; 16] = b"nobody-reads-me!";
/// Requests at each gateway.
const REQUESTS: usize = 30;

struct Agent {
    process: Child,
    http: u16,
    wiretap: Wiretap,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// An agent with one emulated device, which others reach by a wiretap only.
fn agent(cluster: &Cluster, folder: &Path, name: &str) -> Agent {
    let (http, data) = (free_port(), free_port());
    let wiretap = Wiretap::before(data);
    let mut command = Command::new(programs().join("apportion-agent"));
    command.args(["--join", &format!("http://{}", cluster.join_address()), "--token", cluster.join_token()]);
    command.args(["--name", name, "--hardware", HARDWARE, "--backend", "emulated"]);
    command.args(["--http", &format!("127.0.0.1:{http}"), "--data", &format!("127.0.0.1:{data}")]);
    command.args(["--advertise-data", &wiretap.address().to_string()]).arg("--state-dir").arg(folder.join(name));
    let log = std::fs::File::create(folder.join(format!("{name}.log"))).expect("a folder of ours");
    Agent { process: command.stderr(log).spawn().expect("the program is built"), http, wiretap }
}

/// One image that says the secret again and again.
fn inputs() -> Value {
    let mut inputs = digits::inputs();
    inputs[0]["data"] = SECRET.repeat(digits::CROP * digits::CROP / SECRET.len()).into();
    inputs
}

/// Sends requests to each agent in turn, until a full turn of all of them was answered.
async fn load(agents: &[Agent]) {
    let client = reqwest::Client::new();
    for agent in agents {
        let url = format!("http://127.0.0.1:{}/v2/models/one/infer", agent.http);
        let (begun, mut answered) = (Instant::now(), 0);
        while answered < REQUESTS {
            let sent = client.post(&url).json(&json!({"inputs": inputs()})).send().await;
            answered += usize::from(sent.is_ok_and(|answer| answer.status().is_success()));
            assert!(begun.elapsed() < PATIENCE, "{answered} of {REQUESTS} requests were answered at {url}");
        }
    }
}

/// Serves a pipeline with replicas at all three agents. The result is, for each wiretap, how many bytes it has heard, and
/// whether the secret is among them.
async fn heard(links: &str) -> Vec<(usize, bool)> {
    let cluster = Cluster::serve_with(&["--links", links]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let agents: Vec<Agent> = ["a", "b", "c"].iter().map(|name| agent(&cluster, folder.path(), name)).collect();
    cluster.live(agents.len()).await;
    let digest = cluster.upload(digits::model("read-s.onnx")).await;
    let variants = [("read-s", digest.as_str(), 0.9)];
    cluster.register(&digits::pipeline("one", &variants, &json!({})), &digits::profile("one", &variants)).await;
    // A replica carries 500 images a second.
    let plan = cluster.plan(&json!({"pipelines": [{"name": "one", "demand_qps": 1_200.0}]})).await;
    cluster.apply(&plan).await;
    let replicas = cluster.get("/v1/target").await["placement"]["replicas"].as_array().map_or(0, Vec::len);
    assert_eq!(replicas, agents.len(), "one for each agent");
    load(&agents).await;
    agents.iter().map(|agent| agent.wiretap.heard(SECRET)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_with_tls_hide_what_they_carry() {
    // Each gateway sends a third of its requests to each agent, so each wiretap has heard tens of images.
    let bytes_min = REQUESTS / 3 * digits::CROP * digits::CROP;
    for (links, is_readable) in [("plain", true), ("tls", false)] {
        for (bytes, is_read) in heard(links).await {
            assert!(bytes > bytes_min, "{links}: {bytes} bytes");
            assert_eq!(is_read, is_readable, "{links}");
        }
    }
}
