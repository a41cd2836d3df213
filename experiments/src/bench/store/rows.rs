//! Which rows does a large store have, and how large are its tables and indexes?

use anyhow::{Context, Result};
use serde::Serialize;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::path::Path;

/// A plan with its documents stands at every so many plans. The others have empty ones, which no list reads.
pub const WHOLE_PLAN_EVERY: u32 = 1_000;

/// How many rows a store has.
#[derive(Clone, Copy, Debug)]
pub struct StoreSize {
    /// Pipelines, each with a profile.
    pub pipelines: u32,
    /// Plans. There are a tenth as many decisions, events and entries of the audit, and a hundredth as many simulations and
    /// former targets.
    pub plans: u32,
    /// Agents that have left.
    pub agents: u32,
}

/// The size of a table.
#[derive(Clone, Debug, Serialize, sqlx::FromRow)]
pub struct StoredTable {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: i64,
    /// Bytes of its rows.
    pub bytes: i64,
    /// Bytes of its indexes.
    pub index_bytes: i64,
}

/// The rows of a table.
struct TableRows {
    table: &'static str,
    /// Their number.
    count: fn(&StoreSize) -> u32,
    /// Writes them. `ROWS` is their number, `WHOLE` is [`WHOLE_PLAN_EVERY`], and `ID` is [`ID`].
    insert: &'static str,
}

/// The pipeline `chain` and one plan of it are there already, and their documents are copied.
const FILL: [TableRows; 9] = [
    TableRows {
        table: "pipelines",
        count: |size| size.pipelines,
        insert: "insert into pipelines (name, spec, updated_at)
         select 'p' || lpad(n::text, 7, '0'), jsonb_set(c.spec, '{name}', to_jsonb('p' || lpad(n::text, 7, '0'))), now()
         from pipelines c, generate_series(1, ROWS) n where c.name = 'chain'",
    },
    TableRows {
        table: "profiles",
        count: |size| size.pipelines,
        insert: "insert into profiles (pipeline, profile, updated_at)
         select 'p' || lpad(n::text, 7, '0'), c.profile, now() from profiles c, generate_series(1, ROWS) n
         where c.pipeline = 'chain'",
    },
    TableRows {
        table: "plans",
        count: |size| size.plans,
        insert: "insert into plans (id, state, problem, options, plan, created_at, started_at, finished_at, pipelines)
         select ID, case when n % 1000 = 7 then 'failed' else 'succeeded' end,
           case when n % WHOLE = 0 then c.problem else '{}' end, c.options,
           case when n % WHOLE = 0 then c.plan else '{}' end,
           now() - n * interval '1 s', now() - n * interval '1 s', now() - n * interval '1 s', array['p' || n % 1000]
         from (select * from plans order by id limit 1) c, generate_series(1, ROWS) n",
    },
    TableRows {
        table: "decisions",
        count: |size| size.plans / 10,
        insert: "insert into decisions (id, pipeline, decision, reason, demand_qps, plan, made_at)
         select ID, 'p' || n % 1000, case when n % 1000 = 7 then 'failed' else 'kept' end,
           'the plan in force still holds', 100, ID, now() - n * interval '1 s' from generate_series(1, ROWS) n",
    },
    TableRows {
        table: "events",
        count: |size| size.plans / 10,
        insert: "insert into events (made_at, kind, pipeline, detail)
         select now() - (ROWS - n) * interval '1 s', case when n % 1000 = 7 then 'hold' else 'plan' end, 'p' || n % 1000,
           jsonb_build_object('id', gen_random_uuid(), 'state', 'succeeded') from generate_series(1, ROWS) n",
    },
    TableRows {
        table: "audit",
        count: |size| size.plans / 10,
        insert: "insert into audit (id, made_at, who, method, path, status)
         select ID, now() - n * interval '1 s', 'bench', 'POST', '/v1/plans', 202 from generate_series(1, ROWS) n",
    },
    TableRows {
        table: "analyses",
        count: |size| size.plans / 100,
        insert: "insert into analyses (id, kind, state, request, problem, pipelines, created_at, started_at, finished_at)
         select ID, 'simulation', 'failed', '{}', '{}', array['chain'], now() - n * interval '1 s',
           now() - n * interval '1 s', now() - n * interval '1 s' from generate_series(1, ROWS) n",
    },
    TableRows {
        table: "target_history",
        count: |size| size.plans / 100,
        insert: "insert into target_history (generation, plans, placement, reason, committed_at)
         select n, array[gen_random_uuid()], '{\"next_id\": 1, \"groups\": [], \"replicas\": []}',
           'the load has changed', now() - (ROWS - n) * interval '1 s' from generate_series(1, ROWS) n",
    },
    TableRows {
        table: "agents",
        count: |size| size.agents,
        insert: "insert into agents (name, hardware, devices, ingress_http, data_address, process_id, session, state,
           registered_at, seen_at)
         select 'agent-' || n, 'demo-slot', 1, '10.0.0.1:8000', '10.0.0.1:9000', 'bench', gen_random_uuid(),
           'left', now(), now() from generate_series(1, ROWS) n",
    },
];

