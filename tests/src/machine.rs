//! Where are the repository and the built programs, which ports are free, and how are processes started and ended?

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository").to_owned()
}

/// Where cargo put the programs: beside the folder of this test's own executable.
///
/// # Panics
/// If `apportion` or `apportion-agent` was not built: `cargo test --workspace` builds them.
#[must_use]
pub fn programs() -> PathBuf {
    let exe = std::env::current_exe().expect("this test's path");
    let folder = exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned();
    for name in ["apportion", "apportion-agent"] {
        assert!(folder.join(name).exists(), "{name} is not in {}: run the tests with --workspace", folder.display());
    }
    folder
}

/// A TCP port on loopback that is free now.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    apportion_support::ports::free_port().expect("a free port")
}

/// Runs `apportion` without holding up the test's own tasks, and returns its stdout.
///
/// # Panics
/// If it fails.
pub async fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(programs().join("apportion"));
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("the program runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Sends a signal to a process.
pub(crate) fn tell(process: u32, signal: &str) {
    let told = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status().expect("kill runs");
    assert!(told.success(), "process {process} cannot be told {signal}");
}

/// Starts a program that writes into `NAME.log` of a folder.
pub(crate) fn started(command: &mut Command, folder: &Path, name: &str) -> Child {
    let log = folder.join(format!("{name}.log"));
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log file");
    let out = log.try_clone().expect("a second handle");
    command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Kills a process and waits for its end.
pub(crate) fn end(child: &mut Child) {
    let _ended = child.kill();
    let _ended = child.wait();
}
