//! Resources over HTTP: accepted and refused requests.

use crate::support::{PATIENCE, Service, config_on, open_dir, profiles, service, spec};
use apportion_api::database::CONNECTIONS_MAX;
use apportion_api::{ModelFilePlace, serve};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};

fn pointers(refusal: &Value) -> Vec<&str> {
    refusal["errors"].as_array().map(|e| e.iter().filter_map(|e| e["pointer"].as_str()).collect()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn hardware_is_registered_replaced_listed_and_forgotten() {
    let s = service().await;
    assert_eq!(s.put("/v1/hardware/t4", &json!({"price_per_hour": 0.5, "memory_mib": 16000})).await.0, 201);
    assert_eq!(s.put("/v1/hardware/t4", &json!({"price_per_hour": 0.6})).await.0, 200);
    let (status, document) = s.get("/v1/hardware/t4").await;
    assert_eq!((status, document), (200, json!({"name": "t4", "price_per_hour": 0.6, "memory_mib": null})));
    assert_eq!(s.get("/v1/hardware").await.1.as_array().map(Vec::len), Some(1));
    let (status, refusal) = s.put("/v1/hardware/t4", &json!({"price_per_hour": -1.0})).await;
    assert_eq!((status, pointers(&refusal)), (422, vec!["/price_per_hour"]));
    assert_eq!(s.put("/v1/hardware/t4", &json!({"price_per_hour": 1.0, "colour": 3})).await.0, 422);
    assert_eq!(s.delete("/v1/hardware/t4").await.0, 204);
    assert_eq!(s.delete("/v1/hardware/t4").await.0, 404);
    assert_eq!(s.get("/v1/hardware/t4").await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_and_its_profiles_survive_a_restart() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.get("/v1/pipelines/digits/profiles").await.0, 404);
    let (status, answer) = s.put("/v1/pipelines/digits/profiles", &profiles()).await;
    assert_eq!(status, 200, "{answer:#}");
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 200);
    let s = s.restart().await;
    let (status, document) = s.get("/v1/pipelines/digits").await;
    assert_eq!((status, &document["edges"][0]["map"]["image"]), (200, &json!("crops")));
    let rows = s.get("/v1/pipelines/digits/profiles").await.1["rows"].as_array().map(Vec::len);
    assert_eq!(rows, Some(16));
    let (_, list) = s.get("/v1/pipelines").await;
    assert_eq!(list, json!([{"name": "digits", "version": 2, "profiled": true, "replan": "off"}]));
    assert_eq!(s.get("/v1/pipelines/digits/arrivals").await, (200, json!([])));
    assert_eq!(s.delete("/v1/pipelines/digits").await.0, 204);
    assert_eq!(s.get("/v1/pipelines/digits/profiles").await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_pipelines_name_the_place_of_each_error() {
    let s = service().await;
    let mut unknown_child = spec();
    unknown_child["edges"][0]["to"] = json!("raed");
    let mut unknown_key = spec();
    unknown_key["tasks"][0]["varaints"] = json!([]);
    let mut other_name = spec();
    other_name["name"] = json!("other");
    for (broken, pointer) in [(unknown_child, "/edges/0/to"), (unknown_key, "/tasks/0/varaints"), (other_name, "/name")] {
        let (status, refusal) = s.put("/v1/pipelines/digits", &broken).await;
        assert_eq!(status, 422, "{refusal:#}");
        assert!(pointers(&refusal).contains(&pointer), "{refusal:#}");
    }
    let request = s.client.put(format!("{}/v1/pipelines/digits", s.base)).header("content-type", "application/json");
    let request = request.body("{\"name\": ");
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 400);
    assert_eq!(s.get("/v1/pipelines").await.1, json!([]), "nothing was stored");
    s.put("/v1/pipelines/digits", &spec()).await;
    let mut stranger = profiles();
    stranger["rows"][3]["variant"] = json!("find-xl");
    let (status, refusal) = s.put("/v1/pipelines/digits/profiles", &stranger).await;
    assert_eq!((status, pointers(&refusal)), (422, vec!["/rows/3"]));
    let mut negative = profiles();
    negative["rows"][0]["latency_ms"] = json!(-3.0);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &negative).await.0, 422);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_replaced_only_at_the_named_version() {
    let s = service().await;
    s.put("/v1/pipelines/digits", &spec()).await;
    let put = |tag: &'static str| {
        s.client.put(format!("{}/v1/pipelines/digits", s.base)).header("if-match", tag).json(&spec()).send()
    };
    assert_eq!(put("\"7\"").await.expect("an answer").status(), 412);
    let response = put("\"1\"").await.expect("an answer");
    assert_eq!((response.status().as_u16(), response.headers()["etag"].to_str().ok()), (200, Some("\"2\"")));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_taken_as_csv_too() {
    let s = service().await;
    s.put("/v1/pipelines/digits", &spec()).await;
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_string();
    for (task, variant) in [("find", "find-s"), ("find", "find-l"), ("read", "read-s"), ("read", "read-l")] {
        csv += &format!("digits,{task},{variant},demo,1,10.5,0.9\ndigits,{task},{variant},demo,2,15,0.9\n");
    }
    let put = |csv: String| {
        s.client.put(format!("{}/v1/pipelines/digits/profiles", s.base)).header("content-type", "text/csv").body(csv).send()
    };
    assert_eq!(put(csv.clone()).await.expect("an answer").status(), 200);
    let (_, document) = s.get("/v1/pipelines/digits/profiles").await;
    assert_eq!((document["rows"].as_array().map(Vec::len), &document["variants"][3]["accuracy"]), (Some(8), &json!(0.9)));
    assert_eq!(put(csv.replace("digits,read", "digists,read")).await.expect("an answer").status(), 422);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_verified_and_served_in_ranges() {
    let s = service().await;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let url = format!("{}/v1/files/{digest}", s.base);
    let put = |url: String, body: Vec<u8>| s.client.put(url).body(body).send();
    assert_eq!(put(url.clone(), bytes[1..].to_vec()).await.expect("an answer").status(), 422);
    assert_eq!(s.get(&format!("/v1/files/{digest}")).await.0, 404, "what was refused is not there");
    assert_eq!(put(url.clone(), bytes.clone()).await.expect("an answer").status(), 201);
    assert_eq!(put(url.clone(), bytes.clone()).await.expect("an answer").status(), 200);
    let whole = s.client.get(&url).send().await.expect("an answer").bytes().await.expect("a body");
    assert!(whole == bytes);
    let part = s.client.get(&url).header("range", "bytes=999990-").send().await.expect("an answer");
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], "bytes 999990-999999/1000000");
    assert_eq!(part.bytes().await.expect("a body"), bytes[999_990..]);
    let outside = s.client.get(&url).header("range", "bytes=1000000-").send().await.expect("an answer");
    assert_eq!(outside.status(), 416);
    assert_eq!(put(format!("{}/v1/files/../../etc/passwd", s.base), vec![]).await.expect("an answer").status(), 404);
    assert_eq!(put(format!("{}/v1/files/{}", s.base, "AB".repeat(32)), vec![]).await.expect("an answer").status(), 422);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_name_dominated_variants() {
    let s = service().await;
    let spec = |accuracy: Value| {
        let variants = json!([{"name": "a"}, {"name": "b", "accuracy": accuracy}]);
        json!({"name": "p", "slo_ms": 100, "tasks": [{"name": "t", "variants": variants}]})
    };
    let row = |variant: &str, hardware: &str, batch: u32, latency_ms: f64| {
        let mut row = json!({"task": "t", "variant": variant, "hardware": hardware});
        (row["batch"], row["latency_ms"]) = (batch.into(), latency_ms.into());
        row
    };
    let rows = [row("a", "cpu", 1, 1.0), row("a", "cpu", 4, 2.0), row("b", "cpu", 1, 1.5), row("b", "cpu", 4, 2.0)];
    let rows = [&rows[..], &[row("b", "gpu", 1, 0.5)]].concat();
    let figures = json!([{"task": "t", "variant": "a", "accuracy": 0.9}, {"task": "t", "variant": "b", "accuracy": 0.8}]);
    assert_eq!(s.put("/v1/pipelines/p", &spec(Value::Null)).await.0, 201);
    let path = "/v1/pipelines/p/profiles";
    let (status, answer) = s.put(path, &json!({"rows": rows, "variants": figures})).await;
    let marks = |document: &Value| [0, 1].map(|at| document["variants"][at]["dominated_by"].clone());
    assert_eq!((status, marks(&answer)), (200, [Value::Null, json!({"cpu": "a"})]), "{answer:#}");
    let (_, read) = s.get(path).await;
    assert_eq!(read, answer);
    assert_eq!(s.put(path, &read).await, (200, answer), "what was read can be written");
    // The pipeline's own accuracy counts before the measured one, as in plans.
    assert_eq!(s.put("/v1/pipelines/p", &spec(json!(0.95))).await.0, 200);
    let (_, read) = s.get(path).await;
    assert_eq!(marks(&read), [Value::Null, Value::Null], "{read:#}");
    s.running.stop().await;
}

/// Another process on the database of a service, with a folder of its own.
async fn beside(s: &Service, place: ModelFilePlace) -> Service {
    let dir = open_dir();
    let mut config = config_on(&s.url, &dir);
    config.model_files = place;
    let running = serve(config).await.expect("it starts");
    let base = format!("http://{}", running.http());
    Service { running, base, client: reqwest::Client::new(), dir, url: s.url.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_files_through_the_database() {
    let first = service().await;
    let second = beside(&first, ModelFilePlace::Database).await;
    // Parts of all sizes: none is full, one is, the last one has a byte.
    for length in [5_usize, 1024 * 1024, 2 * 1024 * 1024 + 1] {
        let bytes: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
        let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        let put = |s: &Service| s.client.put(format!("{}/v1/files/{digest}", s.base)).body(bytes.clone()).send();
        let got = |s: &Service| s.client.get(format!("{}/v1/files/{digest}", s.base)).send();
        assert_eq!(put(&first).await.expect("an answer").status(), 201);
        let refused = got(&second).await.expect("an answer");
        assert_eq!(refused.status(), 503, "the first process keeps its files for itself");
        let said = refused.text().await.expect("a body");
        assert!(said.contains("is in the folder of another service process only"), "{said}");

        assert_eq!(put(&second).await.expect("an answer").status(), 200);
        std::fs::remove_file(first.dir.path().join("files").join(&digest)).expect("it was there");
        let fetched = got(&first).await.expect("an answer").bytes().await.expect("a body");
        assert!(fetched == bytes, "{length} bytes come from the database, whatever the process stores itself");
        assert_eq!(first.delete(&format!("/v1/files/{digest}")).await.0, 204);
        assert_eq!(got(&second).await.expect("an answer").status(), 404);
        let mut db = PgConnection::connect(&first.url).await.expect("a connection");
        let parts: i64 =
            sqlx::query_scalar("select count(*) from model_file_parts").fetch_one(&mut db).await.expect("a count");
        assert_eq!(parts, 0, "they go with the file");
    }
    second.running.stop().await;
    first.running.stop().await;
}

/// Two processes on one database, which has the bytes of a file. The first process does not have them.
struct SharedFile {
    first: Service,
    second: Service,
    digest: String,
    db: PgConnection,
}

impl SharedFile {
    async fn store() -> Self {
        let first = service().await;
        let second = beside(&first, ModelFilePlace::Database).await;
        let digest: String = Sha256::digest(b"a model").iter().map(|b| format!("{b:02x}")).collect();
        let url = format!("{}/v1/files/{digest}", second.base);
        let stored = second.client.put(url).body("a model").send().await.expect("an answer");
        assert_eq!(stored.status(), 201);
        let db = PgConnection::connect(&first.url).await.expect("a connection");
        Self { first, second, digest, db }
    }
}

/// Waits until somebody waits for the table of parts; returns how many do.
async fn waiting_for_parts(db: &mut PgConnection) -> i64 {
    let waiting = "select count(*) from pg_locks where not granted and relation = 'model_file_parts'::regclass
                   and database = (select oid from pg_database where datname = current_database())";
    let begin = Instant::now();
    loop {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *db).await.expect("a count");
        if count > 0 {
            return count;
        }
        assert!(begin.elapsed() < PATIENCE, "nobody wants a part");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_are_written_while_the_bytes_of_a_file_go() {
    let SharedFile { first, second, digest, mut db } = SharedFile::store().await;
    let mut holder = PgConnection::connect(&first.url).await.expect("a connection");
    let mut held = holder.begin().await.expect("a transaction");
    sqlx::query("lock table model_file_parts in share mode").execute(&mut *held).await.expect("a lock");
    let deleting = tokio::spawn(first.client.delete(format!("{}/v1/files/{digest}", first.base)).send());
    assert_eq!(waiting_for_parts(&mut db).await, 1);
    assert_eq!(second.put("/v1/pipelines/digits", &spec()).await.0, 201);
    held.rollback().await.expect("the end of the lock");
    assert_eq!(deleting.await.expect("no panic").expect("an answer").status(), 204);
    let parts: i64 = sqlx::query_scalar("select count(*) from model_file_parts").fetch_one(&mut db).await.expect("a count");
    assert_eq!(parts, 0);
    second.running.stop().await;
    first.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_once_and_to_its_end() {
    let SharedFile { first, second, digest, mut db } = SharedFile::store().await;
    let path = format!("/v1/files/{digest}");
    let mut holder = PgConnection::connect(&first.url).await.expect("a connection");
    let mut held = holder.begin().await.expect("a transaction");
    sqlx::query("lock table model_file_parts in access exclusive mode").execute(&mut *held).await.expect("a lock");
    // Two clients ask while no part can be read, and leave.
    let asked = [0, 1].map(|_| tokio::spawn(first.client.get(format!("{}{path}", first.base)).send()));
    assert_eq!(waiting_for_parts(&mut db).await, 1, "one of them fetches it");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    held.rollback().await.expect("the end of the lock");
    let (folder, begin) = (first.dir.path().join("files"), Instant::now());
    while !folder.join(&digest).exists() {
        assert!(begin.elapsed() < PATIENCE, "the fetch has ended with its client");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(std::fs::read(folder.join(&digest)).expect("the file"), b"a model");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1, "no other copy is left");
    second.running.stop().await;
    first.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_file_fetches_nothing() {
    let SharedFile { first, second, digest, mut db } = SharedFile::store().await;
    let head = async |range: &str| {
        let request = first.client.head(format!("{}/v1/files/{digest}", first.base)).header("range", range);
        let answer = request.send().await.expect("an answer");
        let text = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok().map(str::to_owned));
        (answer.status().as_u16(), text("content-length"), text("etag"), text("content-range"))
    };
    let tag = Some(format!("\"{digest}\""));
    assert_eq!(head("items=1").await, (200, Some("7".into()), tag.clone(), None), "another unit is the whole file");
    assert_eq!(head("bytes=2-3").await, (206, Some("2".into()), tag, Some("bytes 2-3/7".into())));
    assert_eq!(head("bytes=7-").await.0, 416);
    let files = std::fs::read_dir(first.dir.path().join("files")).map_or(0, Iterator::count);
    assert_eq!(files, 0, "the bytes stay in the database");
    sqlx::query("delete from model_file_parts").execute(&mut db).await.expect("a deletion");
    assert_eq!(head("bytes=2-3").await.0, 503, "as of the file itself");
    second.running.stop().await;
    first.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_wait_keep_no_connection() {
    /// More than the connections of a process.
    const UPLOADS: usize = 2 * CONNECTIONS_MAX as usize;
    let SharedFile { first, second, digest, .. } = SharedFile::store().await;
    let mut holder = PgConnection::connect(&first.url).await.expect("a connection");
    let mut held = holder.begin().await.expect("a transaction");
    let lock = "select pg_advisory_xact_lock(hashtext('file:' || $1))";
    sqlx::query(lock).bind(&digest).execute(&mut *held).await.expect("the lock of who stores it");
    let url = format!("{}/v1/files/{digest}", first.base);
    let uploads: Vec<_> = (0..UPLOADS).map(|_| tokio::spawn(first.client.put(&url).body("a model").send())).collect();
    let (folder, begin) = (first.dir.path().join("files"), Instant::now());
    while std::fs::read_dir(&folder).map_or(0, Iterator::count) < UPLOADS {
        assert!(begin.elapsed() < PATIENCE, "not all bytes have come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..UPLOADS {
        assert_eq!(first.get("/v1/hardware").await.0, 200, "others are served meanwhile");
    }
    held.rollback().await.expect("the end of the lock");
    for upload in uploads {
        assert_eq!(upload.await.expect("no panic").expect("an answer").status(), 200);
    }
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1, "no other copy is left");
    second.running.stop().await;
    first.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_of_the_database_are_refused() {
    let SharedFile { first, second, digest, mut db } = SharedFile::store().await;
    let path = format!("/v1/files/{digest}");
    let damage = sqlx::query("update model_file_parts set content = 'a m0del'").execute(&mut db).await.expect("an update");
    assert_eq!(damage.rows_affected(), 1);
    let (status, refusal) = first.get(&path).await;
    assert!(status == 500 && refusal["detail"].as_str().is_some_and(|said| said.contains("has the digest")), "{refusal}");
    let files = std::fs::read_dir(first.dir.path().join("files")).expect("a folder").count();
    assert_eq!(files, 0, "nothing is left of it");
    second.running.stop().await;
    first.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_source_of_a_file_stays() {
    let s = service().await;
    let digest: String = Sha256::digest(b"a model").iter().map(|b| format!("{b:02x}")).collect();
    let put = async |query: &str| {
        let url = format!("{}/v1/files/{digest}{query}", s.base);
        s.client.put(url).body("a model").send().await.expect("an answer").status().as_u16()
    };
    let listed = async || {
        let (status, list) = s.get("/v1/files").await;
        assert_eq!((status, list.as_array().map(Vec::len)), (200, Some(1)), "{list:#}");
        list[0].clone()
    };
    for wrong in ["?source=", "?source=a%00b", "?source=a%0Ab", &format!("?source={}", "x".repeat(1_001))] {
        assert_eq!(put(wrong).await, 422, "{wrong}");
    }
    assert_eq!(put("?origin=x").await, 400);
    assert_eq!(s.get("/v1/files").await, (200, json!([])));
    assert_eq!(put("").await, 201);
    let file = listed().await;
    assert_eq!((&file["sha256"], &file["bytes"], &file["source"]), (&json!(digest), &json!(7), &Value::Null));
    assert!(file["stored_by"].is_string() && file["created_at"].is_string(), "{file}");
    for query in ["?source=https%3A%2F%2Fa.example%2Fm.onnx", "?source=other", ""] {
        assert_eq!(put(query).await, 200, "{query}");
        assert_eq!(listed().await["source"], "https://a.example/m.onnx", "{query}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_are_read_before_they_are_stored() {
    let s = service().await;
    let post = |csv: &'static str| s.client.post(format!("{}/v1/traces?name=step", s.base)).body(csv).send();
    let response = post("second,qps\n0,10\n1,20\n").await.expect("an answer");
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().expect("a path").to_string();
    let (status, document) = s.get(&location).await;
    assert_eq!(
        (status, &document["kind"], &document["rows"], &document["name"]),
        (200, &json!("rates"), &json!(2), &json!("step"))
    );
    for (csv, place) in [("arrival_ms\n5\n4\n", "line 3"), ("arrival_ms\n", ""), ("", ""), ("second,qps\n0,x\n", "line 2")]
    {
        let response = post(csv).await.expect("an answer");
        assert_eq!(response.status(), 422, "{csv:?}");
        let refusal: Value = response.json().await.expect("a problem document");
        assert!(refusal.to_string().contains(place), "{refusal}");
    }
    assert_eq!(s.get("/v1/traces").await.1.as_array().map(Vec::len), Some(1));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_resources_are_problem_documents() {
    let s = service().await;
    let (status, refusal) = s.get("/v1/nothing").await;
    assert_eq!((status, &refusal["status"], &refusal["title"]), (404, &json!(404), &json!("Not Found")));
    assert_eq!(s.delete("/v1/plans").await.0, 405);
    assert_eq!(s.get("/v1/plans/no-uuid").await.0, 404);
    let id = uuid::Uuid::now_v7();
    assert_eq!(s.get(&format!("/v1/plans/{id}")).await.0, 404);
    assert_eq!(s.delete(&format!("/v1/plans/{id}")).await.0, 404);
    let large = s.client.put(format!("{}/v1/pipelines/digits", s.base)).header("content-type", "application/json");
    let large = large.body(vec![b' '; 17 * 1024 * 1024]).send().await;
    if let Ok(response) = large {
        // The connection may end while the client still writes. If there is an answer, it is this one.
        assert_eq!(response.status(), 413);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_figures_and_documentation_are_there_without_the_net() {
    let s = service().await;
    assert_eq!(s.get("/livez").await.0, 200);
    assert_eq!(s.get("/readyz").await.0, 200);
    let (_, metrics) = s.get("/metrics").await;
    assert!(metrics.as_str().is_some_and(|m| m.contains("\napportion_target_generation 0\n")), "{metrics}");
    let page = s.client.get(format!("{}/docs", s.base)).send().await.expect("an answer");
    assert_eq!(page.status(), 200);
    let html = page.text().await.expect("a page");
    assert!(html.contains("swagger-ui") && !html.contains("https://"), "{html}");
    let (status, description) = s.get("/openapi.json").await;
    assert_eq!((status, &description["openapi"]), (200, &json!("3.1.0")));
    s.running.stop().await;
}
