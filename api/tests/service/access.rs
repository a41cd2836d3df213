//! Who may call which operation.

use crate::support::{
    ADMIN_TOKEN, PATIENCE, Service, config_on, hard_problem, new_database, open_dir, service, service_on_config,
    service_with_tokens,
};
use apportion_api::database::CONNECTIONS_MAX;
use apportion_api::{RateLimit, ServeError, serve};
use apportion_wire::Scope;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use sqlx::Connection;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::{Duration, Instant};

/// An operation of the description.
struct Operation {
    method: Method,
    path: String,
    /// The scope that the description names; `None`: open to everybody.
    scope: Option<Scope>,
}

/// Every operation of the description, with a value for each parameter of its path.
fn operations() -> Vec<Operation> {
    let description: Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let values = [
        ("{name}", "nothing".to_owned()),
        ("{id}", uuid::Uuid::nil().to_string()),
        ("{sha256}", "ab".repeat(32)),
        ("{generation}", "77".to_owned()),
        ("{number}", "77".to_owned()),
    ];
    let mut all = Vec::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let path = values.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
            assert!(!path.contains('{'), "{path} has a parameter without a value here");
            let scope = operation["x-scope"].as_str().map(|name| Scope::try_from(name.to_owned()).expect("a scope"));
            assert_eq!(scope.is_some(), operation["security"].is_array(), "{method} {path}");
            let method = method.to_uppercase().parse().expect("a method");
            all.push(Operation { method, path, scope });
        }
    }
    all
}

impl Operation {
    /// The status for a client with this token.
    async fn status(&self, base: &str, token: Option<&str>) -> u16 {
        self.call(base, token).await.status().as_u16()
    }

    async fn call(&self, base: &str, token: Option<&str>) -> Response {
        let request = reqwest::Client::new().request(self.method.clone(), format!("{base}{}", self.path));
        let request = request.header("content-type", "application/json").body("{}");
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        request.send().await.expect("an answer")
    }
}

