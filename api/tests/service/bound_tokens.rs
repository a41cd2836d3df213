//! Tokens that are bound to a project: what they have, and what is not there for them.

use crate::support::{Service, problem, profiles, service_with_tokens, spec};
use apportion_api::http::schedules::SCHEDULES_MAX;
use apportion_wire::Scope;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;

/// A client with a token of its own.
struct Client<'a> {
    service: &'a Service,
    token: String,
}

impl<'a> Client<'a> {
    /// A client with a new token, which a service's administrator makes.
    async fn new(service: &'a Service, scope: Scope, project: &str) -> Client<'a> {
        let asked = json!({"name": format!("{project}-{scope}"), "scope": scope, "project": project});
        let (status, made) = service.post("/v1/tokens", &asked).await;
        assert_eq!((status, &made["project"]), (201, &json!(project)), "{made:#}");
        Self { service, token: made["token"].as_str().expect("a token").to_owned() }
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.service.base));
        let request = request.bearer_auth(&self.token).header("prefer", "wait=60").json(body);
        let response = request.send().await.expect("an answer");
        let status = response.status().as_u16();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, &json!({})).await
    }

    async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call(Method::PUT, path, body).await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call(Method::POST, path, body).await
    }

    /// Uploads a trace; returns its identifier.
    async fn trace(&self) -> String {
        let request = reqwest::Client::new().post(format!("{}/v1/traces?name=peak", self.service.base));
        let request = request.bearer_auth(&self.token).header("content-type", "text/csv").body("second,qps\n0,5\n");
        let made: Value = request.send().await.expect("an answer").json().await.expect("JSON");
        made["id"].as_str().expect("an identifier").to_owned()
    }

    /// Asks for a plan under one key; returns the status and the plan's identifier.
    async fn ask(&self, demand_qps: f64) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}/v1/plans", self.service.base)).bearer_auth(&self.token);
        let request = request.header("idempotency-key", "k").json(&json!({"problem": problem(demand_qps)}));
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.json::<Value>().await.expect("JSON")["id"].clone())
    }

    /// The keys of a list.
    async fn keys(&self, path: &str, key: &str) -> Vec<String> {
        let (status, list) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {list:#}");
        let keys = list.as_array().expect("a list").iter().map(|entry| entry[key].as_str().expect("a key").to_owned());
        keys.collect()
    }
}

/// A pipeline of a project.
fn pipeline(name: &str, project: &str) -> Value {
    let mut pipeline = spec();
    pipeline["name"] = json!(name);
    pipeline["replan"] = json!({"project": project});
    pipeline
}

/// What a project has: one of each resource.
struct Owned {
    pipeline: String,
    schedule: String,
    trace: String,
    plan: String,
}

/// Makes one of each resource with a token of the project.
async fn fill(client: &Client<'_>, project: &str) -> Owned {
    let (name, schedule) = (format!("{project}-digits"), format!("{project}-morning"));
    let path = format!("/v1/pipelines/{name}");
    assert_eq!(client.put(&path, &pipeline(&name, project)).await.0, 201);
    assert_eq!(client.put(&format!("{path}/profiles"), &profiles()).await.0, 200);
    let morning = json!({"pipeline": name, "every_s": 3600, "hold": {"for_s": 60, "reason": "quiet"}});
    assert_eq!(client.put(&format!("/v1/schedules/{schedule}"), &morning).await.0, 201);
    let trace = client.trace().await;
    let (status, plan) = client.post("/v1/plans", &json!({"problem": problem(5.0), "trace": trace})).await;
    assert_eq!((status, &plan["state"]), (200, &json!("succeeded")), "{plan:#}");
    Owned { pipeline: name, schedule, trace, plan: plan["id"].as_str().expect("an identifier").to_owned() }
}

