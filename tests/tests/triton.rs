//! A real Triton is measured over the network, planned for, and runs the plan as the estimator says.

use apportion_experiments::live::figures::{ComparedFigure, Figures, RequestResult, longest_ms};
use apportion_experiments::live::idle_start::RUNS as ESTIMATES;
use apportion_tests::triton::{TritonProcess, TritonProgram};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The page whose commands are run.
const PAGE: &str = "docs/how-to/plan-for-triton.md";
/// Its server.
const SERVER: &str = "http://127.0.0.1:8000";
/// Its load, in requests per second.
const QPS: f64 = 80.0;
/// Its SLO.
const SLO_MS: f64 = 400.0;
/// Seconds of a run of the load.
const SECONDS: u64 = 15;
/// Runs of the load. A figure is inside the estimate if it is so in more than half of them, as in `bench fidelity`. No
/// further run is made when all figures are.
const LOAD_RUNS: u64 = 5;

/// The exit code, stdout and stderr of a command.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A folder with the examples, for the commands of the page.
struct Folder {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl Folder {
    fn new(python: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("examples");
        std::os::unix::fs::symlink(apportion_tests::root().join("examples"), link).expect("a link");
        Self { folder, python: python.to_owned() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn ended(&self, mut command: Command) -> Ended {
        let path = format!("{}:{}", apportion_tests::programs().display(), std::env::var("PATH").unwrap_or_default());
        let output = command.current_dir(self.path()).env("PATH", path).output();
        let Output { status, stdout, stderr } = output.expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    fn apportion(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(apportion_tests::programs().join("apportion"));
        command.args(arguments);
        self.ended(command)
    }

    /// What a block of the page prints.
    fn run(&self, block: &str) -> String {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", block]);
        let ended = self.ended(command);
        assert_eq!(ended.code, Some(0), "{block}\n{ended:?}");
        ended.stdout
    }

    fn json(&self, file: &str) -> Value {
        let text = std::fs::read_to_string(self.path().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        serde_json::from_str(&text).expect("JSON")
    }

    fn write(&self, file: &str, text: &str) -> String {
        std::fs::write(self.path().join(file), text).expect("written");
        file.to_owned()
    }

    /// One run of the load: the real client sends it, and measures each answer from the moment when it was due.
    fn play(&self, server: &TritonProcess, shares: &[String], seed: u64) -> Figures {
        let (qps, seconds, seed) = (QPS.to_string(), SECONDS.to_string(), seed.to_string());
        let load = ["trace", "generate", "--form", "arrivals", "--qps", &qps, "--seconds", &seconds, "--seed", &seed];
        let made = self.apportion(&[&load[..], &["--out", "arrivals.csv"]].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let mut command = Command::new(&self.python);
        command.arg(apportion_tests::root().join("tests/tests/triton/load.py")).arg(server.grpc()).arg("arrivals.csv");
        command.args(shares);
        let played = self.ended(command);
        assert_eq!(played.code, Some(0), "{played:?}\n{}", server.log());
        let answer = |line: &str| line.parse::<f64>().unwrap_or_else(|_| panic!("{line}\n{}", server.log()));
        let results: Vec<RequestResult> = played.stdout.lines().map(|line| result(answer(line))).collect();
        assert!(results.len() as f64 > 0.5 * QPS * SECONDS as f64, "{} requests", results.len());
        Figures::of(&results, &[])
    }

    /// The estimator's figures for a load of the same rate and length, drawn from this seed.
    fn estimate(&self, seed: u64) -> Figures {
        let seed = seed.to_string();
        let all = ["simulate", "problem.json", "plan.json", "--trace", "rates.csv", "--service", "p99-matched"];
        let ended = self.apportion(&[&all[..], &["--seed", &seed, "--requests", "requests.csv"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows = std::fs::read_to_string(self.path().join("requests.csv")).expect("rows");
        let latency = |line: &str| line.split(',').nth(3).and_then(|cell| cell.parse().ok()).expect("a latency");
        Figures::of(&rows.lines().skip(1).map(|line| result(latency(line))).collect::<Vec<_>>(), &[])
    }
}

fn result(latency_ms: f64) -> RequestResult {
    let took_ms = Some(latency_ms.min(longest_ms(SLO_MS)));
    RequestResult { at: Duration::ZERO, in_time: latency_ms <= SLO_MS, took_ms }
}

/// The commands of the page, in order.
fn blocks() -> Vec<String> {
    let page = std::fs::read_to_string(apportion_tests::root().join(PAGE)).expect("the page");
    let blocks = page.split("```sh needs-triton\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.map(str::to_owned).collect()
}

/// The arguments of a block that starts a server.
fn server_arguments(block: &str) -> Vec<&str> {
    let words: Vec<&str> = block.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"tritonserver"), "{block}");
    words[1..].to_vec()
}

/// Latencies of a profile by batch, in milliseconds.
fn latencies(problem: &Value, variant: &str) -> Vec<(u64, f64)> {
    let variants = problem["pipelines"][0]["tasks"][0]["variants"].as_array().expect("variants");
    let of = variants.iter().find(|v| v["name"] == variant).unwrap_or_else(|| panic!("{variant}: {problem:#}"));
    let rows = of["profile"].as_array().expect("a profile").iter();
    rows.map(|row| (row["batch"].as_u64().expect("a batch"), row["latency_ms"].as_f64().expect("a time"))).collect()
}

#[test]
fn triton_serves_the_advice_as_the_estimator_says() {
    let Some(python) = apportion_needs::triton() else { return };
    let (program, folder, blocks) = (TritonProgram::new(&python), Folder::new(&python), blocks());
    let [start, profile, advise, export, restart, expect] = blocks.as_slice() else { panic!("{PAGE}: {blocks:?}") };

    let server = program.start(folder.path(), &server_arguments(start));
    assert!(profile.contains(SERVER), "{profile}");
    let printed = folder.run(&profile.replace(SERVER, &server.url()));
    assert!(printed.contains("queue_ms") && printed.contains("compute_ms"), "{printed}");
    drop(server);
    let problem = folder.json("problem.json");
    let (small, large) = (latencies(&problem, "small"), latencies(&problem, "large"));
    let batches = |rows: &[(u64, f64)]| rows.iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!((batches(&small), batches(&large)), (vec![1, 2, 4, 8], vec![1, 2, 4, 8]), "8 is the server's largest");
    assert!(small.iter().zip(&large).all(|(small, large)| small.1 < large.1), "{small:?} {large:?}");

    let advice = folder.run(advise);
    let plan = folder.json("plan.json");
    let groups = plan["pipelines"][0]["assignments"].as_array().expect("groups");
    let replicas: u64 = groups.iter().filter_map(|group| group["replicas"].as_u64()).sum();
    assert!(replicas > 1 && advice.contains("advised"), "one replica is not enough: {advice}");

    folder.run(export);
    let shares = groups.iter().map(|group| {
        let model = group["variant"].as_str().expect("a name");
        let file = folder.path().join(format!("triton/cpu/{model}/config.pbtxt"));
        let config = std::fs::read_to_string(file).expect("a configuration");
        assert!(config.contains(&format!("count: {}\n", group["replicas"])), "{config}");
        format!("{model}={}", group["traffic_share"].as_f64().expect("a share"))
    });
    let shares: Vec<String> = shares.collect();

    let rates: String = (0..SECONDS).map(|second| format!("{second},{QPS}\n")).collect();
    folder.write("rates.csv", &format!("second,qps\n{rates}"));
    let estimated: Vec<Figures> = (1..=ESTIMATES).map(|seed| folder.estimate(seed)).collect();
    let server = program.start(folder.path(), &server_arguments(restart));
    let mut measured = Vec::new();
    for seed in 1..=LOAD_RUNS {
        measured.push(folder.play(&server, &shares, seed));
        if FIGURES.iter().all(|(_, figure)| is_mostly_inside(&compared(&measured, &estimated, *figure))) {
            break;
        }
    }
    drop(server);
    folder.run(expect);
    for (name, figure) in FIGURES {
        let runs = compared(&measured, &estimated, figure);
        eprintln!("{name}: {runs:?}");
        assert!(is_mostly_inside(&runs), "{name} is inside in too few of {LOAD_RUNS} runs: {runs:?}");
    }
}

/// A figure with its name.
type NamedFigure = (&'static str, fn(&Figures) -> f64);

/// What is compared in each run.
const FIGURES: [NamedFigure; 3] =
    [("attainment", |figures| figures.attainment), ("p50", |figures| figures.p50_ms), ("p99", |figures| figures.p99_ms)];

/// A figure of each run beside the estimator's interval.
fn compared(measured: &[Figures], estimated: &[Figures], figure: fn(&Figures) -> f64) -> Vec<ComparedFigure> {
    let compare = |of: &Figures| ComparedFigure::new(figure(of), estimated.iter().map(figure).collect());
    measured.iter().map(compare).collect()
}

/// Whether the figure is inside in more than half of all runs, whatever those say that are not made.
fn is_mostly_inside(runs: &[ComparedFigure]) -> bool {
    2 * runs.iter().filter(|run| run.is_inside).count() > LOAD_RUNS as usize
}

#[test]
fn time_in_the_queue_of_a_server_is_no_latency() {
    let Some(python) = apportion_needs::triton() else { return };
    let (program, folder) = (TritonProgram::new(&python), Folder::new(&python));
    let latency_ms = |delay_ms: u64| {
        let model = folder.path().join(format!("delayed-{delay_ms}/small"));
        let example = apportion_tests::root().join("examples/triton/models/small");
        std::fs::create_dir_all(model.join("1")).expect("a folder");
        std::fs::copy(example.join("1/model.py"), model.join("1/model.py")).expect("a copy");
        let config = std::fs::read_to_string(example.join("config.pbtxt")).expect("a configuration");
        let batching = format!(
            "dynamic_batching {{\n  preferred_batch_size: [ 8 ]\n  max_queue_delay_microseconds: {}\n}}\n",
            1_000 * delay_ms
        );
        std::fs::write(model.join("config.pbtxt"), config + &batching).expect("written");
        let server = program.start(folder.path(), &["--model-repository", &format!("delayed-{delay_ms}")]);
        let pipeline = json!({
            "name": "p", "slo_ms": 400, "tasks": [{"name": "mark", "variants": [{"name": "small", "accuracy": 1}]}],
        });
        let file = folder.write("p.json", &pipeline.to_string());
        let backend = format!("remote={}", server.url());
        let ended = folder.apportion(&["profile", &file, "--backend", &backend, "--batch-max", "1", "--format", "json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let set: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        set["rows"][0]["latency_ms"].as_f64().expect("a time")
    };
    let (at_once, delayed) = (latency_ms(0), latency_ms(200));
    assert!(delayed < at_once + 100.0, "{at_once} ms, and {delayed} ms with a delay of 200 ms");
}

#[test]
fn a_function_served_by_pytriton_is_measured() {
    let Some(python) = apportion_needs::triton() else { return };
    let (program, folder) = (TritonProgram::new(&python), Folder::new(&python));
    let server = program.start_python(&apportion_tests::root().join("tests/tests/triton/serve.py"), "double");
    let pipeline =
        json!({"name": "p", "slo_ms": 400, "tasks": [{"name": "t", "variants": [{"name": "double", "accuracy": 1}]}]});
    let file = folder.write("p.json", &pipeline.to_string());
    let backend = format!("remote={}", server.url());
    let ended = folder.apportion(&["profile", &file, "--backend", &backend, "--out", "problem.json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for said in ["at most 4 rows in a batch", "tells no waiting times"] {
        assert!(ended.stderr.contains(said), "pytriton keeps its statistics to itself: {}", ended.stderr);
    }
    let rows = latencies(&folder.json("problem.json"), "double");
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2, 4]);
    let planned = folder.apportion(&["plan", "problem.json", "--demand", "10", "--format", "json"]);
    let plan: Value = serde_json::from_str(&planned.stdout).unwrap_or_else(|e| panic!("{e}: {planned:?}"));
    assert_eq!(plan["status"], "optimal", "{plan:#}");
}

#[test]
fn what_a_server_lacks_is_said() {
    let Some(python) = apportion_needs::triton() else { return };
    let (program, folder) = (TritonProgram::new(&python), Folder::new(&python));
    let server = program.start(folder.path(), &["--model-repository", "examples/triton/models"]);
    let refused = |variant: Value, backend: &str| {
        let pipeline = json!({"name": "p", "slo_ms": 400, "tasks": [{"name": "mark", "variants": [variant]}]});
        let file = folder.write("p.json", &pipeline.to_string());
        folder.apportion(&["profile", &file, "--backend", backend, "--out", "out.json"])
    };
    let there = format!("remote={}", server.url());
    let cases = [
        (json!({"name": "smal", "accuracy": 1}), there.as_str(), 2, "no model \"smal\": expected one of large, small"),
        (
            json!({"name": "small", "accuracy": 1.5}),
            &there,
            2,
            "p.json: /tasks/0/variants/0/accuracy: 1.5: expected an accuracy from 0 to 1",
        ),
        (
            json!({"name": "small", "accuracy": 1}),
            "remote=http://127.0.0.1:1",
            1,
            "expected a server of the Open Inference",
        ),
    ];
    for (variant, backend, code, said) in cases {
        let ended = refused(variant, backend);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
        assert!(!folder.path().join("out.json").exists(), "{said}");
    }
}
