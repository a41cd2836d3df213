//! A real Slurm on this machine.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The processes of Slurm; dropping it ends them. Every node but the last has two devices `t4`, the last one two `a100`.
pub struct SlurmCluster {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl SlurmCluster {
    /// Starts it with these nodes; `None` where this machine has none.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(nodes: u32) -> Option<Self> {
        let program = apportion_needs::slurm()?;
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(&program);
        command.arg("start").arg(folder.path().join("cluster")).arg(nodes.to_string());
        let output = command.output().expect("it can be run");
        assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
        let conf = String::from_utf8_lossy(&output.stdout).trim().lines().last().unwrap_or_default().to_owned();
        let cluster = Self { program, folder };
        for part in ["bin", "jobs", "state"] {
            std::fs::create_dir(cluster.folder.path().join(part)).expect("a folder of ours");
        }
        for name in ["sbatch", "squeue", "scancel", "scontrol"] {
            let (path, script) =
                (cluster.bin().join(name), format!("#!/bin/bash\nSLURM_CONF='{conf}' exec {name} \"$@\"\n"));
            std::fs::write(&path, script).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
        }
        Some(cluster)
    }

    /// The folder of commands that know where this Slurm is.
    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// The file of `--machines` with these settings, and jobs with two emulated devices `t4`.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn settings(&self, more: &Value) -> String {
        let folder = |name: &str| self.folder.path().join(name);
        let mut settings = json!({"fleet": "test", "slurm": {
            "agent": crate::machine::programs().join("apportion-agent"), "arguments": ["--backend", "emulated"],
            "listen": "127.0.0.1:0", "state_dir": folder("state"), "directory": folder("jobs"), "commands": self.bin(),
            "hardware": {"t4": {"devices": 2, "gres": "gpu:t4:2", "constraint": "t4", "time": "01:00:00"}},
        }});
        for (key, value) in more.as_object().into_iter().flatten() {
            settings[key] = value.clone();
        }
        let path = folder("machines.json");
        std::fs::write(&path, settings.to_string()).expect("written");
        path.display().to_string()
    }

    /// The output of a command, errors included.
    ///
    /// # Panics
    /// If it cannot be run.
    #[must_use]
    pub fn run(&self, command: &str, arguments: &[&str]) -> String {
        let output = Command::new(self.bin().join(command)).args(arguments).output().expect("a command of Slurm");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// The jobs that run or wait: number, state and devices, as `squeue` says them.
    #[must_use]
    pub fn jobs(&self) -> Vec<String> {
        self.run("squeue", &["--noheader", "--format=%i %T %b"]).lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Sends a signal to slurmctld.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal_controller(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.folder.path().join("cluster/slurmctld.pid")).expect("its number");
        let told = Command::new("kill").args([format!("-{signal}"), pid.trim().to_owned()]).status().expect("kill runs");
        assert!(told.success(), "slurmctld cannot be told {signal}");
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        // A stopped one would hear nothing.
        let pid = std::fs::read_to_string(self.folder.path().join("cluster/slurmctld.pid")).unwrap_or_default();
        let _told = Command::new("kill").args(["-CONT", pid.trim()]).status();
        // Jobs are processes of this machine.
        let _ended = self.run("scancel", &["--me"]);
        let mut command = Command::new(&self.program);
        command.arg("stop").arg(self.folder.path().join("cluster")).stdout(Stdio::null());
        let _ended = command.status();
    }
}
