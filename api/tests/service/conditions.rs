//! Conditional writes: entity tags, merged profiles, deployed pipelines.

use crate::support::agent::{attach, register};
use crate::support::{Service, profiles, service, spec};
use futures::future::join_all;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Connection;

/// Stores a succeeded plan with one replica of each group.
async fn store_plan(s: &Service) -> String {
    let assignment = |task: &str, variant: &str| json!({"task": task, "variant": variant, "hardware": "demo", "batch": 2, "replicas": 1});
    let pipeline = json!({"name": "digits", "assignments": [assignment("find", "find-s"), assignment("read", "read-s")]});
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let at = chrono::Utc::now();
    let row = apportion_api::store::plans::PlanRow {
        id: uuid::Uuid::now_v7(),
        state: apportion_wire::PlanState::Succeeded,
        problem: json!({}),
        options: json!({}),
        plan: Some(json!({"version": 1, "pipelines": [pipeline]})),
        error: None,
        created_at: at,
        started_at: Some(at),
        finished_at: Some(at),
        progress: None,
        best: None,
    };
    apportion_api::store::plans::insert_finished(&mut db, &row).await.expect("a row");
    row.id.to_string()
}

async fn with_pipeline() -> Service {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    s
}

/// Puts with `If-Match`; returns status and entity tag.
async fn put_if(s: &Service, path: &str, tag: &str, body: &Value) -> (u16, Option<String>) {
    let request = s.client.put(format!("{}{path}", s.base)).header("if-match", tag).json(body);
    let response = request.send().await.expect("an answer");
    let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    (response.status().as_u16(), tag)
}

