//! Figures in service that differ from their profile, and the sums that they are measured by.

use super::connection::{PgConnection, Result, Time};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Batches of a variant on a hardware type that ended well at one agent in one period.
#[derive(Clone, Debug, Default, PartialEq, sqlx::FromRow)]
pub struct GroupSumsRow {
    /// Number of the period since the epoch.
    pub period: i64,
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// The stream of the agent.
    pub session: Uuid,
    /// Batches.
    pub batches: i64,
    /// Their time, in milliseconds.
    pub took_ms: f64,
    /// Their time by the profile, in milliseconds.
    pub expected_ms: f64,
    /// Queries that ended well.
    pub queries: i64,
    /// Queries that these made, by child task. [`batch_times`] reads none.
    #[sqlx(skip)]
    pub children: BTreeMap<String, i64>,
}

/// Queries of a variant in one period, and those that they made at one child. Agents and hardware types are summed.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct ChildrenRow {
    /// Number of the period since the epoch.
    pub period: i64,
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The task of the children.
    pub child: String,
    /// Queries of the variant.
    pub queries: i64,
    /// Queries that they made at the child.
    pub children: i64,
}

/// A figure that differs from its profile.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct DriftRow {
    /// The pipeline.
    pub pipeline: String,
    /// Its kind: `latency` or `fanout`.
    pub kind: String,
    /// The variant's task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type of a latency, the child task of a fan-out.
    pub place: String,
    /// Measured over profile.
    pub factor: f64,
    /// Mean of the profile: milliseconds for each batch, or queries for each query.
    pub profile: f64,
    /// The same as it was measured.
    pub measured: f64,
    /// When it began.
    pub since: Time,
}

/// The columns of some rows, each as a list.
#[derive(Default)]
struct ColumnLists {
    periods: Vec<i64>,
    pipelines: Vec<String>,
    tasks: Vec<String>,
    variants: Vec<String>,
    sessions: Vec<Uuid>,
}

impl ColumnLists {
    fn push(&mut self, row: &GroupSumsRow) {
        self.periods.push(row.period);
        self.pipelines.push(row.pipeline.clone());
        self.tasks.push(row.task.clone());
        self.variants.push(row.variant.clone());
        self.sessions.push(row.session);
    }
}

/// Adds sums to those of their periods. No two rows have the same period, names and stream.
///
/// # Errors
/// The database's.
pub async fn add_sums(db: &mut PgConnection, rows: &[&GroupSumsRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut of = ColumnLists::default();
    rows.iter().for_each(|row| of.push(row));
    sqlx::query(
        "insert into group_sums as g (period, pipeline, task, variant, hardware, session, batches, took_ms, expected_ms,
         queries) select * from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[],
         $7::bigint[], $8::double precision[], $9::double precision[], $10::bigint[])
         on conflict (period, pipeline, task, variant, hardware, session) do update set
         batches = g.batches + excluded.batches, took_ms = g.took_ms + excluded.took_ms,
         expected_ms = g.expected_ms + excluded.expected_ms, queries = g.queries + excluded.queries",
    )
    .bind(of.periods)
    .bind(of.pipelines)
    .bind(of.tasks)
    .bind(of.variants)
    .bind(rows.iter().map(|row| row.hardware.clone()).collect::<Vec<_>>())
    .bind(of.sessions)
    .bind(rows.iter().map(|row| row.batches).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.took_ms).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.expected_ms).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.queries).collect::<Vec<_>>())
    .execute(&mut *db)
    .await?;
    add_children(db, rows).await
}

