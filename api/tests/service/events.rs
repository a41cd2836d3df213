//! Events: the list and the stream.

use crate::support::plans::store_plan;
use crate::support::stream::EntryStream;
use crate::support::{Service, profiles, service, service_with_tokens, spec};
use serde_json::{Value, json};
use sqlx::Connection;
use std::time::Duration;

/// A stream of events, as a client reads it.
struct EventStream(EntryStream);

/// Follows the events with this query, after the event `last`.
async fn follow(s: &Service, query: &str, last: Option<i64>) -> EventStream {
    EventStream(EntryStream::follow(s, &format!("/v1/events/stream{query}"), last).await)
}

impl EventStream {
    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        let entry = self.0.next().await?;
        assert_eq!(entry.id, entry.data["id"].to_string());
        assert_eq!(Some(entry.event.as_str()), entry.data["kind"].as_str());
        Some(entry.data)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_what_happens_and_goes_on_after_the_last_event() {
    let s = service().await;
    let mut stream = follow(&s, "", None).await;
    assert_eq!(s.put("/v1/hold", &json!({"reason": "a launch"})).await.0, 200);
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    let hold = stream.next().await.expect("an event");
    assert_eq!(
        (&hold["kind"], &hold["pipeline"], &hold["detail"]["reason"]),
        (&json!("hold"), &Value::Null, &json!("a launch"))
    );
    let release = stream.next().await.expect("an event");
    assert_eq!(release["kind"], "release");
    drop(stream);
    assert_eq!(s.get(&format!("/v1/events/{}", hold["id"])).await, (200, hold));
    assert_eq!(s.get("/v1/events/0").await.0, 404);

    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let plan = s.post("/v1/plans", &json!({"problem": crate::support::problem(20.0)})).await.1;
    assert_eq!(s.put("/v1/pipelines/digits/hold", &json!({"reason": "tests"})).await.0, 200);
    let mut stream = follow(&s, "", release["id"].as_i64()).await;
    let over = stream.next().await.expect("an event");
    assert_eq!(
        (&over["kind"], &over["detail"]["id"], &over["detail"]["state"]),
        (&json!("plan"), &plan["id"], &json!("succeeded"))
    );
    assert_eq!(stream.next().await.expect("an event")["pipeline"], "digits");

    let mut of_pipeline = follow(&s, "?pipeline=digits&kind=hold", Some(0)).await;
    assert_eq!(of_pipeline.next().await.expect("an event")["detail"]["reason"], "tests");
    let (_, list) = s.get("/v1/events").await;
    let kinds: Vec<&str> = list.as_array().expect("events").iter().filter_map(|e| e["kind"].as_str()).collect();
    assert_eq!(kinds, ["hold", "plan", "release", "hold"], "the newest first");
    let (_, rest) = s.get(&format!("/v1/events?before={}&kind=hold", list[0]["id"])).await;
    assert_eq!(rest.as_array().map(Vec::len), Some(1));
    assert_eq!(s.get("/v1/events?kind=party").await.0, 422);
    let wrong = s.client.get(format!("{}/v1/events/stream", s.base)).header("last-event-id", "x").send().await;
    assert_eq!(wrong.expect("an answer").status(), 400);
    s.running.stop().await;
    assert_eq!(stream.next().await, None, "the stream ends with the service");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_is_revoked() {
    let s = service_with_tokens().await;
    let (_, made) = s.post("/v1/tokens", &json!({"name": "reader", "scope": "read"})).await;
    let reader = reqwest::Client::new().get(format!("{}/v1/events/stream", s.base));
    let response = reader.bearer_auth(made["token"].as_str().expect("a token")).send().await.expect("an answer");
    let mut stream = EventStream(EntryStream::of(response));
    assert_eq!(s.put("/v1/hold", &json!({"reason": "a launch"})).await.0, 200);
    assert_eq!(stream.next().await.expect("an event")["kind"], "hold");
    assert_eq!(s.delete(&format!("/v1/tokens/{}", made["id"].as_str().expect("an identifier"))).await.0, 204);
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    assert_eq!(stream.next().await, None, "the release is not for it");
    s.running.stop().await;
}

/// Inserts decisions in transactions that stay open for different times, and commits them.
async fn decide(url: String, at: u64) {
    let mut db = sqlx::PgConnection::connect(&url).await.expect("our own database");
    for turn in 0..10 {
        let mut tx = db.begin().await.expect("a transaction");
        sqlx::query(
            "insert into decisions (id, pipeline, decision, reason, demand_qps, made_at) values ($1, $2, 'kept', '', 1, now())",
        )
        .bind(uuid::Uuid::now_v7())
        .bind(format!("p{at}"))
        .execute(&mut *tx)
        .await
        .expect("a row");
        // A transaction that began earlier may end later.
        tokio::time::sleep(Duration::from_millis((at * 7 + turn * 13) % 40)).await;
        tx.commit().await.expect("a commit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_of_concurrent_transactions_is_missed() {
    let s = service().await;
    let mut stream = follow(&s, "?kind=decision", None).await;
    let writers: Vec<_> = (0..8).map(|at| tokio::spawn(decide(s.url.clone(), at))).collect();
    let mut ids = Vec::new();
    while ids.len() < 80 {
        ids.push(stream.next().await.expect("an event")["id"].as_i64().expect("a number"));
    }
    for writer in writers {
        writer.await.expect("it ends");
    }
    assert!(ids.is_sorted(), "{ids:?}");
    let (_, list) = s.get("/v1/events?kind=decision").await;
    let mut listed: Vec<i64> = list.as_array().expect("events").iter().filter_map(|e| e["id"].as_i64()).collect();
    listed.reverse();
    assert_eq!(ids, listed, "the stream has each event once");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_is_an_event_of_every_process() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let other = crate::support::service_on(s.url.clone(), crate::support::open_dir()).await;
    let mut stream = follow(&other, "?kind=target", None).await;
    let plan = store_plan(&s, 1).await;
    let (status, _) = s.put_target(0, &json!([plan])).await;
    assert_eq!(status, 422, "no agent has a device");
    let (status, target) = s.put_target(0, &json!([])).await;
    assert_eq!((status, &target["generation"]), (200, &json!(1)), "{target:#}");
    let event = stream.next().await.expect("an event");
    assert_eq!((&event["detail"]["generation"], &event["detail"]["reason"]), (&json!(1), &json!("asked for by loopback")));
    other.running.stop().await;
    s.running.stop().await;
}
