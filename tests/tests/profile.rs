//! Profiles of two hardware types: by `apportion profile` on this machine, and by agents. What is there already stays.

use apportion_needs::{Need, clients, need};
use apportion_profiler::find_library;
use apportion_tests::cluster::Cluster;
use apportion_tests::digits;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// One task of the example, with its two quickest variants.
const PIPELINE: &str = "
name: finder
slo_ms: 500
tasks:
  - name: find
    variants: [{name: find-s, model: MODELS/find-s.onnx}, {name: find-l, model: MODELS/find-l.onnx}]
  - name: read
    variants: [{name: read-s, model: MODELS/read-s.onnx}]
edges:
  - {from: find, to: read, map: {image: crops, center: centers}}
validation:
  inputs: {image: MODELS/../validation/image.npy}
  labels: MODELS/../validation/labels.json
  match: {value: label, at: position, within: 4.0}
";

/// The reason that commands give to the service.
const WHY: &str = "a new card";

fn apportion(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(arguments).current_dir(folder).env("APPORTION_WHY", WHY);
    let output = command.output().expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {out}"))
}

/// Peak memory that a profile says of a variant.
fn memory_mib(profile: &Value, variant: &str) -> f64 {
    let all = profile["variants"].as_array().expect("variants");
    let found = all.iter().find(|v| v["variant"] == variant).unwrap_or_else(|| panic!("{variant}: {profile}"));
    found["memory_mib"].as_f64().unwrap_or_else(|| panic!("its memory: {found}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_profile_keeps_settings_and_the_first_hardware() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let cluster = Cluster::start(0, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let models = apportion_tests::root().join("examples/digits/models").display().to_string();
    std::fs::write(folder.path().join("p.yaml"), PIPELINE.replace("MODELS", &models)).expect("written");
    let url = cluster.service();
    let profile = |hardware: &str, batch_max: &str| {
        let to = ["profile", "p.yaml", "--register", &url, "--out", "p.json", "--format", "json"];
        apportion(folder.path(), &[&to[..], &["--hardware", hardware, "--batch-max", batch_max]].concat())
    };
    let small = profile("first", "1");
    let path = "/v1/pipelines/finder";
    let mut registered = cluster.get(path).await;
    registered["replan"] = json!({"mode": "advisory", "period_s": 3600.0});
    registered["weight"] = json!(3.0);
    cluster.put(path, &registered).await;
    let large = profile("second", "32");

    let now = cluster.get(path).await;
    assert_eq!((&now["replan"]["mode"], &now["replan"]["period_s"]), (&json!("advisory"), &json!(3600.0)), "{now:#}");
    assert_eq!(now["weight"], json!(3.0));
    let profiles = cluster.get(&format!("{path}/profiles")).await;
    let of =
        |hardware: &str| profiles["rows"].as_array().map_or(0, |r| r.iter().filter(|r| r["hardware"] == hardware).count());
    assert_eq!((of("first"), of("second")), (3, 18), "{profiles:#}");

    let newest = cluster.get("/v1/audit").await[0].clone();
    assert_eq!((&newest["path"], &newest["why"]), (&json!(format!("{path}/profiles")), &json!(WHY)), "{newest:#}");
    let files = cluster.get("/v1/files").await;
    let sources = files.as_array().expect("files").iter().map(|file| file["source"].as_str().unwrap_or_default());
    let mut names: Vec<&str> = sources.filter_map(|source| source.rsplit_once('/')).map(|(_, name)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["find-l.onnx", "find-s.onnx", "read-s.onnx"], "{files:#}");

    let file_mib = std::fs::metadata(format!("{models}/find-l.onnx")).expect("the file").len() as f64 / f64::from(1 << 20);
    let (one, many) = (memory_mib(&small, "find-l"), memory_mib(&large, "find-l"));
    eprintln!("find-l: file {file_mib:.2} MiB, peak {one:.2} MiB at batch 1 and {many:.2} MiB at batch 32");
    assert!(one > file_mib && many > 2.0 * one, "{file_mib} < {one} < {many} MiB");

    // What was written is a problem with both types, which `plan` reads.
    let plan =
        apportion(folder.path(), &["plan", "p.json", "--demand", "finder=5", "--format", "json", "--out", "plan.json"]);
    assert_eq!((&plan["status"], &plan["pipelines"][0]["demand_qps"]), (&json!("optimal"), &json!(5.0)), "{plan:#}");
    let problem: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("p.json")).expect("p.json")).expect("JSON");
    let names: Vec<_> = problem["hardware"].as_array().expect("hardware").iter().map(|h| h["name"].clone()).collect();
    assert_eq!(names, ["first", "second"]);
}

