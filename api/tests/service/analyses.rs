//! Analyses: simulations, frontiers and comparisons as jobs, with the figures of the library's calls.

use crate::support::{Service, hard_problem, problem, service};
use apportion_api::analyses::comparison::{ComparisonRequest, ComparisonWatch};
use apportion_api::analyses::frontier::{FrontierRequest, FrontierWatch, SweptValue};
use apportion_api::analyses::load::with_demand;
use apportion_api::analyses::simulation::{SimulationInput, SimulationRequest};
use apportion_api::http::analyses::ANALYSES_OPEN_MAX;
use apportion_domain::Problem;
use apportion_estimator::SimulateOptions;
use apportion_wire::{ProblemFile, problem_from_tree};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::sync::Arc;
use uuid::Uuid;

fn read(tree: &Value) -> Problem {
    match problem_from_tree("problem", tree.clone()) {
        Ok(ProblemFile::Allocation(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

/// Asks for an analysis; returns its path.
async fn ask(s: &Service, resource: &str, request: &Value) -> String {
    let posted = s.client.post(format!("{}{resource}", s.base)).json(request).send().await.expect("an answer");
    let status = posted.status();
    let location = posted.headers().get("location").and_then(|path| path.to_str().ok()).map(str::to_owned);
    let body = posted.text().await.expect("a body");
    assert_eq!(status, 202, "{body}");
    location.expect("a path")
}

/// The document of an analysis that is over.
async fn over(s: &Service, path: &str) -> Value {
    let is_over = |document: &Value| {
        let state = document["state"].as_str()?;
        (!["queued", "running"].contains(&state)).then(|| document.clone())
    };
    s.until(path, is_over).await
}

/// The document of an analysis that is done.
async fn done(s: &Service, resource: &str, request: &Value) -> Value {
    let path = ask(s, resource, request).await;
    let document = over(s, &path).await;
    assert_eq!(document["state"], "done", "{document:#}");
    document
}

/// A frontier whose hardest point is infeasible at once, and whose other points take long.
fn slow_frontier() -> Value {
    let mut asked = json!({"problem": hard_problem(), "sweep": "slo", "from": 1.0, "to": 260.0, "points": 60});
    (asked["gap"], asked["time_limit_s"]) = (json!(0.0), json!(2.0));
    asked
}

async fn connect(s: &Service) -> PgConnection {
    PgConnection::connect(&s.url).await.expect("our own database")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_has_the_points_of_the_library() {
    let s = service().await;
    let found = done(
        &s,
        "/v1/frontiers",
        &json!({"problem": problem(20.0), "sweep": "demand", "from": 50.0, "to": 650.0, "points": 7}),
    )
    .await;
    let watch = FrontierWatch { cancel: Arc::default(), on_total: &|_| (), on_point: &|_| () };
    let request =
        FrontierRequest { from: Some(50.0), to: Some(650.0), points: 7, ..FrontierRequest::new(SweptValue::Demand) };
    let expected = request.run(&read(&problem(20.0)), &watch).expect("a frontier");
    assert_eq!(found["result"], serde_json::to_value(&expected).expect("JSON"));
    assert_eq!(found["result"]["points"].as_array().map(Vec::len), Some(7));
    assert_eq!(found["progress"], json!({"ready": 7, "total": 7}));
    assert_eq!((&found["pipelines"], found.get("points")), (&json!(["p"]), None), "the result has the points");
    assert!(found["request"].get("problem").is_none() && found["request"]["points"] == 7, "{found:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_without_any_plan_says_why() {
    let s = service().await;
    let mut hopeless = problem(20.0);
    hopeless["pipelines"][0]["slo_ms"] = json!(1);
    let found = done(&s, "/v1/frontiers", &json!({"problem": hopeless, "sweep": "demand"})).await;
    assert_eq!(found["result"]["points"], json!([]));
    assert_eq!(found["result"]["shortfalls"][0]["constraint"], "latency", "{found:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_has_the_planners_of_the_library() {
    let s = service().await;
    let planners = ["greedy", "milp-unchecked"];
    let asked = json!({"problem": problem(60.0), "planners": planners, "arrivals": "uniform", "seed": 7});
    let mut found = done(&s, "/v1/comparisons", &asked).await;
    let request = ComparisonRequest {
        planners: planners.map(str::to_owned).into(),
        arrivals: "uniform".into(),
        seed: 7,
        ..ComparisonRequest::default()
    };
    let problem = read(&problem(60.0));
    let watch = ComparisonWatch { cancel: Arc::default(), on_begin: &|_| (), on_planned: &|_| () };
    let expected = request.run(&problem, with_demand(&problem, vec![None]), &watch);
    let mut expected = serde_json::to_value(&expected).expect("JSON");
    // The only figure that is no function of the request.
    for document in [&mut expected, &mut found["result"]] {
        for planner in document["planners"].as_array_mut().expect("planners") {
            assert!(planner["seconds"].take().is_number());
        }
    }
    assert_eq!(found["result"], expected);
    assert_eq!(found["result"]["planners"][0]["estimate"]["ok"].as_u64().map(|ok| ok > 0), Some(true), "{found:#}");
    assert_eq!(found["progress"], json!({"ready": 2, "total": 2}));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_plan_replays_a_trace_by_its_name() {
    let s = service().await;
    let (_, plan) = s.post("/v1/plans", &json!({"problem": problem(60.0)})).await;
    assert_eq!(plan["state"], "succeeded", "{plan:#}");
    for csv in ["second,qps\n0,1\n", "second,qps\n0,30\n1,90\n2,30\n"] {
        let post = s.client.post(format!("{}/v1/traces?name=peak", s.base)).body(csv).send().await;
        assert_eq!(post.expect("an answer").status(), 201);
    }
    let of_plan = format!("/v1/plans/{}/simulation", plan["id"].as_str().expect("an identifier"));
    assert_eq!(s.get(&of_plan).await.0, 404);
    let found = done(&s, "/v1/simulations", &json!({"plan": plan["id"], "trace": "peak", "service": "p99-matched"})).await;
    assert_eq!(s.get(&of_plan).await, (200, found.clone()));
    let problem = read(&plan["problem"]);
    let file = apportion_wire::plan_for_from_tree(&problem, "plan", plan["plan"].clone()).expect("a plan");
    let trace = apportion_wire::read_trace("peak", "second,qps\n0,30\n1,90\n2,30\n", None).expect("a trace");
    let request: SimulationRequest = serde_json::from_value(json!({"service": "p99-matched"})).expect("a request");
    let input = SimulationInput {
        problem: &problem,
        plan: &file,
        traces: vec![trace],
        samples: vec![None],
        settings: SimulateOptions::default(),
        keeps_windows: false,
    };
    let expected = request.run(input).expect("a run").file(&problem);
    assert_eq!(found["result"], serde_json::to_value(&expected).expect("JSON"), "the newest trace of this name");
    assert!(found["result"]["requests"].as_u64().is_some_and(|requests| requests > 100), "{found:#}");
    assert_eq!(found["progress"], json!({"ready": 100, "total": 100}), "percent");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_on_medians_says_so() {
    let s = service().await;
    let mut problem = problem(60.0);
    problem["pipelines"][0]["tasks"][0]["variants"][0]["profile"][0]["p99_ms"] = json!(25.0);
    for (times, is_noted) in [("median", true), ("p99-matched", false)] {
        let (_, plan) = s.post("/v1/plans", &json!({"problem": problem, "service": times})).await;
        assert_eq!((&plan["state"], &plan["options"]["service"]), (&json!("succeeded"), &json!(times)), "{plan:#}");
        let warnings = plan["plan"]["planner"]["warnings"].to_string();
        assert_eq!(warnings.contains("planned on medians"), is_noted, "{warnings}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulation_of_files_follows_its_options() {
    let s = service().await;
    let groups = json!([{"task": "t", "variant": "fast", "hardware": "h", "batch": 1, "replicas": 1}]);
    let plan = json!({"version": 1, "pipelines": [{"name": "p", "assignments": groups}]});
    let asked = |more: Value| {
        let mut asked = json!({"problem": problem(40.0), "plan_file": plan, "arrivals": "uniform"});
        asked.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        asked
    };
    let fixed = done(&s, "/v1/simulations", &asked(json!({}))).await;
    assert_eq!((&fixed["result"]["requests"], fixed["result"].get("replay")), (&json!(2400), None), "40/s for 60 s");
    let scaled = done(&s, "/v1/simulations", &asked(json!({"autoscaler": "hpa"}))).await;
    assert!(scaled["result"]["replay"]["cost"].as_f64().is_some_and(|cost| cost > 0.0), "{scaled:#}");
    // A plan for another pipeline cannot be replayed.
    let mut other = asked(json!({}));
    other["plan_file"]["pipelines"][0]["assignments"][0]["variant"] = json!("none");
    let failed = over(&s, &ask(&s, "/v1/simulations", &other).await).await;
    assert_eq!((&failed["state"], &failed["result"]), (&json!("failed"), &Value::Null));
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("pipeline")), "{failed:#}");
    s.running.stop().await;
}

/// The sum of one class over all windows of the only pipeline.
fn class_sum(series: &Value, class: &str) -> u64 {
    let counts = series["pipelines"][0][class].as_array().expect("a list");
    counts.iter().map(|count| count.as_u64().expect("a count")).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_has_every_request_in_its_class() {
    let s = service().await;
    let csv = (0..90).fold("second,qps\n".to_owned(), |csv, second| {
        let qps = if (30..60).contains(&second) { 300 } else { 20 };
        csv + &format!("{second},{qps}\n")
    });
    let post = s.client.post(format!("{}/v1/traces?name=step", s.base)).body(csv).send().await;
    assert_eq!(post.expect("an answer").status(), 201);
    for (variant, is_fallback) in [("fast", true), ("good", false)] {
        let groups = json!([{"task": "t", "variant": variant, "hardware": "h", "batch": 1, "replicas": 1}]);
        let plan = json!({"version": 1, "pipelines": [{"name": "p", "assignments": groups}]});
        let asked = json!({"problem": problem(20.0), "plan_file": plan, "trace": "step", "series_windows": 50});
        let result = done(&s, "/v1/simulations", &asked).await["result"].take();
        let series = &result["series"];
        assert_eq!((&series["window_s"], series.get("replicas")), (&json!(2), None), "{series:#}");
        for class in ["arrived", "ok", "fallback", "late", "dropped", "failed"] {
            assert_eq!(series["pipelines"][0][class].as_array().map(Vec::len), Some(45), "{class}");
        }
        assert_eq!(class_sum(series, "arrived"), result["requests"].as_u64().expect("a count"));
        for class in ["ok", "late", "dropped", "failed"] {
            assert_eq!(class_sum(series, class), result[class].as_u64().expect("a count"), "{class}");
        }
        let ok = class_sum(series, "ok");
        assert_eq!(class_sum(series, "fallback"), if is_fallback { ok } else { 0 }, "{variant}");
        // 300/s are more than either variant serves, and 20/s are less.
        let missed = |at: usize| {
            let of = &series["pipelines"][0];
            ["late", "dropped"].iter().filter_map(|class| of[class][at].as_u64()).sum::<u64>()
        };
        assert!(ok > 0 && missed(10) == 0 && missed(25) > 0, "{series:#}");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_shows_replicas_that_change() {
    let s = service().await;
    let groups = json!([{"task": "t", "variant": "good", "hardware": "h", "batch": 1, "replicas": 1}]);
    let plan = json!({"version": 1, "pipelines": [{"name": "p", "assignments": groups}]});
    let mut asked = json!({"problem": problem(90.0), "plan_file": plan, "autoscaler": "hpa", "series_windows": 100});
    let result = done(&s, "/v1/simulations", &asked).await["result"].take();
    let replicas: Vec<f64> = serde_json::from_value(result["series"]["replicas"].clone()).expect("numbers");
    assert_eq!(replicas.len(), result["series"]["pipelines"][0]["ok"].as_array().expect("a list").len());
    assert!(replicas.first() < replicas.last() && replicas.iter().all(|n| *n > 0.0 && *n <= 4.0), "{replicas:?}");
    asked["series_windows"] = json!(null);
    assert_eq!(done(&s, "/v1/simulations", &asked).await["result"].get("series"), None, "it was not asked for");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_frontier_keeps_its_ready_points() {
    let s = service().await;
    let path = ask(&s, "/v1/frontiers", &slow_frontier()).await;
    let has_point = |document: &Value| {
        assert!(["queued", "running"].contains(&document["state"].as_str()?), "too easy a problem: {}", document["state"]);
        document["points"].as_array().filter(|points| !points.is_empty()).map(Vec::len)
    };
    s.until(&path, has_point).await;
    let running = s.get(&path).await.1;
    assert_eq!(running["progress"]["total"], 60, "{running:#}");
    assert_eq!(s.client.post(format!("{}{path}/cancel", s.base)).send().await.expect("an answer").status(), 202);
    let cancelled = over(&s, &path).await;
    assert_eq!((&cancelled["state"], &cancelled["result"]), (&json!("cancelled"), &Value::Null));
    let points = cancelled["points"].as_array().expect("points");
    let values: Vec<f64> = points.iter().filter_map(|point| point["value"].as_f64()).collect();
    assert!(!values.is_empty() && values.len() < 60 && values.is_sorted(), "{values:?}");
    assert!(points.iter().all(|point| point["stopped"] != "cancelled"), "{cancelled:#}");
    assert_eq!(cancelled["progress"]["ready"], json!(values.len()));
    assert_eq!(s.client.post(format!("{}{path}/cancel", s.base)).send().await.expect("an answer").status(), 409);
    assert_eq!(s.delete(&path).await.0, 204);
    assert_eq!(s.get(&path).await.0, 404);
    assert_eq!(s.delete(&path).await.0, 404);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_frontier_stops_running() {
    let s = service().await;
    let path = ask(&s, "/v1/frontiers", &slow_frontier()).await;
    s.until(&path, |document| (document["state"] == "running").then_some(())).await;
    assert_eq!(s.delete(&path).await.0, 204);
    assert_eq!(s.get("/v1/frontiers").await.1, json!([]));
    let mut db = connect(&s).await;
    let left = "select (select count(*) from analysis_jobs) + (select count(*) from analysis_points)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut db).await.expect("a count"), 0);
    // Its place is free again.
    let next = json!({"problem": problem(20.0), "sweep": "count", "from": 1.0, "to": 2.0});
    assert_eq!(done(&s, "/v1/frontiers", &next).await["result"]["points"].as_array().map(Vec::len), Some(2));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_for_analyses_name_the_place() {
    let s = service().await;
    let mut broken = problem(10.0);
    broken["pipelines"][0]["slo_ms"] = json!(-4);
    let frontier = |key: &str, value: Value| {
        let mut asked = json!({"problem": problem(10.0), "sweep": "slo"});
        asked[key] = value;
        ("/v1/frontiers", asked)
    };
    let comparison = |key: &str, value: Value| ("/v1/comparisons", json!({"problem": problem(10.0), key: value}));
    let simulation = |key: &str, value: Value| {
        ("/v1/simulations", json!({"problem": problem(10.0), "plan_file": {"version": 1}, key: value}))
    };
    let cases = [
        (frontier("problem", broken), "/problem/pipelines/0/slo_ms"),
        (frontier("points", json!(1_001)), "/points"),
        (frontier("from", json!(-1)), "/from"),
        (("/v1/frontiers", json!({"problem": problem(10.0), "sweep": "slo", "from": 9, "to": 3})), "/to"),
        (frontier("time_limit_s", json!(3_601)), "/time_limit_s"),
        (frontier("pipeline", json!("q")), "/pipeline"),
        (frontier("hardware", json!("h")), "/hardware"),
        (("/v1/frontiers", json!({"sweep": "slo"})), ""),
        (("/v1/frontiers", json!({"sweep": "slo", "plan": Uuid::nil()})), "/plan"),
        (comparison("planners", json!(["milp", "oracle"])), "/planners/1"),
        (comparison("planners", json!(["milp", "milp"])), "/planners/1"),
        (comparison("arrivals", json!("often")), "/arrivals"),
        (comparison("trace", json!("peak")), "/trace"),
        (comparison("traces", json!({"q": "peak"})), "/traces/q"),
        (comparison("traces", json!({"p": "peak"})), "/traces/p"),
        (simulation("policy", json!("luck")), "/policy"),
        (simulation("ingresses", json!(0)), "/ingresses"),
        (simulation("ingresses", json!(4_097)), "/ingresses"),
        (simulation("hpa_target", json!(2)), "/hpa_target"),
        (simulation("series_windows", json!(0)), "/series_windows"),
        (simulation("series_windows", json!(1_001)), "/series_windows"),
        (simulation("steward", json!(true)), "/plan_file/pipelines"),
        (("/v1/simulations", json!({"problem": problem(10.0)})), ""),
        (("/v1/simulations", json!({"plan": Uuid::nil()})), "/plan"),
    ];
    for ((resource, request), pointer) in cases {
        let (status, refusal) = s.post(resource, &request).await;
        assert_eq!((status, refusal["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{request:#} {refusal:#}");
    }
    for resource in ["/v1/simulations", "/v1/frontiers", "/v1/comparisons"] {
        assert_eq!(s.get(resource).await.1, json!([]), "nothing was stored");
        assert_eq!(s.get(&format!("{resource}/{}", Uuid::nil())).await.0, 404);
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_asked_twice_under_one_key_is_one() {
    let s = service().await;
    let post = |resource: &str, points: u32| {
        let request = s.client.post(format!("{}{resource}", s.base)).header("idempotency-key", "k1");
        request.json(&json!({"problem": problem(20.0), "sweep": "count", "points": points})).send()
    };
    let (first, second) = tokio::join!(post("/v1/frontiers", 3), post("/v1/frontiers", 3));
    let location = |r: reqwest::Result<reqwest::Response>| r.expect("an answer").headers()["location"].clone();
    assert_eq!(location(first), location(second));
    assert_eq!(post("/v1/frontiers", 4).await.expect("an answer").status(), 422, "another body");
    let comparison = s.client.post(format!("{}/v1/comparisons", s.base)).header("idempotency-key", "k1");
    let comparison = comparison.json(&json!({"problem": problem(20.0)})).send().await;
    assert_eq!(comparison.expect("an answer").status(), 422, "another kind");
    assert_eq!(s.get("/v1/frontiers").await.1.as_array().map(Vec::len), Some(1));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_has_its_own_list() {
    let s = service().await;
    let frontier = done(&s, "/v1/frontiers", &json!({"problem": problem(20.0), "sweep": "count"})).await;
    let (_, list) = s.get("/v1/frontiers?state=done").await;
    assert_eq!((list.as_array().map(Vec::len), &list[0]["id"]), (Some(1), &frontier["id"]));
    assert_eq!((list[0].get("result"), list[0].get("points")), (None, None), "a list has no results");
    assert_eq!(s.get("/v1/frontiers?state=failed").await.1, json!([]));
    assert_eq!(s.get("/v1/comparisons").await.1, json!([]));
    let id = frontier["id"].as_str().expect("an identifier");
    let other = format!("/v1/comparisons/{id}");
    assert_eq!((s.get(&other).await.0, s.delete(&other).await.0), (404, 404));
    assert_eq!(s.get(&format!("/v1/frontiers/{id}")).await.0, 200, "it is still there");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_puts_its_frontier_back() {
    let mut s = service().await;
    let path = ask(&s, "/v1/frontiers", &slow_frontier()).await;
    for _ in 0..2 {
        s.until(&path, |document| (document["state"] == "running").then_some(())).await;
        let Service { running, dir, url, .. } = s;
        running.stop().await;
        let mut db = PgConnection::connect(&url).await.expect("our own database");
        let facts =
            "select a.state, j.deaths, j.lease_until is null from analyses a join analysis_jobs j on j.analysis = a.id";
        let (state, deaths, free): (String, i32, bool) = sqlx::query_as(facts).fetch_one(&mut db).await.expect("the job");
        assert_eq!((state.as_str(), deaths, free), ("queued", 0, true));
        s = crate::support::service_on(url, dir).await;
    }
    assert_eq!(s.client.post(format!("{}{path}/cancel", s.base)).send().await.expect("an answer").status(), 202);
    assert_eq!(over(&s, &path).await["state"], "cancelled");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_analysis_fails_after_several_dead_workers() {
    let s = service().await;
    let first = done(&s, "/v1/frontiers", &json!({"problem": problem(20.0), "sweep": "count", "points": 3})).await;
    let first: Uuid = first["id"].as_str().and_then(|id| id.parse().ok()).expect("an identifier");
    let Service { running, dir, url, .. } = s;
    running.stop().await;
    let mut db = PgConnection::connect(&url).await.expect("our own database");
    let copy = "insert into analyses (id, kind, state, request, problem, pipelines, created_at)
                select $2, kind, 'running', request, problem, pipelines, created_at from analyses where id = $1";
    let point = "insert into analysis_points (analysis, place, point) values ($1, 0, '{\"value\": 99}')";
    // As if workers had died: the lease has expired.
    let job = "insert into analysis_jobs (analysis, attempts, deaths, lease_until)
               values ($1, $2, $2, now() - interval '1 s')";
    for (id, deaths) in [(1_u128, 0), (2, apportion_api::jobs::DEATHS_MAX - 1)] {
        let id = Uuid::from_u128(id);
        sqlx::query(copy).bind(first).bind(id).execute(&mut db).await.expect("a row");
        sqlx::query(point).bind(id).execute(&mut db).await.expect("a row");
        sqlx::query(job).bind(id).bind(deaths).execute(&mut db).await.expect("a row");
    }
    let s = crate::support::service_on(url, dir).await;
    let path = |id: u128| format!("/v1/frontiers/{}", Uuid::from_u128(id));
    let begun_again = over(&s, &path(1)).await;
    assert_eq!(begun_again["state"], "done", "{begun_again:#}");
    let values: Vec<&Value> =
        begun_again["result"]["points"].as_array().expect("points").iter().map(|p| &p["value"]).collect();
    assert!(!values.contains(&&json!(99)), "the points of the dead worker are gone: {values:?}");
    let failed = over(&s, &path(2)).await;
    assert_eq!((&failed["state"], &failed["points"][0]["value"]), (&json!("failed"), &json!(99)), "what was ready stays");
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("died 3 times")), "{failed:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_analyses_are_bounded() {
    let s = service().await;
    let mut db = connect(&s).await;
    // Another process has them.
    let rows = "insert into analyses (id, kind, state, request, problem, pipelines, created_at)
                select gen_random_uuid(), 'frontier', 'running', '{}', '{}', '{}', now() from generate_series(1, $1)";
    sqlx::query(rows).bind(ANALYSES_OPEN_MAX - 1).execute(&mut db).await.expect("rows");
    let jobs =
        "insert into analysis_jobs (analysis, attempts, lease_until) select id, 1, now() + interval '1 hour' from analyses";
    sqlx::query(jobs).execute(&mut db).await.expect("rows");
    let asked = json!({"problem": problem(20.0), "sweep": "count", "points": 2});
    let last = ask(&s, "/v1/frontiers", &asked).await;
    assert_eq!(over(&s, &last).await["state"], "done");
    sqlx::query(rows).bind(1_i64).execute(&mut db).await.expect("a row");
    let job =
        "insert into analysis_jobs (analysis, attempts, lease_until) select id, 1, now() + interval '1 hour' from analyses
               where state = 'running' on conflict do nothing";
    sqlx::query(job).execute(&mut db).await.expect("a row");
    let (status, refusal) = s.post("/v1/frontiers", &asked).await;
    assert_eq!(status, 409, "{refusal:#}");
    assert!(refusal["detail"].as_str().is_some_and(|detail| detail.starts_with("100 analyses")), "{refusal:#}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_analysis_is_an_event() {
    let s = service().await;
    let frontier = done(&s, "/v1/frontiers", &json!({"problem": problem(20.0), "sweep": "count", "points": 2})).await;
    let (_, events) = s.get("/v1/events?kind=analysis").await;
    let expected = json!({"id": frontier["id"], "kind": "frontier", "state": "done", "error": null});
    assert_eq!((events.as_array().map(Vec::len), &events[0]["detail"]), (Some(1), &expected));
    let (_, metrics) = s.get("/metrics").await;
    let open = metrics.as_str().expect("a text").lines().find_map(|line| line.strip_prefix("apportion_analyses_open "));
    assert_eq!(open, Some("0"), "{metrics}");
    s.running.stop().await;
}
