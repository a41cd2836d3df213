//! The documents' commands do what the documents say.
//!
//! Every `sh` block of Markdown is run here, page by page and in order. A block that this machine cannot run says so in
//! its first line, for example `sh needs-gpu`. `tests/tidy` has the list of these words.

use apportion_needs::{Need, need};
use apportion_profiler::find_library;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Pages whose commands need neither a service nor an agent. Each runs in a folder of its own.
const OFFLINE: &[&str] = &[
    "README.md",
    "docs/explanation/checking.md",
    "docs/explanation/planning.md",
    "docs/explanation/reference-formulations.md",
    "docs/explanation/estimating.md",
    "docs/explanation/dropping.md",
    "docs/explanation/steering.md",
    "docs/how-to/advise-an-existing-fleet.md",
    "docs/how-to/draft-a-pipeline.md",
    "docs/how-to/export-a-plan.md",
    "docs/how-to/plan-from-a-table.md",
    "docs/how-to/plan-without-a-service.md",
    "docs/how-to/sweep-and-compare.md",
    "docs/reference/reproduce.md",
];
/// The tutorial, and the pages that go on where it ends: they share its service and its agent.
const WITH_A_FLEET: &[&str] = &[
    "docs/tutorial/your-own-pipeline.md",
    "docs/how-to/send-requests.md",
    "docs/how-to/observe.md",
    "docs/how-to/use-the-command-line.md",
    "docs/how-to/profile.md",
    "docs/how-to/deploy-and-roll-back.md",
    "docs/how-to/replan-on-schedule.md",
    "docs/how-to/plan-at-given-times.md",
    "docs/how-to/share-a-fleet.md",
    "docs/how-to/receive-events-as-webhooks.md",
    "docs/how-to/troubleshoot.md",
    "docs/reference/http.md",
];
/// The page whose service is stopped and started again.
const BY_HAND: &str = "docs/how-to/plan-with-the-service.md";
/// The help texts of the programs.
const COMMANDS: &str = "docs/reference/commands.md";

