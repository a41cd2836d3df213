//! Three service processes on one PostgreSQL, each behind a relay of its own, and agents that know all three.

use apportion_api::database::PrivateDatabase;
use apportion_tests::cluster::HARDWARE;
use apportion_tests::process::{end, started, tell};
use apportion_tests::relay::Relay;
use apportion_tests::{free_port, programs};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Service processes.
pub const PROCESSES: usize = 3;
/// Agents, with two devices each.
pub const AGENTS: usize = 3;
/// Longest wait before the trial fails.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// A client asks another process after this time.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
const TOKEN: &str = "plane";

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and started again later.
    Killed,
    /// It stops where it is, and goes on later.
    Paused,
    /// Nothing comes through between it and the database, and no connection is closed.
    Parted,
}

/// A service process.
struct ServiceProcess {
    http: u16,
    grpc: u16,
    relay: Relay,
    child: Option<Child>,
    /// The number that it gave itself, in the table of processes.
    id: Uuid,
}

/// An agent process.
struct AgentProcess {
    http: u16,
    child: Child,
}

/// All processes. Dropping it ends them.
pub struct Plane {
    services: Vec<ServiceProcess>,
    agents: Vec<AgentProcess>,
    client: reqwest::Client,
    database: Option<PrivateDatabase>,
    folder: tempfile::TempDir,
}

