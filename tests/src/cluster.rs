//! A service and agents with emulated devices, as processes of this machine that can be killed, paused and started again.

use crate::backend::Backend;
use crate::http::answer;
use crate::process::{end, started, tell};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
const TOKEN: &str = "cluster";
/// Hardware type of all devices.
pub const HARDWARE: &str = "emu";

/// One agent: where it listens stays the same when it is started again.
struct Agent {
    name: String,
    http: u16,
    data: u16,
    child: Option<Child>,
    is_paused: bool,
}

/// The processes; dropping it ends them.
pub struct Cluster {
    folder: tempfile::TempDir,
    http: u16,
    grpc: u16,
    devices: u32,
    backend: Backend,
    service: Option<Child>,
    /// What the service asks agents for.
    token: String,
    /// Another process on the same database.
    second: Option<Child>,
    /// The library that gives the service a clock of its own.
    clock: Option<PathBuf>,
    agents: Vec<Agent>,
    /// Further arguments of the service.
    arguments: Vec<String>,
    client: reqwest::Client,
}

impl Cluster {
    /// A service with a database of its own, and so many agents with so many emulated devices each.
    ///
    /// # Panics
    /// If anything does not come up: then its log is in the message.
    pub async fn start(agents: usize, devices: u32) -> Self {
        Self::start_with(agents, devices, Backend::Emulated).await
    }

