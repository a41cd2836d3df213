//! No part of the service dies in silence: the process says which it was, and ends with a failure.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);

fn serve(folder: &Path, http: u16, panics: Option<&str>) -> Child {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(["serve", "--http", &format!("127.0.0.1:{http}"), "--grpc", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.join("data")).env_remove("APPORTION_DATABASE_URL").env("RUST_LOG", "warn");
    panics.into_iter().for_each(|part| {
        command.env("APPORTION_TEST_PANIC_IN", part);
    });
    let log = std::fs::File::create(folder.join("log")).expect("a file of ours");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the service starts")
}

/// The end of the process, and what it has written.
fn end(mut child: Child, folder: &Path) -> Output {
    let begun = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if begun.elapsed() > PATIENCE {
            let _ended = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().expect("it has ended");
    Output { status, stdout: Vec::new(), stderr: std::fs::read(folder.join("log")).expect("a log") }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    // Where the tests run as root the database runs as another user, who must get there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    folder
}

/// Programs without debug assertions panic in no part on demand.
#[cfg(debug_assertions)]
#[test]
fn a_panic_ends_the_service_and_names_its_part() {
    let folder = folder();
    let parts = [
        "http",
        "agents-server",
        "push",
        "heard",
        "records",
        "jobs",
        "measuring",
        "leader",
        "advisor",
        "webhooks",
        "database",
    ];
    for part in parts {
        let output = end(serve(folder.path(), 0, Some(part)), folder.path());
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{part}: {log}");
        assert!(log.contains(&format!("the service ends: part {part} broke down: it panicked")), "{part}: {log}");
    }
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

#[test]
fn a_private_database_that_dies_ends_the_service() {
    let (folder, port) = (folder(), apportion_tests::free_port());
    let child = serve(folder.path(), port, None);
    let begun = Instant::now();
    while !is_ready(port) {
        assert!(begun.elapsed() < PATIENCE, "it is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid_file = folder.path().join("data/postgres/postmaster.pid");
    let text = std::fs::read_to_string(pid_file).expect("a database runs");
    let pid = text.lines().next().expect("a number");
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill runs").success());
    let output = end(child, folder.path());
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("part database broke down: the private PostgreSQL ended by itself"), "{log}");
}
