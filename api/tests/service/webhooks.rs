//! Webhooks: order and signature of the deliveries, failures of receivers, the secret, and the bounds.

use crate::support::{PATIENCE, Service, service, service_on, spec};
use apportion_api::decide::webhooks::{ATTEMPTS_MAX, BODY_BYTES_MAX};
use apportion_api::http::webhooks::WEBHOOKS_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The key of the tests, and its text.
const KEY: &[u8] = b"0123456789abcdef01234567";
const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
const PAGE: &str = include_str!("../../../docs/how-to/receive-events-as-webhooks.md");

/// A request as the receiver got it. The names of its headers are in small letters.
#[derive(Clone, Debug)]
struct Delivery {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Delivery {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    fn event(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// The reason in the data of an event of a hold.
    fn reason(&self) -> String {
        self.event()["data"]["detail"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// An HTTP server that keeps requests, and answers with the status lines that it was given, then with 204.
struct Receiver {
    url: String,
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    answers: Arc<Mutex<VecDeque<String>>>,
}

impl Receiver {
    async fn with_answers(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/events", listener.local_addr().expect("an address"));
        let deliveries = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.iter().map(|answer| (*answer).to_owned()).collect::<VecDeque<_>>()));
        let (kept, given) = (deliveries.clone(), answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, kept.clone(), given.clone()));
            }
        });
        Self { url, deliveries, answers }
    }

    fn answer_next(&self, answers: &[&str]) {
        self.answers.lock().expect("no panic").extend(answers.iter().map(|answer| (*answer).to_owned()));
    }

    fn all(&self) -> Vec<Delivery> {
        self.deliveries.lock().expect("no panic").clone()
    }

    /// The deliveries, once there are so many.
    async fn first(&self, count: usize) -> Vec<Delivery> {
        let begin = Instant::now();
        loop {
            let all = self.all();
            if all.len() >= count {
                return all;
            }
            assert!(begin.elapsed() < PATIENCE, "{count} deliveries never came: {all:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

async fn receive(mut stream: TcpStream, kept: Arc<Mutex<Vec<Delivery>>>, given: Arc<Mutex<VecDeque<String>>>) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let line = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
        let length: usize = line.expect("a length").parse().expect("a number");
        if bytes.len() >= head.len() + 4 + length {
            break (head.to_owned(), length);
        }
    };
    assert!(head.starts_with("POST /events HTTP/1.1\r\n"), "{head}");
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let body = String::from_utf8(bytes[head.len() + 4..][..length].to_vec()).expect("text");
    kept.lock().expect("no panic").push(Delivery { headers, body });
    let answer = given.lock().expect("no panic").pop_front().unwrap_or_else(|| "204 No Content".to_owned());
    let _sent = stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await;
}

/// HMAC-SHA256 as RFC 2104 defines it, without the library of the service.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().to_vec()
}

/// Registers a webhook of this receiver with the secret of the tests.
async fn register(s: &Service, name: &str, receiver: &Receiver) {
    let (status, made) = s.put(&format!("/v1/webhooks/{name}"), &json!({"url": receiver.url, "secret": SECRET})).await;
    assert_eq!(status, 201, "{made:#}");
}

/// Makes events of holds with these reasons, each in a transaction of its own.
async fn hold(s: &Service, reasons: &[&str]) {
    for reason in reasons {
        let (status, made) = s.put("/v1/hold", &json!({"reason": reason})).await;
        assert!(status == 200 || status == 201, "{made:#}");
    }
}

/// Runs one statement in a database.
async fn execute(url: &str, statement: &str) {
    let mut db = sqlx::PgConnection::connect(url).await.expect("our own database");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut db).await.expect("it runs");
}

