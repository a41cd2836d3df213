//! A real API of Kubernetes with its controllers, without nodes.

use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The processes; dropping it ends them.
pub struct ControlPlane {
    program: PathBuf,
    folder: tempfile::TempDir,
    kubeconfig: String,
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
        let output = command.output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", program.display());
        let kubeconfig = String::from_utf8_lossy(&output.stdout).trim().lines().last().unwrap_or_default().to_owned();
        Some(Self { program, folder, kubeconfig })
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

    /// Applies an object.
    ///
    /// # Panics
    /// If the API refuses it.
    pub fn apply(&self, object: &Value) {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", &self.kubeconfig).args(["apply", "-f", "-"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("kubectl");
        child.stdin.take().expect("a pipe").write_all(object.to_string().as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}\n{object:#}", String::from_utf8_lossy(&output.stderr));
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
        let _ended = Command::new(&self.program).arg("stop").arg(self.folder.path().join("plane")).status();
    }
}
