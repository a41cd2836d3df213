//! What the tokens of a project may store: model files and traces, one at a time and all at once.

use crate::support::{Service, service_with_tokens};
use futures::future::join_all;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A client with a token of the project `shop`.
struct ShopClient<'a> {
    service: &'a Service,
    token: String,
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Uploads a file of this many equal bytes.
fn upload(s: &Service, client: &reqwest::Client, byte: u8, count: usize) -> RequestBuilder {
    let bytes = vec![byte; count];
    client.put(format!("{}/v1/files/{}", s.base, digest(&bytes))).body(bytes)
}

impl<'a> ShopClient<'a> {
    /// A client of a new project with these limits.
    async fn new(service: &'a Service, storage: &Value) -> ShopClient<'a> {
        assert_eq!(service.put("/v1/projects/shop", &json!({"storage": storage})).await.0, 201);
        let asked = json!({"name": "shop", "scope": "plan", "project": "shop"});
        let (status, made) = service.post("/v1/tokens", &asked).await;
        assert_eq!(status, 201, "{made:#}");
        Self { service, token: made["token"].as_str().expect("a token").to_owned() }
    }

    async fn file(&self, byte: u8, count: usize) -> (u16, Value) {
        let request = upload(self.service, &reqwest::Client::new(), byte, count);
        answer(request.bearer_auth(&self.token)).await
    }

    /// Uploads a trace with this many rows.
    async fn trace(&self, rows: usize) -> (u16, Value) {
        let lines: String = (0..rows).map(|second| format!("{second},5\n")).collect();
        let request = reqwest::Client::new().post(format!("{}/v1/traces", self.service.base));
        let request = request.bearer_auth(&self.token).header("content-type", "text/csv");
        answer(request.body(format!("second,qps\n{lines}"))).await
    }

    /// What the project has stored, as it sees it itself.
    async fn stored(&self) -> Value {
        let request = reqwest::Client::new().get(format!("{}/v1/projects/shop", self.service.base));
        let (status, project) = answer(request.bearer_auth(&self.token)).await;
        assert_eq!(status, 200, "{project:#}");
        project["stored"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_project_have_a_limit() {
    let s = service_with_tokens().await;
    let shop = ShopClient::new(&s, &json!({"file_bytes": 100})).await;
    assert_eq!(shop.file(1, 60).await.0, 201);
    assert_eq!(shop.file(1, 60).await.0, 200, "it counts once");
    let (status, refusal) = shop.file(2, 41).await;
    let detail = refusal["detail"].as_str().unwrap_or_default();
    let said = "project shop may store 100 bytes of model files, has 60, and asks for 41 more";
    assert!(status == 409 && detail.contains(said) && detail.contains("/storage/file_bytes"), "{status} {refusal:#}");
    assert_eq!(s.get(&format!("/v1/files/{}", digest(&[2; 41]))).await.0, 404, "nothing is stored");
    assert_eq!(shop.stored().await, json!({"file_bytes": 60, "trace_rows": 0}));
    assert_eq!(shop.file(3, 40).await.0, 201, "up to the limit");

    // A client without a project stores for nobody's limit, and a file that is there needs no room.
    assert_eq!(answer(upload(&s, &s.client, 4, 500)).await.0, 201);
    assert_eq!(shop.file(4, 500).await.0, 200);
    assert_eq!(shop.stored().await["file_bytes"], 100);
    let (_, files) = s.get("/v1/files").await;
    let of = |count: i64| files.as_array().and_then(|all| all.iter().find(|file| file["bytes"] == count).cloned());
    let project = |count: i64| of(count).expect("a file")["project"].clone();
    assert_eq!([60, 40, 500].map(project), [json!("shop"), json!("shop"), Value::Null]);

    assert_eq!(s.delete(&format!("/v1/files/{}", digest(&[1; 60]))).await.0, 204);
    assert_eq!(shop.file(2, 41).await.0, 201, "there is room again");
    assert_eq!(shop.stored().await["file_bytes"], 81);
    let (_, document) = s.get("/v1/projects/shop").await;
    assert_eq!(s.put("/v1/projects/shop", &document).await.0, 200, "what was read can be written");
    assert_eq!(s.get("/v1/projects/shop").await.1, document);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_at_once_keep_to_the_limit() {
    let s = service_with_tokens().await;
    let shop = ShopClient::new(&s, &json!({"file_bytes": 100, "trace_rows": 5})).await;
    let files = join_all((0..8).map(|byte| shop.file(byte, 30))).await;
    let of = |answers: &[(u16, Value)], status: u16| answers.iter().filter(|(seen, _)| *seen == status).count();
    assert_eq!((of(&files, 201), of(&files, 409)), (3, 5), "{files:#?}");
    let traces = join_all((0..6).map(|_| shop.trace(2))).await;
    assert_eq!((of(&traces, 201), of(&traces, 409)), (2, 4), "{traces:#?}");
    assert_eq!(shop.stored().await, json!({"file_bytes": 90, "trace_rows": 4}));
    // A refused file left no bytes behind: it can be stored where there is room.
    for byte in 0..8 {
        let status = answer(upload(&s, &s.client, byte, 30)).await.0;
        assert!([200, 201].contains(&status), "{status}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_of_a_project_have_a_limit() {
    let s = service_with_tokens().await;
    let shop = ShopClient::new(&s, &json!({"trace_rows": 5})).await;
    let (status, first) = shop.trace(3).await;
    assert_eq!(status, 201, "{first:#}");
    let (status, refusal) = shop.trace(3).await;
    let said = "project shop may store 5 rows of traces, has 3, and asks for 3 more: delete traces";
    assert!(status == 409 && refusal["detail"].as_str().is_some_and(|d| d.contains(said)), "{status} {refusal:#}");
    assert_eq!(shop.trace(2).await.0, 201);
    let path = format!("/v1/traces/{}", first["id"].as_str().expect("an identifier"));
    assert_eq!(s.delete(&path).await.0, 204);
    assert_eq!(shop.trace(3).await.0, 201);
    assert_eq!(shop.stored().await, json!({"file_bytes": 0, "trace_rows": 5}));
    // A smaller limit lets no more in, and takes nothing away.
    assert_eq!(s.put("/v1/projects/shop", &json!({"storage": {"trace_rows": 0}})).await.0, 200);
    assert_eq!(shop.trace(1).await.0, 409);
    assert_eq!(shop.stored().await["trace_rows"], 5);
    assert_eq!(s.put("/v1/projects/shop", &json!({})).await.0, 200);
    assert_eq!(shop.trace(3).await.0, 201, "the default limit is far");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_limit_of_storage_is_refused() {
    let s = service_with_tokens().await;
    let most = 1_000_000_000_000_000_u64;
    for member in ["file_bytes", "trace_rows"] {
        let (status, refusal) = s.put("/v1/projects/shop", &json!({"storage": {member: most + 1}})).await;
        let pointer = json!(format!("/storage/{member}"));
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &pointer), "{refusal:#}");
        assert!(refusal["detail"].as_str().is_some_and(|detail| detail.contains(&most.to_string())), "{refusal:#}");
    }
    assert_eq!(s.put("/v1/projects/shop", &json!({"storage": {"bytes": 1}})).await.0, 422);
    assert_eq!(s.put("/v1/projects/shop", &json!({"storage": {"file_bytes": -1}})).await.0, 422);
    assert_eq!(s.put("/v1/projects/shop", &json!({"storage": {"file_bytes": most}})).await.0, 201);
    let (_, listed) = s.get("/v1/projects").await;
    let shop = &listed[0];
    assert_eq!((&shop["storage"], shop.get("stored")), (&json!({"file_bytes": most}), None), "{listed:#}");
    s.running.stop().await;
}
