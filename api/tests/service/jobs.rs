//! Jobs of several processes: claims, cancellations, jobs that are put back and begun again.

use crate::support::relay::Relay;
use crate::support::{PATIENCE, Service, hard_problem, problem, service};
use apportion_api::store::jobs::{self, JobFilter, JobQueue, SolveTime};
use apportion_api::store::{PgConnection, plans};
use apportion_wire::PlanState;
use serde_json::{Value, json};
use sqlx::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

const OFFER: JobFilter<'static> = JobFilter { lease: Duration::from_secs(60), long: true, take_over: true, own: &[] };

/// The database of a service that has stopped, with one plan enqueued.
async fn one_job() -> (String, tempfile::TempDir, Uuid) {
    let crate::support::Service { running, dir, url, .. } = service().await;
    running.stop().await;
    let id = Uuid::now_v7();
    let mut db = connect(&url).await;
    let options = json!({"planner": "milp", "gap": 1e-4, "time_limit_s": 60.0});
    plans::insert(&mut db, id, &problem(20.0), &options, None, chrono::Utc::now()).await.expect("a row");
    jobs::enqueue(&mut db, JobQueue::Plans, id, SolveTime::Usual).await.expect("a row");
    (url, dir, id)
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("our own database")
}

async fn state(db: &mut PgConnection, id: Uuid) -> PlanState {
    plans::state(db, id).await.expect("an answer").expect("it is there")
}

async fn solved(s: &Service, request: &Value) -> Value {
    let (status, document) = s.post("/v1/plans", request).await;
    assert_eq!(status, 200, "{document:#}");
    document
}

/// Asks for a plan; returns its path.
async fn ask(s: &Service, problem: &Value, time_limit_s: f64) -> String {
    let body = json!({"problem": problem, "gap": 0.0, "time_limit_s": time_limit_s});
    let posted = s.client.post(format!("{}/v1/plans", s.base)).json(&body).send().await.expect("an answer");
    assert_eq!(posted.status(), 202);
    posted.headers()["location"].to_str().expect("a path").to_owned()
}

