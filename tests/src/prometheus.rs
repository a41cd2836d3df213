//! A real Prometheus, and a stand-in for a fleet of Triton servers that it scrapes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The counter of a fleet at a moment, and the rate at which it grows.
struct Traffic {
    requests: f64,
    at: Instant,
    per_second: f64,
}

/// Serves metrics as Triton and kube-state-metrics have them, until it is stopped.
pub struct Exporter {
    port: u16,
    traffic: Arc<Mutex<Option<Traffic>>>,
}

impl Exporter {
    /// Starts it with this many requests per second.
    ///
    /// # Panics
    /// If there is no port.
    #[must_use]
    pub fn start(per_second: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let traffic = Arc::new(Mutex::new(Some(Traffic { requests: 0.0, at: Instant::now(), per_second })));
        let shared = Arc::clone(&traffic);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(page) = Self::page(&shared) else { return };
                answer(stream, &page);
            }
        });
        Self { port, traffic }
    }

    /// The configuration of a Prometheus that scrapes it four times a second.
    #[must_use]
    pub fn scrape(&self) -> String {
        let targets = format!("static_configs: [{{targets: ['127.0.0.1:{}']}}]", self.port);
        format!("global: {{scrape_interval: 250ms}}\nscrape_configs: [{{job_name: triton, {targets}}}]\n")
    }

    fn page(traffic: &Mutex<Option<Traffic>>) -> Option<String> {
        let mut traffic = traffic.lock().expect("no thread panics");
        let traffic = traffic.as_mut()?;
        traffic.requests += traffic.per_second * traffic.at.elapsed().as_secs_f64();
        traffic.at = Instant::now();
        let requests = traffic.requests.floor();
        Some(format!(
            "# TYPE nv_inference_request_success counter\n\
             nv_inference_request_success{{model=\"find-l\",version=\"1\"}} {requests}\n\
             nv_inference_request_success{{model=\"find-s\",version=\"1\"}} 0\n\
             # TYPE kube_deployment_status_replicas gauge\n\
             kube_deployment_status_replicas{{deployment=\"triton-find-l\"}} 1\n\
             kube_deployment_status_replicas{{deployment=\"triton-read-m\"}} 1\n"
        ))
    }

    /// From now on there are this many requests per second.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn set_rate(&self, per_second: f64) {
        drop(Self::page(&self.traffic));
        if let Some(traffic) = self.traffic.lock().expect("no thread panics").as_mut() {
            traffic.per_second = per_second;
        }
    }

    /// Ends it: the next scrape is refused.
    ///
    /// # Panics
    /// If its thread has panicked.
    pub fn stop(&self) {
        *self.traffic.lock().expect("no thread panics") = None;
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn answer(mut stream: TcpStream, page: &str) {
    let mut head = [0; 4_096];
    let _read = stream.read(&mut head);
    let length = page.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {length}\r\n");
    // Prometheus may have gone.
    let _sent = stream.write_all(format!("{head}connection: close\r\n\r\n{page}").as_bytes());
}

/// A Prometheus of its own; dropping it ends it.
pub struct PrometheusProcess {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl PrometheusProcess {
    /// Starts it with this configuration, more files in its folder, and more arguments. `{folder}` in an argument is its
    /// folder.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(program: &Path, config: &str, files: impl Fn(&Path), arguments: &[&str]) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), crate::machine::free_port());
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("prometheus.yml"), config).expect("written");
        files(folder.path());
        let log = std::fs::File::create(path("log")).expect("a log");
        let mut command = Command::new(program);
        command.args(["--config.file", &path("prometheus.yml"), "--storage.tsdb.path", &path("data")]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.args(arguments.iter().map(|a| a.replace("{folder}", &folder.path().display().to_string())));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        Self { child, port, folder }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ends");
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PrometheusProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}
