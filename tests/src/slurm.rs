//! A real Slurm on this machine.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long slurmrestd may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes of Slurm; dropping it ends them. Every node but the last has two devices `t4`, the last one two `a100`.
pub struct SlurmCluster {
    program: PathBuf,
    folder: tempfile::TempDir,
    /// The file that says where it is.
    conf: String,
    rest: Option<Child>,
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
        let output = apportion_needs::start_installing("slurm", || {
            let output = command.output().expect("it can be run");
            assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
            output
        });
        let conf = String::from_utf8_lossy(&output.stdout).trim().lines().last().unwrap_or_default().to_owned();
        let cluster = Self { program, folder, conf, rest: None };
        for part in ["bin", "jobs", "state"] {
            std::fs::create_dir(cluster.folder.path().join(part)).expect("a folder of ours");
        }
        for name in ["sbatch", "squeue", "scancel", "scontrol"] {
            let (path, script) =
                (cluster.bin().join(name), format!("#!/bin/bash\nSLURM_CONF='{}' exec {name} \"$@\"\n", cluster.conf));
            std::fs::write(&path, script).expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
        }
        Some(cluster)
    }

    /// The folder of commands that know where this Slurm is.
    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// The file of `--machines` with these settings, and jobs with two emulated devices `t4` and this time limit.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn settings(&self, time: &str, more: &Value) -> String {
        let folder = |name: &str| self.folder.path().join(name);
        let mut settings = json!({"fleet": "test", "slurm": {
            "agent": crate::machine::programs().join("apportion-agent"), "arguments": ["--backend", "emulated"],
            "listen": "127.0.0.1:0", "state_dir": folder("state"), "directory": folder("jobs"), "commands": self.bin(),
            "hardware": {"t4": {"devices": 2, "gres": "gpu:t4:2", "constraint": "t4", "time": time}},
        }});
        for (key, value) in more.as_object().into_iter().flatten() {
            match (key.as_str(), value.as_object()) {
                ("slurm", Some(keys)) => keys.iter().for_each(|(key, value)| settings["slurm"][key] = value.clone()),
                _ => settings[key] = value.clone(),
            }
        }
        let path = folder("machines.json");
        std::fs::write(&path, settings.to_string()).expect("written");
        path.display().to_string()
    }

    /// Starts slurmrestd, and returns its Unix socket. Users that may connect there need no token.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_rest(&mut self, slurmrestd: &Path) -> PathBuf {
        let socket = self.folder.path().join("rest.socket");
        let mut command = Command::new(slurmrestd);
        command.args(["-a", "rest_auth/local", "-s", "openapi/v0.0.38"]).arg(format!("unix:{}", socket.display()));
        // Without the variable it refuses to run as root.
        command.env("SLURM_CONF", &self.conf).env("SLURMRESTD_SECURITY", "disable_user_check");
        self.rest = Some(crate::process::started(&mut command, self.folder.path(), "slurmrestd"));
        let begun = Instant::now();
        while !socket.exists() {
            let log = std::fs::read_to_string(self.folder.path().join("slurmrestd.log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        socket
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

    /// The node on which a job runs; empty if it does not run.
    #[must_use]
    pub fn node_of(&self, job: &str) -> String {
        self.run("squeue", &["--noheader", "--states=running", "--format=%N", "--jobs", job]).trim().to_owned()
    }

    /// Lets a node fail as in a power cut: its slurmd and the processes of its job are killed. Then an administrator says
    /// that it is down.
    ///
    /// # Panics
    /// If the node has no slurmd.
    pub fn fail_node(&self, node: &str, job: &str) {
        let file = format!("cluster/slurmd{}.pid", node.trim_start_matches("node"));
        let slurmd = std::fs::read_to_string(self.folder.path().join(file)).expect("the node has a slurmd");
        kill(slurmd.trim());
        let machine = self.run("squeue", &["--noheader", "--format=%j", "--jobs", job]);
        let number: u32 = job.parse().expect("the number of a job");
        let script = self.folder.path().join(format!("cluster/spool/{node}/job{number:05}/slurm_script"));
        let scripts = processes_with(&script.display().to_string());
        // The step of the job goes first, so that it does not report the end of its script.
        scripts.iter().filter_map(|script| step_of(script)).for_each(|step| kill(&step));
        scripts.iter().chain(&processes_with(machine.trim())).for_each(|process| kill(process));
        let said = self.run("scontrol", &["update", &format!("nodename={node}"), "state=down", "reason=test"]);
        assert_eq!(said.trim(), "", "{node}");
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
        self.rest.iter_mut().for_each(crate::process::end);
        // Jobs are processes of this machine.
        let _ended = self.run("scancel", &["--me"]);
        let mut command = Command::new(&self.program);
        command.arg("stop").arg(self.folder.path().join("cluster")).stdout(Stdio::null());
        let _ended = command.status();
    }
}

/// The numbers of the processes with this text in their command lines.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_text = |number: &String| {
        let is_number = number.chars().all(|c| c.is_ascii_digit());
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        is_number && String::from_utf8_lossy(&line).contains(text)
    };
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(has_text).collect()
}

/// The number of the step of Slurm that has started this process.
fn step_of(process: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned()))?;
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    name.starts_with("slurmstepd").then_some(parent)
}

/// Kills a process. It may have ended meanwhile.
fn kill(process: &str) {
    let _gone = Command::new("kill").args(["-KILL", process]).stderr(Stdio::null()).status();
}
