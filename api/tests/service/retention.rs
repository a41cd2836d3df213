//! Old rows go, and nothing goes that is in use: a week of a busy service, and each exception by itself.

use crate::support::{PATIENCE, Service, service, service_on};
use apportion_api::act::retention::delete_old_rows;
use apportion_api::decide::retention::TARGETS_KEPT_MIN;
use apportion_api::store::{plans, retention::BATCH_ROWS_MAX};
use apportion_api::{RetentionPolicy, RowKind};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{Connection, PgConnection, PgPool};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(86_400);

/// A service that has stopped, with connections to its database.
struct Stopped {
    url: String,
    dir: tempfile::TempDir,
    pool: PgPool,
    db: PgConnection,
}

async fn stopped() -> Stopped {
    let Service { running, dir, url, .. } = service().await;
    running.stop().await;
    let pool = PgPool::connect(&url).await.expect("our own database");
    let db = PgConnection::connect(&url).await.expect("our own database");
    Stopped { url, dir, pool, db }
}

/// A policy that keeps every kind for this time, as far as that is permitted.
fn keep_all(kept: Duration) -> RetentionPolicy {
    RowKind::ALL.into_iter().fold(RetentionPolicy::default(), |policy, kind| {
        let (least, most) = kind.permitted().into_inner();
        policy.with(kind, kept.clamp(least, most)).expect("it is permitted")
    })
}

/// Deletes the rows that are too old at this moment; returns their numbers by kind.
async fn delete_at(pool: &PgPool, policy: &RetentionPolicy, at: DateTime<Utc>) -> BTreeMap<RowKind, u64> {
    let mut deleted = BTreeMap::new();
    let count = |kind: RowKind, rows: u64| *deleted.entry(kind).or_default() += rows;
    delete_old_rows(pool, policy, at, count).await.expect("a pass");
    deleted
}

async fn run(db: &mut PgConnection, text: &str) {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(db).await;
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
}

async fn number(db: &mut PgConnection, text: &str) -> i64 {
    let text = text.to_owned();
    sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(db).await.expect("a number")
}

/// The tables that grow with time.
const TABLES: [&str; 14] = [
    "arrivals",
    "group_sums",
    "child_sums",
    "decisions",
    "events",
    "audit",
    "target_history",
    "plans",
    "idempotency",
    "analyses",
    "schedule_firings",
    "machines",
    "agents",
    "tokens",
];

/// What one day of a busy service leaves. The table `moments` has a number `n`, a time `t` and an identifier `id` for every
/// two minutes of it.
const ROWS_OF_A_DAY: [&str; 14] = [
    "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed)
     select 'p' || p, extract(epoch from t)::bigint, 9, 9, 0, 0, 0 from moments, generate_series(1, 10) p",
    "insert into group_sums (period, pipeline, task, variant, hardware, session, batches, took_ms, expected_ms, queries)
     select extract(epoch from t)::bigint / 5, 'p', 't', 'v', 'h', id, 1, 1, 1, 1 from moments",
    "insert into child_sums (period, pipeline, task, variant, child, session, queries)
     select extract(epoch from t)::bigint / 5, 'p', 't', 'v', 'c', id, 1 from moments",
    "insert into plans (id, state, problem, options, plan, created_at, finished_at, pipelines)
     select id, 'succeeded', '{}', '{}', '{}', t, t, array['p'] from moments",
    "insert into idempotency (key, request, plan, created_at) select id::text, '', id, t from moments",
    "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, made_at)
     select id, 'p', 'kept', '', 1, id, t from moments",
    "insert into events (made_at, kind, detail) select t, 'plan', '{}' from moments order by n",
    "insert into audit (id, made_at, who, method, path, status) select id, t, 'w', 'PUT', '/', 200 from moments",
    "insert into target_history (generation, plans, placement, reason, committed_at)
     select extract(epoch from t)::bigint, array[id], '{}', '', t from moments",
    "insert into analyses (id, kind, state, request, problem, pipelines, created_at, finished_at)
     select id, 'simulation', 'done', '{}', '{}', array['p'], t, t from moments",
    "insert into schedule_firings (schedule, due_at, spec, fired_at, skipped, state, detail)
     select 's', t, '{}', t, 0, 'done', '' from moments",
    "insert into machines (name, hardware, substrate, devices, stage, reason, asked_at, stage_at)
     select 'm' || id, 'h', 'slurm', 1, 'ended', '', t, t from moments",
    "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state, registered_at,
     seen_at) select 'a' || id, 'h', 1, '', '', '', id, 'left', t, t from moments",
    "insert into tokens (id, name, scope, digest, created_by, created_at, revoked_at)
     select id, 'n', 'read', '', 'w', t, t from moments",
];

