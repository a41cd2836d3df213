//! Do exports say what the plan says, and are inputs that do not fit refused?

use apportion_export::{
    Export, ExportContent, ExportRequest, ExportSettings, ExportTarget, ModelFile, export, read_settings,
};
use apportion_wire::{BadInput, ProblemFile, TensorSpec, read_plan_for, read_problem};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Two variants on one hardware type, the second on halves of a device. `variant` is the name of the first.
fn problem(variant: &str) -> Value {
    let row = |batch: u32, ms: f64, share: f64| json!({"hardware": "t4", "batch": batch, "latency_ms": ms, "share": share});
    let first = json!({"name": variant, "accuracy": 1, "profile": [row(4, 20.0, 1.0)]});
    let second = json!({"name": "small", "accuracy": 0.9, "profile": [row(2, 10.0, 0.5)]});
    json!({
        "version": 1, "objective": {"mode": "min_cost"}, "hardware": [{"name": "t4", "price_per_hour": 0.5, "count": 6}],
        "pipelines": [{"name": "p", "demand_qps": 10, "slo_ms": 200, "tasks": [{"name": "t", "variants": [first, second]}]}]
    })
}

fn plan(variant: &str) -> Value {
    let group = |variant: &str, share: f64, batch: u32, replicas: u32, budget: f64| {
        json!({"task": "t", "variant": variant, "hardware": "t4", "share": share, "batch": batch, "replicas": replicas,
            "traffic_share": 0.5, "latency_budget_ms": budget})
    };
    let groups = [group(variant, 1.0, 4, 2, 50.0), group("small", 0.5, 2, 3, 20.0)];
    let serving = json!({"queueing": "per_replica", "batching": "at_start", "routing": "stride", "dropping": "last_task"});
    let pipeline = json!({"name": "p", "demand_qps": 10, "serving": serving, "assignments": groups});
    json!({"version": 1, "cost_per_hour": 2, "pipelines": [pipeline]})
}

fn exported(problem: &Value, plan: &Value, settings: &ExportSettings, target: ExportTarget) -> Result<Export, BadInput> {
    let models = BTreeMap::new();
    export_of(problem, plan, &Extras { settings, models: &models }, target)
}

/// The plan with these model files.
fn exported_with(models: &BTreeMap<(String, String, String), ModelFile>, target: ExportTarget) -> Export {
    let extras = Extras { settings: &ExportSettings::default(), models };
    export_of(&problem("big"), &plan("big"), &extras, target).expect("an export")
}

/// What an export has beside a plan.
struct Extras<'a> {
    settings: &'a ExportSettings,
    models: &'a BTreeMap<(String, String, String), ModelFile>,
}

fn export_of(problem: &Value, plan: &Value, extras: &Extras<'_>, target: ExportTarget) -> Result<Export, BadInput> {
    let problem = match read_problem("problem", &problem.to_string()).unwrap_or_else(|error| panic!("{error}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => unreachable!("it has pipelines"),
    };
    let plan_text = plan.to_string();
    let plan = read_plan_for(&problem, "plan", &plan_text)?;
    let request = ExportRequest {
        problem: &problem,
        plan: &plan,
        plan_file: "plan",
        plan_text: &plan_text,
        settings: extras.settings,
        models: extras.models,
    };
    export(&request, target)
}

fn text<'a>(export: &'a Export, path: &str) -> &'a str {
    match &export.files[path] {
        ExportContent::Text(text) | ExportContent::Script(text) => text,
        ExportContent::CopyOf(path) => panic!("{}", path.display()),
    }
}

fn good(target: ExportTarget) -> Export {
    exported(&problem("big"), &plan("big"), &ExportSettings::default(), target).expect("an export")
}

