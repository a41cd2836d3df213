//! Webhooks that ask for the audit: one order with the events, as in the list, and after a pause of the service.

use crate::support::receiver::{Delivery, KEY, Receiver, SECRET, execute, hmac, hold, register, until_counted};
use crate::support::{Service, service, service_on};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn audit_and_events_come_in_one_order() {
    let s = service().await;
    let receiver = Receiver::with_answers(&[]).await;
    hold(&s, &["before"]).await;
    register(&s, "chat", &receiver).await;
    let failing = Receiver::with_answers(&["500 Internal Server Error"]).await;
    let body = json!({"url": failing.url, "secret": SECRET, "kinds": ["audit", "hold"]});
    assert_eq!(s.put("/v1/webhooks/ledger", &body).await.0, 201);
    hold(&s, &["one", "two"]).await;
    // The first is the entry of the webhook itself. Its first attempt fails, and nothing overtakes it.
    let mut deliveries = failing.first(6).await;
    let repeated = deliveries.remove(0);
    assert_eq!(repeated.header("webhook-id"), deliveries[0].header("webhook-id"));
    let kind = |d: &Delivery| d.event()["type"].as_str().unwrap_or_default().to_owned();
    let (audit, event) = ("io.apportion.audit".to_owned(), "io.apportion.event.hold".to_owned());
    assert_eq!(deliveries.iter().map(kind).collect::<Vec<_>>(), [&audit, &event, &audit, &event, &audit].map(Clone::clone));
    let number = |d: &Delivery| {
        let event = d.event();
        let data = &event["data"];
        data["number"].as_i64().or(data["id"].as_i64()).expect("a number")
    };
    let numbers: Vec<i64> = deliveries.iter().map(number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let (_, list) = s.get("/v1/audit").await;
    for (delivery, listed) in deliveries.iter().filter(|d| kind(d) == audit).zip([2_usize, 1, 0].map(|at| &list[at])) {
        let event = delivery.event();
        assert_eq!((&event["data"], &event["source"]), (listed, &json!("/v1/audit")), "as in the list");
        assert_eq!((&event["subject"], &event["time"]), (&listed["path"], &listed["made_at"]));
        let (id, timestamp) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
        let expected = STANDARD.encode(hmac(KEY, format!("{id}.{timestamp}.{}", delivery.body).as_bytes()));
        assert_eq!(delivery.header("webhook-signature"), format!("v1,{expected}"));
        assert!(!delivery.body.contains(&SECRET["whsec_".len()..]), "{}", delivery.body);
    }
    let webhook = until_counted(&s, "ledger", "delivered", 5).await;
    assert_eq!((&webhook["waiting"], &webhook["failures"]), (&json!(0), &json!(1)), "{webhook:#}");
    // A webhook that does not ask for the audit gets events alone.
    until_counted(&s, "chat", "delivered", 2).await;
    assert!(receiver.all().iter().all(|d| kind(d) == event), "{:#?}", receiver.all());
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_entries_that_no_process_saw_arrive_later() {
    let s = service().await;
    let receiver = Receiver::with_answers(&[]).await;
    let body = json!({"url": receiver.url, "secret": SECRET, "kinds": ["audit"]});
    assert_eq!(s.put("/v1/webhooks/ledger", &body).await.0, 201);
    until_counted(&s, "ledger", "delivered", 1).await;
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    for at in 0..2 {
        let insert = format!(
            "insert into audit (id, made_at, who, method, path, status)
             values (gen_random_uuid(), now(), 'anna', 'PUT', '/v1/late/{at}', 200)"
        );
        execute(&url, &insert).await;
    }
    let s = service_on(url, dir).await;
    until_counted(&s, "ledger", "delivered", 3).await;
    let paths: Vec<Value> = receiver.all().iter().map(|delivery| delivery.event()["subject"].clone()).collect();
    assert_eq!(paths, ["/v1/webhooks/ledger", "/v1/late/0", "/v1/late/1"]);
    s.running.stop().await;
}