async fn add_children(db: &mut PgConnection, rows: &[&GroupSumsRow]) -> Result<()> {
    let (mut of, mut names, mut queries) = (ColumnLists::default(), Vec::new(), Vec::new());
    for row in rows {
        for (child, count) in &row.children {
            of.push(row);
            names.push(child.clone());
            queries.push(*count);
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    // An agent may report a variant on two hardware types: one statement changes a row once.
    sqlx::query(
        "insert into child_sums as c (period, pipeline, task, variant, child, session, queries)
         select period, pipeline, task, variant, child, session, sum(queries)::bigint
         from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::bigint[])
              as s (period, pipeline, task, variant, child, session, queries)
         group by period, pipeline, task, variant, child, session
         on conflict (period, pipeline, task, variant, child, session) do update set queries = c.queries + excluded.queries",
    )
    .bind(of.periods)
    .bind(of.pipelines)
    .bind(of.tasks)
    .bind(of.variants)
    .bind(names)
    .bind(of.sessions)
    .bind(queries)
    .execute(db)
    .await?;
    Ok(())
}

/// The batches of the periods from `from` (included) to `until` (excluded), by period; of one pipeline if it is named. Rows
/// without batches or without a profile are left out.
///
/// # Errors
/// The database's.
pub async fn batch_times(
    db: &mut PgConnection,
    pipeline: Option<&str>,
    from: i64,
    until: i64,
) -> Result<Vec<GroupSumsRow>> {
    let select = sqlx::query_as(
        "select period, pipeline, task, variant, hardware, session, batches, took_ms, expected_ms, queries from group_sums
         where period >= $1 and period < $2 and ($3::text is null or pipeline = $3) and batches > 0 and expected_ms > 0
         order by period, pipeline, task, variant, hardware, session",
    );
    select.persistent(false).bind(from).bind(until).bind(pipeline).fetch_all(db).await
}

/// A variant on a hardware type that served queries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, sqlx::FromRow)]
pub struct UsedVariantRow {
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
}

/// The variants that served queries in the periods from `from` on.
///
/// # Errors
/// The database's.
pub async fn used_since(db: &mut PgConnection, from: i64) -> Result<Vec<UsedVariantRow>> {
    let select = sqlx::query_as(
        "select distinct pipeline, task, variant, hardware from group_sums where period >= $1 and queries > 0",
    );
    select.persistent(false).bind(from).fetch_all(db).await
}

/// The children of these periods, by period; of one pipeline if it is named. A period with queries that made none at a
/// child of other periods has a row with 0.
///
/// # Errors
/// The database's.
pub async fn children(db: &mut PgConnection, pipeline: Option<&str>, from: i64, until: i64) -> Result<Vec<ChildrenRow>> {
    sqlx::query_as(
        "with parents as (
           select period, pipeline, task, variant, sum(queries)::bigint as queries from group_sums
           where period >= $1 and period < $2 and ($3::text is null or pipeline = $3) and queries > 0
           group by period, pipeline, task, variant),
         made as (
           select period, pipeline, task, variant, child, sum(queries)::bigint as queries from child_sums
           where period >= $1 and period < $2 and ($3::text is null or pipeline = $3)
           group by period, pipeline, task, variant, child),
         edges as (select distinct pipeline, task, variant, child from made)
         select p.period, p.pipeline, p.task, p.variant, e.child, p.queries, coalesce(m.queries, 0) as children
         from parents p join edges e using (pipeline, task, variant)
         left join made m using (period, pipeline, task, variant, child)
         order by p.period, p.pipeline, p.task, p.variant, e.child",
    )
    .persistent(false)
    .bind(from)
    .bind(until)
    .bind(pipeline)
    .fetch_all(db)
    .await
}

/// The figures that differ from their profile, in the order of their names; of one pipeline if it is named.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, pipeline: Option<&str>) -> Result<Vec<DriftRow>> {
    sqlx::query_as(
        "select pipeline, kind, task, variant, place, factor, profile, measured, since from drifts
         where $1::text is null or pipeline = $1 order by pipeline, kind, task, variant, place",
    )
    .persistent(false)
    .bind(pipeline)
    .fetch_all(db)
    .await
}

/// Writes a drift. Returns whether its pipeline is still registered.
///
/// # Errors
/// The database's.
pub async fn put(db: &mut PgConnection, row: &DriftRow) -> Result<bool> {
    let done = sqlx::query(
        "insert into drifts (pipeline, kind, task, variant, place, factor, profile, measured, since)
         select name, $2, $3, $4, $5, $6, $7, $8, $9 from pipelines where name = $1
         on conflict (pipeline, kind, task, variant, place) do update set factor = $6, profile = $7, measured = $8, since = $9",
    )
    .bind(&row.pipeline)
    .bind(&row.kind)
    .bind(&row.task)
    .bind(&row.variant)
    .bind(&row.place)
    .bind(row.factor)
    .bind(row.profile)
    .bind(row.measured)
    .bind(row.since)
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a drift; returns whether there was one.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, row: &DriftRow) -> Result<bool> {
    let delete =
        sqlx::query("delete from drifts where pipeline = $1 and kind = $2 and task = $3 and variant = $4 and place = $5");
    let done =
        delete.bind(&row.pipeline).bind(&row.kind).bind(&row.task).bind(&row.variant).bind(&row.place).execute(db).await?;
    Ok(done.rows_affected() == 1)
}
