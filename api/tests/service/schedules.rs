//! Schedules: who may fire, what a firing does, and what follows an outage.

use crate::support::agent::fleet;
use crate::support::{Service, config_on, service};
use apportion_api::http::schedules::SCHEDULES_MAX;
use serde_json::{Value, json};
use sqlx::Connection;

/// Runs one statement in the database of a service.
async fn execute(s: &Service, statement: &str) {
    let mut db = sqlx::PgConnection::connect(&s.url).await.expect("our own database");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut db).await.expect("it runs");
}

/// Moves a schedule's next due time to so many seconds ago, as if the service had been away since then. The due time stays
/// one of its interval.
async fn make_overdue(s: &Service, name: &str, seconds: u32) {
    let set = format!(
        "update schedules set updated_at = date_trunc('second', updated_at) - make_interval(secs => {seconds}),
         next_at = next_at - make_interval(secs => {seconds}) where name = '{name}'"
    );
    execute(s, &set).await;
}

/// The last firing of a schedule, once it is not pending.
async fn fired(s: &Service, name: &str) -> Value {
    let over = |d: &Value| (d["last"].is_object() && d["last"]["state"] != "pending").then(|| d["last"].clone());
    s.until(&format!("/v1/schedules/{name}"), over).await
}

/// The events of schedules, the oldest first.
async fn events(s: &Service) -> Vec<Value> {
    let (status, events) = s.get("/v1/events?kind=schedule").await;
    assert_eq!(status, 200, "{events:#}");
    let mut events = events.as_array().expect("events").clone();
    events.reverse();
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_written_read_replaced_and_deleted() {
    let s = service().await;
    let weekend = json!({"cron": "0 18 * * 5", "time_zone": "Europe/Berlin", "hold": {"for_s": 3600, "reason": "weekend"}});
    let (status, made) = s.put("/v1/schedules/weekend", &weekend).await;
    assert_eq!((status, &made["spec"], &made["version"]), (201, &weekend, &json!(1)), "{made:#}");
    assert_eq!((&made["made_by"], &made["last"]), (&json!("loopback"), &Value::Null));
    let next: Vec<&str> = made["next"].as_array().expect("times").iter().filter_map(Value::as_str).collect();
    assert_eq!(next.len(), 5, "{made:#}");
    assert!(next.iter().all(|at| at.contains("T18:00:00+")), "by the clocks of Berlin: {next:?}");
    assert!(next.is_sorted(), "{next:?}");

    let request = s.client.put(format!("{}/v1/schedules/weekend", s.base)).json(&weekend);
    assert_eq!(request.header("if-match", "\"7\"").send().await.expect("an answer").status(), 412);
    let hourly = json!({"every_s": 3600, "hold": {"for_s": 60, "reason": "weekend"}});
    let (status, replaced) = s.put("/v1/schedules/weekend", &hourly).await;
    assert_eq!((status, &replaced["version"], &replaced["spec"]["every_s"]), (200, &json!(2), &json!(3600)));
    let (status, all) = s.get("/v1/schedules").await;
    assert_eq!((status, &all[0]["name"], &all[1]), (200, &json!("weekend"), &Value::Null));
    assert_eq!(s.delete("/v1/schedules/weekend").await.0, 204);
    assert_eq!((s.delete("/v1/schedules/weekend").await.0, s.get("/v1/schedules/weekend").await.0), (404, 404));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_schedule_is_refused_with_its_place() {
    let s = service().await;
    let cases = [
        (json!({"every_s": 60}), ""),
        (json!({"every_s": 60, "replan": {}, "at": "noon"}), ""),
        (json!({"every_s": 1, "replan": {}}), "/every_s"),
        (json!({"cron": "99 * * * *", "replan": {}}), "/cron"),
        (json!({"cron": "* * * * *", "time_zone": "Mars", "replan": {}}), "/time_zone"),
        (json!({"every_s": 60, "pipeline": "nothing", "replan": {}}), "/pipeline"),
        (json!({"every_s": 60, "hold": {"for_s": 60, "reason": ""}}), "/hold/reason"),
    ];
    for (body, pointer) in cases {
        let (status, refusal) = s.put("/v1/schedules/wrong", &body).await;
        assert_eq!((status, &refusal["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}: {refusal:#}");
    }
    assert_eq!(s.get("/v1/schedules").await.1, json!([]), "nothing was stored");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_schedules_has_a_limit() {
    let s = service().await;
    let body = json!({"every_s": 3600, "replan": {}});
    let insert = format!(
        "insert into schedules (name, spec, made_by, updated_at, next_at)
         select 's' || n, '{body}', 'test', now(), now() + interval '1 hour' from generate_series(1, {SCHEDULES_MAX}) n"
    );
    execute(&s, &insert).await;
    let (status, refusal) = s.put("/v1/schedules/more", &body).await;
    assert_eq!(status, 409, "{refusal:#}");
    assert_eq!(s.put("/v1/schedules/s1", &body).await.0, 200, "one that is there may be replaced");
    assert_eq!(s.get("/v1/schedules").await.1.as_array().map(Vec::len), Some(SCHEDULES_MAX as usize));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overdue_window_holds_for_its_rest() {
    let s = service().await;
    let window = json!({"every_s": 3600, "hold": {"for_s": 600, "reason": "a launch"}});
    assert_eq!(s.put("/v1/schedules/launch", &window).await.0, 201);
    // its due times were four, three, two, one and no hours ago
    make_overdue(&s, "launch", 5 * 3_600).await;
    let last = fired(&s, "launch").await;
    assert_eq!((&last["state"], &last["skipped"]), (&json!("done"), &json!(4)), "{last:#}");
    let (_, holds) = s.get("/v1/holds").await;
    assert_eq!((&holds[0]["made_by"], &holds[0]["reason"]), (&json!("schedule launch"), &json!("a launch")), "{holds:#}");
    let time = |text: &Value| chrono::DateTime::parse_from_rfc3339(text.as_str().expect("a time")).expect("a time");
    assert_eq!(time(&holds[0]["until"]) - time(&last["due_at"]), chrono::Duration::seconds(600));

    let short = json!({"every_s": 86_400, "hold": {"for_s": 5, "reason": "short"}});
    assert_eq!(s.put("/v1/schedules/short", &short).await.0, 201);
    make_overdue(&s, "short", 86_430).await;
    let last = fired(&s, "short").await;
    assert_eq!(last["state"], "missed", "it was over when the service came back: {last:#}");
    assert_eq!(s.get("/v1/holds").await.1.as_array().map(Vec::len), Some(1));
    let seen: Vec<_> = events(&s).await.iter().map(|e| e["detail"]["state"].clone()).collect();
    assert_eq!(seen, [json!("done"), json!("missed")], "one event for each");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firing_deploys_a_plan_and_keeps_it() {
    let (s, _agents) = fleet().await;
    let replan = json!({"pipeline": "digits", "every_s": 3600, "replan": {"demand_qps": 40.0, "hold_s": 600}});
    assert_eq!(s.put("/v1/schedules/morning", &replan).await.0, 201);
    assert_eq!(s.get("/v1/target").await.1["generation"], 0, "nothing is due");
    make_overdue(&s, "morning", 3_605).await;
    let last = fired(&s, "morning").await;
    assert_eq!(last["state"], "done", "{last:#}");
    assert_eq!(last["detail"], "another plan was deployed for digits");
    let (_, target) = s.get("/v1/target").await;
    assert!(target["reason"].as_str().is_some_and(|reason| reason.contains("schedule morning")), "{target:#}");
    let plan = target["plans"][0].as_str().expect("a plan");
    let (_, plan) = s.get(&format!("/v1/plans/{plan}")).await;
    assert_eq!(plan["problem"]["pipelines"][0]["demand_qps"], 40.0);
    let (_, decisions) = s.get("/v1/decisions").await;
    assert!(decisions[0]["reason"].as_str().is_some_and(|reason| reason.starts_with("schedule morning")), "{decisions:#}");
    let (_, holds) = s.get("/v1/holds").await;
    assert_eq!((&holds[0]["pipeline"], &holds[0]["made_by"]), (&json!("digits"), &json!("schedule morning")));

    let again = json!({"pipeline": "digits", "every_s": 3600, "replan": {"demand_qps": 20.0}});
    assert_eq!(s.put("/v1/schedules/noon", &again).await.0, 201);
    make_overdue(&s, "noon", 3_605).await;
    let last = fired(&s, "noon").await;
    assert_eq!(last["state"], "failed", "{last:#}");
    assert_eq!(last["detail"], "a hold was in force for digits: nothing was deployed for it");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firing_without_a_known_load_changes_nothing() {
    let (s, _agents) = fleet().await;
    let replan = json!({"pipeline": "digits", "every_s": 3600, "replan": {"headroom": 2.0}});
    assert_eq!(s.put("/v1/schedules/hourly", &replan).await.0, 201);
    make_overdue(&s, "hourly", 3_605).await;
    let last = fired(&s, "hourly").await;
    assert_eq!(last["state"], "failed", "{last:#}");
    assert!(last["detail"].as_str().is_some_and(|why| why.starts_with("the load of digits is unknown")), "{last:#}");
    assert_eq!(s.get("/v1/target").await.1["generation"], 0);
    let now = chrono::Utc::now().timestamp();
    let load = format!(
        "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed)
         select 'digits', n, 10, 10, 0, 0, 0 from generate_series({now} - 70, {now}) n"
    );
    execute(&s, &load).await;
    make_overdue(&s, "hourly", 3_605).await;
    let planned = |t: &Value| t["plans"][0].as_str().map(str::to_owned);
    let plan = s.until("/v1/target", planned).await;
    let (_, plan) = s.get(&format!("/v1/plans/{plan}")).await;
    let demand = plan["problem"]["pipelines"][0]["demand_qps"].as_f64().expect("a demand");
    assert!((19.0..=21.0).contains(&demand), "twice the load of 10: {demand}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_time_fires_once_whichever_process_leads() {
    let s = service().await;
    let window = json!({"every_s": 3600, "hold": {"for_s": 600, "reason": "a launch"}});
    assert_eq!(s.put("/v1/schedules/launch", &window).await.0, 201);
    let dirs = [crate::support::open_dir(), crate::support::open_dir()];
    let mut others = Vec::new();
    for dir in &dirs {
        others.push(apportion_api::serve(config_on(&s.url, dir)).await.expect("it starts"));
    }
    make_overdue(&s, "launch", 3_601).await;
    fired(&s, "launch").await;
    // the leader goes, and another one takes over; the schedule is due once more
    let Service { running, base, client, dir, url } = s;
    running.stop().await;
    let other = others.pop().expect("a process");
    let s = Service { base: format!("http://{}", other.http()), running: other, client, dir, url };
    assert_ne!(s.base, base);
    make_overdue(&s, "launch", 3_605).await;
    let times = s.until("/v1/events?kind=schedule", |e| e.as_array().filter(|e| e.len() >= 2).cloned()).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(events(&s).await.len(), times.len(), "no process fires it again");
    assert_eq!(times.len(), 2, "{times:#?}");
    s.running.stop().await;
    for other in others {
        other.stop().await;
    }
}
