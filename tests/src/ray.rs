//! A real Ray Serve, for tests: a dashboard, and applications whose replicas do nothing.

use crate::process::{end, started, tell};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// How long Ray may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(180);

/// Ray with its applications; dropping it ends them.
pub struct RayProcess {
    folder: tempfile::TempDir,
    python: PathBuf,
    app: Child,
    followers: Vec<Child>,
    dashboard: String,
}

impl RayProcess {
    /// Starts it, with `photos`, which others may scale, and `closed`, which they may not. Both have a deployment `find-l`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(python: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = crate::free_port();
        let mut command = Command::new(python);
        command.arg(crate::root().join("tests/tests/ray_serve/app.py")).arg(port.to_string());
        command.env("RAY_USAGE_STATS_ENABLED", "0");
        let app = started(&mut command, folder.path(), "ray");
        let dashboard = format!("http://127.0.0.1:{port}");
        let mut ray = Self { folder, python: python.to_owned(), app, followers: Vec::new(), dashboard };
        let begun = Instant::now();
        while !ray.log("ray").contains("ready") {
            let ended = ray.app.try_wait().expect("its state");
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{ended:?}\n{}", ray.log("ray"));
            std::thread::sleep(Duration::from_millis(200));
        }
        ray
    }

    /// The output of a program so far.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// The replicas that a deployment `find-l` is to have, as Ray says.
    pub async fn replicas(&self, application: &str) -> Option<u64> {
        let answer = reqwest::get(format!("{}/api/serve/applications/", self.dashboard)).await.ok()?;
        let document: Value = answer.json().await.ok()?;
        document["applications"][application]["deployments"]["find-l"]["target_num_replicas"].as_u64()
    }

    /// The program of the examples that follows the advice of this port, with this file.
    fn follower(&self, port: u16, file: &Path) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(crate::root().join("examples/ray/follow.py")).args(["--period", "0.5", "--ray", &self.dashboard]);
        command.args(["--advice", &format!("http://127.0.0.1:{port}")]).arg(file);
        command
    }

    /// Lets the deployments of the example's file follow the advice from now on.
    pub fn follow(&mut self, port: u16) {
        let mut command = self.follower(port, &crate::root().join("examples/ray/follow.json"));
        self.followers.push(started(&mut command, self.folder.path(), "follow"));
    }

    /// Looks at these deployments once.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn follow_once(&self, port: u16, entries: &Value) -> Output {
        let file = self.folder.path().join("once.json");
        std::fs::write(&file, entries.to_string()).expect("written");
        self.follower(port, &file).arg("--once").output().expect("it runs")
    }
}

impl Drop for RayProcess {
    fn drop(&mut self) {
        self.followers.iter_mut().for_each(end);
        if self.app.try_wait().is_ok_and(|ended| ended.is_none()) {
            // It ends its own processes, which a kill would leave behind.
            tell(self.app.id(), "TERM");
        }
        let begun = Instant::now();
        while self.app.try_wait().is_ok_and(|ended| ended.is_none()) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
        end(&mut self.app);
    }
}