/// Two projects, each with what [`fill`] makes.
async fn two_projects(s: &Service) -> [(Client<'_>, Owned); 2] {
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 1.0})).await.0, 201);
    let mut made = Vec::new();
    for project in ["a", "b"] {
        assert_eq!(s.put(&format!("/v1/projects/{project}"), &json!({})).await.0, 201);
        let client = Client::new(s, Scope::Apply, project).await;
        let owned = fill(&client, project).await;
        made.push((client, owned));
    }
    made.try_into().ok().expect("two projects")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_never_left_without_its_project() {
    let s = service_with_tokens().await;
    let [(a, own), _] = two_projects(&s).await;
    let admin = Client::new(&s, Scope::Admin, "a").await;
    let (pipeline, schedule) = (format!("/v1/pipelines/{}", own.pipeline), format!("/v1/schedules/{}", own.schedule));
    let (status, refusal) = admin.call(Method::DELETE, &pipeline, &json!({})).await;
    let why = refusal["detail"].as_str().unwrap_or_default();
    assert!(status == 409 && why.contains(&own.schedule), "{status} {refusal:#}");
    assert_eq!(a.get(&schedule).await.0, 200, "it is still of its project");
    for path in [&schedule, &pipeline] {
        assert_eq!(admin.call(Method::DELETE, path, &json!({})).await.0, 204, "{path}");
    }
    s.running.stop().await;
}

