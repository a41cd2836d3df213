//! A page of each list that grows is read by an index in the list's order, with the filters too.

use crate::support::{Service, service};
use apportion_api::store::{self, analyses::AnalysisFilter, decisions::DecisionFilter, events::EventFilter};
use apportion_api::store::{PgConnection, holds::HoldFilter, machines::MachineFilter};
use apportion_api::store::{tokens::TokenFilter, traces::TraceFilter};
use apportion_wire::{AgentState, AnalysisKind, AnalysisState, DecisionKind};
use sqlx::Connection;

const MANY: i64 = 20_000;
const LIMIT: i64 = 10;
/// Most rows that a page may read.
const READ_MAX: i64 = 200;

/// Rows of which each thousandth passes the filters of this test. The identifiers are as large as their numbers.
const FILL: &str = "
    set session_replication_role = replica;
    create temp table numbers as select n, n % 1000 = 7 as is_rare,
      ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid as id from generate_series(1, 20000) n;
    insert into audit (id, number, made_at, who, method, path, status)
      select id, n, now(), case when is_rare then 'rare' else 'w' end, 'PUT', '/', 200 from numbers;
    insert into events (made_at, kind, pipeline, detail)
      select now(), case when is_rare then 'hold' else 'plan' end, 'p' || n % 1000, '{}' from numbers order by n;
    insert into decisions (id, pipeline, decision, reason, demand_qps, made_at)
      select id, 'p', case when is_rare then 'failed' else 'kept' end, '', 1, now() from numbers;
    insert into analyses (id, kind, state, request, problem, pipelines, created_at)
      select id, case when is_rare then 'frontier' else 'simulation' end,
      case when n % 1000 = 8 then 'failed' else 'done' end, '{}', '{}', array['p'], now() from numbers;
    insert into target_history (generation, plans, placement, reason, committed_at)
      select n, '{}', '{}', '', now() from numbers;
    insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state, registered_at,
      seen_at) select 'a' || n, 'h', 1, '', '', '', id, case when is_rare then 'lost' else 'left' end, now(), now()
      from numbers order by n;
    insert into machines (name, hardware, substrate, devices, stage, reason, asked_at, stage_at)
      select 'm' || lpad(n::text, 5, '0'), case when is_rare then 'a100' else 't4' end, 'slurm', 1,
      case when n % 1000 = 8 then 'alive' else 'ended' end, '', now(), now() from numbers;
    insert into traces (id, name, kind, rows, csv, created_at, project)
      select id, case when is_rare then 'rare' else 't' end, 'rates', 1, '0,5', now(), case when is_rare then 'team' end
      from numbers;
    insert into tokens (id, name, scope, digest, created_by, created_at)
      select id, 't', 'read', '', 't', now() from numbers;
    insert into holds (pipeline, reason, made_by, made_at) select 'p' || lpad(n::text, 5, '0'), '', 't', now() from numbers;
    set session_replication_role = origin";

/// What a connection did with a table in its transaction.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
struct TableUse {
    whole: i64,
    read: i64,
}

async fn table_use(db: &mut PgConnection, table: &str) -> TableUse {
    let text = "select coalesce(sum(seq_scan), 0)::bigint as whole,
                coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint as read
                from pg_stat_xact_user_tables where relname = $1";
    sqlx::query_as(text).bind(table).fetch_one(db).await.expect("statistics")
}

/// Reads a page, and checks what that cost.
async fn check(db: &mut PgConnection, table: &str, what: &str, page: impl AsyncFnOnce(&mut PgConnection) -> usize) {
    let before = table_use(db, table).await;
    let rows = page(&mut *db).await;
    let after = table_use(db, table).await;
    assert!(rows > 0, "{table}, {what}: the page is empty");
    assert_eq!(after.whole, before.whole, "{table}, {what}: the whole table is read");
    let read = after.read - before.read;
    assert!((rows as i64..=READ_MAX).contains(&read), "{table}, {what}: {read} of {MANY} rows for {rows}");
}

