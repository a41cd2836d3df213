//! Plans over HTTP: requests, solving, outcomes.

use crate::support::{Service, hard_problem, problem, profiles, service, spec};
use apportion_api::http::plans::PLANS_OPEN_MAX;
use serde_json::{Value, json};
use sqlx::Connection;

async fn solved(s: &Service, request: &Value) -> Value {
    let (status, document) = s.post("/v1/plans", request).await;
    assert_eq!(status, 200, "{document:#}");
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_survives_a_restart() {
    let s = service().await;
    let plan = solved(&s, &json!({"problem": problem(60.0)})).await;
    assert_eq!(plan["state"], "succeeded", "{plan:#}");
    assert!(["optimal", "feasible"].contains(&plan["plan"]["status"].as_str().unwrap_or_default()), "{plan:#}");
    let assignments = plan["plan"]["pipelines"][0]["assignments"].as_array().expect("assignments");
    assert!(assignments.iter().all(|a| a["variant"] == "good"), "four devices suffice for the accurate one");
    let s = s.restart().await;
    let id = plan["id"].as_str().expect("an identifier");
    let (status, again) = s.get(&format!("/v1/plans/{id}")).await;
    assert_eq!((status, &again), (200, &plan));
    let (_, list) = s.get("/v1/plans").await;
    assert_eq!((list.as_array().map(Vec::len), &list[0]["id"], list[0].get("plan")), (Some(1), &json!(id), None));
    assert_eq!(list[0]["pipelines"], json!([plan["problem"]["pipelines"][0]["name"]]));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_prefer_the_answer_is_immediate() {
    let s = service().await;
    let request = s.client.post(format!("{}/v1/plans", s.base)).json(&json!({"problem": problem(20.0)}));
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 202);
    let location = response.headers()["location"].to_str().expect("a path").to_string();
    let state =
        s.until(&location, |p| p["state"].as_str().filter(|s| !matches!(*s, "queued" | "solving")).map(str::to_owned));
    assert_eq!(state.await, "succeeded");
    assert_eq!(s.delete(&location).await.0, 409, "it is over");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_infeasible_problem_gets_an_answer() {
    let s = service().await;
    let plan = solved(&s, &json!({"problem": problem(1e6)})).await;
    assert_eq!(plan["state"], "infeasible", "{plan:#}");
    assert_eq!(plan["plan"]["status"], "infeasible");
    assert!(plan["plan"]["explanation"]["shortfalls"].as_array().is_some_and(|s| !s.is_empty()), "{plan:#}");
    let id = plan["id"].as_str().expect("an identifier");
    let (status, refusal) = s.put_target(0, &json!([id])).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/plans")));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_pipelines_are_planned_with_their_profiles() {
    let s = service().await;
    let asked = json!({"pipelines": [{"name": "digits", "demand_qps": 20.0}]});
    let (status, refusal) = s.post("/v1/plans", &asked).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/hardware")), "there is no hardware");
    s.put("/v1/hardware/demo", &json!({"price_per_hour": 2.0})).await;
    let (status, refusal) = s.post("/v1/plans", &asked).await;
    assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!("/pipelines/0/name")), "there is no pipeline");
    s.put("/v1/pipelines/digits", &spec()).await;
    assert_eq!(s.post("/v1/plans", &asked).await.0, 422, "there is no profile");
    s.put("/v1/pipelines/digits/profiles", &profiles()).await;
    let plan = solved(&s, &asked).await;
    assert_eq!(plan["state"], "succeeded", "{plan:#}");
    assert_eq!(plan["problem"]["hardware"][0], json!({"name": "demo", "price_per_hour": 2.0}));
    let tasks: Vec<_> =
        plan["plan"]["pipelines"][0]["assignments"].as_array().expect("some").iter().map(|a| &a["task"]).collect();
    assert!(tasks.contains(&&json!("find")) && tasks.contains(&&json!("read")), "{plan:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_holds_on_its_trace() {
    let s = service().await;
    let post = s.client.post(format!("{}/v1/traces", s.base)).body("second,qps\n0,30\n1,60\n2,30\n").send().await;
    let trace: Value = post.expect("an answer").json().await.expect("a document");
    let plan = solved(&s, &json!({"problem": problem(40.0), "trace": trace["id"], "planner": "greedy"})).await;
    assert_eq!((&plan["state"], &plan["plan"]["planner"]["name"]), (&json!("succeeded"), &json!("greedy")), "{plan:#}");
    assert!(plan["plan"]["estimate"]["attainment"].as_f64().is_some_and(|a| a >= 0.99), "{plan:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_for_plans_name_the_place() {
    let s = service().await;
    let mut broken = problem(10.0);
    broken["pipelines"][0]["slo_ms"] = json!(-4);
    let cases = [
        (json!({"problem": broken}), "/problem/pipelines/0/slo_ms"),
        (json!({"problem": problem(10.0), "planner": "magic"}), "/planner"),
        (json!({"problem": problem(10.0), "gap": 2}), "/gap"),
        (json!({"problem": problem(10.0), "time_limit_s": 0}), "/time_limit_s"),
        (json!({"problem": problem(10.0), "trace": uuid::Uuid::now_v7()}), "/trace"),
        (json!({"problem": problem(10.0), "hardware": []}), "/problem"),
        (json!({"problem": problem(10.0), "pipelines": []}), ""),
        (json!({}), ""),
    ];
    for (request, pointer) in cases {
        let (status, refusal) = s.post("/v1/plans", &request).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{refusal:#}");
    }
    assert_eq!(s.get("/v1/plans").await.1, json!([]), "nothing was enqueued");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_plan_is_cancelled_at_once() {
    let s = service().await;
    let id = uuid::Uuid::now_v7();
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    // Without a job no worker begins it.
    apportion_api::store::plans::insert(&mut db, id, &problem(1.0), &json!({}), None, chrono::Utc::now())
        .await
        .expect("a row");
    let (status, plan) = s.delete(&format!("/v1/plans/{id}")).await;
    assert_eq!((status, &plan["state"]), (202, &json!("cancelled")));
    assert_eq!(s.delete(&format!("/v1/plans/{id}")).await.0, 409);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sent_twice_under_one_key_is_one_plan() {
    let s = service().await;
    let post = |demand: f64| {
        let request = s.client.post(format!("{}/v1/plans", s.base)).header("idempotency-key", "k1");
        request.json(&json!({"problem": problem(demand)})).send()
    };
    let (first, second) = tokio::join!(post(20.0), post(20.0));
    let location = |r: reqwest::Result<reqwest::Response>| r.expect("an answer").headers()["location"].clone();
    assert_eq!(location(first), location(second));
    assert_eq!(post(21.0).await.expect("an answer").status(), 422);
    assert_eq!(s.get("/v1/plans").await.1.as_array().map(Vec::len), Some(1));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_progress_can_be_cancelled() {
    let s = service().await;
    let request = json!({"problem": hard_problem(), "gap": 0.0, "time_limit_s": 600.0});
    let posted = s.client.post(format!("{}/v1/plans", s.base)).json(&request).send().await.expect("an answer");
    assert_eq!(posted.status(), 202);
    let path = posted.headers()["location"].to_str().expect("a path").to_string();
    let bound = |plan: &Value| {
        assert!(["queued", "solving"].contains(&plan["state"].as_str()?), "too easy a problem: {}", plan["state"]);
        (plan["progress"]["goal"] == "cost").then(|| plan["progress"]["bound"].as_f64())?
    };
    assert!(s.until(&path, bound).await > 0.0);
    assert_eq!(s.delete(&path).await.0, 202);
    let over = |plan: &Value| (plan["state"] == "cancelled").then(|| plan.get("progress").is_none());
    assert!(s.until(&path, over).await, "what is over makes no progress");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_progress_can_be_stopped_with_its_best_plan() {
    let s = service().await;
    let request = json!({"problem": hard_problem(), "gap": 0.0, "time_limit_s": 600.0});
    let posted = s.client.post(format!("{}/v1/plans", s.base)).json(&request).send().await.expect("an answer");
    let path = posted.headers()["location"].to_str().expect("a path").to_string();
    let stop = format!("{path}/stop");
    s.until(&path, |plan| (plan["progress"]["goal"] == "cost").then_some(())).await;
    let (status, answer) = s.post(&stop, &Value::Null).await;
    assert_eq!(status, 202, "too easy a problem: {answer:#}");
    // The plan may be over by now.
    assert!([202, 409].contains(&s.post(&stop, &Value::Null).await.0));
    let over = |plan: &Value| (!["queued", "solving"].contains(&plan["state"].as_str()?)).then(|| plan.clone());
    let kept = s.until(&path, over).await;
    assert_eq!((&kept["state"], &kept["error"]), (&json!("succeeded"), &Value::Null), "{kept:#}");
    let planner = &kept["plan"]["planner"];
    assert_eq!((&kept["plan"]["status"], &planner["stopped"]), (&json!("feasible"), &json!("stopped")), "{planner:#}");
    assert!(kept["plan"]["pipelines"][0]["assignments"].as_array().is_some_and(|groups| !groups.is_empty()), "{kept:#}");
    let (status, refusal) = s.post(&stop, &Value::Null).await;
    assert_eq!((status, refusal["detail"].as_str().map(|d| d.ends_with("is succeeded already"))), (409, Some(true)));
    assert_eq!(s.get(&path).await.1, kept, "a late stop changes nothing");
    assert_eq!(s.post(&format!("/v1/plans/{}/stop", uuid::Uuid::now_v7()), &Value::Null).await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_its_plan() {
    let s = service().await;
    let request = json!({"problem": hard_problem(), "gap": 0.0, "time_limit_s": 600.0});
    let post = |key: Option<&'static str>| {
        let post = s.client.post(format!("{}/v1/plans", s.base)).header("prefer", "wait=300").json(&request);
        key.into_iter().fold(post, |post, key| post.header("idempotency-key", key)).send()
    };
    let state = |number: usize, state: &'static str| {
        move |list: &Value| {
            let plans = list.as_array()?;
            (plans.len() == number && plans[0]["state"] == state).then_some(())
        }
    };
    // The request is dropped with its connection while the plan is being solved.
    tokio::select! {
        answer = post(None) => panic!("too easy a problem: {answer:?}"),
        () = s.until("/v1/plans", state(1, "solving")) => {}
    }
    s.until("/v1/plans", state(1, "cancelled")).await;
    // A client with a key may come back for it.
    tokio::select! {
        answer = post(Some("k1")) => panic!("too easy a problem: {answer:?}"),
        () = s.until("/v1/plans", state(2, "solving")) => {}
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let (_, list) = s.get("/v1/plans").await;
    assert_eq!(list[0]["state"], "solving", "{list:#}");
    assert_eq!(s.delete(&format!("/v1/plans/{}", list[0]["id"].as_str().expect("an identifier"))).await.0, 202);
    s.running.stop().await;
}

/// Adds open plans of a project. Another process has them.
async fn add_open(db: &mut sqlx::PgConnection, count: i64, project: Option<&str>) {
    let rows = "insert into plans (id, state, problem, options, created_at, pipelines, project)
                select gen_random_uuid(), 'solving', '{}', '{}', now(), '{}', $2::text from generate_series(1, $1)";
    sqlx::query(rows).bind(count).bind(project).execute(&mut *db).await.expect("rows");
    let jobs = "insert into jobs (plan, attempts, lease_until, project)
                select id, 1, now() + interval '1 hour', project from plans where state = 'solving' on conflict do nothing";
    sqlx::query(jobs).execute(db).await.expect("rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_plans_are_bounded_by_project_and_in_all() {
    const HALF: i64 = PLANS_OPEN_MAX / 2;
    let s = service().await;
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    let mut of_shop = spec();
    of_shop["replan"] = json!({"project": "shop"});
    assert_eq!(s.put("/v1/hardware/demo", &json!({"price_per_hour": 1.0})).await.0, 201);
    assert_eq!(s.put("/v1/projects/shop", &json!({})).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits", &of_shop).await.0, 201);
    assert_eq!(s.put("/v1/pipelines/digits/profiles", &profiles()).await.0, 200);
    let (of_none, of_shop) =
        (json!({"problem": problem(20.0)}), json!({"pipelines": [{"name": "digits", "demand_qps": 5.0}]}));
    add_open(&mut db, HALF - 1, None).await;
    solved(&s, &of_none).await;
    add_open(&mut db, 1, None).await;
    let refused = async |asked: &Value, begin: String| {
        let (status, refusal) = s.post("/v1/plans", asked).await;
        assert!(status == 409 && refusal["detail"].as_str().is_some_and(|why| why.starts_with(&begin)), "{refusal:#}");
    };
    refused(&of_none, format!("{HALF} plans of this project")).await;
    solved(&s, &of_shop).await;
    add_open(&mut db, HALF, Some("shop")).await;
    refused(&of_shop, format!("{PLANS_OPEN_MAX} plans")).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_plans_reads_none_of_their_documents() {
    let s = service().await;
    solved(&s, &json!({"problem": problem(20.0)})).await;
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    // The role belongs to the whole cluster, which only this test binary uses.
    let role = format!("lister_{}", uuid::Uuid::now_v7().simple());
    let columns = "id, state, pipelines, options, error, created_at, started_at, finished_at, progress, project";
    let grant = format!("create role {role}; grant select ({columns}) on plans to {role}; set role {role}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(grant)).execute(&mut db).await.expect("a role that may not read documents");
    let filter = apportion_api::store::plans::PlanFilter::default();
    let list = apportion_api::store::plans::list(&mut db, &filter, None, 10).await.expect("no column but these is read");
    assert_eq!(list.len(), 1);
    s.running.stop().await;
}
