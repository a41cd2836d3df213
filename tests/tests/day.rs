//! A day of an operator, by the command line alone, and by a generated client alone: register, plan, watch, dry run, apply,
//! roll back, schedule, revoke.

use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::{digits, programs, root};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a test waits before it gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// A terminal with its own contexts, and a folder for its files.
struct Terminal {
    folder: tempfile::TempDir,
}

/// The end of a command.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Terminal {
    /// A terminal in which the context of a service is in use.
    async fn open(server: &str) -> Self {
        let terminal = Self { folder: tempfile::tempdir().expect("a folder") };
        terminal.done(&["context", "set", "day", "--server", server]).await;
        terminal.done(&["context", "use", "day"]).await;
        terminal
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("apportion"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("APPORTION_")) {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", self.folder.path()).current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Runs a command without holding up the test's own tasks.
    async fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("an exit code");
        Ended { code, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Runs a command that must succeed.
    async fn done(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended
    }

    /// The JSON document of a command.
    async fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.done(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {ended:?}"))
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).expect("room");
    }

    /// Starts a command that goes on.
    fn follow(&self, arguments: &[&str]) -> Following {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("its stdout"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Following { child, lines }
    }
}

/// A command that prints a document on each line until it is dropped.
struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    /// The next document for which `is_wanted` holds.
    fn next(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("a line");
            let document: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            if is_wanted(&document) {
                return document;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Registers the pipeline `one`, and changes it.
async fn register(terminal: &Terminal, digest: &str) {
    let variants = [("read-s", digest, 0.9)];
    let mut pipeline = digits::pipeline("one", &variants, &json!({}));
    terminal.write("one.json", &pipeline.to_string());
    terminal.write("one.csv", &digits::profile("one", &variants));
    let apply = ["pipeline", "apply", "-f", "one.json"];
    assert_eq!(terminal.done(&apply).await.err, "created: pipeline one\n");
    assert_eq!(terminal.done(&apply).await.err, "unchanged: pipeline one\n");
    assert_eq!(terminal.done(&["profile", "apply", "one", "-f", "one.csv"]).await.err, "created: profile one\n");
    assert_eq!(terminal.done(&["profile", "apply", "one", "-f", "one.csv"]).await.err, "unchanged: profile one\n");
    pipeline["slo_ms"] = json!(1_500.0);
    pipeline["replan"] = json!({"scaling": {"planner": "greedy"}});
    terminal.write("one.json", &pipeline.to_string());
    assert_eq!(terminal.done(&apply).await.err, "changed: pipeline one\n");
    let read = terminal.json(&["pipeline", "get", "one"]).await;
    assert_eq!(read["slo_ms"], json!(1_500.0));
    assert_eq!(read["replan"]["scaling"], json!({"planner": "greedy", "lambda": 0.1}));
    terminal.write("wrong.json", &pipeline.to_string().replace("greedy", "best"));
    let wrong = terminal.run(&["pipeline", "apply", "-f", "wrong.json"]).await;
    assert!(wrong.code != 0 && wrong.err.contains("/replan/scaling/planner"), "{}", wrong.err);
    assert!(wrong.err.contains("\"milp\", \"greedy\""), "{}", wrong.err);
    let refused = terminal.run(&["pipeline", "apply", "two", "-f", "one.json"]).await;
    assert_eq!((refused.code, refused.err.as_str()), (2, "one.json: /name: one: expected two, as on the command line\n"));
    let yaml = terminal.done(&["pipeline", "get", "one", "-o", "yaml"]).await.out;
    terminal.write("again.yaml", &yaml);
    let again = terminal.done(&["pipeline", "apply", "-f", "again.yaml"]).await;
    assert_eq!(again.err, "unchanged: pipeline one\n", "what `get` prints, `apply` reads");
    let table = terminal.done(&["pipeline", "list"]).await.out;
    assert!(table.starts_with("pipeline  replan  profiled  version\none       off     yes"), "{table}");
}

/// The identifier of a new plan for this demand.
async fn planned(terminal: &Terminal, demand: &str) -> String {
    terminal.done(&["plan", "create", demand, "--id-only"]).await.out.trim().to_owned()
}

async fn generation(terminal: &Terminal) -> Value {
    terminal.json(&["target", "show"]).await["generation"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_passes_by_the_command_line_alone() {
    let cluster = Cluster::start(1, 3).await;
    let terminal = Terminal::open(&cluster.service()).await;
    let contexts = terminal.json(&["context", "list"]).await;
    assert_eq!((&contexts[0]["name"], &contexts[0]["in_use"]), (&json!("day"), &json!(true)), "{contexts}");
    let digest = cluster.upload(digits::model("read-s.onnx")).await;
    register(&terminal, &digest).await;

    let targets = terminal.follow(&["target", "watch", "-o", "json"]);
    let first = planned(&terminal, "one=5").await;
    let plans = terminal.json(&["plan", "list", "--pipeline", "one", "--state", "succeeded"]).await;
    assert_eq!((&plans[0]["id"], plans.as_array().map(Vec::len)), (&json!(first), Some(1)), "{plans}");
    assert_eq!(terminal.json(&["plan", "list", "--state", "failed"]).await, json!([]));
    let dry = terminal.done(&["target", "apply", &first, "--dry-run"]).await.out;
    assert!(dry.contains("loaded") && dry.contains("read-s"), "{dry}");
    assert_eq!(generation(&terminal).await, json!(0), "a dry run deploys nothing");
    terminal.done(&["target", "apply", &first]).await;
    let seen = targets.next(|row| row["target"]["generation"] == 1);
    assert_eq!((&seen["change"], &seen["target"]["plans"][0]), (&json!("added"), &json!(first)), "{seen}");
    cluster.ready("one").await;

    let second = planned(&terminal, "one=7").await;
    terminal.done(&["target", "apply", &second]).await;
    assert_eq!(generation(&terminal).await, json!(2));
    terminal.done(&["target", "rollback"]).await;
    let back = targets.next(|row| row["target"]["generation"] == 3);
    assert_eq!(back["target"]["plans"], json!([first]), "{back}");
    let holds = terminal.json(&["hold", "list"]).await;
    assert_eq!(holds.as_array().map(Vec::len), Some(1), "a rollback holds the fleet: {holds}");
    terminal.done(&["hold", "release"]).await;
    let refused = terminal.run(&["pipeline", "delete", "one"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("pipeline one is deployed"), "{refused:?}");

    terminal.write("peak.yaml", "pipeline: one\ncron: '50 8 * * 1-5'\nreplan: {demand_qps: 6, hold_s: 0}\n");
    let apply = ["schedule", "apply", "peak", "-f", "peak.yaml"];
    assert_eq!(terminal.done(&apply).await.err, "created: schedule peak\n");
    assert_eq!(terminal.done(&apply).await.err, "unchanged: schedule peak\n");
    let listed = terminal.done(&["schedule", "list"]).await.out;
    assert!(listed.contains("peak      one       replan"), "{listed}");
    assert_eq!(terminal.done(&["schedule", "delete", "peak"]).await.err, "deleted: schedule peak\n");

    terminal.write("anna.token", &terminal.done(&["token", "create", "anna", "--scope", "read"]).await.out);
    terminal.done(&["context", "set", "anna", "--server", &cluster.service(), "--token-file", "anna.token"]).await;
    assert_eq!(terminal.json(&["agent", "list", "--context", "anna"]).await[0]["state"], json!("live"));
    let refused = terminal.run(&["hold", "set", "--reason", "no right", "--context", "anna"]).await;
    assert!(refused.code == 1 && refused.err.contains("403"), "{refused:?}");
    let tokens = terminal.json(&["token", "list"]).await;
    terminal.done(&["token", "revoke", tokens[0]["id"].as_str().expect("an identifier")]).await;
    let refused = terminal.run(&["agent", "list", "--context", "anna"]).await;
    assert!(refused.code == 1 && refused.err.contains("401"), "{refused:?}");
}

/// Runs a program without holding up the test's own tasks. It must succeed; this is its output.
async fn succeeded(mut command: Command) -> String {
    let output = tokio::task::spawn_blocking(move || (command.output(), command)).await.expect("it ends");
    let (output, command) = (output.0.expect("it runs"), output.1);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}: {out}\n{err}", output.status);
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_passes_by_a_generated_client_alone() {
    let Some(python) = apportion_needs::clients() else { return };
    let cluster = Cluster::start(1, 3).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let mut generate = Command::new(&python);
    generate.args("-m openapi_python_client generate --fail-on-warning --meta none --path".split(' '));
    generate.arg(root().join("api/openapi.json")).arg("--config").arg(root().join("api/client-generator.yaml"));
    generate.arg("--output-path").arg(file("apportion_client"));
    succeeded(generate).await;
    // The script fills in the digest of the file that it stores.
    let pipeline = digits::pipeline("one", &[("read-s", "", 0.9)], &json!({}));
    std::fs::write(file("pipeline.json"), pipeline.to_string()).expect("room");
    std::fs::write(file("read-s.onnx"), digits::model("read-s.onnx")).expect("room");
    let mut day = Command::new(python);
    day.arg(root().join("tests/tests/day/client.py")).arg(cluster.service()).arg(folder.path()).arg(HARDWARE);
    day.env("PYTHONPATH", folder.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = succeeded(day).await;
    assert_eq!(said.lines().last(), Some("all 68"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_stream_goes_on_after_a_restart() {
    let mut cluster = Cluster::serve_with(&[]).await;
    let terminal = Terminal::open(&cluster.service()).await;
    let events = terminal.follow(&["event", "watch", "--since", "0", "-o", "json"]);
    let audit = terminal.follow(&["audit", "watch", "--since", "0", "-o", "json"]);
    terminal.done(&["hold", "set", "--reason", "first"]).await;
    let first = events.next(|event| event["kind"] == "hold");
    assert_eq!(first["detail"]["reason"], json!("first"), "{first}");
    let set = audit.next(|entry| entry["path"] == "/v1/hold");
    assert_eq!((&set["method"], &set["after"]["reason"]), (&json!("PUT"), &json!("first")), "{set}");
    cluster.stop_service().await;
    cluster.start_service().await;
    terminal.done(&["hold", "release"]).await;
    let released = audit.next(|entry| entry["path"] == "/v1/hold");
    assert_eq!(released["method"], json!("DELETE"), "the first entry does not come again: {released}");
    let release = events.next(|event| event["kind"] != "agent");
    assert_eq!(release["kind"], json!("release"), "the hold does not come again: {release}");

    // From an older event on: both come, each once, and the command ends by itself.
    let since = (first["id"].as_i64().expect("a number") - 1).to_string();
    let again = terminal.done(&["event", "watch", "--since", &since, "--limit", "2", "-o", "json"]).await.out;
    let kinds: Vec<Value> = again.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(kinds.iter().map(|event| &event["kind"]).collect::<Vec<_>>(), [&json!("hold"), &json!("release")]);
    let listed = terminal.done(&["event", "list", "--kind", "release", "--limit", "1"]).await.out;
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flag_beats_environment_and_environment_beats_context() {
    let cluster = Cluster::serve_with(&[]).await;
    let terminal = Terminal::open(&cluster.service()).await;
    let nowhere = format!("http://127.0.0.1:{}", apportion_tests::free_port());
    let nowhere = nowhere.as_str();
    terminal.done(&["context", "set", "nowhere", "--server", nowhere]).await;
    let code = async |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = terminal.command(&[&["hardware", "list"][..], arguments].concat());
        command.envs(variables.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it runs");
        output.status.code().expect("an exit code")
    };
    assert_eq!(code(&[], &[]).await, 0, "the context in use");
    assert_eq!(code(&[], &[("APPORTION_CONTEXT", "nowhere")]).await, 1);
    assert_eq!(code(&["--context", "day"], &[("APPORTION_SERVER", nowhere)]).await, 0, "a flag beats a variable");
    assert_eq!(code(&[], &[("APPORTION_SERVER", nowhere)]).await, 1, "a variable beats the context in use");
    assert_eq!(code(&["--server", &cluster.service()], &[("APPORTION_CONTEXT", "nowhere")]).await, 0);
    assert_eq!(code(&["--context", "other"], &[]).await, 2, "there is no such context");
    assert_eq!(code(&["--context", "day", "--server", nowhere], &[]).await, 2, "one of both");
}