    /// The same with another backend.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn start_with(agents: usize, devices: u32, backend: Backend) -> Self {
        Self::start_configured(agents, devices, backend, &[], None).await
    }

    /// A service without agents, with further arguments.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn serve_with(arguments: &[&str]) -> Self {
        Self::start_configured(0, 1, Backend::Emulated, arguments, None).await
    }

    /// A service with further arguments, and one agent with a device of [`HARDWARE`]. A pipeline that has no profile there
    /// uses the agent as its gateway only.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn serve_with_gateway(arguments: &[&str]) -> Self {
        Self::start_configured(1, 1, Backend::Emulated, arguments, None).await
    }

    /// A service that asks every client for a token, and agents with emulated devices. The cluster's own client shows this
    /// token, which allows everything.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn start_with_tokens(admin: &str, agents: usize, devices: u32) -> Self {
        Self::start_configured(agents, devices, Backend::Emulated, &["--require-token"], Some(admin)).await
    }

    async fn start_configured(
        agents: usize,
        devices: u32,
        backend: Backend,
        arguments: &[&str],
        admin: Option<&str>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Where the tests run as root the database runs as another user, who must get there.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        let agent = |n| Agent {
            name: format!("agent-{n}"),
            http: crate::machine::free_port(),
            data: crate::machine::free_port(),
            child: None,
            is_paused: false,
        };
        let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut headers = HeaderMap::new();
        if let Some(admin) = admin {
            let file = folder.path().join("admin.token");
            std::fs::write(&file, admin).expect("a folder of ours");
            arguments.extend(["--admin-token-file".to_owned(), file.display().to_string()]);
            headers.insert(AUTHORIZATION, format!("Bearer {admin}").parse().expect("a header"));
        }
        let client = reqwest::Client::builder().timeout(PATIENCE).default_headers(headers).build().expect("a client");
        let mut cluster = Self {
            http: crate::machine::free_port(),
            grpc: crate::machine::free_port(),
            folder,
            devices,
            backend,
            service: None,
            token: TOKEN.to_owned(),
            second: None,
            clock: None,
            agents: (0..agents).map(agent).collect(),
            arguments,
            client,
        };
        cluster.start_service().await;
        let hardware = json!({"name": HARDWARE, "price_per_hour": 1.0});
        cluster.put(&format!("/v1/hardware/{HARDWARE}"), &hardware).await;
        (0..agents).for_each(|at| cluster.start_agent(at));
        cluster.live(agents).await;
        cluster
    }

    /// Starts the service, again if it was killed.
    pub async fn start_service(&mut self) {
        let (database, templates) = (self.data_dir().join("postgres"), crate::machine::database_templates());
        crate::database_template::copy_to(&database, &templates, "postgres").await;
        let (http, grpc) = (format!("127.0.0.1:{}", self.http), format!("127.0.0.1:{}", self.grpc));
        let mut command = Command::new(crate::machine::programs().join("apportion"));
        command.args(["serve", "--http", &http, "--grpc", &grpc, "--token", &self.token, "--data-dir"]);
        command.arg(self.folder.path().join("service")).args(&self.arguments).env_remove("APPORTION_DATABASE_URL");
        self.give_clock(&mut command);
        self.service = Some(started(&mut command, self.folder.path(), "service"));
        let url = format!("http://{http}/readyz");
        let begun = Instant::now();
        while !self.client.get(&url).send().await.is_ok_and(|r| r.status().is_success()) {
            assert!(begun.elapsed() < PATIENCE, "the service is not ready:\n{}", self.log("service"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts the service again with another token than the agents have, or, without one, with theirs.
    pub async fn restart_service(&mut self, token: Option<&str>) {
        self.kill_service();
        token.unwrap_or(TOKEN).clone_into(&mut self.token);
        self.start_service().await;
    }

    /// Where agents join.
    #[must_use]
    pub fn join_address(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    /// Kills the service (its database with it, as when a machine is lost).
    pub fn kill_service(&mut self) {
        self.service.take().into_iter().for_each(|mut child| end(&mut child));
    }

    /// Starts another service process on the same database, with its own clock if one is given. Agents that start later
    /// join there.
    ///
    /// # Panics
    /// If there is no database.
    pub fn start_second_service(&mut self) {
        let database = self.database_url();
        self.grpc = crate::machine::free_port();
        let (http, grpc) = (format!("127.0.0.1:{}", crate::machine::free_port()), format!("127.0.0.1:{}", self.grpc));
        let mut command = Command::new(crate::machine::programs().join("apportion"));
        command.args(["serve", "--http", &http, "--grpc", &grpc, "--token", &self.token, "--data-dir"]);
        command.arg(self.folder.path().join("second"));
        command.args(["--database-url", &database]);
        self.give_clock(&mut command);
        self.second = Some(started(&mut command, self.folder.path(), "second"));
    }

    /// The address of the service's own database.
    ///
    /// # Panics
    /// If there is no database.
    #[must_use]
    pub fn database_url(&self) -> String {
        let text = std::fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).expect("a database runs");
        let socket = text.lines().nth(4).expect("its socket's folder").replace('/', "%2F");
        format!("postgres://apportion@{socket}/postgres")
    }

    /// The token with which agents join.
    #[must_use]
    pub fn join_token(&self) -> &str {
        &self.token
    }

    /// The client of the service, with the token of this cluster if there is one.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    fn give_clock(&self, command: &mut Command) {
        let Some(library) = &self.clock else { return };
        // Only the wall clock: timers go on as they do when somebody sets a machine's clock.
        command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.folder.path().join("clock"));
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Stops the service where it is; it knows nothing of it, and its database runs on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pause_service(&self) {
        self.signal_service("STOP");
    }

    /// Lets a paused service go on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn resume_service(&self) {
        self.signal_service("CONT");
    }

    fn signal_service(&self, signal: &str) {
        tell(self.service.as_ref().expect("the service runs").id(), signal);
    }

    /// Ends the service in order, and its database with it.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn stop_service(&mut self) {
        self.signal_service("TERM");
        let begun = Instant::now();
        let mut child = self.service.take().expect("it was just told");
        while child.try_wait().expect("it can be waited for").is_none() {
            assert!(begun.elapsed() < PATIENCE, "the service does not end:\n{}", self.log("service"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops the service's database where it is, with all of its processes.
    ///
    /// # Panics
    /// If there is none.
    pub fn stall_database(&self) {
        self.signal_database("STOP");
    }

    /// Lets a stalled database go on.
    ///
    /// # Panics
    /// If there is none.
    pub fn resume_database(&self) {
        self.signal_database("CONT");
    }

    fn signal_database(&self, signal: &str) {
        let all = self.database();
        assert!(!all.is_empty(), "the database runs");
        for process in all {
            // One that has just ended hears nothing.
            let _told = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status().expect("kill runs");
        }
    }

    /// The processes of the database: each works in the data directory.
    fn database(&self) -> Vec<u32> {
        let Ok(folder) = self.data_dir().join("postgres").canonicalize() else { return Vec::new() };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter(|n| std::fs::read_link(format!("/proc/{n}/cwd")).is_ok_and(|cwd| cwd == folder)).collect()
    }

    /// The service's data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("service")
    }

    /// Sets the clock of a service that was started with [`Cluster::with_clock`]: `+0`, or seconds off.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set_clock(&self, offset: &str) {
        std::fs::write(self.folder.path().join("clock"), offset).expect("a file of ours");
    }

    /// The service is started from now on with a clock of its own (libfaketime), which [`Cluster::set_clock`] sets; false
    /// if this machine has no libfaketime.
    pub fn with_clock(&mut self) -> bool {
        let library = |of: &str| PathBuf::from(format!("/usr/lib/{of}-linux-gnu/faketime/libfaketimeMT.so.1"));
        self.clock = ["x86_64", "aarch64"].map(library).into_iter().find(|path| path.exists());
        self.set_clock("+0");
        self.clock.is_some()
    }

    /// Starts an agent, again if it was killed.
    pub fn start_agent(&mut self, at: usize) {
        self.start_slow_agent(at, 1.0);
    }

    /// The same with batches that take this many times their profile.
    pub fn start_slow_agent(&mut self, at: usize, slowness: f64) {
        let (grpc, devices, folder) = (self.grpc, self.devices.to_string(), self.folder.path().to_owned());
        let agent = &mut self.agents[at];
        let mut command = Command::new(crate::machine::programs().join("apportion-agent"));
        command.args(["--join", &format!("http://127.0.0.1:{grpc}"), "--token", TOKEN, "--name", &agent.name]);
        let backend = self.backend.flag();
        command.env("APPORTION_PYTHON", apportion_needs::clients_python());
        command.args(["--hardware", HARDWARE, "--devices", &devices, "--backend", backend, "--state-dir"]);
        command.arg(folder.join(&agent.name)).args(["--http", &format!("127.0.0.1:{}", agent.http)]);
        command.args(["--data", &format!("127.0.0.1:{}", agent.data), "--slowness", &slowness.to_string()]);
        agent.child = Some(started(&mut command, &folder, &agent.name));
    }

    /// Ends an agent without warning.
    pub fn kill_agent(&mut self, at: usize) {
        self.agents[at].is_paused = false;
        self.agents[at].child.take().into_iter().for_each(|mut child| end(&mut child));
    }

    /// Stops an agent where it is; it knows nothing of it.
    pub fn pause_agent(&mut self, at: usize) {
        self.agents[at].is_paused = true;
        self.signal(at, "STOP");
    }

    /// Lets a paused agent go on.
    pub fn resume_agent(&mut self, at: usize) {
        self.agents[at].is_paused = false;
        self.signal(at, "CONT");
    }

    fn signal(&self, at: usize, signal: &str) {
        let Some(child) = &self.agents[at].child else { return };
        tell(child.id(), signal);
    }

    /// Where an agent keeps its files.
    #[must_use]
    pub fn state_dir(&self, at: usize) -> PathBuf {
        self.folder.path().join(&self.agents[at].name)
    }

    /// Where the service is.
    #[must_use]
    pub fn service(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Where clients reach an agent.
    #[must_use]
    pub fn ingress(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}", self.agents[at].http)
    }

    /// Number of the process of an agent that runs.
    #[must_use]
    pub fn process(&self, at: usize) -> Option<u32> {
        self.agents[at].child.as_ref().map(Child::id)
    }

    /// Number of the process of the service that runs.
    #[must_use]
    pub fn service_process(&self) -> Option<u32> {
        self.service.as_ref().map(Child::id)
    }

    /// Waits until so many agents are live.
    pub async fn live(&self, count: usize) {
        let is_live = |a: &&Value| a["state"] == "live";
        self.until("/v1/agents", |list| (list.as_array()?.iter().filter(is_live).count() == count).then_some(())).await;
    }

    /// Registers a pipeline with its profile (CSV).
    pub async fn register(&self, spec: &Value, profile: &str) {
        let name = spec["name"].as_str().expect("a name");
        self.put(&format!("/v1/pipelines/{name}"), spec).await;
        let url = format!("http://127.0.0.1:{}/v1/pipelines/{name}/profiles", self.http);
        let request = self.client.put(url).header("content-type", "text/csv").body(profile.to_owned());
        answer(request).await;
    }

    /// Stores a model file, and gives its digest.
    pub async fn upload(&self, bytes: Vec<u8>) -> String {
        let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        answer(self.client.put(format!("http://127.0.0.1:{}/v1/files/{digest}", self.http)).body(bytes)).await;
        digest
    }

    /// Waits until `found` finds something in a resource of the service.
    pub async fn until<T>(&self, path: &str, found: impl Fn(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let document = self.get(path).await;
            if let Some(found) = found(&document) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {document:#}\n{}", self.log("service"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Plans for a demand and waits for the plan.
    pub async fn plan(&self, body: &Value) -> Value {
        let url = format!("http://127.0.0.1:{}/v1/plans", self.http);
        let mut plan = answer(self.client.post(url).header("prefer", "wait=30").json(body)).await;
        let begun = Instant::now();
        while matches!(plan["state"].as_str(), Some("queued" | "solving" | "simulating")) {
            assert!(begun.elapsed() < PATIENCE, "no plan: {plan}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            plan = self.get(&format!("/v1/plans/{}", plan["id"].as_str().expect("an id"))).await;
        }
        assert_eq!(plan["state"], "succeeded", "{plan}");
        plan
    }

    /// Makes a plan the fleet's target. It is tried again if a round of the service has come between.
    pub async fn apply(&self, plan: &Value) {
        let url = format!("http://127.0.0.1:{}/v1/target", self.http);
        loop {
            let current = self.get("/v1/target").await["generation"].as_u64().unwrap_or(0);
            let request = self.client.put(&url).header("if-match", format!("\"{current}\""));
            let request = request.json(&json!({"plans": [plan["id"]]}));
            let response = request.send().await.expect("the service answers");
            if response.status() != StatusCode::PRECONDITION_FAILED {
                assert!(response.status().is_success(), "{:?}", response.text().await);
                return;
            }
        }
    }

    /// Waits until every agent says that a pipeline is ready.
    pub async fn ready(&self, pipeline: &str) {
        let begun = Instant::now();
        for at in 0..self.agents.len() {
            let url = format!("{}/v2/models/{pipeline}/ready", self.ingress(at));
            while !self.client.get(&url).send().await.is_ok_and(|r| r.status().is_success()) {
                let name = &self.agents[at].name;
                assert!(begun.elapsed() < PATIENCE, "{pipeline} is not ready at {name}:\n{}", self.log(name));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Reads a resource of the service.
    pub async fn get(&self, path: &str) -> Value {
        answer(self.client.get(format!("http://127.0.0.1:{}{path}", self.http))).await
    }

    /// Replaces a resource of the service.
    pub async fn put(&self, path: &str, body: &Value) -> Value {
        answer(self.client.put(format!("http://127.0.0.1:{}{path}", self.http)).json(body)).await
    }

    /// The last lines that a process wrote.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let agents = self.agents.iter_mut().filter_map(|agent| agent.child.take());
        agents.chain(self.second.take()).for_each(|mut child| end(&mut child));
        // Asked, so that it ends its database too. What is paused would hear nothing.
        if let Some(mut child) = self.service.take() {
            for process in self.database().into_iter().chain([child.id()]) {
                let _told = Command::new("kill").args(["-CONT", &process.to_string()]).status();
            }
            let _told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(10) && child.try_wait().ok().flatten().is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            end(&mut child);
        }
    }
}