async fn check_lists_by_time(tx: &mut PgConnection) {
    let id = uuid::Uuid::parse_str("00000000-0000-7000-8000-000000012000").expect("an identifier");
    let middle = MANY / 2;
    for who in [None, Some("rare")] {
        let page = async |db: &mut PgConnection| store::audit::list(db, who, Some(id), LIMIT).await.expect("a page").len();
        check(tx, "audit", &format!("{who:?}"), page).await;
        let page = async |db: &mut PgConnection| {
            store::traces::list(db, TraceFilter { name: who, project: None }, Some(id), LIMIT).await.expect("a page").len()
        };
        check(tx, "traces", &format!("{who:?}"), page).await;
    }
    let later = async |db: &mut PgConnection| store::audit::after(db, middle, None, LIMIT).await.expect("a page").len();
    check(tx, "audit", "by number", later).await;
    let of_project = TraceFilter { name: None, project: Some("team") };
    let page =
        async |db: &mut PgConnection| store::traces::list(db, of_project, Some(id), LIMIT).await.expect("a page").len();
    check(tx, "traces", "of a project", page).await;
    check(tx, "tokens", "all", async |db| {
        store::tokens::list(db, &TokenFilter::default(), Some(id), LIMIT).await.expect("a page").len()
    })
    .await;
    let history =
        async |db: &mut PgConnection| store::target::history(db, None, Some(middle), LIMIT).await.expect("a page").len();
    check(tx, "target_history", "all", history).await;
    for (kind, pipeline) in [(None, None), (Some("hold"), None), (None, Some("p9"))] {
        let filter = EventFilter { kind: kind.map(str::to_owned), pipeline: pipeline.map(str::to_owned) };
        let page = async |db: &mut PgConnection| {
            store::events::before(db, Some(middle), &filter, LIMIT).await.expect("a page").len()
        };
        check(tx, "events", &format!("{filter:?}"), page).await;
    }
    for decision in [None, Some(DecisionKind::Failed)] {
        let filter = DecisionFilter { pipeline: None, decision };
        let page =
            async |db: &mut PgConnection| store::decisions::list(db, &filter, Some(id), LIMIT).await.expect("a page").len();
        check(tx, "decisions", &format!("{filter:?}"), page).await;
    }
    for (kind, state) in [
        (AnalysisKind::Simulation, None),
        (AnalysisKind::Simulation, Some(AnalysisState::Failed)),
        (AnalysisKind::Frontier, None),
    ] {
        let filter = AnalysisFilter { kind, state };
        let page =
            async |db: &mut PgConnection| store::analyses::list(db, filter, Some(id), LIMIT).await.expect("a page").len();
        check(tx, "analyses", &format!("{filter:?}"), page).await;
    }
}

async fn check_lists_by_name(tx: &mut PgConnection) {
    for state in [None, Some(AgentState::Lost)] {
        let page =
            async |db: &mut PgConnection| store::agents::page(db, state, Some(10), LIMIT).await.expect("a page").len();
        check(tx, "agents", &format!("{state:?}"), page).await;
    }
    for (hardware, stage) in [(None, None), (Some("a100"), None), (None, Some("alive"))] {
        let filter = MachineFilter { hardware: hardware.map(str::to_owned), stage };
        let page = async |db: &mut PgConnection| {
            store::machines::page(db, &filter, Some("m05000"), LIMIT).await.expect("a page").len()
        };
        check(tx, "machines", &format!("{filter:?}"), page).await;
    }
    let now = chrono::Utc::now();
    let holds = async |db: &mut PgConnection| {
        store::holds::page(db, HoldFilter::default(), now, Some("p05000"), LIMIT).await.expect("a page").len()
    };
    check(tx, "holds", "all", holds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_long_lists_are_read_by_indexes() {
    let Service { running, url, .. } = service().await;
    running.stop().await;
    let mut db = PgConnection::connect(&url).await.expect("our own database");
    sqlx::raw_sql(FILL).execute(&mut db).await.expect("it is filled");
    let analyze = "analyze audit, events, decisions, analyses, target_history, agents, machines, traces, tokens, holds";
    sqlx::raw_sql(analyze).execute(&mut db).await.expect("statistics");
    // Statistics of a transaction are not given away before its end.
    let mut tx = db.begin().await.expect("a transaction");
    check_lists_by_time(&mut tx).await;
    check_lists_by_name(&mut tx).await;
}