/// A stage whose time depends on the length of its texts.
const MOOD: &str = r#"
import time

INPUTS = {"ids": ("INT64", [-1, -1])}
OUTPUTS = {"mood": ("FP32", [-1])}


def run(inputs):
    ids = inputs["ids"]
    time.sleep(0.002 if ids.shape[1] < 100 else 0.04)
    return {"mood": ids.mean(axis=1).astype("f4")}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_shape_is_measured_registered_and_planned() {
    let (Some(python), Some(_library)) = (clients(), need(Need::Onnx, find_library(None))) else { return };
    let cluster = Cluster::start(0, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let pipeline =
        "name: moods\nslo_ms: 500\ntasks:\n- {name: classify, variants: [{name: small, python: mood.py, accuracy: 1}]}\n";
    for (file, text) in [("mood.py", MOOD), ("moods.yaml", pipeline)] {
        std::fs::write(folder.path().join(file), text).expect("written");
    }
    let (url, python) = (cluster.service(), python.display().to_string());
    let profile = ["profile", "moods.yaml", "--python", &python, "--batch-max", "2", "--format", "json"];
    let open =
        Command::new(apportion_tests::programs().join("apportion")).args(profile).current_dir(folder.path()).output();
    let said = String::from_utf8_lossy(&open.as_ref().expect("the program runs").stderr).into_owned();
    assert!(said.contains("an inner size is open, axis 1, so give all with --shape ids=SIZE"), "{said}");

    let shapes = ["--shape", "ids=16@0.8", "--shape", "ids=512@0.2", "--share", "0.5"];
    let measured = apportion(folder.path(), &[&profile[..], &shapes, &["--register", &url, "--out", "p.json"]].concat());
    let rows = measured["rows"].as_array().expect("rows");
    let beside = rows.iter().map(|row| (row["share"].as_f64(), row["measured"]["interference"].is_number()));
    let [whole, half] = [(Some(1.0), false), (Some(0.5), true)];
    assert_eq!(beside.collect::<Vec<_>>(), [whole, whole, half, half], "{measured:#}");
    for row in rows {
        let [short, long] = &row["measured"]["by_shape"].as_array().expect("shapes")[..] else { panic!("{row:#}") };
        assert_eq!((&short["shape"], &long["shape"]), (&json!({"ids": [16]}), &json!({"ids": [512]})));
        let [short, long, all] = [short, long, row].map(|of| of["latency_ms"].as_f64().expect("a latency"));
        // Other work on the machine lengthens both.
        assert!(long > 1.5 * short && short < all && all < long, "{short} and {long} ms, together {all} ms");
    }
    let stored = cluster.get("/v1/pipelines/moods/profiles").await;
    let problem: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("p.json")).expect("p.json")).expect("JSON");
    let written = &problem["pipelines"][0]["tasks"][0]["variants"][0]["profile"];
    for rows in [&stored["rows"], written] {
        let shares = |of: usize| rows[1]["measured"]["by_shape"][of]["share"].as_f64();
        assert_eq!((shares(0), shares(1)), (Some(0.8), Some(0.2)), "{rows:#}");
    }
    let plan = apportion(folder.path(), &["plan", "p.json", "--demand", "moods=5", "--format", "json"]);
    assert_eq!(plan["status"], "optimal", "{plan:#}");
}

