//! How is a process of this machine started and stopped, as a user would do it by hand?

use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time between SIGTERM and the end of a process.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

/// One started process; dropping it stops it.
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `program` with its output in `log_dir/NAME.log`.
    pub fn start(name: &str, program: &Path, args: &[String], log_dir: &Path) -> Result<Self> {
        let log = File::create(log_dir.join(format!("{name}.log"))).context("creating a log file")?;
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { name: name.to_owned(), child })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in the system.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of an ended process; `None` while it runs.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it without warning (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and kills it if it does not.
    fn stop(&mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).stderr(Stdio::null()).status();
        let start = Instant::now();
        while asked.is_ok() && start.elapsed() < STOP_WAIT_MAX {
            if self.ended().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.stop();
        }
    }
}

/// The path of a program in the folder of this one.
///
/// # Errors
/// If the program is not there.
pub fn program_beside_this(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe().context("finding this program")?;
    let path = here.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is not beside {}: build it with `make build`", name, here.display());
    Ok(path)
}
