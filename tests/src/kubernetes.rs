//! A real API of Kubernetes with its controllers, without nodes.

use crate::kubectl_proxy::{KubectlProxy, KubernetesReader};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The processes; dropping it ends them.
pub struct ControlPlane {
    program: PathBuf,
    folder: tempfile::TempDir,
    kubeconfig: String,
    proxy: KubectlProxy,
}

impl ControlPlane {
    /// Starts it, with an autoscaler that looks every two seconds; `None` where this machine has none.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = apportion_needs::kubernetes()?;
        let folder = tempfile::tempdir().expect("a folder");
        let periods = "--horizontal-pod-autoscaler-sync-period=2s --horizontal-pod-autoscaler-downscale-stabilization=1s";
        let mut command = Command::new(&program);
        command.arg("start").arg(folder.path().join("plane")).env("CONTROLLER_ARGS", periods);
        let output = apportion_needs::start_installing("kubernetes", || {
            let output = command.output().expect("it can be run");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {said}", program.display());
            output
        });
        let kubeconfig = String::from_utf8_lossy(&output.stdout).trim().lines().last().unwrap_or_default().to_owned();
        let proxy = KubectlProxy::start(&kubeconfig, folder.path());
        Some(Self { program, folder, kubeconfig, proxy })
    }

    /// The kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The folder of its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a signal to the API server.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal_api(&self, signal: &str) {
        crate::process::tell(self.api_server().expect("it runs"), signal);
    }

    /// The number of the API server's process.
    fn api_server(&self) -> Option<u32> {
        std::fs::read_to_string(self.folder.path().join("plane/apiserver.pid")).ok()?.trim().parse().ok()
    }

    /// Reads the API as the administrator. Loops use it: it starts no process.
    #[must_use]
    pub fn reader(&self) -> &KubernetesReader {
        self.proxy.reader()
    }

    /// The output of `kubectl`, errors included.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = Command::new("kubectl").env("KUBECONFIG", &self.kubeconfig).args(arguments).output();
        let output = output.expect("kubectl");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// The kubeconfig of another user, who has no rights yet. The plane's certificate is its own authority, which rustls
    /// refuses as a server's. So the client does not check it.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn user_kubeconfig(&self, user: &str) -> String {
        let mut command = Command::new(&self.program);
        let output = command.arg("token").arg(self.folder.path().join("plane")).arg(user).output().expect("it can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let text = std::fs::read_to_string(&path).expect("a kubeconfig");
        let authority = format!("certificate-authority: \"{}/plane/tls/apiserver.crt\"", self.folder.path().display());
        assert!(text.contains(&authority), "{text}");
        std::fs::write(&path, text.replace(&authority, "insecure-skip-tls-verify: true")).expect("written");
        path
    }

    /// Applies an object.
    ///
    /// # Panics
    /// If the API refuses it.
    pub fn apply(&self, object: &Value) {
        send(&self.kubeconfig, &["apply", "-f", "-"], object.to_string().as_bytes());
    }

    /// Applies an object on the server's side.
    ///
    /// # Panics
    /// If the API refuses it.
    pub fn apply_on_server(&self, object: &Value) {
        send(&self.kubeconfig, &["apply", "--server-side", "-f", "-"], object.to_string().as_bytes());
    }

    /// Applies a file of manifests on the server's side, as the documents say.
    ///
    /// # Panics
    /// If it cannot be read, or the API refuses it.
    pub fn apply_file(&self, path: &Path) {
        let manifests = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        send(&self.kubeconfig, &["apply", "--server-side", "-f", "-"], &manifests);
    }

    /// Bytes in base64, as Kubernetes wants them.
    ///
    /// # Panics
    /// If there is no `base64`.
    #[must_use]
    pub fn base64(bytes: &[u8]) -> String {
        let mut child =
            Command::new("base64").arg("-w0").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("base64");
        child.stdin.take().expect("a pipe").write_all(bytes).expect("written");
        String::from_utf8(child.wait_with_output().expect("it ends").stdout).expect("text")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // A stopped one would hear nothing.
        if let Some(process) = self.api_server() {
            let _told = Command::new("kill").args(["-CONT", &process.to_string()]).status();
        }
        let _ended = Command::new(&self.program).arg("stop").arg(self.folder.path().join("plane")).status();
    }
}

/// The output of `kubectl` after this input; `None` if it fails.
pub(crate) fn run_kubectl(kubeconfig: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new("kubectl");
    command.env("KUBECONFIG", kubeconfig).arg("--request-timeout=10s").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    // A command that reads no input may have closed it.
    let _written = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Gives an input to `kubectl`.
fn send(kubeconfig: &str, arguments: &[&str], input: &[u8]) {
    let mut command = Command::new("kubectl");
    command.env("KUBECONFIG", kubeconfig).args(arguments);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(input).expect("written");
    let output = child.wait_with_output().expect("it ends");
    let (said, input) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(input));
    assert!(output.status.success(), "{said}\n{input}");
}

/// Says of each Pod that it is ready, as a kubelet does. Dropping it ends that.
pub struct KubeletStandIn {
    stop: Arc<AtomicBool>,
    work: Option<JoinHandle<()>>,
}

impl KubeletStandIn {
    /// Begins.
    #[must_use]
    pub fn start(plane: &ControlPlane) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, kubeconfig, reader) = (Arc::clone(&stop), plane.kubeconfig.clone(), plane.reader().clone());
        let work = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                make_ready(&kubeconfig, &reader);
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        Self { stop, work: Some(work) }
    }
}

impl Drop for KubeletStandIn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.work.take().map(JoinHandle::join);
    }
}

/// Makes each Pod ready that is still pending. A Pod may be gone meanwhile.
fn make_ready(kubeconfig: &str, reader: &KubernetesReader) {
    let Some(list) = reader.get("/api/v1/namespaces/default/pods?fieldSelector=status.phase%3DPending") else { return };
    let pods = list["items"].as_array().into_iter().flatten();
    for name in pods.filter_map(|pod| pod["metadata"]["name"].as_str()) {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "status": {"phase": "Running", "conditions": [ready]},
        });
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", kubeconfig).args(["apply", "--server-side", "--force-conflicts", "--subresource=status"]);
        command
            .args(["--field-manager=kubelet", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        let _written = child.stdin.take().map(|mut pipe| pipe.write_all(pod.to_string().as_bytes()));
        let _ended = child.wait();
    }
}