#[test]
fn triton_has_the_batches_and_replicas_of_the_plan() {
    let export = good(ExportTarget::Triton);
    let big = text(&export, "t4/big/config.pbtxt");
    assert!(big.contains("max_batch_size: 4\n") && big.contains("preferred_batch_size: [ 4 ]"), "{big}");
    assert!(big.contains("count: 1\n  kind: KIND_GPU\n  gpus: [ 0, 1 ]"), "whole devices first: {big}");
    assert!(big.contains("max_queue_delay_microseconds: 0\n"), "`at_start` waits for no batch: {big}");
    let small = text(&export, "t4/small/config.pbtxt");
    let (one, two) = ("count: 1\n  kind: KIND_GPU\n  gpus: [ 3 ]", "count: 2\n  kind: KIND_GPU\n  gpus: [ 2 ]");
    assert!(small.contains(one) && small.contains(two), "three halves on two devices: {small}");
}

#[test]
fn only_plans_that_wait_for_batches_delay_queries() {
    let mut waiting = plan("big");
    waiting["pipelines"][0]["serving"]["batching"] = json!("wait_until");
    let export = |target| exported(&problem("big"), &waiting, &ExportSettings::default(), target).expect("an export");
    let triton = export(ExportTarget::Triton);
    let big = text(&triton, "t4/big/config.pbtxt");
    assert!(big.contains("max_queue_delay_microseconds: 30000\n"), "50 ms without the batch's 20 ms: {big}");
    let wait_s = |export: &Export| {
        let file: Value = serde_saphyr::from_str(text(export, "serve.yaml")).expect("YAML");
        file["applications"][0]["args"]["variants"][0]["wait_s"].as_f64()
    };
    assert_eq!(wait_s(&export(ExportTarget::RayServe)), Some(0.03));
    assert_eq!(wait_s(&good(ExportTarget::RayServe)), Some(0.0));
}

#[test]
fn a_note_says_that_triton_has_one_queue() {
    let is_noted = |queueing: &str| {
        let mut plan = plan("big");
        plan["pipelines"][0]["serving"]["queueing"] = json!(queueing);
        let export = exported(&problem("big"), &plan, &ExportSettings::default(), ExportTarget::Triton);
        export.expect("an export").notes.iter().any(|note| note.contains("one queue for all its replicas"))
    };
    assert!(is_noted("per_replica") && !is_noted("central"));
}

#[test]
fn a_python_model_gets_its_backend_and_tensors() {
    let tensor =
        |name: &str, shape: &[i64]| TensorSpec { name: name.into(), datatype: "FP32".into(), shape: shape.to_vec() };
    let model =
        ModelFile { path: "models/big.py".into(), inputs: vec![tensor("x", &[-1, 64])], outputs: vec![tensor("y", &[-1])] };
    let models = BTreeMap::from([(("p".to_owned(), "t".to_owned(), "big".to_owned()), model)]);
    let export = exported_with(&models, ExportTarget::Triton);
    let big = text(&export, "t4/big/config.pbtxt");
    assert!(big.contains("backend: \"python\"\nmax_batch_size: 4\n"), "{big}");
    assert!(big.contains("dims: [ 64 ]") && big.contains("dims: [ 1 ]\n  reshape { shape: [ ] }"), "{big}");
    assert_eq!(export.files["t4/big/1/model.py"], ExportContent::CopyOf("models/big.py".into()));
    let small = text(&export, "t4/small/config.pbtxt");
    assert!(small.contains("backend: \"onnxruntime\""), "{small}");
    let ray = exported_with(&models, ExportTarget::RayServe);
    assert!(!ray.files.values().any(|file| matches!(file, ExportContent::CopyOf(_))), "Ray's application runs ONNX");
    assert!(ray.notes.iter().any(|note| note.contains("in ONNX format is not known")), "{:?}", ray.notes);
}

#[test]
fn agents_of_all_targets_are_the_devices_of_the_plan() {
    let compose: Value = serde_saphyr::from_str(text(&good(ExportTarget::Compose), "compose.yaml")).expect("YAML");
    assert_eq!(compose["services"]["agent-t4"]["deploy"]["replicas"], 4, "two, and three halves");
    let kubernetes: Value = serde_saphyr::from_str(text(&good(ExportTarget::Kubernetes), "agent-t4.yaml")).expect("YAML");
    assert_eq!(kubernetes["spec"]["replicas"], 4);
    let slurm = good(ExportTarget::Slurm);
    let script = text(&slurm, "agent-t4.sbatch");
    for option in ["--array=1-4", "--gres=gpu:1", "--constraint=t4", "--signal=B:TERM@60", "--requeue"] {
        assert!(script.contains(&format!("#SBATCH {option}\n")), "{script}");
    }
}

