//! Several machines, each a network namespace of this one: nothing is reached over loopback.
//!
//! Only root can make namespaces, with `ip` of Debian's iproute2 and `nsenter` of its util-linux. Without them the test
//! says so and ends.

use apportion_needs::{Need, need};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
/// The token that HTTP beyond loopback asks for.
const ADMIN_TOKEN: &str = "the-admin-token-of-this-test";
/// Set in the process that runs within the network, to the prefix of the namespaces' names.
const VARIABLE: &str = "APPORTION_TEST_NETWORK";
const TOKEN: &str = "machines";
const HARDWARE: &str = "emu";
/// The machines, by the last number of their addresses.
const MACHINES: [&str; 3] = ["service", "a", "b"];
const CROP: usize = 16;

/// Runs a program in a namespace. `ip netns exec` would also mount, and a root without its own mount point (chroot)
/// cannot mount.
fn within(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
    command
}

/// Why there is no network of machines.
#[derive(Debug, thiserror::Error)]
enum NetworkError {
    /// The system does not start this command.
    #[error("{0:?}: {1}")]
    Start(Box<Command>, std::io::Error),
    /// This command fails, with these words.
    #[error("{0:?}: {1}")]
    Failed(Box<Command>, String),
}

/// Why a call of the service or of an agent has no good answer.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("{0:?}")]
    Unanswered(reqwest::Error),
    #[error("{0}")]
    BrokenOff(reqwest::Error),
    #[error("{0}: {1}")]
    Refused(reqwest::StatusCode, String),
}

fn succeed(mut command: Command) -> Result<(), NetworkError> {
    match command.output() {
        Err(error) => Err(NetworkError::Start(Box::new(command), error)),
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let words = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(NetworkError::Failed(Box::new(command), words))
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), NetworkError> {
    let mut command = Command::new("ip");
    command.args(arguments);
    succeed(command)
}

fn ip_within(namespace: &str, arguments: &[&str]) -> Result<(), NetworkError> {
    let mut command = within(namespace, "ip");
    command.args(arguments);
    succeed(command)
}

/// A switch and the machines on it; dropping it removes them.
struct Network(String);

impl Network {
    fn new() -> Result<Self, NetworkError> {
        let this = Self(format!("apportion-{}", std::process::id()));
        let switch = this.name("switch");
        ip(&["netns", "add", &switch])?;
        for step in [
            &["link", "set", "lo", "up"][..],
            &["link", "add", "bridge", "type", "bridge"],
            &["link", "set", "bridge", "up"],
        ] {
            ip_within(&switch, step)?;
        }
        ip_within(&switch, &["addr", "add", "10.77.0.254/24", "dev", "bridge"])?;
        for (number, machine) in (1..).zip(MACHINES) {
            let (name, port, address) = (this.name(machine), format!("port{number}"), format!("10.77.0.{number}/24"));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &port, "netns", &switch, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip_within(&switch, &["link", "set", &port, "master", "bridge", "up"])?;
            ip_within(&name, &["link", "set", "lo", "up"])?;
            ip_within(&name, &["addr", "add", &address, "dev", "eth0"])?;
            ip_within(&name, &["link", "set", "eth0", "up"])?;
        }
        Ok(this)
    }

    fn name(&self, machine: &str) -> String {
        format!("{}-{machine}", self.0)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in MACHINES.into_iter().chain(["switch"]) {
            let _gone = ip(&["netns", "del", &self.name(machine)]);
        }
    }
}

#[test]
fn two_agents_on_other_machines_serve_what_the_service_hands_out() {
    if let Ok(prefix) = std::env::var(VARIABLE) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(machines_serve(&prefix));
    }
    let Some(network) = need(Need::Namespaces, Network::new()) else { return };
    // The same test within the network, so that its clients are on it.
    let test = "two_agents_on_other_machines_serve_what_the_service_hands_out";
    let mut command = within(&network.name("switch"), std::env::current_exe().expect("this test"));
    command.args(["--exact", test, "--nocapture"]).env(VARIABLE, &network.0);
    assert!(command.status().expect("nsenter starts it").success(), "see above");
}

