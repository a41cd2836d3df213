//! The audit as a stream: order, `Last-Event-ID`, scope, and the end of a token.

use crate::support::receiver::hold;
use crate::support::stream::EntryStream;
use crate::support::{service, service_with_tokens};
use apportion_wire::Scope;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sqlx::Connection;
use std::collections::BTreeSet;
use std::time::Duration;

const PATH: &str = "/v1/audit/stream";

/// The next entry of the audit; `None` at the end of the stream.
async fn next(stream: &mut EntryStream) -> Option<Value> {
    let entry = stream.next().await?;
    assert_eq!((entry.id, entry.event.as_str()), (entry.data["number"].to_string(), "audit"));
    Some(entry.data)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_stream_goes_on_after_the_last_entry() {
    let s = service().await;
    hold(&s, &["before"]).await;
    let mut stream = EntryStream::follow(&s, PATH, None).await;
    hold(&s, &["a launch"]).await;
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    let first = next(&mut stream).await.expect("an entry");
    assert_eq!((&first["method"], &first["path"], &first["who"]), (&json!("PUT"), &json!("/v1/hold"), &json!("loopback")));
    assert_eq!((&first["before"]["reason"], &first["after"]["reason"]), (&json!("before"), &json!("a launch")));
    let second = next(&mut stream).await.expect("an entry");
    assert_eq!((&second["method"], &second["status"]), (&json!("DELETE"), &json!(204)));
    drop(stream);

    let (_, list) = s.get("/v1/audit").await;
    assert_eq!(list.as_array().map(Vec::len), Some(3));
    assert_eq!((&list[0], &list[1]), (&second, &first), "as in the list, which has the newest first");
    let mut rest = EntryStream::follow(&s, PATH, first["number"].as_i64()).await;
    assert_eq!(next(&mut rest).await, Some(second), "what came after it");
    let mut of_nobody = EntryStream::follow(&s, "/v1/audit/stream?who=nobody", Some(0)).await;
    let wrong = s.client.get(format!("{}{PATH}", s.base)).header("last-event-id", "x").send().await;
    let wrong = wrong.expect("an answer");
    assert_eq!(wrong.status(), 400);
    let said = wrong.text().await.expect("a text");
    assert!(said.contains("Last-Event-ID") && said.contains("expected the number of an entry of the audit"), "{said}");
    assert_eq!(s.get("/v1/audit/stream?kind=hold").await.0, 400, "there is no such filter");
    s.running.stop().await;
    assert_eq!(next(&mut of_nobody).await, None, "the stream ends with the service");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_stream_needs_a_valid_admin_token() {
    let s = service_with_tokens().await;
    assert_eq!(s.put("/v1/projects/shop", &json!({})).await.0, 201);
    let make = async |name: &str, scope: Scope, project: Option<&str>| {
        let (status, made) = s.post("/v1/tokens", &json!({"name": name, "scope": scope, "project": project})).await;
        assert_eq!(status, 201, "{made:#}");
        made
    };
    let follow = async |made: &Value| {
        let request = reqwest::Client::new().get(format!("{}{PATH}", s.base));
        request.bearer_auth(made["token"].as_str().expect("a token")).send().await.expect("an answer")
    };
    let (reader, bound) = (make("reader", Scope::Apply, None).await, make("bound", Scope::Admin, Some("shop")).await);
    assert_eq!(follow(&reader).await.status(), 403, "as the list");
    assert_eq!(follow(&bound).await.status(), 403, "the audit is of all projects, as the list");
    let admin = make("admin", Scope::Admin, None).await;
    let mut stream = EntryStream::of(follow(&admin).await);
    let mut why = HeaderMap::new();
    why.insert("apportion-why", "a launch".parse().expect("a header"));
    let put = s.client.put(format!("{}/v1/hold", s.base)).headers(why).json(&json!({"reason": "x"})).send().await;
    assert_eq!(put.expect("an answer").status(), 200);
    assert_eq!(next(&mut stream).await.expect("an entry")["why"], "a launch");
    assert_eq!(s.delete(&format!("/v1/tokens/{}", admin["id"].as_str().expect("an identifier"))).await.0, 204);
    hold(&s, &["later"]).await;
    assert_eq!(next(&mut stream).await, None, "its token counts no more");
    s.running.stop().await;
}

/// Inserts entries in transactions that stay open for different times.
async fn insert(url: String, at: u64) {
    let mut db = sqlx::PgConnection::connect(&url).await.expect("our own database");
    for turn in 0..10 {
        let mut tx = db.begin().await.expect("a transaction");
        // A transaction that began earlier may end later.
        tokio::time::sleep(Duration::from_millis((at * 7 + turn * 13) % 40)).await;
        sqlx::query(
            "insert into audit (id, made_at, who, method, path, status) values ($1, now(), 'test', 'PUT', '/', 200)",
        )
        .bind(uuid::Uuid::now_v7())
        .execute(&mut *tx)
        .await
        .expect("a row");
        tokio::time::sleep(Duration::from_millis((at * 5 + turn * 11) % 20)).await;
        tx.commit().await.expect("a commit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_audit_entry_of_concurrent_transactions_is_missed() {
    let s = service().await;
    let mut stream = EntryStream::follow(&s, "/v1/audit/stream?who=test", None).await;
    let writers: Vec<_> = (0..8).map(|at| tokio::spawn(insert(s.url.clone(), at))).collect();
    let (mut numbers, mut ids) = (Vec::new(), BTreeSet::new());
    while numbers.len() < 80 {
        let entry = next(&mut stream).await.expect("an entry");
        numbers.push(entry["number"].as_i64().expect("a number"));
        ids.insert(entry["id"].to_string());
    }
    for writer in writers {
        writer.await.expect("it ends");
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(ids.len(), 80, "each entry once");
    s.running.stop().await;
}
