//! Commands and agents talk to a service over TLS.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);
/// The token with which agents join.
const TOKEN: &str = "the-token-of-the-secure-test";

/// A process that is told to end with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Asked, so that the service ends its database too.
        let _told = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ended = self.0.wait();
    }
}

/// A service whose ports have TLS.
struct Service {
    _process: Running,
    http: u16,
    grpc: u16,
    folder: TempDir,
}

/// A program of this repository, without the settings of the machine's user.
fn program(name: &str) -> Command {
    let mut command = Command::new(apportion_tests::programs().join(name));
    let variables = ["SERVER", "CACERT", "API_TOKEN", "API_TOKEN_FILE", "DATABASE_URL", "TLS_CERT", "TLS_KEY"];
    for variable in variables {
        command.env_remove(format!("APPORTION_{variable}"));
    }
    command.env("APPORTION_TOKEN", TOKEN);
    command
}

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tls/tests/certificates").join(name)
}

fn start() -> Service {
    start_with(&[])
}

fn start_with(arguments: &[&str]) -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    // Where the tests run as root the database runs as another user, who must get there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    let (http, grpc) = (apportion_tests::free_port(), apportion_tests::free_port());
    let mut command = program("apportion");
    command.args(["serve", "--http", &format!("127.0.0.1:{http}"), "--grpc", &format!("127.0.0.1:{grpc}")]);
    command.arg("--data-dir").arg(folder.path().join("data")).arg("--agents-tls");
    command.arg("--tls-cert").arg(certificate("server.pem")).arg("--tls-key").arg(certificate("server.key"));
    let process = command.args(arguments).stderr(Stdio::null()).spawn().expect("the program is built");
    Service { _process: Running(process), http, grpc, folder }
}

/// The result of `apportion status`.
fn status(server: &str, authority: Option<&str>) -> Output {
    let mut command = program("apportion");
    command.args(["status", "--format", "json", "--server", server]);
    if let Some(authority) = authority {
        command.arg("--cacert").arg(certificate(authority));
    }
    command.output().expect("the program is built")
}

/// Waits until the service says that so many agents live.
fn until_agents_live(service: &Service, count: usize) {
    let (begun, url) = (Instant::now(), format!("https://localhost:{}", service.http));
    loop {
        let said = status(&url, Some("authority.pem"));
        let document: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        if document["live_agents"] == json!(count) {
            return;
        }
        let stderr = String::from_utf8_lossy(&said.stderr);
        assert!(begun.elapsed() < PATIENCE, "not {count} agents: {document} {stderr}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An agent that trusts this authority. Its log is the file `NAME.log` of the folder.
fn agent(service: &Service, name: &str, authority: &str) -> Running {
    let log = std::fs::File::create(service.folder.path().join(format!("{name}.log"))).expect("a folder of ours");
    let mut command = program("apportion-agent");
    command.args(["--join", &format!("https://localhost:{}", service.grpc), "--name", name, "--backend", "emulated"]);
    command.arg("--cacert").arg(certificate(authority)).arg("--state-dir").arg(service.folder.path().join(name));
    Running(command.stderr(log).spawn().expect("the program is built"))
}

#[test]
fn a_command_trusts_the_authority_that_it_is_given() {
    let service = start();
    until_agents_live(&service, 0);
    let (name, address) = (format!("localhost:{}", service.http), format!("127.0.0.1:{}", service.http));
    assert!(status(&format!("https://{address}"), Some("authority.pem")).status.success());
    for (server, authority, said) in [
        (format!("https://{name}"), Some("other-authority.pem"), "--cacert names the file of its authority"),
        (format!("https://{name}"), Some("none.pem"), "none.pem"),
        (format!("http://{name}"), None, "talking to the service"),
    ] {
        let refused = status(&server, authority);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{server} {authority:?}: {stderr}");
        assert!(stderr.contains(said), "{server} {authority:?}: {stderr}");
    }
}

#[test]
fn an_agent_joins_over_tls_and_refuses_a_stranger() {
    let service = start();
    until_agents_live(&service, 0);
    let _joins = agent(&service, "trusting", "authority.pem");
    until_agents_live(&service, 1);
    let _refuses = agent(&service, "distrusting", "other-authority.pem");
    let begun = Instant::now();
    loop {
        let log = std::fs::read_to_string(service.folder.path().join("distrusting.log")).expect("its log");
        if log.contains("UnknownIssuer") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{log}");
        std::thread::sleep(Duration::from_millis(100));
    }
    until_agents_live(&service, 1);
}

#[test]
fn an_agent_without_a_certificate_gets_one_and_comes_again() {
    let service = start_with(&["--agent-certificates", "require", "--links", "tls"]);
    until_agents_live(&service, 0);
    let joined = agent(&service, "certified", "authority.pem");
    let state = service.folder.path().join("certified");
    until_stays_live(&service);
    let kept = std::fs::metadata(state.join("certificates.bin")).expect("it is kept");
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    drop(joined);
    until_agents_live(&service, 0);
    // Started again, it shows the certificate at once.
    let _joined = agent(&service, "certified", "authority.pem");
    until_stays_live(&service);
    let log = std::fs::read_to_string(service.folder.path().join("certified.log")).expect("its log");
    assert!(!log.contains("serves streams that show one"), "{log}");
}

/// Waits until the one agent has been live for longer than a stream that only brings a certificate would keep it so.
fn until_stays_live(service: &Service) {
    let begun = Instant::now();
    let (mut since, url) = (Instant::now(), format!("https://localhost:{}", service.http));
    while since.elapsed() < Duration::from_secs(6) {
        let said = status(&url, Some("authority.pem"));
        let document: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        if document["live_agents"] != json!(1) {
            since = Instant::now();
        }
        assert!(begun.elapsed() < PATIENCE, "{document}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