/// The processes on the machines.
struct Fleet {
    prefix: String,
    folder: tempfile::TempDir,
    client: reqwest::Client,
    children: Vec<(&'static str, Child)>,
}

impl Fleet {
    fn start(&mut self, machine: &'static str, program: &str, arguments: &[&str]) {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join(format!("{machine}.log")));
        let log = log.expect("a log file");
        let namespace = format!("{}-{machine}", self.prefix);
        let mut command = within(&namespace, apportion_tests::programs().join(program));
        command.args(arguments).env("APPORTION_TOKEN", TOKEN).env_remove("APPORTION_DATABASE_URL").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.children.push((machine, command.spawn().unwrap_or_else(|e| panic!("{machine}: {e}"))));
    }

    /// An agent that is told nothing of addresses but where to join.
    fn start_agent(&mut self, machine: &'static str) {
        let state = self.state(machine).display().to_string();
        let own = ["--http", "0.0.0.0:8000", "--ingress-grpc", "0.0.0.0:8001", "--data", "0.0.0.0:8002"];
        let other = ["--join", "http://10.77.0.1:7071", "--hardware", HARDWARE, "--state-dir", &state];
        self.start(machine, "apportion-agent", &[&own[..], &other[..]].concat());
    }

    fn state(&self, machine: &str) -> PathBuf {
        self.folder.path().join(machine)
    }

