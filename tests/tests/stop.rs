//! Programs end in order when they are told to. The service does so on SIGTERM, whether it is up or has only begun to
//! start. A search on the command line does so on SIGINT.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; nothing is asserted about how long it does take.
const PATIENCE: Duration = Duration::from_secs(90);

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A service with its data in `folder`, reached at `http`.
fn start(folder: &Path, http: u16) -> Service {
    // Where the tests run as root the database runs as another user, who must get there.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("a folder of ours");
    let grpc = apportion_tests::free_port();
    let child = Command::new(apportion_tests::programs().join("apportion"))
        .args(["serve", "--http", &format!("127.0.0.1:{http}"), "--grpc", &format!("127.0.0.1:{grpc}")])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .env_remove("APPORTION_DATABASE_URL")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the service starts");
    Service(child)
}

/// Tells it to end and waits until it has.
fn terminate(service: &mut Service) -> std::process::ExitStatus {
    end_by(&mut service.0, "TERM")
}

/// Sends a signal to a program and waits until it has ended.
fn end_by(program: &mut Child, signal: &str) -> std::process::ExitStatus {
    apportion_tests::process::tell(program.id(), signal);
    until("it ends", || program.try_wait().expect("it can be waited for"))
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// The file that a running private database has, if there is one.
fn database(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.path()).find_map(|path| {
        let found = path.file_name().is_some_and(|name| name == "postmaster.pid");
        if found { Some(path) } else { path.is_dir().then(|| database(&path))? }
    })
}

#[test]
fn sigterm_ends_the_service_and_its_database() {
    for early in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let http = apportion_tests::free_port();
        let mut service = start(folder.path(), http);
        if early {
            until("its database begins", || database(folder.path()));
        } else {
            until("it is ready", || is_ready(http).then_some(()));
            assert!(database(folder.path()).is_some(), "it has a database of its own");
        }
        let ended = terminate(&mut service);
        assert!(ended.success(), "early {early}: {ended}");
        assert_eq!(database(folder.path()), None, "early {early}: its database has ended with it");
    }
}

/// Four tasks with ten variants on three kinds of device, at any accuracy above a floor and to the last digit: minutes of
/// search.
fn hard() -> serde_json::Value {
    use serde_json::json;
    let variant = |t: usize, v: usize| {
        let (size, wobble) = (1.0 + v as f64, 1.0 + 0.1 * ((7 * t + 3 * v) % 5) as f64);
        let row = |h: usize, batch: u32| {
            let latency_ms = (2.0 * size + 0.9 * size * f64::from(batch)) * wobble / (1.0 + 0.7 * h as f64);
            let hardware = ["a", "b", "c"][h];
            json!({"hardware": hardware, "batch": batch, "latency_ms": latency_ms})
        };
        let rows: Vec<_> = (0..3).flat_map(|h| [1, 2, 4, 8, 16].map(|batch| row(h, batch))).collect();
        json!({"name": format!("v{v}"), "accuracy": 0.6 + 0.039 * v as f64, "profile": rows})
    };
    let task = |t: usize| json!({"name": format!("t{t}"), "variants": (0..10).map(|v| variant(t, v)).collect::<Vec<_>>()});
    let edges: Vec<_> = (1..4).map(|t| json!({"from": format!("t{}", t - 1), "to": format!("t{t}")})).collect();
    let prices = [("a", 0.5), ("b", 0.83), ("c", 1.17)];
    json!({
        "version": 1, "objective": {"mode": "min_cost"},
        "hardware": prices.map(|(name, price)| json!({"name": name, "price_per_hour": price})),
        "pipelines": [{
            "name": "p", "demand_qps": 731.0, "slo_ms": 260.0, "min_accuracy": 0.61,
            "tasks": (0..4).map(task).collect::<Vec<_>>(), "edges": edges,
        }],
    })
}