/// The identifier of a row that was made `n` seconds ago (UUID version 7).
const ID: &str = "(lpad(to_hex((extract(epoch from now()) * 1000)::bigint - n * 1000), 12, '0') || '7000'
                   || lpad(to_hex(n), 16, '8000000000000000'))::uuid";

/// A connection to the private database of a service.
///
/// # Errors
/// If the database does not run or cannot be reached.
pub async fn connect(data_dir: &Path) -> Result<PgConnection> {
    let file = data_dir.join("service/postgres/postmaster.pid");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let socket = text.lines().nth(4).context("the private database says no folder of its socket")?;
    let url = format!("postgres://apportion@{}/postgres", socket.replace('/', "%2F"));
    PgConnection::connect(&url).await.context("connecting to the private database")
}

/// Writes the rows, by SQL: the service would take hours.
///
/// # Errors
/// If a statement fails.
pub async fn fill(db: &mut PgConnection, size: &StoreSize, tell: impl Fn(&str)) -> Result<()> {
    // Triggers would make an event of each row.
    run(db, "set session_replication_role = replica").await?;
    for TableRows { table, count, insert } in FILL {
        let rows = count(size);
        tell(&format!("writing {rows} rows of {table}"));
        let text = insert.replace("ID", ID).replace("WHOLE", &WHOLE_PLAN_EVERY.to_string());
        run(db, &text.replace("ROWS", &rows.to_string())).await.with_context(|| format!("filling {table}"))?;
    }
    tell("collecting statistics");
    run(db, "vacuum analyze").await
}

async fn run(db: &mut PgConnection, text: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(db).await?;
    Ok(())
}

/// The identifier of a plan with its documents.
///
/// # Errors
/// If there is none.
pub async fn whole_plan(db: &mut PgConnection) -> Result<String> {
    let whole = sqlx::query_scalar("select id::text from plans where problem <> '{}' order by id limit 1");
    Ok(whole.fetch_one(db).await?)
}

/// The tables with rows, the largest first. Rows are counted, sizes are those of the files.
///
/// # Errors
/// If a statement fails.
pub async fn sizes(db: &mut PgConnection) -> Result<Vec<StoredTable>> {
    let mut tables = Vec::new();
    for TableRows { table, .. } in FILL {
        // The names are ours.
        let text = format!(
            "select '{table}' as \"table\", (select count(*) from {table}) as rows, pg_table_size('{table}') as bytes,
             pg_indexes_size('{table}') as index_bytes"
        );
        let size: StoredTable = sqlx::query_as(AssertSqlSafe(text)).fetch_one(&mut *db).await?;
        tables.push(size);
    }
    tables.sort_by_key(|size| std::cmp::Reverse(size.bytes + size.index_bytes));
    Ok(tables)
}