fn text(page: &str) -> String {
    std::fs::read_to_string(apportion_tests::root().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// The blocks of a page in this language, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = text(page);
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.by_ref().find(|line| line.starts_with("```")) {
        let block = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        if line.strip_prefix("```") == Some(language) {
            blocks.push(block);
        }
    }
    blocks
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
            // The contexts of whoever runs the tests do not count.
            .env("XDG_CONFIG_HOME", self.folder.path().join("settings"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        let output = self.command(script).output().expect("bash");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}\nstdout: {out}\nstderr: {err}", output.status);
        output
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
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
fn offline_pages_run() {
    for page in OFFLINE {
        let shell = Shell::new();
        let blocks = blocks(page, "sh");
        assert!(!blocks.is_empty(), "{page} has no block to run");
        for block in blocks {
            shell.run(&block);
        }
    }
}

#[test]
fn offline_commands_make_a_plan_and_a_plot() {
    let shell = Shell::new();
    for page in ["docs/how-to/plan-without-a-service.md", "docs/how-to/sweep-and-compare.md"] {
        blocks(page, "sh").iter().for_each(|block| drop(shell.run(block)));
    }
    let plan: serde_json::Value = serde_json::from_str(&shell.read("plan.json")).expect("JSON");
    assert_eq!(plan["status"], "optimal", "{plan}");
    let plot = shell.read("frontier.svg");
    assert!(plot.starts_with("<svg"), "{plot}");
}

#[test]
fn the_readme_plans_with_a_service_in_four_lines() {
    let mut fleet = Fleet::new();
    fleet.run(&blocks(BY_HAND, "sh")[0]);
    let block = blocks("README.md", "sh needs-service").into_iter().next().expect("the block");
    assert_eq!(block.lines().count(), 4, "{block}");
    let block = format!("export APPORTION_SERVER=http://127.0.0.1:7070\n{block}");
    let printed = String::from_utf8(fleet.run(&block).expect("it ends").stdout).expect("text");
    assert!(printed.contains("status      optimal") && printed.contains("vision: 120 queries/s"), "{printed}");
    assert!(printed.lines().last().is_some_and(|row| row.contains("succeeded  vision")), "{printed}");
}

/// A printed plan without the line that says how long the planner took.
fn without_time(printed: &str) -> Vec<&str> {
    printed.trim().lines().filter(|line| !line.starts_with("planner ")).map(str::trim_end).collect()
}

#[test]
fn the_readme_prints_the_problem_and_its_plan() {
    let shell = Shell::new();
    let problem = text("examples/photos.yaml");
    let problem = problem.lines().skip_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    assert_eq!(blocks("README.md", "yaml")[0], problem);
    let printed = String::from_utf8(shell.run("apportion plan examples/photos.yaml --explain full").stdout).expect("text");
    assert_eq!(without_time(&blocks("README.md", "text")[0]), without_time(&printed));
}

/// The service of the documents' own command, on free ports and in the shell's folder.
struct Fleet {
    shell: Shell,
    http: String,
    grpc: String,
    ingress: String,
    running: Vec<Running>,
}

impl Fleet {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let mut shell = Shell::new();
        // Where the tests run as root the database runs as another user, which must get there.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shell.folder.path(), open).expect("a folder of ours");
        let data = shell.folder.path().join("data").display().to_string();
        // One replacement must not change the result of another.
        let port = || {
            let named = |port: &String| ["7070", "7071", "8000"].iter().any(|name| port.contains(name));
            std::iter::repeat_with(|| apportion_tests::free_port().to_string()).find(|port| !named(port)).expect("a port")
        };
        let [http, grpc, ingress] = [port(), port(), port()];
        let pairs = [("/tmp/apportion", &data), ("7070", &http), ("7071", &grpc), ("8000", &ingress)];
        shell.replacements = pairs.map(|(from, to)| (from.to_owned(), to.clone())).into();
        Self { shell, http, grpc, ingress, running: Vec::new() }
    }

    /// Runs a block. A block that starts the service or an agent goes on running, and the next block finds it ready.
    fn run(&mut self, block: &str) -> Option<Output> {
        if block.starts_with("apportion serve") {
            self.start(&format!("exec {block} --grpc 127.0.0.1:{}", self.grpc), "service.log");
            self.wait(&format!("curl -sf localhost:{}/readyz", self.http), "service.log");
        } else if block.starts_with("apportion agent") {
            self.start(&format!("exec {block}"), "agent.log");
            self.wait(&format!("curl -sf localhost:{}/v1/agents | grep '\"state\":\"live\"'", self.http), "agent.log");
        } else {
            return Some(self.shell.run(block));
        }
        None
    }

    fn start(&mut self, script: &str, log: &str) {
        let log = std::fs::File::create(self.shell.folder.path().join(log)).expect("a log");
        let child = self.shell.command(script).stdout(Stdio::null()).stderr(log).spawn();
        self.running.push(Running(child.expect("it starts")));
    }

    fn wait(&self, condition: &str, log: &str) {
        let tries =
            format!("for i in $(seq 900); do {condition} >/dev/null && exit 0; sleep 0.1; done; cat {log} >&2; exit 1");
        self.shell.run(&tries);
    }

    /// Stops the program that was started last.
    fn stop(&mut self) {
        drop(self.running.pop());
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        while let Some(running) = self.running.pop() {
            drop(running);
        }
    }
}

#[test]
fn the_service_remembers_plans_after_a_restart() {
    let mut fleet = Fleet::new();
    let blocks = blocks(BY_HAND, "sh");
    blocks.iter().for_each(|block| drop(fleet.run(block)));
    let list = format!("curl -sf localhost:{}/v1/plans", fleet.http);
    let plans: serde_json::Value = serde_json::from_slice(&fleet.shell.run(&list).stdout).expect("JSON");
    assert_eq!(plans[0]["state"], "succeeded", "{plans}");
    fleet.stop();
    fleet.run(&blocks[0]);
    let after: serde_json::Value = serde_json::from_slice(&fleet.shell.run(&list).stdout).expect("JSON");
    assert_eq!(plans, after);
}

#[test]
fn the_tutorial_and_the_pages_after_it_run() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let mut fleet = Fleet::new();
    let pipeline = blocks(WITH_A_FLEET[0], "yaml").into_iter().next().expect("the reader's pipeline");
    assert!(pipeline.starts_with("name: mine"), "{pipeline}");
    std::fs::write(fleet.shell.folder.path().join("mine.yaml"), pipeline).expect("written");
    for page in WITH_A_FLEET {
        for block in blocks(page, "sh") {
            let printed = fleet.run(&block).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            match printed {
                Some(printed) if block.contains("apportion plan mine.json") => {
                    assert!(printed.contains("find-s") && printed.contains("status"), "a plan: {printed}");
                    let problem: serde_json::Value = serde_json::from_str(&fleet.shell.read("mine.json")).expect("JSON");
                    assert_eq!(problem["hardware"][0]["name"], "cpu", "{problem}");
                }
                Some(printed) if block.contains("models/mine/infer") => check_answer(&printed),
                _ => {}
            }
        }
    }
    let ready = format!("curl -sf localhost:{}/v2/models/mine", fleet.ingress);
    fleet.shell.run(&ready);
}

/// Whether the answer has the digits of `examples/digits/request.json`.
fn check_answer(printed: &str) {
    let at = printed.find("{\"model_name\"").unwrap_or_else(|| panic!("an answer: {printed}"));
    let answer: serde_json::Value = serde_json::from_str(printed[at..].trim()).expect("JSON");
    let label = answer["outputs"].as_array().and_then(|all| all.iter().find(|o| o["name"] == "label")).cloned();
    let labels = label.and_then(|l| l["data"].as_array().cloned()).unwrap_or_else(|| panic!("labels: {answer}"));
    assert!(!labels.is_empty(), "three digits are on that canvas: {answer}");
    assert!(labels.iter().all(|l| l.as_i64().is_some_and(|l| (0..10).contains(&l))), "{answer}");
}

/// The help text of `PROGRAM SUBCOMMAND...`, without the values that this machine's environment gives it.
fn help(command: &str) -> String {
    let mut words = command.split(' ');
    let program = apportion_tests::programs().join(words.next().expect("a program"));
    let mut run = Command::new(program);
    run.args(words).arg("--help");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("APPORTION_") || name.starts_with("OTEL_")) {
        run.env_remove(name);
    }
    let output = run.output().expect("the program starts");
    assert!(output.status.success(), "{command} --help: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Every command, as `commands.md` has it under a heading, with its help text. `APPORTION_WRITE=1` writes the page again.
#[test]
fn the_commands_page_has_every_help_text() {
    let page = text(COMMANDS);
    let (head, _) = page.split_once("\n## `").expect("a heading for each command");
    let mut written = head.to_owned();
    for command in commands() {
        written.push_str(&format!("\n## `{command}`\n\n```text\n{}\n```\n", help(&command)));
    }
    if std::env::var_os("APPORTION_WRITE").is_some() {
        std::fs::write(apportion_tests::root().join(COMMANDS), &written).expect("written");
    } else {
        assert!(page == written, "{COMMANDS} is old: APPORTION_WRITE=1 writes it again");
    }
}

/// The programs and all their subcommands, as their help texts list them.
fn commands() -> Vec<String> {
    let mut open = vec!["apportion".to_owned()];
    let mut found = Vec::new();
    while let Some(command) = open.pop() {
        let help = help(&command);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
        let names = names.filter_map(|line| line.split_whitespace().next());
        // It passes its arguments on to the agent's program, which is listed by itself.
        let passes_on = |name: &&str| command == "apportion dev bench" && *name == "agent";
        open.extend(names.filter(|n| *n != "help" && !passes_on(n)).map(|name| format!("{command} {name}")));
        found.push(command);
    }
    found.extend(["apportion-agent", "apportion-agent bench"].map(str::to_owned));
    found.sort();
    found
}