/// Gets with `If-None-Match`; returns status, entity tag and body.
async fn get_unless(s: &Service, path: &str, tag: &str) -> (u16, String, String) {
    let request = s.client.get(format!("{}{path}", s.base)).header("if-none-match", tag);
    let response = request.send().await.expect("an answer");
    let own = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
    (response.status().as_u16(), own, response.text().await.expect("a body"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_present_form_gets_no_body() {
    let s = with_pipeline().await;
    let (plan, bytes) = (format!("/v1/plans/{}", store_plan(&s).await), "a model file");
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = format!("/v1/files/{digest}");
    let stored = s.client.put(format!("{}{file}", s.base)).body(bytes).send().await.expect("an answer");
    assert_eq!(stored.status(), 201);
    for path in ["/v1/pipelines/digits/times", &plan, &file] {
        let (status, tag, body) = get_unless(&s, path, "\"other\"").await;
        assert!(status == 200 && !body.is_empty(), "{path}: {status} {body}");
        assert_eq!(tag.starts_with("W/"), path != file, "{path}: {tag}");
        let unchanged = (304, tag.clone(), String::new());
        for known in [tag.as_str(), "*", &format!("\"other\", {tag}")] {
            assert_eq!(get_unless(&s, path, known).await, unchanged, "{path}: {known}");
        }
    }
    for path in ["/v1/pipelines/digits", "/v1/target"] {
        let (_, version, _) = get_unless(&s, path, "").await;
        let (status, again, body) = get_unless(&s, path, &version).await;
        assert!(status == 200 && again == version && body.starts_with('{'), "{path}: a version is for writing");
    }
    let (_, old, _) = get_unless(&s, "/v1/pipelines/digits/times", "").await;
    let mut changed = spec();
    changed["network_ms"] = json!(3.0);
    assert_eq!(s.put("/v1/pipelines/digits", &changed).await.0, 200);
    assert_eq!(get_unless(&s, "/v1/pipelines/digits/times", &old).await.0, 200, "another answer has another tag");
    assert_eq!(get_unless(&s, "/v1/plans", "*").await.0, 200, "lists have no tag");
    assert_eq!(get_unless(&s, "/v1/pipelines/other", "*").await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writes_with_one_if_match_exactly_one_succeeds() {
    const AT_ONCE: usize = 6;
    const ROUNDS: usize = 8;
    let s = with_pipeline().await;
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 1.0})).await.0, 201);
    // Each put has a document of its own, so that no two writes are the same.
    let hardware = |i: usize| json!({"price_per_hour": i as f64});
    let pipeline = |i: usize| {
        let mut spec = spec();
        spec["slo_ms"] = json!(100.0 + i as f64);
        spec
    };
    let profile = |i: usize| {
        let mut profiles = profiles();
        profiles["rows"][0]["latency_ms"] = json!(1.0 + i as f64);
        profiles
    };
    let cases: [(&str, &dyn Fn(usize) -> Value); 3] = [
        ("/v1/hardware/demo", &hardware),
        ("/v1/pipelines/digits", &pipeline),
        ("/v1/pipelines/digits/profiles", &profile),
    ];
    for (path, document) in cases {
        let mut tag = "\"1\"".to_string();
        for round in 0..ROUNDS {
            let bodies: Vec<Value> = (0..AT_ONCE).map(|i| document(round * AT_ONCE + i)).collect();
            let answers = join_all(bodies.iter().map(|body| put_if(&s, path, &tag, body))).await;
            let (done, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 200);
            assert_eq!((done.len(), late.len()), (1, AT_ONCE - 1), "{path}, round {round}: {done:?} {late:?}");
            assert!(late.iter().all(|(status, _)| *status == 412), "{path}: {late:?}");
            tag = done[0].1.clone().expect("an entity tag");
        }
        assert_eq!(tag, format!("\"{}\"", ROUNDS + 1), "{path}");
        let read = s.client.get(format!("{}{path}", s.base)).send().await.expect("an answer");
        assert_eq!(read.headers()["etag"].to_str().ok(), Some(tag.as_str()), "{path}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_targets_for_one_generation_exactly_one_is_made() {
    const ROUNDS: i64 = 6;
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plans = [store_plan(&s).await, store_plan(&s).await, store_plan(&s).await];
    for generation in 0..ROUNDS {
        let wishes = plans.iter().map(|plan| json!([plan])).collect::<Vec<_>>();
        let answers = join_all(wishes.iter().map(|wish| s.put_target(generation, wish))).await;
        let made = answers.iter().filter(|(status, _)| *status == 200).count();
        // A plan that is in force already changes nothing: its put is no write.
        let generations: Vec<_> = answers.iter().filter(|a| a.0 == 200).map(|a| a.1["generation"].clone()).collect();
        let new = generations.iter().filter(|g| **g == json!(generation + 1)).count();
        assert_eq!((new, made - new), (1, generations.len() - 1), "generation {generation}: {answers:?}");
        assert!(answers.iter().all(|(status, _)| [200, 412].contains(status)), "{answers:?}");
    }
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_cannot_hold_stores_nothing() {
    let s = with_pipeline().await;
    for tag in ["*", "\"1\"", "nonsense", "W/\"1\""] {
        assert_eq!(put_if(&s, "/v1/hardware/new", tag, &json!({"price_per_hour": 1.0})).await.0, 412, "{tag}");
    }
    assert_eq!(s.get("/v1/hardware/new").await.0, 404, "nothing was made");
    for tag in ["nonsense", "W/\"1\"", "\"7\""] {
        assert_eq!(put_if(&s, "/v1/pipelines/digits", tag, &spec()).await.0, 412, "{tag}");
        let delete = s.client.delete(format!("{}/v1/pipelines/digits", s.base)).header("if-match", tag).send().await;
        assert_eq!(delete.expect("an answer").status(), 412, "{tag}");
    }
    assert_eq!(put_if(&s, "/v1/pipelines/digits", "*", &spec()).await, (200, Some("\"2\"".into())));
    assert_eq!(put_if(&s, "/v1/pipelines/digits", "\"1\", \"2\"", &spec()).await, (200, Some("\"3\"".into())));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writers_into_an_empty_place_one_succeeds() {
    const AT_ONCE: usize = 6;
    let s = with_pipeline().await;
    assert_eq!(s.delete("/v1/pipelines/digits/profiles").await.0, 204);
    let mut other = spec();
    other["name"] = json!("other");
    let hold = json!({"pipeline": "digits", "every_s": 3600, "hold": {"for_s": 60, "reason": "quiet"}});
    let make = async |path: &str, body: &Value| {
        let request = s.client.put(format!("{}{path}", s.base)).header("if-none-match", "*").json(body);
        request.send().await.expect("an answer").status().as_u16()
    };
    // A profile that is new has the status of one that is replaced.
    for (path, body, made) in [
        ("/v1/hardware/new", json!({"price_per_hour": 1.0}), 201),
        ("/v1/projects/new", json!({}), 201),
        ("/v1/schedules/new", hold, 201),
        ("/v1/webhooks/new", json!({"url": "http://127.0.0.1:9/", "enabled": false}), 201),
        ("/v1/pipelines/other", other, 201),
        ("/v1/pipelines/digits/profiles", profiles(), 200),
    ] {
        let mut answers = join_all((0..AT_ONCE).map(|_| make(path, &body))).await;
        answers.sort_unstable();
        assert_eq!((answers[0], &answers[1..]), (made, &[412; AT_ONCE - 1][..]), "{path}");
        let (_, version, _) = get_unless(&s, path, "").await;
        assert_eq!(version, "\"1\"", "{path}: the others wrote nothing");
        assert_eq!(s.delete(path).await.0, 204, "{path}");
        assert_eq!(make(path, &body).await, made, "{path}: the place is empty again");
    }
    s.running.stop().await;
}

/// The measurements of one variant on one hardware type.
fn measured(hardware: &str, latency_ms: f64) -> Value {
    let row = |task: &str, variant: &str| json!({"task": task, "variant": variant, "hardware": hardware, "batch": 1, "latency_ms": latency_ms});
    json!({"rows": [row("find", "find-s"), row("read", "read-s")]})
}

fn rows<'p>(profile: &'p Value, hardware: &str) -> Vec<&'p Value> {
    profile["rows"].as_array().into_iter().flatten().filter(|row| row["hardware"] == hardware).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_merged_by_hardware_and_variant() {
    let s = with_pipeline().await;
    const PATH: &str = "/v1/pipelines/digits/profiles";
    let (status, all) = s.put(PATH, &measured("other", 7.0)).await;
    assert_eq!((status, rows(&all, "demo").len(), rows(&all, "other").len()), (200, 16, 2), "{all:#}");
    assert_eq!(all["variants"], s.get(PATH).await.1["variants"]);
    assert_eq!(all["variants"].as_array().map(Vec::len), Some(4), "accuracies stay");
    // After a second measurement all rows of the variant are replaced, and those of other variants stay.
    let (_, all) = s.put(PATH, &measured("demo", 9.0)).await;
    let of = |variant: &str| rows(&all, "demo").into_iter().filter(|r| r["variant"] == variant).collect::<Vec<_>>();
    assert_eq!((of("find-s").len(), of("find-l").len()), (1, 4), "{all:#}");
    assert_eq!((&of("find-s")[0]["latency_ms"], rows(&all, "other").len()), (&json!(9.0), 2));
    let variant = json!({"rows": [], "variants": [{"task": "find", "variant": "find-s", "accuracy": 0.5}]});
    let (_, all) = s.put(PATH, &variant).await;
    assert_eq!((&all["variants"][0]["accuracy"], &all["variants"][0]["load_ms"]), (&json!(0.5), &json!(50.0)));
    let strange = json!({"rows": [], "path_accuracy": {"find:find-s>read:raed": 0.5}});
    let (status, refusal) = s.put(PATH, &strange).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/path_accuracy/find:find-s>read:raed")));
    assert_eq!(s.delete(PATH).await.0, 204);
    assert_eq!((s.get(PATH).await.0, s.delete(PATH).await.0), (404, 404));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_profilers_keep_both_measurements() {
    let s = with_pipeline().await;
    let types: Vec<String> = (0..8).map(|i| format!("type-{i}")).collect();
    let documents: Vec<Value> = types.iter().map(|hardware| measured(hardware, 5.0)).collect();
    let answers = join_all(documents.iter().map(|document| s.put("/v1/pipelines/digits/profiles", document))).await;
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    let (_, all) = s.get("/v1/pipelines/digits/profiles").await;
    let missing: Vec<_> = types.iter().filter(|hardware| rows(&all, hardware).len() != 2).collect();
    assert!(missing.is_empty(), "{missing:?}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployed_pipeline_is_not_deleted() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plan = store_plan(&s).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let (status, refusal) = s.delete("/v1/pipelines/digits").await;
    assert_eq!(status, 409, "{refusal}");
    assert_eq!(s.get("/v1/pipelines/digits").await.0, 200);
    assert_eq!(s.put_target(1, &json!([])).await.0, 200);
    assert_eq!(s.delete("/v1/pipelines/digits").await.0, 204);
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_deleted_or_deployed_but_not_both() {
    let s = with_pipeline().await;
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plan = store_plan(&s).await;
    let mut generation = 0;
    for round in 0..12 {
        s.put("/v1/pipelines/digits", &spec()).await;
        s.put("/v1/pipelines/digits/profiles", &profiles()).await;
        let wish = json!([plan]);
        let ((deployed, target), (deleted, _)) =
            tokio::join!(s.put_target(generation, &wish), s.delete("/v1/pipelines/digits"));
        assert_ne!((deployed, deleted), (200, 204), "round {round}");
        assert!(deployed == 200 || deleted == 204, "round {round}: {deployed} {deleted} {target}");
        if deployed == 200 {
            assert_eq!(s.put_target(generation + 1, &json!([])).await.0, 200);
            generation += 2;
        }
    }
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_tensors_is_refused_when_it_is_applied() {
    let s = service().await;
    let mut bare = spec();
    bare["tasks"][1].as_object_mut().expect("a task").remove("outputs");
    assert_eq!(s.put("/v1/pipelines/digits", &bare).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plan = store_plan(&s).await;
    let (status, refusal) = s.put_target(0, &json!([plan])).await;
    let detail = refusal["detail"].as_str().unwrap_or_default();
    assert!(status == 422 && detail.contains("task read has no outputs"), "{status} {refusal}");
    // A measured pipeline has them: a profile takes them from the model files.
    let tensor = |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let task = json!({"name": "read", "inputs": [tensor("image", "FP32", &[-1, 4])], "outputs": [tensor("label", "INT64", &[-1])]});
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &json!({"rows": [], "tasks": [task]})).await.0, 200);
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transforms_are_checked_and_reach_the_agents() {
    let s = service().await;
    let tensor = |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let parent = || tensor("parent", "INT64", &[-1]);
    let mut glued = spec();
    let slice = json!({"slice": {"of": "crops", "to": "small", "axis": 1, "until": 4}});
    glued["edges"][0] = json!({"from": "find", "to": "read", "map": {"image": "small"}, "transform": [slice]});
    glued["tasks"][0]["outputs"] = json!([tensor("read.small", "FP32", &[-1, 4]), parent()]);
    glued["tasks"][1]["variants"][0]["runtime"] = json!("python");
    let mut unread = glued.clone();
    unread["tasks"][1]["after"] = json!([{"decode_text": {"of": "label", "alphabet_file": "keys.txt"}}]);
    let (status, refusal) = s.put("/v1/pipelines/digits", &unread).await;
    let pointer = json!("/tasks/1/after/0/decode_text/alphabet_file");
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &pointer), "{refusal:#}");
    // In slots neither transforms nor Python can run: the agents would refuse the plan.
    let mut in_slots = glued.clone();
    for task in 0..2 {
        in_slots["tasks"][task]["kind"] = json!("continuous");
    }
    let (status, refusal) = s.put("/v1/pipelines/digits", &in_slots).await;
    let mut pointers: Vec<&str> =
        refusal["errors"].as_array().expect("errors").iter().filter_map(|error| error["pointer"].as_str()).collect();
    pointers.sort_unstable();
    let expected = ["/edges/0/transform", "/tasks/0/outputs/1/name", "/tasks/1/variants/0/runtime"];
    assert_eq!((status, pointers.as_slice()), (422, expected.as_slice()), "{refusal:#}");
    assert_eq!(s.put("/v1/pipelines/digits", &glued).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);

    // The profile says the tensors of the variants: the chain is checked against them.
    let measured = |numbers: i64| {
        let model_outputs = [tensor("crops", "FP32", &[-1, numbers]), parent()];
        let task = json!({"name": "find", "inputs": glued["tasks"][0]["inputs"], "outputs": glued["tasks"][0]["outputs"],
            "model_inputs": glued["tasks"][0]["inputs"], "model_outputs": model_outputs});
        json!({"rows": [], "tasks": [task]})
    };
    let (status, refusal) = s.put("/v1/pipelines/digits/profiles", &measured(3)).await;
    let said = refusal.to_string();
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/tasks/0")), "{said}");
    assert!(said.contains("edge to read: transform 1 (slice): crops is FP32 [rows, 3]: expected at least 4"), "{said}");
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &measured(6)).await.0, 200);

    let mut agent = attach(&s, register(&s, "a")).await;
    agent.welcome().await;
    let beat = agent.report();
    let plan = store_plan(&s).await;
    assert_eq!(s.put_target(0, &json!([plan])).await.0, 200);
    let pipeline = agent.target(1).await.pipelines.remove(0);
    let edge = &pipeline.edges[0];
    assert_eq!((edge.map["image"].as_str(), edge.outputs.as_slice()), ("read.small", ["small".to_owned()].as_slice()));
    assert_eq!(edge.transform.len(), 1);
    let is_right = |g: &apportion_protocol::v1::GroupTarget| (g.runtime == "python") == (g.variant == "read-s");
    assert!(pipeline.groups.iter().all(is_right), "{:?}", pipeline.groups);
    beat.abort();
    s.running.stop().await;
}