#[test]
fn ray_has_the_replicas_and_shares_of_the_plan() {
    let file: Value = serde_saphyr::from_str(text(&good(ExportTarget::RayServe), "serve.yaml")).expect("YAML");
    let deployments = file["applications"][0]["deployments"].as_array().expect("a list");
    let seen: Vec<_> = deployments.iter().map(|d| (&d["num_replicas"], &d["ray_actor_options"]["num_gpus"])).collect();
    assert_eq!(seen, [(&json!(2), &json!(1.0)), (&json!(3), &json!(0.5)), (&json!(1), &Value::Null)]);
}

#[test]
fn a_scaled_object_asks_for_the_names_of_the_problem() {
    let name = "Big \"x\"\n${y} $(z)";
    let settings = json!({"images": {"variants": {name: "image"}}, "prometheus": "http://prometheus:9090"});
    let settings = read_settings("settings", &settings.to_string()).expect("settings");
    let export = exported(&problem(name), &plan(name), &settings, ExportTarget::Kubernetes).expect("an export");
    let path = export.files.keys().find(|path| path.starts_with("p-t-big")).expect("its file");
    let documents = text(&export, path).split("---\n").map(serde_saphyr::from_str::<Value>);
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().expect("YAML");
    let kinds: Vec<_> = documents.iter().map(|d| d["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["Deployment", "Service", "ScaledObject"]);
    assert_eq!(documents[0]["metadata"]["annotations"]["apportion/variant"], name);
    let query = documents[2]["spec"]["triggers"][0]["metadata"]["query"].as_str().expect("a query");
    assert!(query.contains(r#"variant="Big \"x\"\n${y} $(z)""#), "{query}");
    assert_eq!(documents[2]["spec"]["maxReplicaCount"], 6, "the devices that exist");
    assert!(export.notes.iter().any(|note| note.contains("small") && note.contains("no image")), "{:?}", export.notes);
}

#[test]
fn what_a_target_cannot_do_is_noted() {
    for target in [ExportTarget::Triton, ExportTarget::RayServe] {
        let notes = good(target).notes.concat();
        for word in ["dropping", "routing", "edges", "50.0 %"] {
            assert!(notes.contains(word), "{word}: {notes}");
        }
    }
}

#[test]
fn a_plan_of_another_problem_is_refused() {
    let refused = |plan: &Value| {
        let export = exported(&problem("big"), plan, &ExportSettings::default(), ExportTarget::Slurm);
        export.expect_err("refused").to_string()
    };
    let changed = |key: &str, value: Value| {
        let mut plan = plan("big");
        plan["pipelines"][0]["assignments"][0][key] = value;
        refused(&plan)
    };
    assert!(refused(&plan("other")).contains("plan: /pipelines/0/assignments/0: variant \"other\": expected a variant"));
    assert!(changed("hardware", json!("h100")).contains("hardware \"h100\": expected a hardware type of the problem"));
    assert!(changed("task", json!("x")).contains("task \"x\""));
    assert!(changed("batch", json!(3)).contains("batch 3 on 1 of \"t4\""));
}

#[test]
fn settings_with_unknown_names_are_refused() {
    let refused = |settings: Value| match read_settings("settings", &settings.to_string()) {
        Ok(settings) => exported(&problem("big"), &plan("big"), &settings, ExportTarget::Slurm).expect_err("refused"),
        Err(error) => error,
    };
    for (settings, said) in [
        (json!({"hardware": {"t5": {}}}), "a hardware type of the problem: t4"),
        (json!({"images": {"variants": {"x": "y"}}}), "a variant of the problem"),
        (json!({"imagse": {}}), "unknown field"),
        (json!({"hardware": {"t4": {"gres": "gpu:1\n#SBATCH --uid=0"}}}), "a word of Slurm"),
        (json!({"time": "1 day"}), "a word of Slurm"),
    ] {
        let error = refused(settings).to_string();
        assert!(error.contains(said), "{error}");
    }
}