/// A token of this scope.
async fn token(s: &Service, scope: Scope) -> String {
    let (status, made) = s.post("/v1/tokens", &json!({"name": scope.name(), "scope": scope})).await;
    assert_eq!(status, 201, "{made:#}");
    made["token"].as_str().expect("a token").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_takes_the_scopes_of_its_description() {
    let s = service_with_tokens().await;
    let mut tokens = BTreeMap::new();
    for scope in Scope::ALL {
        tokens.insert(*scope, token(&s, *scope).await);
    }
    let operations = operations();
    let open = operations.iter().filter(|operation| operation.scope.is_none()).count();
    assert!(operations.len() >= 45 && open <= 3, "{} operations, {open} of them open", operations.len());
    for operation in &operations {
        let name = format!("{} {}", operation.method, operation.path);
        let Some(needed) = operation.scope else {
            assert!(operation.status(&s.base, None).await < 400, "{name} is open");
            continue;
        };
        assert_eq!(operation.status(&s.base, None).await, 401, "{name} without a token");
        assert_eq!(operation.status(&s.base, Some("apportion_guess")).await, 401, "{name} with a wrong token");
        for (scope, token) in &tokens {
            let status = operation.status(&s.base, Some(token)).await;
            assert_ne!(status, 401, "{name} with {scope}");
            assert_eq!(status == 403, !scope.allows(needed), "{name} needs {needed}, and {scope} gets {status}");
        }
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spelling_of_a_path_needs_the_same_scope() {
    let s = service_with_tokens().await;
    let reader = token(&s, Scope::Read).await;
    for path in
        ["/v1/%74arget", "/v1/targe%74", "/v1//target", "/./v1/target", "/v1/target/", "/V1/target", "/v1/target?x=1"]
    {
        let operation = Operation { method: Method::PUT, path: path.into(), scope: None };
        assert_eq!(operation.status(&s.base, Some(&reader)).await, 403, "{path}");
        assert_eq!(operation.status(&s.base, None).await, 401, "{path}");
    }
    let hidden = Operation { method: Method::GET, path: "/v1/%74okens".into(), scope: None };
    assert_eq!(hidden.status(&s.base, Some(&reader)).await, 403);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counts_until_it_ends_or_is_revoked() {
    let s = service_with_tokens().await;
    let with = |token: String| {
        let client = reqwest::Client::new().get(format!("{}/v1/access", s.base)).bearer_auth(token);
        async move { client.send().await.expect("an answer").status().as_u16() }
    };
    let kept = token(&s, Scope::Read).await;
    let (_, short) = s.post("/v1/tokens", &json!({"name": "short", "scope": "read", "for_s": 1})).await;
    let short = short["token"].as_str().expect("a token").to_owned();
    let mut tampered = kept.clone();
    let last = if tampered.pop() == Some('0') { '1' } else { '0' };
    tampered.push(last);
    assert_eq!((with(kept.clone()).await, with(tampered).await), (200, 401));
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    assert_eq!(with(short).await, 401, "it has expired");
    let (_, tokens) = s.get("/v1/tokens").await;
    let listed = tokens.to_string();
    let secret = kept.rsplit_once('_').expect("a secret").1;
    assert!(!listed.contains(secret) && !listed.contains("digest"), "{listed}");
    let id = tokens[1]["id"].as_str().expect("an identifier");
    assert_eq!(s.delete(&format!("/v1/tokens/{id}")).await.0, 204);
    assert_eq!(with(kept).await, 401, "it is revoked");
    assert_eq!(with(ADMIN_TOKEN.to_owned()).await, 200);
    for (body, pointer) in [
        (json!({"name": "", "scope": "read"}), "/name"),
        (json!({"name": "x", "scope": "read", "for_s": 0}), "/for_s"),
        (json!({"name": "x", "scope": "all"}), ""),
    ] {
        let (status, refusal) = s.post("/v1/tokens", &body).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{refusal:#}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_one_token() {
    let s = service_with_tokens().await;
    let ask = async |name: &str, key: &str| {
        let request = s.client.post(format!("{}/v1/tokens", s.base)).header("idempotency-key", key);
        let response = request.json(&json!({"name": name, "scope": "read"})).send().await.expect("an answer");
        let status = response.status().as_u16();
        (status, response.json::<Value>().await.expect("JSON"))
    };
    let (status, made) = ask("a", "one").await;
    assert_eq!(status, 201, "{made}");
    let (status, refusal) = ask("a", "one").await;
    let (id, detail) = (made["id"].as_str().expect("an identifier"), refusal["detail"].as_str().expect("a reason"));
    assert!(status == 409 && detail.contains(id) && !detail.contains("apportion_"), "{status}: {refusal}");
    assert_eq!(ask("b", "one").await.0, 422, "another body");
    assert_eq!(ask("a", "two").await.0, 201);
    let (_, tokens) = s.get("/v1/tokens").await;
    assert_eq!(tokens.as_array().map(Vec::len), Some(2), "{tokens}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_names_the_client_of_each_change() {
    let s = service_with_tokens().await;
    let reader = token(&s, Scope::Read).await;
    assert_eq!(s.put("/v1/hardware/t4", &json!({"price_per_hour": 0.5})).await.0, 201);
    let refused = Operation { method: Method::PUT, path: "/v1/hardware/t4".into(), scope: None };
    assert_eq!(refused.status(&s.base, Some(&reader)).await, 403);
    assert_eq!(refused.status(&s.base, Some("wrong")).await, 401);
    let (_, audit) = s.get("/v1/audit").await;
    let entry = |e: &Value| json!([e["who"], e["method"], e["path"], e["status"]]);
    let seen: Vec<Value> = audit.as_array().expect("entries").iter().map(entry).collect();
    let expected = [
        json!(["read", "PUT", "/v1/hardware/t4", 403]),
        json!(["admin-token", "PUT", "/v1/hardware/t4", 201]),
        json!(["admin-token", "POST", "/v1/tokens", 201]),
    ];
    assert_eq!(seen, expected, "a stranger is not in the audit");
    let last = audit[0]["id"].as_str().expect("an identifier");
    let (_, rest) = s.get(&format!("/v1/audit?before={last}")).await;
    assert_eq!(rest.as_array().map(Vec::len), Some(2));
    let (_, metrics) = s.get("/metrics").await;
    let metrics = metrics.as_str().expect("a text");
    for count in ["apportion_requests_out_of_scope_total", "apportion_requests_wrong_token_total"] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(count)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(|value| value >= 1.0), "{count}: {metrics}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_leave_connections_to_others() {
    /// More than the connections of a process.
    const STRANGERS: usize = 2 * CONNECTIONS_MAX as usize;
    let s = service_with_tokens().await;
    let mut holder = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let mut held = holder.begin().await.expect("a transaction");
    sqlx::query("lock table tokens in access exclusive mode").execute(&mut *held).await.expect("a lock");
    let unknown = format!("apportion_{}_{}", uuid::Uuid::now_v7().simple(), "0".repeat(64));
    let ask = || reqwest::Client::new().get(format!("{}/v1/hardware", s.base)).bearer_auth(&unknown).send();
    let strangers: Vec<_> = (0..STRANGERS).map(|_| tokio::spawn(ask())).collect();
    let waiting = "select count(*) from pg_locks where not granted and relation = 'tokens'::regclass
                   and database = (select oid from pg_database where datname = current_database())";
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let begin = Instant::now();
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut db).await.expect("a count") == 0 {
        assert!(begin.elapsed() < PATIENCE, "nobody looks for a token");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..STRANGERS {
        assert_eq!(s.get("/v1/hardware").await.0, 200, "the configured token needs no lookup");
    }
    held.rollback().await.expect("the end of the lock");
    for stranger in strangers {
        assert_eq!(stranger.await.expect("no panic").expect("an answer").status(), 401);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_says_why_and_what_was_changed() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let s = service_with_tokens().await;
    let put = async |path: &str, body: &Value, why: Option<&str>| {
        let request = s.client.put(format!("{}{path}", s.base)).json(body);
        let request = why.into_iter().fold(request, |request, why| request.header("apportion-why", why));
        request.send().await.expect("an answer").status().as_u16()
    };
    let t4 = "/v1/hardware/t4";
    assert_eq!(put(t4, &json!({"price_per_hour": 0.5}), None).await, 201);
    assert_eq!(put(t4, &json!({"price_per_hour": 0.25}), Some("a new contract")).await, 200);
    assert_eq!(put(t4, &json!({"price_per_hour": -1.0}), None).await, 422);
    let webhook = json!({"url": "http://127.0.0.1:9/", "enabled": false, "secret": SECRET});
    assert_eq!(put("/v1/webhooks/chat", &webhook, None).await, 201);
    assert_eq!(put("/v1/hold", &json!({"reason": "a launch"}), None).await, 200);
    assert_eq!(s.delete(t4).await.0, 204);
    let (_, audit) = s.get("/v1/audit").await;
    let entry = |e: &Value| {
        let (before, after) = (&e["before"], &e["after"]);
        json!([e["path"], e["why"], before["price_per_hour"], after["price_per_hour"], after["url"], after["reason"]])
    };
    let seen: Vec<Value> = audit.as_array().expect("entries").iter().map(entry).collect();
    let expected = [
        json!([t4, null, 0.25, null, null, null]),
        json!(["/v1/hold", null, null, null, null, "a launch"]),
        json!(["/v1/webhooks/chat", null, null, null, "http://127.0.0.1:9/", null]),
        json!([t4, null, null, null, null, null]),
        json!([t4, "a new contract", 0.5, 0.25, null, null]),
        json!([t4, null, null, 0.5, null, null]),
    ];
    assert_eq!(seen, expected, "{audit:#}");
    let text = audit.to_string();
    assert!(!text.contains(SECRET) && !text.contains("secret"), "{text}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_has_requests_whose_client_left() {
    let s = service_with_tokens().await;
    let body = json!({"problem": hard_problem(), "gap": 0.0, "time_limit_s": 600.0});
    let request = s.client.post(format!("{}/v1/plans", s.base)).header("prefer", "wait=60").json(&body);
    let asking = tokio::spawn(request.send());
    s.until("/v1/plans", |plans| plans.as_array()?.first().map(|_| ())).await;
    asking.abort();
    let of_plan = |audit: &Value| audit.as_array()?.iter().find(|entry| entry["path"] == "/v1/plans").cloned();
    let entry = s.until("/v1/audit", of_plan).await;
    assert_eq!((&entry["status"], &entry["who"]), (&json!(499), &json!("admin-token")), "{entry:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_cannot_steer_a_service_on_loopback() {
    let s = service().await;
    let put = |name: &'static str, value: String| {
        let request = s.client.put(format!("{}/v1/hardware/t4", s.base)).header(name, value);
        let request = request.json(&json!({"price_per_hour": 0.5}));
        async move { request.send().await.expect("an answer").status().as_u16() }
    };
    let port = s.running.http().port();
    assert_eq!(put("host", "evil.example".into()).await, 421, "its name leads to loopback");
    assert_eq!(put("host", format!("evil.example:{port}")).await, 421);
    assert_eq!(put("origin", "http://evil.example".into()).await, 403);
    assert_eq!(put("origin", "null".into()).await, 403);
    assert_eq!(put("origin", format!("http://127.0.0.1:{}", port ^ 1)).await, 403, "another port is another site");
    assert_eq!(s.get("/v1/hardware").await.1, json!([]), "nothing was stored");
    let probe = s.client.get(format!("{}/readyz", s.base)).header("host", "10.0.0.7:7070").send().await;
    assert_eq!(probe.expect("an answer").status(), 200, "a probe may use any name");
    for form in ["application/x-www-form-urlencoded", "text/plain", ""] {
        let request = s.client.put(format!("{}/v1/hardware/t4", s.base)).header("content-type", form);
        let answer = request.body("{\"price_per_hour\": 0.5}").send().await.expect("an answer");
        assert_eq!(answer.status(), 415, "a form of a page");
    }
    assert_eq!(put("origin", s.base.clone()).await, 201, "its own page");
    assert_eq!(put("host", format!("localhost:{port}")).await, 200);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_for_other_machines_starts_only_with_a_token() {
    let (url, dir) = (new_database().await, open_dir());
    let open = || {
        let mut config = config_on(&url, &dir);
        config.http.set_ip([0, 0, 0, 0].into());
        config
    };
    let refused = serve(open()).await.err().expect("nobody could use it");
    assert!(matches!(refused, ServeError::NoToken(_)), "{refused}");
    assert!(refused.to_string().contains("--admin-token-file"), "{refused}");
    let mut config = open();
    config.access.admin_token = Some(ADMIN_TOKEN.into());
    let running = serve(config).await.expect("it starts");
    let url_of = |port: u16| format!("http://127.0.0.1:{port}/v1/tokens");
    let client = reqwest::Client::new();
    let stranger = client.get(url_of(running.http().port())).send().await.expect("an answer");
    assert_eq!(stranger.status(), 401);
    assert_eq!(stranger.headers()["www-authenticate"], "Bearer");
    let made = client.post(url_of(running.http().port())).bearer_auth(ADMIN_TOKEN);
    let made = made.json(&json!({"name": "first", "scope": "admin"})).send().await.expect("an answer");
    assert_eq!(made.status(), 201);
    running.stop().await;
    let running = serve(open()).await.expect("a token was made before");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_admin_token_is_refused() {
    let (url, dir) = (new_database().await, open_dir());
    let mut config = config_on(&url, &dir);
    config.access.admin_token = Some("short".into());
    let refused = serve(config).await.err().expect("it is easy to guess");
    assert!(matches!(refused, ServeError::ShortToken(5)), "{refused}");
}

/// A limit of one request per second, and three at once.
fn slow() -> RateLimit {
    RateLimit { requests_per_s: NonZero::<u32>::MIN, burst_max: NonZero::new(3).expect("not zero") }
}

/// The first refusal of a client that sends one request after another.
async fn over_rate(s: &Service, token: Option<&str>) -> Response {
    let read = Operation { method: Method::GET, path: "/v1/hardware".into(), scope: None };
    let begin = Instant::now();
    loop {
        let answer = read.call(&s.base, token).await;
        if answer.status() == 429 {
            return answer;
        }
        assert!(answer.status() == 200 && begin.elapsed() < PATIENCE, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_too_many_requests_waits() {
    let s = service_on_config(|config| {
        config.access.admin_token = Some(ADMIN_TOKEN.into());
        config.access.rate = slow();
    })
    .await;
    let made = s.client.post(format!("{}/v1/tokens", s.base)).bearer_auth(ADMIN_TOKEN);
    let made = made.json(&json!({"name": "other", "scope": "read"})).send().await.expect("an answer");
    let made: Value = made.json().await.expect("JSON");
    let other = made["token"].as_str().expect("a token");
    let refused = over_rate(&s, Some(ADMIN_TOKEN)).await;
    let seconds: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert_eq!(seconds, 1, "one request comes back each second");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let document: Value = refused.json().await.expect("JSON");
    assert_eq!(document["status"], 429, "{document:#}");
    let write = Operation { method: Method::PUT, path: "/v1/hardware/t4".into(), scope: None };
    let (begin, mut admitted) = (Instant::now(), 0);
    while write.status(&s.base, Some(ADMIN_TOKEN)).await != 429 {
        assert!(begin.elapsed() < PATIENCE, "writes count, too");
        admitted += 1;
    }

    let get = |path: &str| Operation { method: Method::GET, path: path.into(), scope: None };
    assert_eq!(get("/v1/hardware").status(&s.base, Some(other)).await, 200, "another token has requests of its own");
    for _ in 0..5 {
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(get(path).status(&s.base, Some(ADMIN_TOKEN)).await, 200, "{path} has no limit");
        }
    }
    let metrics = get("/metrics").call(&s.base, Some(other)).await.text().await.expect("text");
    let count = "apportion_requests_over_rate_total";
    let value = metrics.lines().find_map(|line| line.strip_prefix(count)?.trim().parse::<f64>().ok());
    assert!(value.is_some_and(|value| value >= 2.0), "{metrics}");
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let audit = get("/v1/audit").call(&s.base, Some(ADMIN_TOKEN)).await;
    assert_eq!(audit.status(), 200, "the time of Retry-After is over");
    let audit: Value = audit.json().await.expect("JSON");
    let writes = audit.as_array().expect("entries").iter().filter(|entry| entry["method"] == "PUT").count();
    assert_eq!(writes, admitted, "the audit leaves refused requests out: {audit:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_a_token_share_one_limit() {
    let s = service_on_config(|config| config.access.rate = slow()).await;
    over_rate(&s, None).await;
    assert_eq!(s.get("/livez").await.0, 200);
    let agents = s.client.get(format!("{}/v1/access", s.base)).bearer_auth(s.running.token());
    for _ in 0..8 {
        let agents = agents.try_clone().expect("no body").send().await.expect("an answer");
        assert_eq!(agents.status(), 200, "agents are not counted");
    }
    s.running.stop().await;
}
