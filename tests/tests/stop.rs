//! The service ends in order when it is told to (SIGTERM), whether it is up or has only begun to start.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// The file that a running private database has, if there is one.
fn database(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.path()).find_map(|path| {
        let found = path.file_name().is_some_and(|name| name == "postmaster.pid");
        if found { Some(path) } else { path.is_dir().then(|| database(&path))? }
    })
}

#[test]
fn the_service_and_its_database_end_with_sigterm() {
    for early in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        // Where the tests run as root the database runs as another user, who must get there.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
        let (http, grpc) = (apportion_tests::free_port(), apportion_tests::free_port());
        let child = Command::new(apportion_tests::programs().join("apportion"))
            .args(["serve", "--http", &format!("127.0.0.1:{http}"), "--grpc", &format!("127.0.0.1:{grpc}")])
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .env_remove("APPORTION_DATABASE_URL")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the service starts");
        let mut service = Service(child);
        if early {
            until("its database begins", || database(folder.path()));
        } else {
            until("it is ready", || is_ready(http).then_some(()));
            assert!(database(folder.path()).is_some(), "it has a database of its own");
        }
        let told = Command::new("kill").args(["-TERM", &service.0.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        let ended = until("it ends", || service.0.try_wait().expect("it can be waited for"));
        assert!(ended.success(), "early {early}: {ended}");
        assert_eq!(database(folder.path()), None, "early {early}: its database has ended with it");
    }
}