#[test]
fn a_plan_for_cost_needs_no_validation_set() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let models = apportion_tests::root().join("examples/digits/models").display().to_string();
    let (pipeline, _validation) = PIPELINE.split_once("validation:").expect("it has one");
    let declared = pipeline.replace("find-l.onnx}", "find-l.onnx, fanout: 3}").replace("MODELS", &models);
    std::fs::write(folder.path().join("p.yaml"), declared).expect("written");
    let profile = ["profile", "p.yaml", "--batch-max", "2", "--out", "p.json", "--format", "json"];
    let measured = apportion(folder.path(), &profile);
    assert_eq!(measured["rows"].as_array().map(Vec::len), Some(6), "{measured:#}");
    assert_eq!(measured["path_accuracy"], json!({}), "{measured:#}");
    let read = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.path().join(file)).expect(file)).expect("JSON")
    };
    let problem = read("p.json");
    assert_eq!(problem["objective"]["mode"], "min_cost", "{problem:#}");
    let finders = problem["pipelines"][0]["tasks"][0]["variants"].as_array().expect("variants");
    let fanouts: Vec<&Value> = finders.iter().map(|variant| &variant["fanout"]).collect();
    assert_eq!(fanouts, [&Value::Null, &json!(3.0)], "the declared ones");
    let plan = apportion(folder.path(), &["plan", "p.json", "--demand", "finder=5", "--format", "json"]);
    assert_eq!(plan["status"], "optimal", "{plan:#}");
}

#[test]
fn a_share_has_the_latency_beside_copies() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let models = apportion_tests::root().join("examples/digits/models").display().to_string();
    let (pipeline, _validation) = PIPELINE.split_once("validation:").expect("it has one");
    std::fs::write(folder.path().join("p.yaml"), pipeline.replace("MODELS", &models)).expect("written");
    let profile = ["profile", "p.yaml", "--share", "0.25,0.5", "--batch-max", "1", "--out", "p.json", "--format", "json"];
    let measured = apportion(folder.path(), &profile);
    let rows = measured["rows"].as_array().expect("rows");
    let of_share = |share: f64| rows.iter().filter(|row| row["share"] == json!(share)).collect::<Vec<_>>();
    for share in [1.0, 0.5, 0.25] {
        assert_eq!(of_share(share).len(), 3, "{measured:#}");
    }
    assert!(of_share(1.0).iter().all(|row| row["measured"]["interference"].is_null()), "{measured:#}");
    for row in [of_share(0.5), of_share(0.25)].concat() {
        let factor = row["measured"]["interference"].as_f64().expect("a factor");
        assert!((1.0..=100.0).contains(&factor) && row["measured"]["noise"].is_number(), "{row}");
    }
    // Four copies with one processor have a quarter of it each: none is as fast as alone.
    let factors = of_share(0.25).iter().filter_map(|row| row["measured"]["interference"].as_f64()).collect::<Vec<_>>();
    assert!(factors.iter().all(|factor| *factor > 1.5), "{factors:?}");

    let plan = |problem: &str| {
        let mut command = Command::new(apportion_tests::programs().join("apportion"));
        command.args(["plan", problem, "--demand", "finder=5", "--format", "json"]).current_dir(folder.path());
        command.output().expect("the program runs")
    };
    let alone = |output: &std::process::Output| {
        let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan");
        let warnings = plan["planner"]["warnings"].as_array().expect("warnings").clone();
        warnings.iter().filter_map(Value::as_str).any(|warning| warning.contains("without neighbours on the device"))
    };
    assert!(!alone(&plan("p.json")), "all shares had neighbours");
    let text = std::fs::read_to_string(folder.path().join("p.json")).expect("p.json");
    let mut problem: Value = serde_json::from_str(&text).expect("JSON");
    let place = "/pipelines/0/tasks/0/variants/0/profile/1/measured";
    let measured = problem.pointer_mut(place).and_then(Value::as_object_mut).expect("a row of a share");
    let factor = measured.insert("interference".to_owned(), json!(0.5)).expect("a row of a share");
    assert!(factor.is_number(), "{factor}");
    std::fs::write(folder.path().join("wrong.json"), problem.to_string()).expect("written");
    let refused = plan("wrong.json");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("{place}/interference: 0.5: expected a factor from 1 to 100")), "{said}");
    let measured = problem.pointer_mut(place).and_then(Value::as_object_mut).expect("a row of a share");
    measured.remove("interference");
    std::fs::write(folder.path().join("alone.json"), problem.to_string()).expect("written");
    assert!(alone(&plan("alone.json")), "one share had none");
}

/// An agent of its own hardware type that runs model files; dropping it ends it.
struct Measurer(std::process::Child);