/// Events of these tables would have the time of this test, and not that of the week.
const WITHOUT_EVENTS: &str = "alter table decisions disable trigger user; alter table target_history disable trigger user;
    alter table plans disable trigger user; alter table agents disable trigger user;
    alter table schedule_firings disable trigger user;
    insert into schedules (name, spec, made_by, updated_at) values ('s', '{}', 'test', now())";

/// Makes `moments`: the identifiers are of UUID version 7.
async fn make_moments(db: &mut PgConnection, begin: DateTime<Utc>, count: i64) {
    let text = format!(
        "drop table if exists moments; create temp table moments as select n, t,
         (lpad(to_hex((extract(epoch from t) * 1000)::bigint), 12, '0') || '7000' || lpad(to_hex(n), 16, '0'))::uuid as id
         from (select n, to_timestamp({}) + n * interval '2 min' as t from generate_series(0::bigint, {count} - 1) n) s",
        begin.timestamp()
    );
    run(db, &text).await;
}

/// Rows of each table.
async fn counts(db: &mut PgConnection) -> BTreeMap<&'static str, i64> {
    let mut counts = BTreeMap::new();
    for table in TABLES {
        counts.insert(table, number(db, &format!("select count(*) from {table}")).await);
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_keeps_rows_and_disk_flat() {
    const MOMENTS: i64 = 24 * 30;
    let Stopped { pool, mut db, .. } = stopped().await;
    run(&mut db, WITHOUT_EVENTS).await;
    // The target in force is of the last day, whatever day it is.
    run(&mut db, "update target set generation = 1000000000000").await;
    let today = Utc::now().timestamp().div_euclid(86_400);
    let first = DateTime::from_timestamp((today + 2) * 86_400, 0).expect("a time");
    let policy = keep_all(DAY);
    let (mut days, mut bytes, mut gone) = (Vec::new(), Vec::new(), BTreeMap::<RowKind, u64>::new());
    for day in 0..=7 {
        let begin = first + day * DAY;
        for (kind, rows) in delete_at(&pool, &policy, begin).await {
            *gone.entry(kind).or_default() += rows;
        }
        run(&mut db, "vacuum").await;
        days.push(counts(&mut db).await);
        bytes.push(
            number(
                &mut db,
                "select sum(pg_total_relation_size(oid))::bigint from pg_class
                 where relkind = 'r' and relnamespace = 'public'::regnamespace",
            )
            .await,
        );
        make_moments(&mut db, begin, MOMENTS).await;
        for text in ROWS_OF_A_DAY {
            run(&mut db, text).await;
        }
    }
    let expected: BTreeMap<&str, i64> =
        TABLES.into_iter().map(|table| (table, if table == "arrivals" { 10 * MOMENTS } else { MOMENTS })).collect();
    for (day, found) in days.iter().enumerate().skip(1) {
        assert_eq!(found, &expected, "day {day} begins with one day's rows");
    }
    for kind in RowKind::ALL {
        assert!(gone.get(&kind).is_some_and(|rows| *rows >= 6 * MOMENTS as u64), "{}: {gone:?}", kind.name());
    }
    eprintln!("bytes of all tables by day: {bytes:?}");
    assert!(bytes[7] * 4 <= bytes[3] * 5, "the tables grow: {bytes:?}");
    let partitions = number(&mut db, "select count(*) from pg_inherits where inhparent = 'arrivals'::regclass").await;
    assert!(partitions <= 15, "{partitions} partitions");
    pool.close().await;
}

/// An identifier of a plan that was made 40 days ago. Their order is that of their numbers.
fn old_plan(number: u64) -> Uuid {
    let millis = (Utc::now() - 40 * DAY).timestamp_millis().unsigned_abs();
    Uuid::from_u128(u128::from(millis - 10_000_000) << 80 | 7 << 76 | u128::from(number))
}

/// Stores plans that ended 40 days ago.
async fn insert_plans(db: &mut PgConnection, ids: &[Uuid]) {
    let insert = "insert into plans (id, state, problem, options, created_at, finished_at, pipelines)
                  select id, 'succeeded', '{}', '{}', now() - interval '40 days', now() - interval '40 days', '{}'
                  from unnest($1::uuid[]) id";
    sqlx::query(insert).bind(ids).execute(db).await.expect("rows");
}

async fn has_plan(db: &mut PgConnection, id: Uuid) -> bool {
    plans::state(db, id).await.expect("an answer").is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_in_use_stay_whatever_their_age() {
    let Stopped { pool, mut db, .. } = stopped().await;
    let used: Vec<Uuid> = (0..6).map(old_plan).collect();
    let [in_force, of_target, of_decision, of_advice, open, just_ended] = used[..] else { panic!("six plans") };
    // More plans that stay than one batch looks at, before those that go.
    let decided: Vec<Uuid> = (100..100 + BATCH_ROWS_MAX as u64 + 50).map(old_plan).collect();
    let free: Vec<Uuid> = (10_000..10_000 + 2 * BATCH_ROWS_MAX as u64 + 7).map(old_plan).collect();
    for ids in [&used, &decided, &free] {
        insert_plans(&mut db, ids).await;
    }
    let bound = [
        ("update target set plans = array[$1], generation = 7", in_force),
        (
            "insert into target_history (generation, plans, placement, reason, committed_at)
             values (6, array[$1], '{}', '', now() - interval '50 days')",
            of_target,
        ),
        (
            "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, made_at)
             values (gen_random_uuid(), 'p', 'kept', '', 1, $1, now())",
            of_decision,
        ),
        ("update plans set state = 'queued', finished_at = null where id = $1", open),
        ("update plans set finished_at = now() where id = $1", just_ended),
    ];
    for (text, plan) in bound {
        let done = sqlx::query(text).bind(plan).execute(&mut db).await.expect("it runs");
        assert_eq!(done.rows_affected(), 1, "{text}");
    }
    run(&mut db, "insert into pipelines (name, spec, updated_at) values ('p', '{}', now())").await;
    sqlx::query("insert into advice (pipeline, plan, demand_qps, seen_at) values ('p', $1, 1, now())")
        .bind(of_advice)
        .execute(&mut db)
        .await
        .expect("a row");
    let text = "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, made_at)
                select gen_random_uuid(), 'p', 'kept', '', 1, id, now() from unnest($1::uuid[]) id";
    sqlx::query(text).bind(&decided).execute(&mut db).await.expect("rows");
    let deleted = delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    assert_eq!(deleted[&RowKind::Plans], free.len() as u64);
    for id in used.iter().chain(&decided) {
        assert!(has_plan(&mut db, *id).await, "{id} is in use");
    }
    assert_eq!(number(&mut db, "select count(*) from plans").await as usize, used.len() + decided.len());
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_being_applied_is_not_deleted() {
    let Stopped { pool, mut db, .. } = stopped().await;
    let (plan, other) = (old_plan(1), old_plan(2));
    insert_plans(&mut db, &[plan, other]).await;
    let mut applying = db.begin().await.expect("a transaction");
    plans::keep(&mut applying, plan).await.expect("an answer");
    let deleted = delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    assert_eq!(deleted[&RowKind::Plans], 1, "the other one");
    let commit = sqlx::query("update target set plans = array[$1], generation = 1").bind(plan);
    commit.execute(&mut *applying).await.expect("the target");
    applying.commit().await.expect("a commit");
    let deleted = delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    assert_eq!((deleted[&RowKind::Plans], has_plan(&mut db, plan).await), (0, true));
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_targets_stay_and_the_last_other_one() {
    let Stopped { pool, mut db, .. } = stopped().await;
    let newest = 3 * TARGETS_KEPT_MIN;
    // Only the second target had other plans than the one in force.
    let text = format!(
        "alter table target_history disable trigger user;
         insert into target_history (generation, plans, placement, reason, committed_at)
         select n, case n when 2 then array['{}'::uuid] else '{{}}' end, '{{}}', '', now() - interval '40 days'
         from generate_series(1, {newest}) n; update target set generation = {newest}",
        old_plan(1)
    );
    run(&mut db, &text).await;
    delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    let kept: Vec<i64> = sqlx::query_scalar("select generation from target_history order by generation")
        .fetch_all(&mut db)
        .await
        .expect("numbers");
    let expected: Vec<i64> = std::iter::once(2).chain(newest - TARGETS_KEPT_MIN + 1..=newest).collect();
    assert_eq!(kept, expected);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_replicas_and_last_firings_stay() {
    let Stopped { pool, mut db, .. } = stopped().await;
    let text = "alter table agents disable trigger user; alter table schedule_firings disable trigger user;
        insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state,
          registered_at, seen_at)
        select 'a' || n, 'h', 1, '', '', '', gen_random_uuid(), (array['live', 'lost', 'left', 'lost'])[n], now(),
          now() - interval '40 days' from generate_series(1, 4) n order by n;
        update target set placement = jsonb_build_object('replicas', jsonb_build_array(jsonb_build_object(
          'agent', (select number from agents where name = 'a4'))));
        insert into schedules (name, spec, made_by, updated_at)
        select s, '{}', 'test', now() from unnest(array['s', 't']) s;
        insert into schedule_firings (schedule, due_at, spec, fired_at, skipped, state, detail)
        select s, now() - n * interval '40 days', '{}', now() - n * interval '40 days', 0, 'done', ''
        from generate_series(1, 3) n, unnest(array['s', 't']) s";
    run(&mut db, text).await;
    let deleted = delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    assert_eq!((deleted[&RowKind::Agents], deleted[&RowKind::Firings]), (2, 4));
    let agents: Vec<String> =
        sqlx::query_scalar("select name from agents order by name").fetch_all(&mut db).await.expect("names");
    assert_eq!(agents, ["a1", "a4"], "the live one, and the one with a replica");
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_count_stay_whatever_their_age() {
    let Stopped { pool, mut db, .. } = stopped().await;
    // By name: when it expires and when it was revoked, in days from now.
    let table = [
        ("counts", None, None),
        ("will expire", Some(1.0), None),
        ("just expired", Some(-399.0), None),
        ("just revoked", None, Some(-399.0)),
        ("expired", Some(-401.0), None),
        ("revoked", None, Some(-401.0)),
        ("revoked, then expired", Some(-1.0), Some(-401.0)),
    ];
    for (name, expires, revoked) in table {
        let insert = "insert into tokens (id, name, scope, digest, created_by, created_at, expires_at, revoked_at)
                      values (gen_random_uuid(), $1, 'read', '', 'w', now() - interval '900 days',
                        now() + $2 * interval '1 day', now() + $3 * interval '1 day')";
        let insert = sqlx::query(insert).bind(name).bind(expires).bind(revoked);
        insert.execute(&mut db).await.expect("a row");
    }
    let deleted = delete_at(&pool, &RetentionPolicy::default(), Utc::now()).await;
    assert_eq!(deleted[&RowKind::Tokens], 3);
    let kept: Vec<String> =
        sqlx::query_scalar("select name from tokens order by name").fetch_all(&mut db).await.expect("names");
    assert_eq!(kept, ["counts", "just expired", "just revoked", "will expire"]);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrivals_of_any_second_are_stored_and_deleted() {
    let Stopped { pool, mut db, .. } = stopped().await;
    let far = Utc::now() + 400 * DAY;
    let insert =
        "insert into arrivals (pipeline, second, offered, ok, late, dropped, failed) values ('p', $1, 1, 1, 0, 0, 0)
                  on conflict (pipeline, second) do update set offered = arrivals.offered + 1";
    for second in [10, Utc::now().timestamp(), far.timestamp(), far.timestamp()] {
        sqlx::query(insert).bind(second).execute(&mut db).await.expect("a row");
    }
    let policy = RetentionPolicy::default();
    delete_at(&pool, &policy, far).await;
    let left = "select offered from arrivals where second > 10";
    assert_eq!(number(&mut db, left).await, 2, "the row of this moment, which was written twice");
    assert_eq!(number(&mut db, "select count(*) from arrivals").await, 1);
    let deleted = delete_at(&pool, &policy, far + 3 * DAY).await;
    assert!(deleted[&RowKind::Arrivals] >= 1, "{deleted:?}");
    assert_eq!(number(&mut db, "select count(*) from arrivals").await, 0);
    pool.close().await;
}

/// The value of a sample of the metrics.
fn sample(page: &Value, name: &str) -> Option<f64> {
    let line = page.as_str()?.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_deletes_and_counts_old_rows() {
    let Stopped { pool, mut db, url, dir } = stopped().await;
    pool.close().await;
    let old = "insert into audit (id, made_at, who, method, path, status)
               select gen_random_uuid(), now() - interval '401 days', 'w', 'PUT', '/', 200 from generate_series(1, 2500)";
    run(&mut db, old).await;
    run(&mut db, &old.replace("401 days", "3 days").replace("2500", "1")).await;
    let s = service_on(url, dir).await;
    s.until("/metrics", |page| {
        let deleted = sample(page, "apportion_rows_deleted_total{kind=\"audit\"}")?;
        let age = sample(page, "apportion_rows_oldest_age_seconds{kind=\"audit\"}")?;
        (deleted == 2_500.0 && (3.0 * 86_400.0..3.0 * 86_400.0 + 2.0 * PATIENCE.as_secs_f64()).contains(&age)).then_some(())
    })
    .await;
    assert_eq!(number(&mut db, "select count(*) from audit").await, 1);
    s.running.stop().await;
}
