//! The README's commands do what it says.

use apportion_needs::{Need, need};
use apportion_profiler::find_library;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The blocks of the README in this language, in order.
fn blocks(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(apportion_tests::root().join("README.md")).expect("README.md");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line.strip_prefix("```") == Some(language)) {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n"));
    }
    blocks
}

fn block(word: &str) -> String {
    blocks("sh").into_iter().find(|b| b.contains(word)).unwrap_or_else(|| panic!("no block of the README has {word:?}"))
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

/// The service of the README's own command, on free ports and in the shell's folder.
struct Service {
    shell: Shell,
    serve: String,
    http: String,
    ingress: String,
}

impl Service {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let mut shell = Shell::new();
        // Where the tests run as root the database runs as another user, who must get there.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shell.folder.path(), open).expect("a folder of ours");
        let data = shell.folder.path().join("data").display().to_string();
        // One replacement must not change what another has put there.
        let port = || {
            let named = |port: &String| ["7070", "7071", "8000"].iter().any(|name| port.contains(name));
            std::iter::repeat_with(|| apportion_tests::free_port().to_string()).find(|port| !named(port)).expect("a port")
        };
        let [http, grpc, ingress] = [port(), port(), port()];
        let pairs = [("/tmp/apportion", &data), ("7070", &http), ("7071", &grpc), ("8000", &ingress)];
        shell.replacements = pairs.map(|(from, to)| (from.to_owned(), to.clone())).into();
        let serve = format!("exec {} --grpc 127.0.0.1:{grpc}", block("apportion serve"));
        Self { shell, serve, http, ingress }
    }

    fn start(&self) -> Running {
        let child = self.shell.command(&self.serve).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Running(child.expect("the service"));
        let url = format!("localhost:{}/readyz", self.http);
        self.shell.run(&format!("for i in $(seq 900); do curl -sf {url} >/dev/null && exit 0; sleep 0.1; done; exit 1"));
        running
    }
}

#[test]
fn the_service_registers_plans_and_remembers_after_a_restart() {
    let of = Service::new();
    let service = of.start();
    of.shell.run(&block("curl -sf -X PUT localhost:7070/v1/hardware"));
    let list = format!("curl -sf localhost:{}/v1/plans", of.http);
    let before = of.shell.run(&list).stdout;
    let plans: serde_json::Value = serde_json::from_slice(&before).expect("JSON");
    assert_eq!(plans[0]["state"], "succeeded", "{plans}");
    drop(service);
    std::thread::sleep(Duration::from_millis(100));
    let _service = of.start();
    let after: serde_json::Value = serde_json::from_slice(&of.shell.run(&list).stdout).expect("JSON");
    assert_eq!(plans, after);
}

#[test]
fn a_pipeline_of_the_readers_own_is_profiled_planned_deployed_and_served() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let of = Service::new();
    let folder = of.shell.folder.path();
    let pipeline = blocks("yaml").into_iter().find(|b| b.starts_with("name: mine")).expect("the reader's pipeline");
    std::fs::write(folder.join("mine.yaml"), pipeline).expect("written");
    let _service = of.start();
    let log = std::fs::File::create(folder.join("agent.log")).expect("a log");
    let mut agent = of.shell.command(&format!("exec {}", block("apportion agent")));
    let _agent = Running(agent.stdout(Stdio::null()).stderr(log).spawn().expect("the agent"));
    let live = format!("curl -sf localhost:{}/v1/agents | grep -q '\"state\":\"live\"'", of.http);
    of.shell.run(&format!("for i in $(seq 900); do {live} && exit 0; sleep 0.1; done; cat agent.log >&2; exit 1"));

    // The commands one by one, to see what each prints.
    let measured = of.shell.run(&block("apportion profile mine.yaml"));
    let printed = String::from_utf8(measured.stdout).expect("text");
    assert!(printed.contains("find-s") && printed.contains("status"), "a profile and a plan: {printed}");
    let problem = std::fs::read_to_string(folder.join("mine.json")).expect("mine.json");
    let problem: serde_json::Value = serde_json::from_str(&problem).expect("JSON");
    assert_eq!(problem["hardware"][0]["name"], "cpu", "{problem}");
    let answered = of.shell.run(&block("v2/models/mine/infer"));
    let printed = String::from_utf8(answered.stdout).expect("text");
    let at = printed.find("{\"model_name\"").unwrap_or_else(|| panic!("an answer: {printed}"));
    let answer: serde_json::Value = serde_json::from_str(printed[at..].trim()).expect("JSON");
    let label = answer["outputs"].as_array().and_then(|all| all.iter().find(|o| o["name"] == "label")).cloned();
    let labels = label.and_then(|l| l["data"].as_array().cloned()).unwrap_or_else(|| panic!("labels: {answer}"));
    assert!(!labels.is_empty(), "three digits are on that canvas: {answer}");
    assert!(labels.iter().all(|l| l.as_i64().is_some_and(|l| (0..10).contains(&l))), "{answer}");
    let ready = format!("localhost:{}/v2/models/mine", of.ingress);
    of.shell.run(&format!("curl -sf {ready}"));
}
