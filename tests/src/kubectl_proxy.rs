//! How is the API of Kubernetes asked without a process for each question? Where a test or a stand-in looks three times a
//! second, `kubectl` would take a third of a processor.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the proxy may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// An API that is silent for this time does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// `kubectl proxy` with the rights of a kubeconfig, on a Unix socket. Dropping it ends the process.
pub struct KubectlProxy {
    child: Child,
    reader: KubernetesReader,
}

impl KubectlProxy {
    /// Starts it. Its socket and its log are in the folder.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(kubeconfig: &str, folder: &Path) -> Self {
        let socket = folder.join("proxy.socket");
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", kubeconfig).arg("proxy").arg(format!("--unix-socket={}", socket.display()));
        let proxy = Self {
            child: crate::process::started(&mut command, folder, "proxy"),
            reader: KubernetesReader { socket: socket.clone() },
        };
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let log = std::fs::read_to_string(folder.join("proxy.log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        proxy
    }

    /// The reader of its API.
    #[must_use]
    pub fn reader(&self) -> &KubernetesReader {
        &self.reader
    }
}

impl Drop for KubectlProxy {
    fn drop(&mut self) {
        crate::process::end(&mut self.child);
    }
}

/// Reads objects of the API.
#[derive(Clone, Debug)]
pub struct KubernetesReader {
    socket: PathBuf,
}

impl KubernetesReader {
    /// The object or the list at a path; `None` if the API does not answer, or refuses.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
        // After an answer to HTTP/1.0 the proxy closes the connection, and sends it in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_success = head.split(' ').nth(1) == Some("200");
        is_success.then(|| serde_json::from_str(body).ok()).flatten()
    }
}
