//! How are processes of a test started, told and ended, and what do they use?

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Sends a signal to a process.
///
/// # Panics
/// If it does not run.
pub fn tell(process: u32, signal: &str) {
    let told = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status().expect("kill runs");
    assert!(told.success(), "process {process} cannot be told {signal}");
}

/// Starts a program with its output in `NAME.log` of a folder.
///
/// # Panics
/// If it cannot be started.
pub fn started(command: &mut Command, folder: &Path, name: &str) -> Child {
    let log = folder.join(format!("{name}.log"));
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log file");
    let out = log.try_clone().expect("a second handle");
    command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Ends a process without warning.
pub fn end(child: &mut Child) {
    let _ended = child.kill();
    let _ended = child.wait();
}

/// Resident memory of a process in MiB, and its threads.
#[must_use]
pub fn resources(process: u32) -> Option<(f64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some((field("VmRSS:")? as f64 / 1024.0, field("Threads:")?))
}