/// The operations that a bound token with the scope `admin` may call, by method and path.
const OPEN: [(&str, &str); 17] = [
    ("GET", "/v1/access"),
    ("GET", "/v1/files/{sha256}"),
    ("HEAD", "/v1/files/{sha256}"),
    ("PUT", "/v1/files/{sha256}"),
    ("GET", "/v1/hardware"),
    ("GET", "/v1/hardware/{name}"),
    ("GET", "/v1/pipelines"),
    ("GET", "/v1/plans"),
    ("POST", "/v1/plans"),
    ("GET", "/v1/projects/{name}"),
    ("GET", "/v1/schedules"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("GET", "/v1/tokens/{id}"),
    ("DELETE", "/v1/tokens/{id}"),
    ("GET", "/v1/traces"),
    ("POST", "/v1/traces"),
];

/// Resources of projects, by the begin of their paths.
const OWNED: [&str; 4] = ["/v1/pipelines/{name}", "/v1/plans/{id}", "/v1/schedules/{name}", "/v1/traces/{id}"];

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_is_open_or_owned_or_refused() {
    let s = service_with_tokens().await;
    let [(_, _), (_, foreign)] = two_projects(&s).await;
    let admin = Client::new(&s, Scope::Admin, "a").await;
    let description: Value = serde_json::from_str(&apportion_api::http::openapi::document()).expect("JSON");
    let (mut owned, mut refused) = (0, 0);
    for (pattern, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            if operation["x-scope"].is_null() {
                continue;
            }
            let key = match pattern.as_str() {
                pattern if pattern.starts_with("/v1/plans/") => &foreign.plan,
                pattern if pattern.starts_with("/v1/traces/") => &foreign.trace,
                pattern if pattern.starts_with("/v1/schedules/") => &foreign.schedule,
                _ => &foreign.pipeline,
            };
            let path = pattern.replace("{name}", key).replace("{id}", key).replace("{sha256}", &"ab".repeat(32));
            let path = path.replace("{generation}", "77").replace("{number}", "77");
            let method = method.to_uppercase();
            let (status, answer) = admin.call(method.parse().expect("a method"), &path, &json!({})).await;
            let what = format!("{method} {path}: {status} {answer:#}");
            if OPEN.contains(&(method.as_str(), pattern.as_str())) {
                assert!(![401, 403].contains(&status), "{what}");
            } else if OWNED.iter().any(|begin| pattern.starts_with(begin)) {
                let may_create = method == "PUT" && OWNED.contains(&pattern.as_str());
                assert_eq!(status, if may_create { 403 } else { 404 }, "{what}");
                owned += 1;
            } else {
                assert_eq!(status, 403, "{what}");
                refused += 1;
            }
        }
    }
    assert!(owned >= 20 && refused >= 20, "{owned} operations on resources of projects, {refused} refused");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_token_has_its_project_and_no_other() {
    let s = service_with_tokens().await;
    let [(a, own), (_, foreign)] = two_projects(&s).await;
    assert_eq!(a.get("/v1/access").await.1["project"], "a");
    for (mine, other) in [
        (format!("/v1/pipelines/{}", own.pipeline), format!("/v1/pipelines/{}", foreign.pipeline)),
        (format!("/v1/pipelines/{}/profiles", own.pipeline), format!("/v1/pipelines/{}/profiles", foreign.pipeline)),
        (format!("/v1/schedules/{}", own.schedule), format!("/v1/schedules/{}", foreign.schedule)),
        (format!("/v1/traces/{}", own.trace), format!("/v1/traces/{}", foreign.trace)),
        (format!("/v1/plans/{}", own.plan), format!("/v1/plans/{}", foreign.plan)),
        ("/v1/projects/a".to_owned(), "/v1/projects/b".to_owned()),
    ] {
        assert_eq!(a.get(&mine).await.0, 200, "{mine}");
        assert_eq!(a.get(&other).await.0, 404, "{other}");
        assert_eq!(s.get(&other).await.0, 200, "{other} is there for others");
    }
    // Spelt in another way, it is the same pipeline.
    let spelt = foreign.pipeline.replace('b', "%62");
    assert_eq!(a.get(&format!("/v1/pipelines/{spelt}")).await.0, 404);
    for (list, key, mine) in [
        ("/v1/pipelines", "name", &own.pipeline),
        ("/v1/schedules", "name", &own.schedule),
        ("/v1/traces", "id", &own.trace),
        ("/v1/plans", "id", &own.plan),
    ] {
        assert_eq!(a.keys(list, key).await, [mine.as_str()], "{list}");
        assert_eq!(a.get(&format!("{list}?project=b")).await.0, 404, "{list}");
        let (_, all) = s.get(list).await;
        assert_eq!(all.as_array().map(Vec::len), Some(2), "{list}: an unbound token has both");
        let (_, one) = s.get(&format!("{list}?project=a")).await;
        assert_eq!((&one[0][key], one.as_array().map(Vec::len)), (&json!(mine), Some(1)), "{list}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_name_resources_of_the_own_project_alone() {
    let s = service_with_tokens().await;
    let [(a, own), (_, foreign)] = two_projects(&s).await;
    let pipelines = |name: &str| json!({"pipelines": [{"name": name, "demand_qps": 5.0}]});
    assert_eq!(a.post("/v1/plans", &pipelines(&own.pipeline)).await.0, 200);
    for (body, pointer) in [
        (pipelines(&foreign.pipeline), "/pipelines/0/name"),
        (json!({"from": foreign.plan}), "/from"),
        (json!({"problem": problem(5.0), "trace": foreign.trace}), "/trace"),
    ] {
        let (status, refusal) = a.post("/v1/plans", &body).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{refusal:#}");
        assert_eq!(s.post("/v1/plans", &body).await.0, 200, "an unbound token may: {body}");
    }
    for against in [foreign.plan.as_str(), "target"] {
        let (status, refusal) = a.get(&format!("/v1/plans/{}/diff?against={against}", own.plan)).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/against")), "{refusal:#}");
    }
    let hold = json!({"for_s": 60, "reason": "quiet"});
    for schedule in
        [json!({"every_s": 60, "hold": hold}), json!({"pipeline": foreign.pipeline, "every_s": 60, "hold": hold})]
    {
        let (status, refusal) = a.put("/v1/schedules/new", &schedule).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/pipeline")), "{refusal:#}");
    }
    for project in [json!({"project": "b"}), json!({}), json!({"project": "default"})] {
        let mut moved = pipeline(&own.pipeline, "a");
        moved["replan"] = project;
        let (status, refusal) = a.put(&format!("/v1/pipelines/{}", own.pipeline), &moved).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some("/replan/project")), "{refusal:#}");
    }
    let taken = a.put(&format!("/v1/pipelines/{}", foreign.pipeline), &pipeline(&foreign.pipeline, "a")).await;
    assert_eq!(taken.0, 403, "{:#}", taken.1);
    assert_eq!(s.get(&format!("/v1/pipelines/{}", foreign.pipeline)).await.1["replan"]["project"], "b");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_of_others_are_of_their_pipelines_project() {
    let s = service_with_tokens().await;
    let [(a, own), (b, foreign)] = two_projects(&s).await;
    let ask = async |names: &[&String]| {
        let pipelines: Vec<Value> = names.iter().map(|name| json!({"name": name, "demand_qps": 5.0})).collect();
        let (status, plan) = s.post("/v1/plans", &json!({"pipelines": pipelines})).await;
        assert_eq!(status, 200, "{plan:#}");
        format!("/v1/plans/{}", plan["id"].as_str().expect("an identifier"))
    };
    let (of_a, of_both) = (ask(&[&own.pipeline]).await, ask(&[&own.pipeline, &foreign.pipeline]).await);
    assert_eq!((a.get(&of_a).await.0, b.get(&of_a).await.0), (200, 404));
    assert_eq!((a.get(&of_both).await.0, b.get(&of_both).await.0), (404, 404));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_is_of_one_project() {
    let s = service_with_tokens().await;
    let [(a, _), (b, _)] = two_projects(&s).await;
    let (status, of_a) = a.ask(5.0).await;
    assert_eq!(status, 202);
    let (status, again) = a.ask(5.0).await;
    assert!([200, 202].contains(&status) && again == of_a, "it is the same plan: {status} {again}");
    assert_eq!(a.ask(6.0).await.0, 422, "the key is used");
    // Another project's key with the same text is another key, whatever it asks for.
    let (status, of_b) = b.ask(6.0).await;
    assert!(status == 202 && of_b != of_a, "{status} {of_b}");
    assert_eq!(s.get("/v1/plans?project=a").await.1.as_array().map(Vec::len), Some(2), "with the first one");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_made_again_has_nothing_of_the_old_one() {
    let s = service_with_tokens().await;
    let [(a, own), (b, foreign)] = two_projects(&s).await;
    assert_eq!(a.ask(5.0).await.0, 202);
    let (_, tokens) = s.get("/v1/tokens?project=a").await;
    let tokens = tokens.as_array().expect("a list").iter().map(|token| token["id"].as_str().expect("an identifier"));
    let mut gone = vec![format!("/v1/schedules/{}", own.schedule), format!("/v1/pipelines/{}", own.pipeline)];
    gone.extend(tokens.map(|id| format!("/v1/tokens/{id}")));
    gone.push("/v1/projects/a".to_owned());
    for path in &gone {
        assert_eq!(s.delete(path).await.0, 204, "{path}");
    }
    assert_eq!(s.put("/v1/projects/a", &json!({})).await.0, 201);
    let new = Client::new(&s, Scope::Apply, "a").await;
    for (list, key) in [("/v1/plans", "id"), ("/v1/traces", "id"), ("/v1/pipelines", "name"), ("/v1/schedules", "name")] {
        assert!(new.keys(list, key).await.is_empty(), "{list}");
    }
    for path in [format!("/v1/plans/{}", own.plan), format!("/v1/traces/{}", own.trace)] {
        assert_eq!((new.get(&path).await.0, s.get(&path).await.0), (404, 200), "{path} is no project's alone");
    }
    assert_eq!(new.ask(6.0).await.0, 202, "the key of the old project is another key");
    assert_eq!(b.keys("/v1/plans", "id").await, [foreign.plan.as_str()], "another project keeps what it has");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_made_again_has_nothing_of_the_old_one() {
    let s = service_with_tokens().await;
    let [(a, own), (b, _)] = two_projects(&s).await;
    let path = format!("/v1/pipelines/{}", own.pipeline);
    let arrivals = format!("{path}/arrivals?seconds=3600");
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let reported = "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed)
                    values ($1, extract(epoch from now())::bigint - 5, 3, 3, 0, 0, 0)";
    sqlx::query(reported).bind(&own.pipeline).execute(&mut db).await.expect("a row");
    assert_eq!(a.get(&arrivals).await.1[0]["offered"], 3);
    assert_eq!(a.put(&format!("{path}/hold"), &json!({"reason": "quiet"})).await.0, 200);
    assert_eq!(a.get(&format!("{path}/hold")).await.1["reason"], "quiet");
    for path in [&format!("/v1/schedules/{}", own.schedule), &path] {
        assert_eq!(s.delete(path).await.0, 204, "{path}");
    }
    assert_eq!(b.put(&path, &pipeline(&own.pipeline, "b")).await.0, 201, "the name is free");
    assert_eq!(b.get(&arrivals).await, (200, json!([])), "the load was another project's");
    assert_eq!(s.get("/v1/holds").await, (200, json!([])));
    assert_eq!((b.get(&format!("{path}/hold")).await.0, s.get("/v1/hold").await.0), (404, 404));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_leaves_room_for_schedules_of_others() {
    let s = service_with_tokens().await;
    let [(a, own), (b, foreign)] = two_projects(&s).await;
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    // They never fire.
    let more = "insert into schedules (name, spec, made_by, updated_at)
                select 'more-' || i, spec, made_by, updated_at from schedules, generate_series(1, $2) i where name = $1";
    let half = SCHEDULES_MAX / 2;
    sqlx::query(more).bind(&own.schedule).bind(half - 1).execute(&mut db).await.expect("rows");
    let schedule =
        |pipeline: &str| json!({"pipeline": pipeline, "every_s": 3600, "hold": {"for_s": 60, "reason": "quiet"}});
    let (status, refusal) = a.put("/v1/schedules/a-new", &schedule(&own.pipeline)).await;
    let why = refusal["detail"].as_str().unwrap_or_default();
    assert!(status == 409 && why.contains(&format!("project a has {half} schedules")), "{status} {refusal:#}");
    assert_eq!(
        a.put(&format!("/v1/schedules/{}", own.schedule), &schedule(&own.pipeline)).await.0,
        200,
        "it is no new one"
    );
    assert_eq!(b.put("/v1/schedules/b-new", &schedule(&foreign.pipeline)).await.0, 201);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_administrator_makes_bound_tokens_alone() {
    let s = service_with_tokens().await;
    for project in ["a", "b"] {
        assert_eq!(s.put(&format!("/v1/projects/{project}"), &json!({})).await.0, 201);
    }
    let (admin, other) = (Client::new(&s, Scope::Admin, "a").await, Client::new(&s, Scope::Read, "b").await);
    let token = |project: Value| json!({"name": "x", "scope": "read", "project": project});
    let (status, made) = admin.post("/v1/tokens", &token(Value::Null)).await;
    assert_eq!((status, &made["project"]), (201, &json!("a")), "its own is the default");
    assert_eq!(admin.post("/v1/tokens", &token(json!("a"))).await.0, 201);
    assert_eq!(admin.post("/v1/tokens", &token(json!("b"))).await.0, 403);
    let (status, refusal) = s.post("/v1/tokens", &token(json!("nowhere"))).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/project")), "{refusal:#}");
    let (_, of_b) = s.get("/v1/tokens?project=b").await;
    let foreign = format!("/v1/tokens/{}", of_b[0]["id"].as_str().expect("an identifier"));
    assert_eq!(admin.call(Method::DELETE, &foreign, &json!({})).await.0, 404);
    assert_eq!(admin.get(&foreign).await.0, 404);
    let (status, shown) = s.get(&foreign).await;
    assert_eq!((status, &shown), (200, &of_b[0]), "as in the list, without its secret");
    assert_eq!(other.get("/v1/access").await.0, 200, "it still counts");
    let listed = admin.keys("/v1/tokens", "project").await;
    assert_eq!(listed, ["a", "a", "a"]);
    assert_eq!(s.delete("/v1/projects/b").await.0, 409, "a token that counts is bound to it");
    assert_eq!(s.delete(&foreign).await.0, 204);
    assert_eq!(s.delete("/v1/projects/b").await.0, 204);
    s.running.stop().await;
}