/// The webhook, once its figure has this value.
async fn until_counted(s: &Service, name: &str, figure: &str, value: i64) -> Value {
    s.until(&format!("/v1/webhooks/{name}"), |d| (d[figure] == value).then(|| d.clone())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_in_order_with_signatures() {
    let s = service().await;
    let receiver = Receiver::with_answers(&[]).await;
    hold(&s, &["before"]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one", "two", "three"]).await;
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    let deliveries = receiver.first(4).await;
    let reasons: Vec<String> = deliveries.iter().map(Delivery::reason).collect();
    assert_eq!(reasons, ["one", "two", "three", "three"], "an event from before the webhook is not sent");
    let (_, list) = s.get("/v1/events").await;
    let mut listed: Vec<Value> = list.as_array().expect("events")[..4].to_vec();
    listed.reverse();
    let now = chrono::Utc::now().timestamp();
    for (delivery, listed) in deliveries.iter().zip(&listed) {
        let event = delivery.event();
        assert_eq!((&event["data"], &event["time"]), (listed, &listed["made_at"]), "as in the list");
        assert_eq!((&event["specversion"], &event["source"]), (&json!("1.0"), &json!("/v1/events")));
        let kind = listed["kind"].as_str().expect("a kind");
        assert_eq!(event["type"], format!("io.apportion.event.{kind}"));
        assert_eq!(delivery.header("content-type"), "application/cloudevents+json");
        let (id, timestamp) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
        assert_eq!(event["id"], id);
        assert!((timestamp.parse::<i64>().expect("seconds") - now).abs() < 300, "{timestamp}");
        let expected = STANDARD.encode(hmac(KEY, format!("{id}.{timestamp}.{}", delivery.body).as_bytes()));
        assert_eq!(delivery.header("webhook-signature"), format!("v1,{expected}"));
    }
    let webhook = until_counted(&s, "chat", "delivered", 4).await;
    assert_eq!(webhook["sent_until"], listed[3]["id"]);
    for (figure, value) in [("waiting", 0), ("failures", 0), ("skipped", 0), ("attempts", 0)] {
        assert_eq!(webhook[figure], value, "{figure}: {webhook:#}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_event_is_repeated_before_the_next_one() {
    let s = service().await;
    let failures = ["500 Internal Server Error\r\ncontent-length: 0", "302 Found\r\nlocation: http://127.0.0.1:1/"];
    let receiver = Receiver::with_answers(&failures).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one", "two"]).await;
    let deliveries = receiver.first(4).await;
    let reasons: Vec<String> = deliveries.iter().map(Delivery::reason).collect();
    assert_eq!(reasons, ["one", "one", "one", "two"]);
    let ids: Vec<&str> = deliveries.iter().map(|delivery| delivery.header("webhook-id")).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    let webhook = until_counted(&s, "chat", "delivered", 2).await;
    assert_eq!((&webhook["failures"], &webhook["attempts"]), (&json!(2), &json!(0)), "{webhook:#}");
    assert_eq!(webhook["last_error"], "the receiver answered 302");
    let (_, metrics) = s.get("/metrics").await;
    let metrics = metrics.as_str().expect("a text");
    for line in [
        "apportion_webhook_events_waiting{webhook=\"chat\"} 0.0",
        "apportion_webhook_events_delivered_total{webhook=\"chat\"} 2",
        "apportion_webhook_events_skipped_total{webhook=\"chat\"} 0",
        "apportion_webhook_failures_total{webhook=\"chat\"} 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_disables_its_webhook() {
    let s = service().await;
    let receiver = Receiver::with_answers(&["410 Gone"]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one", "two"]).await;
    let off = s.until("/v1/webhooks/chat", |d| (d["enabled"] == false).then(|| d.clone())).await;
    assert_eq!((&off["version"], &off["last_error"]), (&json!(2), &json!("the receiver answered 410")), "{off:#}");
    assert_eq!((receiver.all().len(), &off["skipped"]), (1, &json!(0)));
    // Events wait while it is disabled.
    s.until("/v1/webhooks/chat", |d| (d["waiting"] == 2).then_some(())).await;
    let (status, on) = s.put("/v1/webhooks/chat", &json!({"url": receiver.url})).await;
    assert_eq!((status, &on["enabled"], on.get("secret")), (200, &json!(true), None), "the secret stays: {on:#}");
    let deliveries = receiver.first(3).await;
    let reasons: Vec<String> = deliveries.iter().map(Delivery::reason).collect();
    assert_eq!(reasons, ["one", "one", "two"]);
    let signed = |d: &Delivery| format!("{}.{}.{}", d.header("webhook-id"), d.header("webhook-timestamp"), d.body);
    let expected = STANDARD.encode(hmac(KEY, signed(&deliveries[2]).as_bytes()));
    assert_eq!(deliveries[2].header("webhook-signature"), format!("v1,{expected}"), "with the first secret");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_no_process_saw_arrive_later() {
    let s = service().await;
    let receiver = Receiver::with_answers(&[]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one"]).await;
    until_counted(&s, "chat", "delivered", 1).await;
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    for reason in ["two", "three"] {
        execute(&url, &format!("select note_event('hold', null, '{{\"reason\": \"{reason}\"}}')")).await;
    }
    let s = service_on(url, dir).await;
    hold(&s, &["four"]).await;
    until_counted(&s, "chat", "delivered", 4).await;
    let reasons: Vec<String> = receiver.all().iter().map(Delivery::reason).collect();
    assert_eq!(reasons, ["one", "two", "three", "four"]);
    s.running.stop().await;
}

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

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_is_shown_once() {
    let s = service().await;
    let receiver = Receiver::with_answers(&["500 Internal Server Error"]).await;
    let url = receiver.url.as_str();
    let (status, made) = s.put("/v1/webhooks/chat", &json!({"url": url})).await;
    assert_eq!(status, 201, "{made:#}");
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    let code = secret.strip_prefix("whsec_").expect("the prefix");
    let key = STANDARD.decode(code).expect("base64");
    assert_eq!(key.len(), 32);
    let (status, again) = s.put("/v1/webhooks/chat", &json!({"url": url, "enabled": true})).await;
    assert_eq!((status, again.get("secret")), (200, None), "it stays, and is not shown: {again:#}");
    let (_, other) = s.put("/v1/webhooks/other", &json!({"url": url, "enabled": false})).await;
    assert_ne!(other["secret"], made["secret"]);
    hold(&s, &["one"]).await;
    until_counted(&s, "chat", "delivered", 1).await;
    let first = receiver.all().remove(0);
    let signed = format!("{}.{}.{}", first.header("webhook-id"), first.header("webhook-timestamp"), first.body);
    let signature = format!("v1,{}", STANDARD.encode(hmac(&key, signed.as_bytes())));
    assert_eq!(first.header("webhook-signature"), signature);

    let (status, given) = s.put("/v1/webhooks/given", &json!({"url": url, "secret": SECRET})).await;
    assert_eq!((status, given.get("secret")), (201, None), "the client has it already");
    let (status, refusal) = s.put("/v1/webhooks/wrong", &json!({"url": url, "secret": &secret[..secret.len() - 1]})).await;
    assert_eq!(status, 422, "{refusal:#}");
    let mut shown = refusal.to_string();
    for path in ["/v1/webhooks", "/v1/webhooks/chat", "/v1/webhooks/given", "/v1/events", "/v1/audit", "/metrics"] {
        let (status, document) = s.get(path).await;
        assert_eq!(status, 200, "{path}");
        shown += &document.to_string();
    }
    shown += &receiver.all().iter().map(|delivery| format!("{delivery:?}")).collect::<String>();
    for secret in [&code[..code.len() - 1], &SECRET["whsec_".len()..]] {
        assert!(!shown.contains(secret), "{shown}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_webhook_is_refused_with_its_place() {
    let s = service().await;
    let url = "http://127.0.0.1:9/events";
    let long = format!("http://127.0.0.1:9/{}", "x".repeat(2_048));
    let cases = [
        (json!({}), ""),
        (json!({"url": url, "token": "x"}), ""),
        (json!({"url": "ftp://127.0.0.1/"}), "/url"),
        (json!({"url": "chat.example"}), "/url"),
        (json!({"url": "http://me:password@chat.example/"}), "/url"),
        (json!({"url": long}), "/url"),
        (json!({"url": "http://169.254.169.254/latest/meta-data"}), "/url"),
        (json!({"url": "http://[fe80::1]/"}), "/url"),
        (json!({"url": "http://[::ffff:169.254.169.254]/"}), "/url"),
        (json!({"url": url, "kinds": []}), "/kinds"),
        (json!({"url": url, "kinds": vec!["hold"; 1_000]}), "/kinds"),
        (json!({"url": url, "kinds": ["hold", "party"]}), "/kinds/1"),
        (json!({"url": url, "kinds": ["hold", "audit"], "pipeline": "nothing"}), "/kinds/1"),
        (json!({"url": url, "pipeline": "nothing"}), "/pipeline"),
        (json!({"url": url, "secret": "password"}), "/secret"),
        (json!({"url": url, "secret": "whsec_cGFzc3dvcmQ="}), "/secret"),
    ];
    for (body, pointer) in cases {
        let (status, refusal) = s.put("/v1/webhooks/wrong", &body).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}: {refusal:#}");
    }
    assert_eq!(s.get("/v1/webhooks").await.1, json!([]), "nothing was stored");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_a_refused_address_is_not_called() {
    let s = service().await;
    // The number is 169.254.169.254, which only the resolver of the system reads.
    let (status, made) = s.put("/v1/webhooks/cloud", &json!({"url": "http://2852039166/latest"})).await;
    assert_eq!(status, 201, "{made:#}");
    hold(&s, &["one"]).await;
    let failed = s.until("/v1/webhooks/cloud", |d| d["last_error"].as_str().map(str::to_owned)).await;
    assert!(failed.contains("169.254.169.254 is the address of a link"), "{failed}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_webhooks_has_a_limit() {
    let s = service().await;
    let insert = format!(
        "insert into webhooks (name, url, enabled, secret, made_by, updated_at, sent_until)
         select 'w' || n, 'http://127.0.0.1:9/', false, 'x', 'test', now(), 0 from generate_series(1, {WEBHOOKS_MAX}) n"
    );
    execute(&s.url, &insert).await;
    let body = json!({"url": "http://127.0.0.1:9/", "enabled": false});
    let (status, refusal) = s.put("/v1/webhooks/more", &body).await;
    assert_eq!(status, 409, "{refusal:#}");
    assert_eq!(s.put("/v1/webhooks/w1", &body).await.0, 200, "one that is there may be replaced");
    assert_eq!(s.get("/v1/webhooks").await.1.as_array().map(Vec::len), Some(WEBHOOKS_MAX as usize));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_webhooks_have_conditions() {
    let s = service().await;
    let path = "/v1/webhooks/chat";
    let put = async |tag: &str| {
        let request = s.client.put(format!("{}{path}", s.base)).header("if-match", tag);
        let answer = request.json(&json!({"url": "http://127.0.0.1:9/"})).send().await.expect("an answer");
        let version = answer.headers().get("etag").map(|tag| tag.to_str().expect("text").to_owned());
        (answer.status().as_u16(), version)
    };
    assert_eq!(put("*").await.0, 412, "it is not there");
    assert_eq!(s.put(path, &json!({"url": "http://127.0.0.1:9/"})).await.0, 201);
    assert_eq!(put("\"7\"").await.0, 412);
    assert_eq!(put("\"1\"").await, (200, Some("\"2\"".to_owned())));
    let wrong = s.client.delete(format!("{}{path}", s.base)).header("if-match", "\"1\"").send().await;
    assert_eq!(wrong.expect("an answer").status(), 412);
    assert_eq!((s.delete(path).await.0, s.delete(path).await.0, s.get(path).await.0), (204, 404, 404));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_given_up_after_its_last_attempt() {
    let s = service().await;
    let receiver = Receiver::with_answers(&["400 Bad Request"]).await;
    let (status, made) =
        s.put("/v1/webhooks/chat", &json!({"url": receiver.url, "secret": SECRET, "enabled": false})).await;
    assert_eq!(status, 201, "{made:#}");
    hold(&s, &["one", "two"]).await;
    let attempts = ATTEMPTS_MAX - 1;
    execute(&s.url, &format!("update webhooks set attempts = {attempts}, enabled = true")).await;
    let webhook = until_counted(&s, "chat", "delivered", 1).await;
    assert_eq!((&webhook["skipped"], &webhook["failures"]), (&json!(1), &json!(1)), "{webhook:#}");
    assert_eq!(webhook["last_error"], "the receiver answered 400");
    let reasons: Vec<String> = receiver.all().iter().map(Delivery::reason).collect();
    assert_eq!(reasons, ["one", "two"]);

    let large = format!("select note_event('hold', null, jsonb_build_object('reason', repeat('x', {BODY_BYTES_MAX})))");
    execute(&s.url, &large).await;
    hold(&s, &["three"]).await;
    let webhook = until_counted(&s, "chat", "delivered", 2).await;
    assert_eq!(webhook["skipped"], 2, "the large one is given up at once: {webhook:#}");
    let why = webhook["last_error"].as_str().expect("a reason");
    assert!(why.ends_with(&format!("at most {BODY_BYTES_MAX} are sent")), "{why}");
    assert_eq!(receiver.all().last().map(Delivery::reason).as_deref(), Some("three"));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_receiver_delays_no_other() {
    let s = service().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let (status, made) = s.put("/v1/webhooks/a-silent", &json!({"url": url})).await;
    assert_eq!(status, 201, "{made:#}");
    let receiver = Receiver::with_answers(&[]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one"]).await;
    // Its request is on the way, and gets no answer.
    let (_stream, _) = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("in time").expect("a request");
    hold(&s, &["two", "three"]).await;
    until_counted(&s, "chat", "delivered", 3).await;
    let failed = s.until("/v1/webhooks/a-silent", |d| d["last_error"].as_str().map(str::to_owned)).await;
    assert_eq!(failed, "no answer within 10 s");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_may_ask_for_a_longer_pause() {
    let s = service().await;
    let receiver = Receiver::with_answers(&["429 Too Many Requests\r\nretry-after: 900"]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one"]).await;
    let webhook = until_counted(&s, "chat", "attempts", 1).await;
    let time = |text: &Value| chrono::DateTime::parse_from_rfc3339(text.as_str().expect("a time")).expect("a time");
    let pause = time(&webhook["next_at"]) - time(&webhook["last_error_at"]);
    assert!((899..=901).contains(&pause.num_seconds()), "{webhook:#}");
    // A write has it tried at once.
    receiver.answer_next(&["200 OK"]);
    assert_eq!(s.put("/v1/webhooks/chat", &json!({"url": receiver.url})).await.0, 200);
    until_counted(&s, "chat", "delivered", 1).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_the_events_that_it_asks_for() {
    let s = service().await;
    assert_eq!(s.put("/v1/pipelines/digits", &spec()).await.0, 201);
    let [by_kind, by_pipeline] = [Receiver::with_answers(&[]).await, Receiver::with_answers(&[]).await];
    let body = json!({"url": by_kind.url, "kinds": ["release", "target"]});
    assert_eq!(s.put("/v1/webhooks/kind", &body).await.0, 201);
    let body = json!({"url": by_pipeline.url, "pipeline": "digits"});
    assert_eq!(s.put("/v1/webhooks/pipeline", &body).await.0, 201);
    hold(&s, &["fleet"]).await;
    assert!(s.put("/v1/pipelines/digits/hold", &json!({"reason": "digits"})).await.0 < 300);
    assert_eq!(s.delete("/v1/hold").await.0, 204);
    let (_, events) = s.get("/v1/events").await;
    let newest = events[0]["id"].as_i64().expect("a number");
    for name in ["kind", "pipeline"] {
        let webhook = until_counted(&s, name, "sent_until", newest).await;
        assert_eq!((&webhook["delivered"], &webhook["waiting"]), (&json!(1), &json!(0)), "{webhook:#}");
    }
    let event = by_kind.all()[0].event();
    assert_eq!((&event["type"], event.get("subject")), (&json!("io.apportion.event.release"), None));
    let event = by_pipeline.all()[0].event();
    assert_eq!((&event["type"], &event["subject"]), (&json!("io.apportion.event.hold"), &json!("digits")));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_verifies_a_delivered_request() {
    let Some(python) = apportion_needs::clients() else { return };
    let (_, rest) = PAGE.split_once("```python\n").expect("a block of Python");
    let (block, _) = rest.split_once("\n```").expect("its end");
    let s = service().await;
    let receiver = Receiver::with_answers(&[]).await;
    register(&s, "chat", &receiver).await;
    hold(&s, &["one"]).await;
    let delivery = receiver.first(1).await.remove(0);
    let script = format!(
        "{block}\nimport json, sys\nsecret, headers, body, offset = json.load(sys.stdin)\n\
         clock = time.time\ntime.time = lambda: clock() + offset\n\
         print(is_from_apportion(secret, headers, body.encode()))"
    );
    let verify = async |secret: &str, headers: &BTreeMap<String, String>, body: &str, offset: i64| {
        let mut command = tokio::process::Command::new(&python);
        command.args(["-c", &script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("Python");
        let input = json!([secret, headers, body, offset]).to_string();
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).await.expect("room");
        let output = child.wait_with_output().await.expect("it ends");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let Delivery { headers, body } = &delivery;
    assert_eq!(verify(SECRET, headers, body, 0).await, "True");
    assert_eq!(verify("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", headers, body, 0).await, "False");
    assert_eq!(verify(SECRET, headers, &body.replace("one", "two"), 0).await, "False");
    assert_eq!(verify(SECRET, headers, body, 3_600).await, "False", "it is replayed an hour later");
    let mut other = headers.clone();
    other.insert("webhook-id".to_owned(), "1-999".to_owned());
    assert_eq!(verify(SECRET, &other, body, 0).await, "False");
    s.running.stop().await;
}
