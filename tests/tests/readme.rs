//! The README's commands do what it says.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The `sh` blocks of the README, in order.
fn blocks() -> Vec<String> {
    let text = std::fs::read_to_string(apportion_tests::root().join("README.md")).expect("README.md");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line == "```sh") {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n"));
    }
    blocks
}

fn block(word: &str) -> String {
    blocks().into_iter().find(|b| b.contains(word)).unwrap_or_else(|| panic!("no block of the README has {word:?}"))
}

/// A shell in a copy of the repository's examples, with the programs on its PATH.
struct Shell {
    folder: tempfile::TempDir,
    replacements: Vec<(String, String)>,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("examples");
        std::os::unix::fs::symlink(apportion_tests::root().join("examples"), link).expect("a link to the examples");
        Self { folder, replacements: Vec::new() }
    }

    fn command(&self, script: &str) -> Command {
        let mut script = script.to_owned();
        for (from, to) in &self.replacements {
            script = script.replace(from, to);
        }
        let path = format!("{}:{}", apportion_tests::programs().display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("bash");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}\nstdout: {out}\nstderr: {err}", output.status);
        output
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

#[test]
fn the_offline_commands_run() {
    let shell = Shell::new();
    shell.run(&block("apportion check"));
    let plan = std::fs::read_to_string(shell.folder.path().join("plan.json")).expect("plan.json");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    assert_eq!(plan["status"], "optimal", "{plan}");
    let plot = std::fs::read_to_string(shell.folder.path().join("frontier.svg")).expect("frontier.svg");
    assert!(plot.starts_with("<svg"), "{plot}");
}

#[test]
fn the_service_registers_plans_and_remembers_after_a_restart() {
    let mut shell = Shell::new();
    let data = shell.folder.path().join("data").display().to_string();
    let (http, grpc) = (apportion_tests::free_port().to_string(), apportion_tests::free_port().to_string());
    shell.replacements =
        vec![("/tmp/apportion".to_owned(), data), ("7070".to_owned(), http.clone()), ("7071".to_owned(), grpc.clone())];
    let serve = format!("exec {} --grpc 127.0.0.1:{grpc}", block("apportion serve"));
    let ready =
        format!("for i in $(seq 600); do curl -sf localhost:{http}/readyz >/dev/null && exit 0; sleep 0.1; done; exit 1");
    let start = || {
        let child = shell.command(&serve).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the service");
        let running = Running(child);
        shell.run(&ready);
        running
    };
    let service = start();
    shell.run(&block("curl -sf -X PUT"));
    let list = format!("curl -sf localhost:{http}/v1/plans");
    let before = shell.run(&list).stdout;
    let plans: serde_json::Value = serde_json::from_slice(&before).expect("JSON");
    assert_eq!(plans[0]["state"], "succeeded", "{plans}");
    drop(service);
    std::thread::sleep(Duration::from_millis(100));
    let _service = start();
    let after: serde_json::Value = serde_json::from_slice(&shell.run(&list).stdout).expect("JSON");
    assert_eq!(plans, after);
}
