//! How is a real control plane of Kubernetes started on this machine, and how is its API called?
//!
//! The API is reached through `kubectl proxy`, which does TLS and tokens. So every call is plain HTTP on loopback.

use super::workload::BENCH_MANAGER;
use crate::live::process::Process;
use anyhow::{Context, Result, bail, ensure};
use apportion_support::ports::free_port;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program in the folder of a control plane.
const PROGRAM: &str = "control-plane";
/// Longest time until the proxy answers.
const PROXY_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest time of one answer. A watch has its own.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A watch lasts this long, which is longer than any run.
const WATCH_S: u32 = 7_200;
/// Longest event of a watch.
const EVENT_BYTES_MAX: usize = 4 << 20;

/// The program at a path: the path itself, or `control-plane` in that folder. `None` if there is no file.
///
/// `PROGRAM start DIR` starts a control plane and prints a kubeconfig, and `PROGRAM stop DIR` ends it. The variable
/// `CONTROLLER_ARGS` has further arguments of the controllers.
pub fn control_plane_program(path: &Path) -> Option<PathBuf> {
    let program = if path.is_dir() { path.join(PROGRAM) } else { path.to_owned() };
    program.is_file().then_some(program)
}

/// API server and controllers. Dropping it ends them.
pub struct PlaneProcesses {
    program: PathBuf,
    folder: PathBuf,
    kubeconfig: String,
}

impl PlaneProcesses {
    /// Starts a control plane, its files in `folder`. `controller_arguments` are further arguments of the controllers.
    ///
    /// # Errors
    /// If the program fails, or prints no kubeconfig.
    pub fn start(program: &Path, folder: PathBuf, controller_arguments: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("start").arg(&folder).env("CONTROLLER_ARGS", controller_arguments);
        let output = command.output().with_context(|| format!("starting {}", program.display()))?;
        let mut plane = Self { program: program.to_owned(), folder, kubeconfig: String::new() };
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} ended with {}: {said}", plane.program.display(), output.status);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        plane.kubeconfig = printed.trim().lines().last().context("it printed no kubeconfig")?.to_owned();
        Ok(plane)
    }

    /// Writes a kubeconfig that our service can use. The certificate of such a control plane is its own authority, which
    /// the service refuses, so it is not checked.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn write_unchecked_kubeconfig(&self, path: &Path) -> Result<()> {
        let mut command = Command::new("kubectl");
        command.args(["--kubeconfig", &self.kubeconfig, "config", "view", "--raw", "--minify", "-o", "json"]);
        let output = command.output().context("running kubectl")?;
        ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr));
        let mut document: Value = serde_json::from_slice(&output.stdout).context("a kubeconfig")?;
        for entry in document["clusters"].as_array_mut().into_iter().flatten() {
            let server = entry["cluster"]["server"].take();
            entry["cluster"] = json!({"server": server, "insecure-skip-tls-verify": true});
        }
        std::fs::write(path, document.to_string()).with_context(|| format!("writing {}", path.display()))
    }
}

impl Drop for PlaneProcesses {
    fn drop(&mut self) {
        let _ended = Command::new(&self.program).arg("stop").arg(&self.folder).status();
    }
}

/// The API of a control plane. Dropping it ends the proxy.
pub struct PlaneApi {
    base: String,
    http: reqwest::Client,
    _proxy: Process,
}

impl PlaneApi {
    /// Starts a proxy and waits until the API answers.
    ///
    /// # Errors
    /// If it does not.
    pub async fn open(plane: &PlaneProcesses, log_dir: &Path) -> Result<Self> {
        let port = free_port()?.to_string();
        let arguments = ["--kubeconfig", &plane.kubeconfig, "proxy", "--port", &port].map(str::to_owned);
        let proxy = Process::start("kubectl-proxy", Path::new("kubectl"), &arguments, log_dir)?;
        let http = reqwest::Client::builder().build()?;
        let api = Self { base: format!("http://127.0.0.1:{port}"), http, _proxy: proxy };
        let begun = Instant::now();
        while let Err(error) = api.get("/api").await {
            ensure!(begun.elapsed() < PROXY_WAIT_MAX, "the Kubernetes API does not answer: {error:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(api)
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// If the API refuses.
    pub async fn get(&self, path: &str) -> Result<Value> {
        send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Creates an object in this collection.
    ///
    /// # Errors
    /// If the API refuses.
    pub async fn create(&self, path: &str, object: &Value) -> Result<()> {
        send(self.http.post(format!("{}{path}", self.base)).json(object)).await.map(drop)
    }

    /// Applies an object on the server's side: only the fields that are there are owned.
    ///
    /// # Errors
    /// If the API refuses.
    pub async fn apply(&self, path: &str, object: &Value) -> Result<()> {
        let url = format!("{}{path}?fieldManager={BENCH_MANAGER}", self.base);
        let request = self.http.patch(url).header("content-type", "application/apply-patch+yaml");
        send(request.body(object.to_string())).await.map(drop)
    }

    /// Says that a Pod is ready, as a kubelet does. The Pod may be gone.
    ///
    /// # Errors
    /// If the API refuses for another reason.
    pub async fn make_ready(&self, namespace: &str, pod: &str) -> Result<()> {
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
        let patch = json!({"status": {"phase": "Running", "conditions": [ready]}});
        let url = format!("{}/api/v1/namespaces/{namespace}/pods/{pod}/status", self.base);
        let request = self.http.patch(url).header("content-type", "application/merge-patch+json");
        let answer = request.timeout(ANSWER_MAX).body(patch.to_string()).send().await?;
        let status = answer.status();
        if status.is_success() || status.as_u16() == 404 {
            return Ok(());
        }
        let said = answer.text().await?;
        bail!("pod {pod}: {status}: {said}")
    }

    /// Follows a collection until its watch ends. It begins with the objects that are there.
    ///
    /// # Errors
    /// If the API refuses, the watch ends, or `note` fails.
    pub async fn follow(&self, path: &str, mut note: impl FnMut(&WatchedChange)) -> Result<()> {
        let url = format!("{}{path}?watch=true&timeoutSeconds={WATCH_S}", self.base);
        let mut answer = self.http.get(url).send().await?.error_for_status()?;
        let mut unread: Vec<u8> = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            unread.extend_from_slice(&chunk);
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                note(&WatchedChange::read(&line)?);
            }
            ensure!(unread.len() <= EVENT_BYTES_MAX, "{path}: an event of more than {EVENT_BYTES_MAX} bytes");
        }
        bail!("{path}: the watch has ended")
    }
}

/// An event of a watch.
pub struct WatchedChange {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// The object.
    pub object: Value,
}

impl WatchedChange {
    fn read(line: &[u8]) -> Result<Self> {
        let mut event: Value = serde_json::from_slice(line).context("an event of a watch")?;
        let (kind, object) = (event["type"].as_str().unwrap_or_default().to_owned(), event["object"].take());
        ensure!(kind != "ERROR", "the watch failed: {object}");
        Ok(Self { kind, object })
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<Value> {
    let answer = request.timeout(ANSWER_MAX).send().await.context("calling the Kubernetes API")?;
    let (url, status) = (answer.url().clone(), answer.status());
    let text = answer.text().await?;
    ensure!(status.is_success(), "{url}: {status}: {text}");
    serde_json::from_str(&text).with_context(|| format!("{url}: {text}"))
}
