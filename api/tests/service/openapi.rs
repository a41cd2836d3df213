//! The OpenAPI document is valid, committed, true of every operation, and complete enough for generated clients.

use crate::support::{ADMIN_TOKEN, Service, problem, profiles, service, service_with_tokens, spec};
use apportion_needs::{Need, counted};
use serde_json::json;
use std::path::Path;
use std::process::Output;
use tokio::process::Command;

const DESCRIPTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
/// The settings of the generator of clients.
const GENERATOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/client-generator.yaml");
/// Operations whose answers have no end. The tester leaves them out.
const STREAMS: usize = 2;
/// Random requests for each operation, beyond those that cover its parameters one by one.
const EXAMPLES: &str = "8";

#[test]
fn the_description_in_the_repository_is_the_services() {
    let now = apportion_api::http::openapi::document();
    if std::env::var_os("APPORTION_WRITE").is_some() {
        std::fs::write(DESCRIPTION, &now).expect("the repository can be written");
    }
    let kept = std::fs::read_to_string(DESCRIPTION).unwrap_or_default();
    assert!(kept == now, "api/openapi.json is old; run APPORTION_WRITE=1 cargo test -p apportion-api openapi");
}

#[test]
fn every_part_of_the_description_is_described() {
    let description: serde_json::Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let mut missing = Vec::new();
    let (mut operations, mut ids) = (0, std::collections::BTreeSet::new());
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            operations += 1;
            assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}: its operationId is used twice");
            let mut need = |what: &str, text: &serde_json::Value| {
                if text.as_str().is_none_or(str::is_empty) {
                    missing.push(format!("{method} {path}: {what}"));
                }
            };
            need("summary", &operation["summary"]);
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                need(parameter["name"].as_str().unwrap_or("?"), &parameter["description"]);
            }
            if let Some(body) = operation.get("requestBody") {
                need("body", &body["description"]);
            }
            for (status, response) in operation["responses"].as_object().expect("responses") {
                need(status, &response["description"]);
                let is_problem = |media: &String| media == "application/problem+json";
                let media = response["content"].as_object().map(|c| c.keys().all(is_problem)).unwrap_or(true);
                assert!(!status.starts_with(['4', '5']) || media, "{method} {path}: {status} is no problem document");
            }
        }
    }
    assert!(operations >= 28, "only {operations} operations");
    for (name, schema) in description["components"]["schemas"].as_object().expect("schemas") {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            // A nullable property has its description beside its reference.
            let referred = property["oneOf"].as_array().into_iter().flatten().any(|one| one.get("description").is_some());
            if property.get("description").is_none() && !referred {
                missing.push(format!("{name}.{key}"));
            }
        }
    }
    assert!(missing.is_empty(), "no description: {missing:#?}");
}

/// Operations that do the same if they are sent twice: they cancel or stop, or post the present figures.
const REPEATABLE: [&str; 4] = ["/cancel", "/demand", "/deployment", "/stop"];

#[test]
fn every_post_can_be_sent_again() {
    let description: serde_json::Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let mut posts = 0;
    for (path, item) in description["paths"].as_object().expect("paths") {
        let Some(operation) = item.get("post") else { continue };
        posts += 1;
        let mut headers = operation["parameters"].as_array().into_iter().flatten().filter(|p| p["in"] == "header");
        // A generation that was replaced is not replaced again.
        let is_guarded = headers.any(|p| p["name"] == "Idempotency-Key" || p["name"] == "If-Match");
        assert!(is_guarded || REPEATABLE.iter().any(|end| path.ends_with(end)), "{path} has no Idempotency-Key");
    }
    assert!(posts >= 14, "only {posts} operations");
}

#[tokio::test]
async fn the_description_is_valid() {
    let Some(python) = apportion_needs::clients() else { return };
    let validate = "import json, sys\n\
        from openapi_spec_validator import OpenAPIV31SpecValidator as Validator\n\
        errors = list(Validator(json.load(open(sys.argv[1]))).iter_errors())\n\
        print(*[e.message[:200] for e in errors], sep='\\n')\n\
        print(len(errors), 'errors')\n";
    let output = run(Command::new(python).args(["-c", validate, DESCRIPTION])).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0 errors");
}

/// A service with one resource of each kind, so that operations find one.
async fn with_resources() -> Service {
    let s = service_with_tokens().await;
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 2.0})).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    assert_eq!(s.post("/v1/plans", &json!({"problem": problem(20.0)})).await.0, 200);
    let trace = s.client.post(format!("{}/v1/traces", s.base)).header("content-type", "text/csv").body("second,qps\n0,5\n");
    assert_eq!(trace.send().await.expect("an answer").status(), 201);
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_breaks_its_description() {
    let Some(python) = apportion_needs::clients() else { return };
    let s = with_resources().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis.toml");
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "--config-file"]).arg(config);
    let token = format!("Authorization: Bearer {ADMIN_TOKEN}");
    command.args(["run", DESCRIPTION, "--url", &s.base, "--header", &token, "--no-color", "--continue-on-failure"]);
    // The seed is fixed: each run sends the same requests.
    command.args(["--generation-deterministic", "--max-examples", EXAMPLES]);
    command.current_dir(folder.path());
    let output = run(&mut command).await;
    let said = String::from_utf8_lossy(&output.stdout);
    // The tester reports the number of operations that it could call.
    let count = counted(Need::Clients, (0..operations() - STREAMS).collect()).len();
    assert!(said.contains(&format!("Tested: {count}\n")), "{said}");
    s.running.stop().await;
}

fn operations() -> usize {
    let description: serde_json::Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    paths.values().map(|item| item.as_object().map_or(0, serde_json::Map::len)).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_client_registers_plans_and_reads_back() {
    let Some(python) = apportion_needs::clients() else { return };
    let s = service().await;
    let folder = tempfile::tempdir().expect("a folder");
    let client = folder.path().join("apportion_client");
    let mut generate = Command::new(&python);
    generate.args("-m openapi_python_client generate --fail-on-warning --meta none --path".split(' '));
    run(generate.args([DESCRIPTION, "--config", GENERATOR, "--output-path"]).arg(client)).await;
    let documents = [("spec.json", spec()), ("profiles.json", profiles()), ("problem.json", problem(20.0))];
    for (name, document) in documents {
        std::fs::write(folder.path().join(name), document.to_string()).expect("our own folder");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated_client.py");
    let output =
        run(Command::new(python).arg(script).arg(&s.base).arg(folder.path()).env("PYTHONPATH", folder.path())).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().last(), Some("all 8"), "{said}");
    s.running.stop().await;
}

/// Runs a program, which must succeed.
async fn run(command: &mut Command) -> Output {
    let output = command.kill_on_drop(true).output().await.expect("it can be run");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {}\n{out}\n{err}", command.as_std(), output.status);
    output
}