/// Asks for the hard plan; returns its identifier.
async fn ask_for_hard_plan(client: &reqwest::Client, plans: &str) -> String {
    let body = serde_json::json!({"problem": hard(), "gap": 0.0, "time_limit_s": 3600.0});
    let asked = client.post(plans).json(&body).send().await.expect("an answer");
    assert_eq!(asked.status(), 202);
    let plan: serde_json::Value = asked.json().await.expect("JSON");
    plan["id"].as_str().expect("an identifier").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_stops_a_plan_of_a_service_and_keeps_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (http, client) = (apportion_tests::free_port(), reqwest::Client::new());
    let server = format!("http://127.0.0.1:{http}");
    let mut service = start(folder.path(), http);
    until("it is ready", || is_ready(http).then_some(()));
    let id = ask_for_hard_plan(&client, &format!("{server}/v1/plans")).await;
    let stop = || {
        let mut command = Command::new(apportion_tests::programs().join("apportion"));
        command.args(["plan", "stop", &id, "--server", &server]).stderr(Stdio::null());
        command.status().expect("it runs").success()
    };
    assert!(stop());
    let begun = Instant::now();
    let kept = loop {
        let read = client.get(format!("{server}/v1/plans/{id}")).send().await.expect("an answer");
        let plan: serde_json::Value = read.json().await.expect("JSON");
        if !["queued", "solving"].contains(&plan["state"].as_str().expect("a state")) {
            break plan;
        }
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(kept["state"], "succeeded", "{}", kept["error"]);
    assert_eq!(kept["plan"]["planner"]["stopped"], "stopped");
    assert!(!stop(), "it is over");
    assert!(terminate(&mut service).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_puts_a_plan_in_progress_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (http, client) = (apportion_tests::free_port(), reqwest::Client::new());
    let plans = format!("http://127.0.0.1:{http}/v1/plans");
    let mut service = start(folder.path(), http);
    until("it is ready", || is_ready(http).then_some(()));
    let url = format!("{plans}/{}", ask_for_hard_plan(&client, &plans).await);
    let state = async || {
        let plan: serde_json::Value = client.get(&url).send().await.expect("an answer").json().await.expect("JSON");
        plan["state"].as_str().expect("a state").to_owned()
    };
    let begun = Instant::now();
    while state().await != "solving" {
        assert!(begun.elapsed() < PATIENCE, "nobody solves it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = Instant::now();
    let ended = terminate(&mut service);
    eprintln!("it ended {:.1} s after SIGTERM", told.elapsed().as_secs_f64());
    assert!(ended.success(), "{ended}");
    assert_eq!(database(folder.path()), None, "its database has ended with it");

    let mut service = start(folder.path(), http);
    until("it is ready", || is_ready(http).then_some(()));
    assert!(["queued", "solving"].contains(&state().await.as_str()), "it is begun again");
    assert_eq!(client.delete(&url).send().await.expect("an answer").status(), 202);
    let begun = Instant::now();
    while state().await != "cancelled" {
        assert!(begun.elapsed() < PATIENCE, "it goes on: {}", state().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(terminate(&mut service).success());
}

/// Whether a program has a handler of its own for SIGINT, by the kernel's mask of caught signals.
fn catches_sigint(program: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 0b10 != 0)
}

#[test]
fn ctrl_c_ends_a_search_and_keeps_its_best_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let (problem, out) = (folder.path().join("hard.json"), folder.path().join("plan.json"));
    std::fs::write(&problem, hard().to_string()).expect("a file");
    let program = Command::new(apportion_tests::programs().join("apportion"))
        .args(["plan", "--gap", "0", "--out"])
        .args([&out, &problem])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the search starts");
    let mut search = Service(program);
    until("it waits for Ctrl-C", || catches_sigint(&search.0).then_some(()));
    let ended = end_by(&mut search.0, "INT");
    assert_eq!(ended.code(), Some(0), "{ended}");
    let plan: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&out).expect("a plan file")).expect("a plan file is JSON");
    assert_eq!(plan["status"], "feasible", "{plan:#}");
    assert_eq!(plan["planner"]["stopped"], "stopped");
    assert!(plan["pipelines"][0]["assignments"].as_array().is_some_and(|groups| !groups.is_empty()), "{plan:#}");
}