    fn kill(&mut self, machine: &str) {
        let at = self.children.iter().position(|(name, _)| *name == machine).expect("it runs");
        let (_, mut child) = self.children.remove(at);
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    fn log(&self, machine: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{machine}.log"))).unwrap_or_default()
    }

    fn logs(&self) -> String {
        MACHINES.map(|m| format!("--- {m}\n{}", self.log(m))).concat()
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Result<Value, CallError> {
        let response = request.send().await.map_err(CallError::Unanswered)?;
        let status = response.status();
        let text = response.text().await.map_err(CallError::BrokenOff)?;
        if status.is_success() {
            Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
        } else {
            Err(CallError::Refused(status, text))
        }
    }

    async fn put(&self, path: &str, body: impl Into<reqwest::Body>, kind: &str) -> Value {
        let request = self.client.put(format!("http://10.77.0.1:7070{path}")).header("content-type", kind).body(body);
        self.call(request).await.unwrap_or_else(|e| panic!("{path}: {e}\n{}", self.logs()))
    }

    /// Waits until an address answers with what is expected.
    async fn until<T>(&self, url: &str, found: impl Fn(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let answer = self.call(self.client.get(url)).await;
            if let Some(found) = answer.as_ref().ok().and_then(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{url}: {answer:?}\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Name and number of the live agents, by their gateways.
    async fn live(&self) -> Vec<(String, String, u64)> {
        let url = "http://10.77.0.1:7070/v1/agents";
        let both = self.until(url, |all| {
            let all = all.as_array()?;
            let of = |a: &Value| {
                Some((a["ingress_http"].as_str()?.to_owned(), a["name"].as_str()?.to_owned(), a["number"].as_u64()?))
            };
            let live: Vec<_> = all.iter().filter(|a| a["state"] == "live").filter_map(of).collect();
            (live.len() == 2 && all.len() == 2).then_some(live)
        });
        let mut both = both.await;
        both.sort();
        both
    }

    /// A request through the gateway of each agent.
    async fn both_serve(&self) {
        let inputs = json!([
            {"name": "image", "datatype": "UINT8", "shape": [1, CROP, CROP], "data": vec![0; CROP * CROP]},
            {"name": "center", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]},
        ]);
        for address in ["10.77.0.2:8000", "10.77.0.3:8000"] {
            let base = format!("http://{address}/v2/models/digit");
            self.until(&format!("{base}/ready"), |_| Some(())).await;
            let answer = self.call(self.client.post(format!("{base}/infer")).json(&json!({"inputs": inputs}))).await;
            assert!(answer.is_ok_and(|a| a["outputs"].is_array()), "{address}\n{}", self.logs());
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Asked first, so that the service ends its database too.
        for (_, child) in &mut self.children {
            let _told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15)
            && self.children.iter_mut().any(|(_, child)| child.try_wait().ok().flatten().is_none())
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        for (_, child) in &mut self.children {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

/// One task of the digits example with one variant.
fn pipeline(digest: &str) -> Value {
    let crop = CROP as i64;
    let tensor = |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let task = json!({
        "name": "read",
        "inputs": [tensor("image", "UINT8", &[-1, crop, crop]), tensor("center", "FP32", &[-1, 2])],
        "outputs": [tensor("label", "INT64", &[-1]), tensor("position", "FP32", &[-1, 2])],
        "variants": [{"name": "small", "model_digest": digest, "load_ms": 100.0}],
    });
    json!({"name": "digit", "slo_ms": 5_000.0, "tasks": [task]})
}

async fn deploy(fleet: &Fleet, file: &Path) {
    let bytes = std::fs::read(file).expect("the example's file");
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let json = "application/json";
    fleet.put(&format!("/v1/files/{digest}"), bytes, "application/octet-stream").await;
    fleet
        .put(&format!("/v1/hardware/{HARDWARE}"), json!({"name": HARDWARE, "price_per_hour": 1.0}).to_string(), json)
        .await;
    fleet.put("/v1/pipelines/digit", pipeline(&digest).to_string(), json).await;
    let profile = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n";
    let profile = format!("{profile}digit,read,small,{HARDWARE},1,5,0.8\ndigit,read,small,{HARDWARE},4,8,0.8\n");
    fleet.put("/v1/pipelines/digit/profiles", profile, "text/csv").await;
    let ask = json!({"pipelines": [{"name": "digit", "demand_qps": 20.0}]});
    let plans = fleet.client.post("http://10.77.0.1:7070/v1/plans").header("prefer", "wait=30").json(&ask);
    let plan = fleet.call(plans).await.expect("a plan");
    let url = format!("http://10.77.0.1:7070/v1/plans/{}", plan["id"].as_str().expect("an id"));
    let plan = fleet.until(&url, |plan| (plan["state"] == "succeeded").then(|| plan["id"].clone())).await;
    let target = fleet.client.put("http://10.77.0.1:7070/v1/target").header("if-match", "\"0\"");
    fleet.call(target.json(&json!({"plans": [plan]}))).await.unwrap_or_else(|e| panic!("{e}\n{}", fleet.logs()));
}

async fn machines_serve(prefix: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    // The database runs as another user, who must get there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    let token_file = folder.path().join("admin.token");
    std::fs::write(&token_file, ADMIN_TOKEN).expect("a folder of ours");
    let authorization = format!("Bearer {ADMIN_TOKEN}").parse().expect("a header");
    let headers = [(reqwest::header::AUTHORIZATION, authorization)].into_iter().collect();
    let client = reqwest::Client::builder().timeout(PATIENCE).default_headers(headers).build().expect("a client");
    let token_file = token_file.display().to_string();
    let mut fleet = Fleet { prefix: prefix.to_owned(), folder, client, children: Vec::new() };
    let data = fleet.state("service").display().to_string();
    // Agents reach the port where they join and no other; HTTP is for this test.
    let listen = ["serve", "--http", "10.77.0.1:7070", "--grpc", "0.0.0.0:7071"];
    let other = ["--data-dir", &data, "--admin-token-file", &token_file];
    fleet.start("service", "apportion", &[&listen[..], &other[..]].concat());
    fleet.until("http://10.77.0.1:7070/readyz", |_| Some(())).await;
    fleet.start_agent("a");
    fleet.start_agent("b");
    let before = fleet.live().await;
    let gateways: Vec<&str> = before.iter().map(|a| a.0.as_str()).collect();
    assert_eq!(gateways, ["10.77.0.2:8000", "10.77.0.3:8000"], "others are told how to reach them");
    deploy(&fleet, &apportion_tests::root().join("examples/digits/models/read-s.onnx")).await;
    fleet.both_serve().await;
    for machine in ["a", "b"] {
        fleet.kill(machine);
        fleet.start_agent(machine);
    }
    fleet.until("http://10.77.0.2:8000/v2/health/ready", |_| Some(())).await;
    fleet.until("http://10.77.0.3:8000/v2/health/ready", |_| Some(())).await;
    fleet.both_serve().await;
    assert_eq!(fleet.live().await, before, "a restart is the same agent");
    // Whichever of them has the replica: nobody fetches what it still has.
    let fetched = ["a", "b"].map(|m| fleet.log(m).matches("a model file has come").count());
    assert!(fetched.iter().sum::<usize>() > 0 && fetched.iter().all(|n| *n <= 1), "{fetched:?}\n{}", fleet.logs());
}
