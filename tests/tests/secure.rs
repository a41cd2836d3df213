//! Commands talk to a service over TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);

struct Service {
    child: Child,
    http: u16,
    grpc: u16,
    folder: tempfile::TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        // Asked, so that it ends its database too.
        let _told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ended = self.child.wait();
    }
}

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tls/tests/certificates").join(name)
}

fn start() -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    // Where the tests run as root the database runs as another user, who must get there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    let (http, grpc) = (apportion_tests::free_port(), apportion_tests::free_port());
    let child = Command::new(apportion_tests::programs().join("apportion"))
        .args(["serve", "--http", &format!("127.0.0.1:{http}"), "--grpc", &format!("127.0.0.1:{grpc}")])
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args(["--tls-cert".as_ref(), certificate("server.pem").as_os_str()])
        .args(["--tls-key".as_ref(), certificate("server.key").as_os_str()])
        .env_remove("APPORTION_DATABASE_URL")
        .stderr(Stdio::null())
        .spawn()
        .expect("the program is built");
    Service { child, http, grpc, folder }
}

/// The result of `apportion hold list`.
fn list(server: &str, authority: Option<&str>) -> Output {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(["hold", "list", "--format", "json", "--server", server]);
    for variable in ["APPORTION_SERVER", "APPORTION_CACERT", "APPORTION_API_TOKEN", "APPORTION_API_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    if let Some(authority) = authority {
        command.arg("--cacert").arg(certificate(authority));
    }
    command.output().expect("the program is built")
}

/// Waits until a command at the service succeeds.
fn until_up(service: &Service) {
    let begun = Instant::now();
    let url = format!("https://localhost:{}", service.http);
    loop {
        let listed = list(&url, Some("authority.pem"));
        if listed.status.success() {
            let holds: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
            assert_eq!(holds, serde_json::json!([]));
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&listed.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_command_trusts_the_authority_that_it_is_given() {
    let service = start();
    until_up(&service);
    let (name, address) = (format!("localhost:{}", service.http), format!("127.0.0.1:{}", service.http));
    assert!(list(&format!("https://{address}"), Some("authority.pem")).status.success());
    for (server, authority, said) in [
        (format!("https://{name}"), Some("other-authority.pem"), "--cacert names the file of its authority"),
        (format!("https://{name}"), Some("none.pem"), "none.pem"),
        (format!("http://{name}"), None, "talking to the service"),
    ] {
        let refused = list(&server, authority);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{server} {authority:?}: {stderr}");
        assert!(stderr.contains(said), "{server} {authority:?}: {stderr}");
    }
}