impl Measurer {
    fn start(cluster: &Cluster, folder: &Path, hardware: &str) -> Self {
        let mut command = Command::new(apportion_tests::programs().join("apportion-agent"));
        command.args([
            "--join",
            &format!("http://{}", cluster.join_address()),
            "--token",
            cluster.join_token(),
            "--name",
            hardware,
        ]);
        command.args(["--hardware", hardware, "--devices", "1", "--http", "127.0.0.1:0", "--data", "127.0.0.1:0"]);
        command.arg("--state-dir").arg(folder.join(hardware));
        let log = std::fs::File::create(folder.join(format!("{hardware}.log"))).expect("a log file");
        Self(command.stdout(std::process::Stdio::null()).stderr(log).spawn().expect("the agent starts"))
    }

    /// One that has joined.
    async fn live(cluster: &Cluster, folder: &Path, hardware: &str) -> Self {
        let agent = Self::start(cluster, folder, hardware);
        let is_live = |agents: &Value| {
            let is_it = |agent: &&Value| agent["name"] == hardware && agent["state"] == "live";
            agents.as_array()?.iter().find(is_it).map(|_| ())
        };
        cluster.until("/v1/agents", is_live).await;
        agent
    }
}

impl Drop for Measurer {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_two_hardware_types_measure_one_after_the_other() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let cluster = Cluster::start(0, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let small = cluster.upload(digits::model("read-s.onnx")).await;
    let medium = cluster.upload(digits::model("read-m.onnx")).await;
    let variants = [("read-s", small.as_str(), 0.9), ("read-m", medium.as_str(), 0.95)];
    cluster.put("/v1/pipelines/reader", &digits::pipeline("reader", &variants, &json!({}))).await;
    for hardware in ["first", "second"] {
        let _agent = Measurer::live(&cluster, folder.path(), hardware).await;
        let url = cluster.service();
        let arguments = ["profile", "reader", "--server", &url, "--hardware", hardware, "--batch-max", "4", "-o", "json"];
        let job = tokio::task::block_in_place(|| apportion(folder.path(), &arguments));
        assert_eq!((&job["state"], &job["progress"]), (&json!("done"), &json!({"ready": 2, "total": 2})), "{job:#}");
    }
    let profile = cluster.get("/v1/pipelines/reader/profiles").await;
    for hardware in ["first", "second"] {
        for (variant, _, _) in variants {
            let is_of = |row: &&Value| row["hardware"] == hardware && row["variant"] == variant;
            let rows: Vec<&Value> = profile["rows"].as_array().expect("rows").iter().filter(is_of).collect();
            let batches: Vec<_> = rows.iter().map(|row| row["batch"].as_u64().expect("a batch")).collect();
            assert_eq!(batches, [1, 2, 4], "{variant} on {hardware}: {profile:#}");
            let latency = |row: &&Value| row["latency_ms"].as_f64().expect("a time");
            assert!(rows.is_sorted_by(|a, b| latency(a) <= latency(b)) && latency(&rows[0]) > 0.0, "{rows:?}");
            let how = &rows[0]["measured"];
            assert_eq!(how["agent"], hardware, "{how}");
            assert!(how["runs"].as_u64() > Some(6) && how["at"].is_string() && how["version"].is_string(), "{how}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_with_more_threads_than_its_device_fails_alone() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let cluster = Cluster::start(0, 1).await;
    let folder = tempfile::tempdir().expect("a folder");
    let small = cluster.upload(digits::model("read-s.onnx")).await;
    let mut spec = digits::pipeline("reader", &[("one", &small, 0.9), ("two", &small, 0.9)], &json!({}));
    for (variant, threads) in [1, 2].into_iter().enumerate() {
        spec["tasks"][0]["variants"][variant]["threads"] = threads.into();
    }
    cluster.put("/v1/pipelines/reader", &spec).await;
    let _agent = Measurer::live(&cluster, folder.path(), "first").await;
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(["profile", "reader", "--server", &cluster.service(), "--batch-max", "1", "-o", "json"]);
    let output = tokio::task::block_in_place(|| command.output().expect("the program runs"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let job: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}\n{err}"));
    assert_eq!((output.status.code(), &job["state"]), (Some(1), &json!("failed")), "{err}\n{job:#}");
    let point = |variant: &str| {
        let points = job["points"].as_array().expect("points");
        points.iter().find(|point| point["variant"] == variant).unwrap_or_else(|| panic!("{variant}: {job:#}"))
    };
    assert!(point("one")["measured"].is_object(), "{job:#}");
    let why = point("two")["error"].as_str().unwrap_or_default();
    assert!(why.contains("it asks for 2 threads, and a device here has 1: expected at least --threads 2"), "{why}");
}
