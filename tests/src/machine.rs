//! Where are the repository and the built programs, which ports are free, and what does a command print?

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Where the templates of databases are: in the folder that cargo gives to tests for their files.
///
/// # Panics
/// As [`programs`].
pub(crate) fn database_templates() -> PathBuf {
    programs().with_file_name("tmp").join("databases")
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