fn is_over(plan: &Value) -> Option<String> {
    plan["state"].as_str().filter(|state| !["queued", "solving"].contains(state)).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_that_meets_a_claim_reaches_the_worker() {
    let (url, _dir, id) = one_job().await;
    let mut worker = connect(&url).await;
    let mut claiming = worker.begin().await.expect("a transaction");
    let job = jobs::claim(&mut claiming, JobQueue::Plans, &OFFER).await.expect("an answer").expect("the job");
    assert!(plans::start(&mut claiming, id, chrono::Utc::now()).await.expect("an answer"));
    let other = url.clone();
    let cancelling = tokio::spawn(async move {
        let mut db = connect(&other).await;
        let mut tx = db.begin().await.expect("a transaction");
        let was_open = plans::cancel(&mut tx, id, chrono::Utc::now()).await.expect("an answer");
        tx.commit().await.expect("committed");
        was_open
    });
    let mut db = connect(&url).await;
    let begun = Instant::now();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut db).await.expect("a count") == 0 {
        assert!(begun.elapsed() < PATIENCE, "it waits for the claim");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    claiming.commit().await.expect("committed");
    assert!(cancelling.await.expect("no panic"), "the plan was open");
    assert_eq!(state(&mut db, id).await, PlanState::Solving);
    assert!(jobs::renew(&mut db, &job, OFFER.lease).await.expect("an answer"), "the worker still has its job");
    let asked = plans::ending_asked(&mut db, id).await.expect("an answer");
    assert_eq!(asked, Some(plans::PlanEnding::Cancel), "and is told to stop");
    assert!(jobs::delete(&mut db, &job).await.expect("an answer"));
    let plan = json!({});
    let succeeded = plans::FinishedPlan { state: PlanState::Succeeded, plan: Some(&plan), error: None };
    plans::finish(&mut db, id, succeeded, chrono::Utc::now()).await.expect("stored");
    let row = plans::get(&mut db, id).await.expect("an answer").expect("it is there");
    assert_eq!((row.state, row.plan), (PlanState::Cancelled, None), "whatever the worker found");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_silent_worker_counts_as_dead() {
    let (url, _dir, id) = one_job().await;
    let mut db = connect(&url).await;
    for claim in 1..=5 {
        let job = jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer").expect("the job");
        assert_eq!((job.attempts, job.deaths), (claim, 0), "it was put back");
        assert!(jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer").is_none(), "it is taken");
        assert!(jobs::put_back(&mut db, &job).await.expect("an answer"));
    }
    let short = JobFilter { lease: Duration::ZERO, ..OFFER };
    let silent = jobs::claim(&mut db, JobQueue::Plans, &short).await.expect("an answer").expect("the job");
    let refused = [JobFilter { take_over: false, ..OFFER }, JobFilter { own: &[id], ..OFFER }];
    for offer in refused {
        assert!(jobs::claim(&mut db, JobQueue::Plans, &offer).await.expect("an answer").is_none(), "{offer:?}");
    }
    let next = jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer").expect("the job");
    assert_eq!(next.deaths, 1);
    assert!(!jobs::put_back(&mut db, &silent).await.expect("an answer"), "it is another's");
    assert!(!jobs::delete(&mut db, &silent).await.expect("an answer"), "it is another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_while_put_back_stays_cancelled() {
    let (url, dir, id) = one_job().await;
    let mut db = connect(&url).await;
    let job = jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer").expect("the job");
    assert!(plans::start(&mut db, id, chrono::Utc::now()).await.expect("an answer"));
    assert!(plans::cancel(&mut db, id, chrono::Utc::now()).await.expect("an answer"));
    assert!(jobs::put_back(&mut db, &job).await.expect("an answer"));
    plans::requeue(&mut db, id).await.expect("an answer");
    let s = crate::support::service_on(url, dir).await;
    assert_eq!(s.until(&format!("/v1/plans/{id}"), is_over).await, "cancelled");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_stopped_while_it_waits_is_begun_and_stopped() {
    let (url, dir, _) = one_job().await;
    let (mut db, id) = (connect(&url).await, Uuid::now_v7());
    let options = json!({"planner": "milp", "gap": 0.0, "time_limit_s": 600.0});
    plans::insert(&mut db, id, &hard_problem(), &options, None, chrono::Utc::now()).await.expect("a row");
    jobs::enqueue(&mut db, JobQueue::Plans, id, SolveTime::Usual).await.expect("a row");
    for _ in 0..2 {
        assert!(plans::keep_best(&mut db, id).await.expect("an answer"), "it is open");
        assert_eq!(plans::ending_asked(&mut db, id).await.expect("an answer"), Some(plans::PlanEnding::KeepBest));
        assert_eq!(state(&mut db, id).await, PlanState::Queued);
    }
    let s = crate::support::service_on(url, dir).await;
    let path = format!("/v1/plans/{id}");
    assert_eq!(s.until(&path, is_over).await, "succeeded");
    assert_eq!(s.get(&path).await.1["plan"]["planner"]["stopped"], "stopped");
    assert!(!plans::keep_best(&mut db, id).await.expect("an answer"), "it is over");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_plan_so_far_is_read_while_a_plan_is_solved() {
    let (url, dir, id) = one_job().await;
    let (mut db, path) = (connect(&url).await, format!("/v1/plans/{id}"));
    let best_of = async |db: &mut PgConnection| plans::get(db, id).await.expect("an answer").expect("the plan").best;
    let (best, last) = (json!({"status": "feasible"}), json!({"status": "optimal"}));
    plans::write_best(&mut db, id, &best).await.expect("no error");
    assert_eq!(best_of(&mut db).await, None, "nobody solves it");
    let job = jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer").expect("the job");
    assert!(plans::start(&mut db, id, chrono::Utc::now()).await.expect("an answer"));
    plans::write_best(&mut db, id, &best).await.expect("stored");
    // The worker is another process, so this service only answers.
    let s = crate::support::service_on(url, dir).await;
    let (_, plan) = s.get(&path).await;
    assert_eq!((&plan["state"], &plan["best"], plan.get("plan")), (&json!("solving"), &best, None), "{plan:#}");
    assert!(jobs::delete(&mut db, &job).await.expect("an answer"));
    let succeeded = plans::FinishedPlan { state: PlanState::Succeeded, plan: Some(&last), error: None };
    plans::finish(&mut db, id, succeeded, chrono::Utc::now()).await.expect("stored");
    let (_, plan) = s.get(&path).await;
    assert_eq!((&plan["state"], plan.get("best"), &plan["plan"]), (&json!("succeeded"), None, &last), "{plan:#}");
    assert_eq!(best_of(&mut db).await, None);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_plan_keeps_the_best_of_the_worker_before() {
    let (url, _dir, _) = one_job().await;
    let mut db = connect(&url).await;
    let best = json!({"status": "feasible", "planner": {"name": "milp", "stopped": null}});
    let without = json!({"status": "unknown", "planner": {"name": "milp", "stopped": "stopped"}});
    let failed = |plan| plans::FinishedPlan { state: PlanState::Failed, plan, error: Some("no plan") };
    let succeeded = plans::FinishedPlan { state: PlanState::Succeeded, plan: Some(&without), error: None };
    let kept = json!({"status": "feasible", "planner": {"name": "milp", "stopped": "stopped"}});
    let at = chrono::Utc::now();
    let table = [
        ("the next worker found none", true, failed(Some(&without)), (PlanState::Succeeded, Some(&kept), None)),
        ("the next worker found one", true, succeeded, (PlanState::Succeeded, Some(&without), None)),
        ("nobody stopped it", false, failed(Some(&without)), (PlanState::Failed, Some(&without), Some("no plan"))),
        ("a defect is no search without a plan", true, failed(None), (PlanState::Failed, None, Some("no plan"))),
    ];
    for (case, is_stopped, end, (state, plan, error)) in table {
        let id = Uuid::now_v7();
        plans::insert(&mut db, id, &problem(20.0), &json!({}), None, at).await.expect("a row");
        assert!(plans::start(&mut db, id, at).await.expect("an answer"), "{case}");
        plans::write_best(&mut db, id, &best).await.expect("stored");
        if is_stopped {
            assert!(plans::keep_best(&mut db, id).await.expect("an answer"), "{case}");
        }
        plans::requeue(&mut db, id).await.expect("no error");
        assert!(plans::start(&mut db, id, at).await.expect("an answer"), "{case}");
        plans::finish(&mut db, id, end, at).await.expect("stored");
        let row = plans::get(&mut db, id).await.expect("an answer").expect("the plan");
        assert_eq!((row.state, row.plan.as_ref(), row.error.as_deref()), (state, plan, error), "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_stopped_can_still_be_cancelled() {
    let s = service().await;
    let path = ask(&s, &hard_problem(), 600.0).await;
    let id: Uuid = path.trim_start_matches("/v1/plans/").parse().expect("an identifier");
    let mut db = connect(&s.url).await;
    s.until(&path, |plan| (plan["state"] == "solving").then_some(())).await;
    let mut tx = db.begin().await.expect("a transaction");
    // Both are asked for before the worker looks.
    assert!(plans::keep_best(&mut tx, id).await.expect("an answer"));
    assert!(plans::cancel(&mut tx, id, chrono::Utc::now()).await.expect("an answer"));
    tx.commit().await.expect("committed");
    assert_eq!(s.until(&path, is_over).await, "cancelled");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_fails_after_several_dead_workers() {
    let s = service().await;
    let plan = solved(&s, &json!({"problem": problem(20.0)})).await;
    let s = {
        let crate::support::Service { running, dir, url, .. } = s;
        running.stop().await;
        // As if workers had died: the lease has expired.
        let mut db = sqlx::PgConnection::connect(&url).await.expect("our own database");
        let copy = "insert into plans (id, state, problem, options, created_at)
                    select $2, 'solving', problem, options, created_at from plans where id = $1";
        for (id, deaths) in [(1_u128, 0), (2, apportion_api::jobs::DEATHS_MAX - 1)] {
            let id = uuid::Uuid::from_u128(id);
            let first: uuid::Uuid = plan["id"].as_str().and_then(|s| s.parse().ok()).expect("an identifier");
            sqlx::query(copy).bind(first).bind(id).execute(&mut db).await.expect("a row");
            sqlx::query(
                "insert into jobs (plan, attempts, deaths, lease_until) values ($1, $2, $2, now() - interval '1 s')",
            )
            .bind(id)
            .bind(deaths)
            .execute(&mut db)
            .await
            .expect("a row");
        }
        crate::support::service_on(url, dir).await
    };
    for (id, state) in [(1_u128, "succeeded"), (2, "failed")] {
        let path = format!("/v1/plans/{}", uuid::Uuid::from_u128(id));
        s.until(&path, |p| (p["state"] == state).then_some(())).await;
    }
    s.running.stop().await;
}

/// Number of cancelled plans; `APPORTION_CANCELS` sets it for a trial.
fn cancels() -> usize {
    std::env::var("APPORTION_CANCELS").ok().and_then(|n| n.parse().ok()).unwrap_or(96)
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_cancelled_while_they_are_claimed_never_stay_open() {
    const CLIENTS: usize = 16;
    let s = Arc::new(service().await);
    let (count, next) = (cancels(), Arc::new(AtomicUsize::new(0)));
    let (begun, mut clients) = (Instant::now(), tokio::task::JoinSet::new());
    for _ in 0..CLIENTS {
        let (s, next) = (s.clone(), next.clone());
        clients.spawn(async move {
            let mut answers = [0; 2];
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return answers;
                }
                let path = ask(&s, &problem(20.0), 60.0).await;
                // The moments go from before the claim to after it.
                tokio::time::sleep(Duration::from_micros(700 * (at as u64 % 16))).await;
                let (status, answer) = s.delete(&path).await;
                assert!([202, 409].contains(&status), "{status}: {answer}");
                let over = s.until(&path, is_over).await;
                assert_eq!(status == 202, over == "cancelled", "{status}: {over}");
                answers[usize::from(status == 409)] += 1;
            }
        });
    }
    let (mut cancelled, mut late) = (0, 0);
    while let Some(answers) = clients.join_next().await {
        let [was_open, was_over] = answers.expect("no panic");
        cancelled += was_open;
        late += was_over;
    }
    let mut db = connect(&s.url).await;
    let open: i64 = sqlx::query_scalar("select count(*) from plans where state in ('queued', 'solving')")
        .fetch_one(&mut db)
        .await
        .expect("a count");
    let left = jobs::count_open(&mut db, JobQueue::Plans).await.expect("a count");
    eprintln!("{count} plans in {:?}: {cancelled} cancelled, {late} were over, {open} open, {left} jobs", begun.elapsed());
    assert_eq!((open, left, cancelled + late), (0, 0, count));
    Arc::try_unwrap(s).ok().expect("nobody else has it").running.stop().await;
}

/// State of the only plan, dead workers of its job, and whether any worker may claim it.
async fn the_only_job(db: &mut PgConnection) -> (String, i32, bool) {
    let facts = "select p.state, j.deaths, j.lease_until is null from plans p join jobs j on j.plan = p.id";
    sqlx::query_as(facts).fetch_one(db).await.expect("the job")
}

/// What [`the_only_job`] says of a plan that its worker has put back.
fn put_back() -> (String, i32, bool) {
    ("queued".to_owned(), 0, true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_puts_its_plan_back() {
    let mut s = service().await;
    let path = ask(&s, &hard_problem(), 600.0).await;
    let solving = |plan: &Value| (plan["state"] == "solving").then_some(());
    for _ in 0..=apportion_api::jobs::DEATHS_MAX {
        s.until(&path, solving).await;
        let Service { running, dir, url, .. } = s;
        running.stop().await;
        let mut db = connect(&url).await;
        assert_eq!(the_only_job(&mut db).await, put_back());
        s = crate::support::service_on(url, dir).await;
    }
    assert_eq!(s.delete(&path).await.0, 202);
    assert_eq!(s.until(&path, is_over).await, "cancelled");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_service_puts_its_plan_back_after_a_short_outage() {
    let url = crate::support::new_database().await;
    let relay = Relay::to(&url);
    let s = crate::support::service_on(relay.url(), crate::support::open_dir()).await;
    let path = ask(&s, &hard_problem(), 600.0).await;
    s.until(&path, |plan| (plan["state"] == "solving").then_some(())).await;
    relay.open(false);
    let stopping = tokio::spawn(s.running.stop());
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.open(true);
    stopping.await.expect("it stops");
    let mut db = connect(&url).await;
    assert_eq!(the_only_job(&mut db).await, put_back());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_plans_leave_places_to_others() {
    let s = service().await;
    let mut hard = Vec::new();
    for _ in 0..12 {
        hard.push(ask(&s, &hard_problem(), 600.0).await);
    }
    s.until(&hard[0], |plan| (plan["state"] == "solving").then_some(())).await;
    let easy = solved(&s, &json!({"problem": problem(20.0)})).await;
    assert_eq!(easy["state"], "succeeded", "{easy:#}");
    for path in &hard {
        assert_eq!(s.delete(path).await.0, 202, "it is not over yet");
    }
    for path in &hard {
        assert_eq!(s.until(path, is_over).await, "cancelled");
    }
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_at_the_end_of_a_plan_loses_nothing() {
    let url = crate::support::new_database().await;
    let relay = Relay::to(&url);
    let s = crate::support::service_on(relay.url(), crate::support::open_dir()).await;
    let path = ask(&s, &hard_problem(), 2.0).await;
    s.until(&path, |plan| (plan["state"] == "solving").then_some(())).await;
    relay.open(false);
    let mut db = connect(&url).await;
    let begun = "select started_at, attempts, deaths from plans join jobs on jobs.plan = plans.id";
    type Begun = (chrono::DateTime<chrono::Utc>, i32, i32);
    let before: Begun = sqlx::query_as(begun).fetch_one(&mut db).await.expect("the job");
    assert_eq!((before.1, before.2), (1, 0));
    // Its time limit ends meanwhile.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after: Begun = sqlx::query_as(begun).fetch_one(&mut db).await.expect("the job is still there");
    assert_eq!(before, after);
    relay.open(true);
    let plan = s.until(&path, |plan| is_over(plan).map(|_| plan.clone())).await;
    assert_eq!(plan["state"], "succeeded", "{}", plan["error"]);
    let started: chrono::DateTime<chrono::Utc> = plan["started_at"].as_str().and_then(|t| t.parse().ok()).expect("a time");
    assert_eq!(started, before.0, "it was solved once");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_take_turns_at_the_workers() {
    let (url, _dir, first) = one_job().await;
    let (mut db, mut ids) = (connect(&url).await, vec![first]);
    // The first plan is no project's alone.
    for project in [Some("a"), Some("a"), Some("a"), Some("b"), None, Some("b")] {
        let id = Uuid::now_v7();
        plans::insert(&mut db, id, &problem(20.0), &json!({}), project, chrono::Utc::now()).await.expect("a row");
        jobs::enqueue(&mut db, JobQueue::Plans, id, SolveTime::Usual).await.expect("a row");
        ids.push(id);
    }
    for (place, count) in [(0, 2), (1, 3), (4, 2)] {
        assert_eq!(jobs::count_open_beside(&mut db, ids[place]).await.expect("a count"), count, "{place}");
    }
    let mut claimed = Vec::new();
    while let Some(job) = jobs::claim(&mut db, JobQueue::Plans, &OFFER).await.expect("an answer") {
        claimed.push(ids.iter().position(|id| *id == job.id).expect("one of them"));
    }
    assert_eq!(claimed, [0, 1, 4, 2, 5, 6, 3], "the oldest of the project with the fewest at work");
}
