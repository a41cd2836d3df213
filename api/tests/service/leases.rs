//! One process leads: leases are fenced, and several processes follow each other as leader without losing a plan.

use crate::support::relay::Relay;
use crate::support::{PATIENCE, Service, new_database, open_dir, problem, service, service_on};
use apportion_api::store::leases;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};
use uuid::Uuid;

const NAME: &str = "test";

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("our own database")
}

async fn expire(db: &mut PgConnection) {
    let ended = sqlx::query("update leases set expires_at = clock_timestamp() where name = $1").bind(NAME);
    ended.execute(db).await.expect("a lease");
}

/// A lease that has expired, and that nobody else has taken.
async fn take_expired(db: &mut PgConnection) -> leases::HeldLease {
    let held = leases::take(db, NAME, Uuid::new_v4(), 60.0).await.expect("a query").expect("nobody has it");
    expire(db).await;
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_one_holder_and_its_epoch_grows() {
    let s = service().await;
    let mut db = connect(&s.url).await;
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let held = leases::take(&mut db, NAME, one, 60.0).await.expect("a query").expect("nobody has it");
    assert_eq!(held.epoch, 1);
    assert_eq!(leases::take(&mut db, NAME, other, 60.0).await.expect("a query"), None);
    assert_eq!(leases::take(&mut db, NAME, one, 60.0).await.expect("a query"), None, "not even by its holder");
    assert!(leases::renew(&mut db, held, 60.0).await.expect("a query"));
    assert!(leases::fence(&mut db, held).await.expect("a query"));
    expire(&mut db).await;
    assert!(leases::fence(&mut db, held).await.expect("a query"), "nobody else has it yet");
    let next = leases::take(&mut db, NAME, other, 60.0).await.expect("a query").expect("it has expired");
    assert_eq!(next.epoch, 2);
    assert!(!leases::renew(&mut db, held, 60.0).await.expect("a query"));
    assert!(!leases::fence(&mut db, held).await.expect("a query"), "a holder that does not know it yet");
    leases::release(&mut db, held).await.expect("a query");
    assert_eq!(leases::take(&mut db, NAME, one, 60.0).await.expect("a query"), None, "an old holder releases nothing");
    leases::release(&mut db, next).await.expect("a query");
    let last = leases::take(&mut db, NAME, one, 60.0).await.expect("a query").expect("it was released");
    assert_eq!(last.epoch, 3);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_not_taken_before_a_fenced_write_ends() {
    let s = service().await;
    let (mut writer, mut taker) = (connect(&s.url).await, connect(&s.url).await);
    let (held, other) = (take_expired(&mut writer).await, Uuid::new_v4());
    let mut write = writer.begin().await.expect("a transaction");
    assert!(leases::fence(&mut write, held).await.expect("a query"));
    let taking = tokio::spawn(async move { leases::take(&mut taker, NAME, other, 60.0).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!taking.is_finished(), "the write may still be committed");
    write.commit().await.expect("a commit");
    let taken = taking.await.expect("it ends").expect("a query");
    assert_eq!(taken.map(|lease| lease.epoch), Some(2));
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_stops_within_a_fenced_write_loses_the_lease() {
    let s = service().await;
    let (mut writer, mut taker) = (connect(&s.url).await, connect(&s.url).await);
    let (held, other) = (take_expired(&mut writer).await, Uuid::new_v4());
    let mut write = writer.begin().await.expect("a transaction");
    assert!(leases::fence(&mut write, held).await.expect("a query"));
    // Nothing follows: its process is stopped. The limit of other transactions is 30 s, that of a lock 10 s.
    let taken = tokio::time::timeout(Duration::from_secs(9), leases::take(&mut taker, NAME, other, 60.0)).await;
    assert_eq!(taken.expect("in time").expect("a query").map(|lease| lease.epoch), Some(2));
    assert!(leases::fence(&mut write, held).await.is_err(), "the session has ended, and its write with it");
    s.running.stop().await;
}

/// Holder and epoch of the leader's lease.
async fn leader(db: &mut PgConnection) -> (Uuid, i64) {
    sqlx::query_as("select holder, epoch from leases where name = 'leader'").fetch_one(db).await.expect("a lease")
}

/// Waits until another epoch begins; its holder and number.
async fn next_leader(db: &mut PgConnection, before: i64) -> (Uuid, i64) {
    let begun = Instant::now();
    loop {
        let now = leader(db).await;
        if now.1 != before {
            eprintln!("epoch {} after {:.1} s", now.1, begun.elapsed().as_secs_f64());
            return now;
        }
        assert!(begun.elapsed() < PATIENCE, "epoch {before} goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A service behind a relay, with its process.
struct Process {
    service: Service,
    relay: Relay,
    id: Uuid,
}

/// Starts a process, and finds its number.
async fn start(url: &str, db: &mut PgConnection) -> Process {
    let known: Vec<Uuid> = sqlx::query_scalar("select id from processes").fetch_all(&mut *db).await.unwrap_or_default();
    let relay = Relay::to(url);
    let service = service_on(relay.url(), open_dir()).await;
    let begun = Instant::now();
    loop {
        let new = sqlx::query_scalar::<_, Uuid>("select id from processes where id <> all($1)").bind(&known);
        if let Ok(id) = new.fetch_one(&mut *db).await {
            return Process { service, relay, id };
        }
        assert!(begun.elapsed() < PATIENCE, "the process shows no sign of life");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks a process for a plan; its identifier.
async fn ask(process: &Process) -> Option<String> {
    let (status, plan) = process.service.post("/v1/plans", &json!({"problem": problem(30.0)})).await;
    (status == 202 || status == 200).then(|| plan["id"].as_str().expect("an identifier").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_follow_each_other_as_leader_and_lose_no_plan() {
    let url = new_database().await;
    let mut db = connect(&url).await;
    let mut processes = vec![start(&url, &mut db).await];
    let begun = Instant::now();
    while sqlx::query("select 1 from leases where name = 'leader'")
        .fetch_optional(&mut db)
        .await
        .expect("a query")
        .is_none()
    {
        assert!(begun.elapsed() < PATIENCE, "nobody leads");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    processes.push(start(&url, &mut db).await);
    processes.push(start(&url, &mut db).await);
    let mut at = leader(&mut db).await;
    let mut plans = Vec::new();
    for round in 0..4 {
        for process in &processes {
            plans.extend(ask(process).await);
        }
        let leading = processes.iter().position(|p| p.id == at.0).expect("a process of ours");
        match round {
            // its network is parted: it does not answer, and its connections stay open
            0 => processes[leading].relay.part(),
            1 => processes[leading].relay.open(false),
            // it is stopped in order
            2 => {
                let stopped = processes.remove(leading);
                stopped.service.running.stop().await;
            }
            // another process has taken the lease, and the leader does not know it
            _ => {
                let usurp = "update leases set holder = $1, epoch = epoch + 1,
                             expires_at = clock_timestamp() + interval '3 s' where name = 'leader'";
                sqlx::query(usurp).bind(Uuid::new_v4()).execute(&mut db).await.expect("a lease");
                at = leader(&mut db).await;
            }
        }
        let next = next_leader(&mut db, at.1).await;
        assert_eq!(next.1, at.1 + 1, "each change of the holder is one epoch");
        at = next;
        processes.iter().for_each(|process| process.relay.open(true));
    }
    assert_eq!(at.1, 6, "four changes and the one by hand");
    let is_over = |plan: &Value| plan["state"].as_str().filter(|s| !["queued", "solving"].contains(s)).map(str::to_owned);
    assert!(plans.len() >= 9, "{} plans", plans.len());
    for id in &plans {
        assert_eq!(processes[0].service.until(&format!("/v1/plans/{id}"), is_over).await, "succeeded");
    }
    let twice = "select count(*) from plans where state = 'succeeded' and plan is null";
    assert_eq!(sqlx::query_scalar::<_, i64>(twice).fetch_one(&mut db).await.expect("a number"), 0);
    for process in processes {
        process.service.running.stop().await;
    }
}
