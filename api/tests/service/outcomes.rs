//! What clients and plans get of a database that is read-only or full, or whose answer to a commit is lost.

use crate::support::relay::Relay;
use crate::support::{PATIENCE, Service, hard_problem, new_database, open_dir, problem, service, service_on};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};

/// Longer than a part of the service may be silent.
const LONG: Duration = Duration::from_secs(12);

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("our own database")
}

async fn run(db: &mut PgConnection, text: &str) {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(db).await;
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// Plans, and those that have ended well.
async fn plans(db: &mut PgConnection) -> (i64, i64) {
    let count = "select count(*), count(*) filter (where state = 'succeeded' and plan is not null) from plans";
    sqlx::query_as(count).fetch_one(db).await.expect("two numbers")
}

/// Asks for a plan under a key; the status and the answer.
async fn ask(s: &Service, body: &Value, key: &str) -> (u16, Value) {
    let request = s.client.post(format!("{}/v1/plans", s.base)).header("idempotency-key", key).json(body);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.json().await.expect("JSON"))
}

/// Asks again and again, until the answer is right.
async fn ask_until(s: &Service, body: &Value, key: &str, is_right: impl Fn(u16, &Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let (status, answer) = ask(s, body, key).await;
        if is_right(status, &answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{status}: {answer:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_accepted(status: u16, _: &Value) -> bool {
    [200, 202].contains(&status)
}

/// An answer that says why nothing was stored.
fn says(word: &'static str) -> impl Fn(u16, &Value) -> bool {
    move |status, answer| status == 503 && answer["detail"].as_str().is_some_and(|detail| detail.contains(word))
}

async fn succeeds(s: &Service, plan: &Value) {
    let id = plan["id"].as_str().expect("an identifier");
    s.until(&format!("/v1/plans/{id}"), |plan| (plan["state"] == "succeeded").then_some(())).await;
}

/// Makes all later transactions of other connections read-only, or lets them write.
async fn set_read_only(db: &mut PgConnection, value: &str) {
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&mut *db).await.expect("a name");
    run(db, &format!("alter database {name} set default_transaction_read_only = {value}")).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()";
    run(db, end).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_refuses_changes_and_loses_no_plan() {
    let s = service().await;
    let mut db = connect(&s.url).await;
    let running = json!({"problem": hard_problem(), "gap": 0.0, "time_limit_s": 6.0});
    let running = ask_until(&s, &running, "running", is_accepted).await;
    s.until(&format!("/v1/plans/{}", running["id"].as_str().expect("an identifier")), |plan| {
        (plan["state"] == "solving").then_some(())
    })
    .await;
    set_read_only(&mut db, "on").await;
    let body = json!({"problem": problem(30.0)});
    ask_until(&s, &body, "new", says("read-only")).await;
    // What is there can be read, for longer than a part may be silent.
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        assert_eq!(s.get("/v1/plans").await.0, 200);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (status, answer) = s.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("the database is read-only")), "{answer}");
    assert_eq!(plans(&mut db).await, (1, 0), "nothing was stored");
    set_read_only(&mut db, "off").await;
    let plan = ask_until(&s, &body, "new", is_accepted).await;
    succeeds(&s, &plan).await;
    succeeds(&s, &running).await;
    assert_eq!(plans(&mut db).await, (2, 2));
    s.until("/readyz", |answer| (answer == "ready\n").then_some(())).await;
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_changes_and_loses_no_plan() {
    let s = service().await;
    let mut db = connect(&s.url).await;
    // The error of a disk without room, at each change of a plan.
    let full = |event: &str| {
        format!(
            "create or replace function no_room() returns trigger language plpgsql as $$ begin
             raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
             create trigger no_room before {event} on plans for each row execute function no_room()"
        )
    };
    run(&mut db, &full("insert")).await;
    let body = json!({"problem": problem(30.0)});
    ask_until(&s, &body, "new", says("full")).await;
    run(&mut db, "drop trigger no_room on plans").await;
    // The next one is stored, and its worker can write nothing.
    run(&mut db, &full("update")).await;
    let plan = ask_until(&s, &body, "new", is_accepted).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(plans(&mut db).await, (1, 0), "it waits");
    run(&mut db, "drop trigger no_room on plans").await;
    succeeds(&s, &plan).await;
    assert_eq!(plans(&mut db).await, (1, 1));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_a_commit_makes_no_second_plan() {
    let url = new_database().await;
    let relay = Relay::to(&url);
    let s = service_on(relay.url(), open_dir()).await;
    relay.lose_commit_of("insert into plans");
    let body = json!({"problem": problem(30.0)});
    let (status, answer) = ask(&s, &body, "once").await;
    assert_eq!(status, 503, "{answer}");
    assert!(relay.has_lost_commit(), "the answer to the commit was lost");
    let mut db = connect(&url).await;
    assert_eq!(plans(&mut db).await.0, 1, "the transaction was committed, and its client does not know");
    let plan = ask_until(&s, &body, "once", is_accepted).await;
    succeeds(&s, &plan).await;
    assert_eq!(plans(&mut db).await, (1, 1), "the same key is the same plan");
    let (status, other) = ask(&s, &json!({"problem": problem(31.0)}), "once").await;
    assert_eq!(status, 422, "{other}");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_stays_is_no_defect() {
    let s = service().await;
    let mut holder = connect(&s.url).await;
    let mut held = holder.begin().await.expect("a transaction");
    sqlx::query("lock table tokens in access exclusive mode").execute(&mut *held).await.expect("a lock");
    let asked = json!({"name": "anna", "scope": "read"});
    let (status, refusal) = s.post("/v1/tokens", &asked).await;
    assert_eq!(status, 503, "a client may try again: {refusal:#}");
    held.rollback().await.expect("the end of the lock");
    assert_eq!(s.post("/v1/tokens", &asked).await.0, 201);
    s.running.stop().await;
}