impl Plane {
    /// Starts everything, and waits until the agents are live.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Where the tests run as root the database runs as another user, who must get there.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        let database = PrivateDatabase::start(&folder.path().join("postgres")).await.expect("PostgreSQL starts");
        let service = |_| ServiceProcess {
            http: free_port(),
            grpc: free_port(),
            relay: Relay::to(&database.url()),
            child: None,
            id: Uuid::nil(),
        };
        let services: Vec<ServiceProcess> = (0..PROCESSES).map(service).collect();
        let client = reqwest::Client::builder().timeout(ANSWER_MAX).build().expect("a client");
        let mut plane = Self { services, agents: Vec::new(), client, database: Some(database), folder };
        for at in 0..PROCESSES {
            plane.start_service(at).await;
            plane.until_ready(at).await;
        }
        let hardware = json!({"name": HARDWARE, "price_per_hour": 1.0});
        plane.put(&format!("/v1/hardware/{HARDWARE}"), &hardware).await;
        (0..AGENTS).for_each(|at| plane.start_agent(at));
        let begun = Instant::now();
        while !plane.all_agents_live().await {
            assert!(begun.elapsed() < PATIENCE, "the agents do not come:\n{}", plane.log("agent-0"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        plane
    }

    /// Starts a process, and finds its number.
    async fn start_service(&mut self, at: usize) {
        let mut db = PgConnection::connect(&self.database_url()).await.expect("our own database");
        let known: Vec<Uuid> = sqlx::query_scalar("select id from processes").fetch_all(&mut db).await.unwrap_or_default();
        self.spawn_service(at);
        let begun = Instant::now();
        self.services[at].id = loop {
            let new = sqlx::query_scalar::<_, Uuid>("select id from processes where id <> all($1)").bind(&known);
            // Before the first process has started there is no such table.
            if let Ok(Some(id)) = new.fetch_optional(&mut db).await {
                break id;
            }
            let log = self.log(&format!("service-{at}"));
            assert!(begun.elapsed() < PATIENCE, "process {at} shows no sign of life:\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
    }

    fn spawn_service(&mut self, at: usize) {
        let of = &mut self.services[at];
        let mut command = Command::new(programs().join("apportion"));
        command.args(["serve", "--token", TOKEN, "--http", &format!("127.0.0.1:{}", of.http)]);
        command.args(["--grpc", &format!("127.0.0.1:{}", of.grpc), "--database-url", &of.relay.url(), "--data-dir"]);
        command.arg(self.folder.path().join(format!("service-{at}"))).env_remove("APPORTION_DATABASE_URL");
        of.child = Some(started(&mut command, self.folder.path(), &format!("service-{at}")));
    }

    fn start_agent(&mut self, at: usize) {
        let http = free_port();
        let mut command = Command::new(programs().join("apportion-agent"));
        let join: Vec<String> = self.services.iter().map(|service| format!("http://127.0.0.1:{}", service.grpc)).collect();
        let name = format!("agent-{at}");
        command.args(["--join", &join.join(","), "--token", TOKEN, "--name", &name, "--hardware", HARDWARE]);
        command.args(["--devices", "2", "--backend", "emulated", "--http", &format!("127.0.0.1:{http}")]);
        command.args(["--data", &format!("127.0.0.1:{}", free_port()), "--state-dir"]);
        command.arg(self.folder.path().join(&name));
        let child = started(&mut command, self.folder.path(), &name);
        self.agents.push(AgentProcess { http, child });
    }

    /// Waits until a process works.
    pub async fn until_ready(&self, at: usize) {
        let url = format!("{}/readyz", self.base(at));
        let begun = Instant::now();
        while !self.client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            let log = self.log(&format!("service-{at}"));
            assert!(begun.elapsed() < PATIENCE, "process {at} is not ready:\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Does something to a process.
    pub fn fault(&mut self, at: usize, fault: Fault) {
        let of = &mut self.services[at];
        let child = of.child.as_mut().expect("it runs");
        match fault {
            Fault::Killed => {
                end(child);
                of.child = None;
            }
            Fault::Paused => tell(child.id(), "STOP"),
            Fault::Parted => of.relay.part(),
        }
    }

    /// Ends what [`Self::fault`] did.
    pub async fn repair(&mut self, at: usize, fault: Fault) {
        match fault {
            Fault::Killed => self.start_service(at).await,
            Fault::Paused => tell(self.services[at].child.as_ref().expect("it is stopped, and there").id(), "CONT"),
            Fault::Parted => self.services[at].relay.open(true),
        }
    }

    /// The URL of the database, without a relay.
    pub fn database_url(&self) -> String {
        self.database.as_ref().expect("it runs until the end").url()
    }

    /// The place of the process with this number.
    pub fn place_of(&self, id: Uuid) -> usize {
        let place = self.services.iter().position(|service| service.id == id);
        place.unwrap_or_else(|| panic!("{id} is no process of this trial"))
    }

    /// Where a process is.
    pub fn base(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}", self.services[at].http)
    }

    /// Where clients reach the agents.
    pub fn ingresses(&self) -> Vec<String> {
        self.agents.iter().map(|agent| format!("http://127.0.0.1:{}", agent.http)).collect()
    }

    /// Whether the service says that all agents are live.
    pub async fn all_agents_live(&self) -> bool {
        let list: Value = match self.client.get(format!("{}/v1/agents", self.base(0))).send().await {
            Ok(answer) => answer.json().await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        list.as_array().into_iter().flatten().filter(|agent| agent["state"] == "live").count() == AGENTS
    }

    /// Makes a plan the target in place of this generation; returns whether a process did.
    pub async fn put_target(&self, plan: Uuid, generation: i64) -> bool {
        let request =
            self.client.put(format!("{}/v1/target", self.base(0))).header("if-match", format!("\"{generation}\""));
        let answer = request.json(&json!({"plans": [plan]})).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Replaces a resource, at the first process.
    pub async fn put(&self, path: &str, body: &Value) {
        let url = format!("{}{path}", self.base(0));
        let answer = self.client.put(url).json(body).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }

    /// Registers a profile (CSV), at the first process.
    pub async fn put_profile(&self, pipeline: &str, profile: String) {
        let url = format!("{}/v1/pipelines/{pipeline}/profiles", self.base(0));
        let answer = self.client.put(url).header("content-type", "text/csv").body(profile).send().await;
        let status = answer.expect("an answer").status();
        assert!(status.is_success(), "the profile: {status}");
    }

    /// Waits until every agent says that a pipeline is ready.
    pub async fn until_served(&self, pipeline: &str) {
        let begun = Instant::now();
        for (at, ingress) in self.ingresses().iter().enumerate() {
            let url = format!("{ingress}/v2/models/{pipeline}/ready");
            while !self.client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                assert!(begun.elapsed() < PATIENCE, "agent {at}:\n{}", self.log(&format!("agent-{at}")));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// The last lines that a process wrote.
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(25).collect();
        last.reverse();
        last.join("\n")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let services = self.services.iter_mut().filter_map(|service| service.child.as_mut());
        services.chain(self.agents.iter_mut().map(|agent| &mut agent.child)).for_each(end);
        // The database ends last: no process asks it any more.
        drop(self.database.take());
    }
}
