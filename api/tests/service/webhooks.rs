//! Webhooks: order and signature of the deliveries, failures of receivers, the secret, and the bounds.

use crate::support::receiver::{Delivery, KEY, Receiver, SECRET, execute, hmac, hold, register, until_counted};
use crate::support::{PATIENCE, Service, service, service_on, spec};
use apportion_api::decide::webhooks::{ATTEMPTS_MAX, BODY_BYTES_MAX};
use apportion_api::http::webhooks::WEBHOOKS_MAX;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

const PAGE: &str = include_str!("../../../docs/how-to/receive-events-as-webhooks.md");

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
