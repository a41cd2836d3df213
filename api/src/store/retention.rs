//! Rows that are deleted by age, a batch at a time.
//!
//! A batch looks at no more than [`BATCH_ROWS_MAX`] rows and locks no others, so it is short and nobody waits for it. Where
//! keys follow the time, a batch looks at the rows with the smallest keys.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::{AgentState, AnalysisState, PlanState};
use uuid::Uuid;

/// Most rows that one statement deletes.
pub const BATCH_ROWS_MAX: i64 = 1_000;

/// Deletes by a statement with the time as `$1` and the most rows as `$2`; returns how many it deleted.
async fn delete_batch(db: &mut PgConnection, statement: &'static str, before: Time) -> Result<u64> {
    Ok(sqlx::query(statement).bind(before).bind(BATCH_ROWS_MAX).execute(db).await?.rows_affected())
}

/// The smallest identifier of this moment: identifiers begin with their milliseconds (UUID version 7).
fn first_id(at: Time) -> Uuid {
    Uuid::from_u128(u128::from(at.timestamp_millis().max(0).unsigned_abs()) << 80)
}

/// Makes the partition of arrivals for the seconds from `begins` (included) to `ends` (excluded); returns whether it did.
/// A time that has a partition gets no other.
///
/// # Errors
/// The database's.
pub async fn add_partition(db: &mut PgConnection, begins: i64, ends: i64) -> Result<bool> {
    sqlx::query_scalar("select add_arrivals_partition($1, $2)").bind(begins).bind(ends).fetch_one(db).await
}

/// Drops the oldest partition of arrivals if all of its seconds are before `before`; returns about how many rows it had.
/// `None`: there is none, or others keep it busy.
///
/// # Errors
/// The database's.
pub async fn drop_partition(db: &mut PgConnection, before: i64) -> Result<Option<u64>> {
    let about: Option<i64> = sqlx::query_scalar("select drop_arrivals_partition($1)").bind(before).fetch_one(db).await?;
    Ok(about.map(i64::unsigned_abs))
}

/// Deletes arrivals before the second `before` that are in no partition of a time.
///
/// # Errors
/// The database's.
pub async fn delete_arrivals(db: &mut PgConnection, before: i64) -> Result<u64> {
    let delete = "delete from arrivals_other where ctid = any(array(
                  select ctid from arrivals_other where second < $1 order by second limit $2))";
    Ok(sqlx::query(delete).bind(before).bind(BATCH_ROWS_MAX).execute(db).await?.rows_affected())
}

/// Deletes sums before this period.
///
/// # Errors
/// The database's.
pub async fn delete_sums(db: &mut PgConnection, before: i64) -> Result<u64> {
    const STATEMENTS: [&str; 2] = [
        "delete from group_sums where ctid = any(array(
         select ctid from group_sums where period < $1 order by period limit $2))",
        "delete from child_sums where ctid = any(array(
         select ctid from child_sums where period < $1 order by period limit $2))",
    ];
    let mut deleted = 0;
    for statement in STATEMENTS {
        deleted += sqlx::query(statement).bind(before).bind(BATCH_ROWS_MAX).execute(&mut *db).await?.rows_affected();
    }
    Ok(deleted)
}

/// Deletes decisions before this time.
///
/// # Errors
/// The database's.
pub async fn delete_decisions(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from decisions where id in (select id from (
                  select id, made_at from decisions order by id limit $2) oldest where made_at < $1)";
    delete_batch(db, delete, before).await
}

/// Deletes events before this time. The newest one stays, so that numbers and readers go on.
///
/// # Errors
/// The database's.
pub async fn delete_events(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from events where id in (select id from (
                  select id, made_at from events order by id limit $2) oldest
                  where made_at < $1 and id < (select max(id) from events))";
    delete_batch(db, delete, before).await
}

/// Deletes entries of the audit before this time.
///
/// # Errors
/// The database's.
pub async fn delete_audit(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from audit where id in (select id from (
                  select id, made_at from audit order by id limit $2) oldest where made_at < $1)";
    delete_batch(db, delete, before).await
}

/// Deletes former targets before this time. The newest `kept_min` stay, and the newest one with other plans than the target
/// in force, which a rollback would bring back.
///
/// # Errors
/// The database's.
pub async fn delete_targets(db: &mut PgConnection, before: Time, kept_min: i64) -> Result<u64> {
    let delete = "delete from target_history where generation in (select generation from (
                    select generation, committed_at from target_history order by generation limit $2) oldest
                    where committed_at < $1 and generation <= (select generation - $3 from target))
                  and generation is distinct from (
                    select h.generation from target_history h, target t
                    where h.generation < t.generation and h.plans <> t.plans order by h.generation desc limit 1)";
    let deleted = sqlx::query(delete).bind(before).bind(BATCH_ROWS_MAX).bind(kept_min).execute(db).await?;
    Ok(deleted.rows_affected())
}

/// Plans that a sweep deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweptPlans {
    /// How many.
    pub deleted: u64,
    /// The last plan that it looked at; `None`: no other one is old enough.
    pub last: Option<Uuid>,
}

/// Deletes plans after `after` that ended before this time. A plan stays if the target in force, a former target, a
/// decision or an advice refers to it.
///
/// # Errors
/// The database's.
pub async fn sweep_plans(tx: &mut PgConnection, before: Time, after: Uuid) -> Result<SweptPlans> {
    let open: Vec<&str> = PlanState::OPEN.map(PlanState::name).into();
    // Whoever makes a plan part of a target shares its row. So the second statement sees either that target, or a row that
    // nobody is about to use.
    let old: Vec<Uuid> = sqlx::query_scalar(
        "select id from plans where id > $1 and id < $2 and state <> all($3) and finished_at < $4 order by id limit $5
         for update skip locked",
    )
    .bind(after)
    .bind(first_id(before))
    .bind(open)
    .bind(before)
    .bind(BATCH_ROWS_MAX)
    .fetch_all(&mut *tx)
    .await?;
    let done = sqlx::query(
        "delete from plans p where id = any($1) and not exists (select from target t where p.id = any(t.plans))
         and not exists (select from target_history h where h.plans @> array[p.id])
         and not exists (select from decisions d where d.plan = p.id)
         and not exists (select from advice a where a.plan = p.id)",
    )
    .bind(&old)
    .execute(tx)
    .await?;
    let is_full = old.len() as i64 == BATCH_ROWS_MAX;
    Ok(SweptPlans { deleted: done.rows_affected(), last: old.last().copied().filter(|_| is_full) })
}

/// Deletes simulations, frontiers and comparisons that ended before this time.
///
/// # Errors
/// The database's.
pub async fn delete_analyses(db: &mut PgConnection, before: Time) -> Result<u64> {
    let open: Vec<&str> = AnalysisState::OPEN.map(AnalysisState::name).into();
    let delete = "delete from analyses where id in (select id from analyses where id < $3 and state <> all($4)
                  and finished_at < $1 order by id limit $2)";
    let delete = sqlx::query(delete).bind(before).bind(BATCH_ROWS_MAX).bind(first_id(before));
    Ok(delete.bind(open).execute(db).await?.rows_affected())
}

/// Deletes profile jobs that ended before this time.
///
/// # Errors
/// The database's.
pub async fn delete_profile_jobs(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from profile_jobs where id in
                  (select id from profile_jobs where finished_at < $1 order by id limit $2)";
    delete_batch(db, delete, before).await
}

/// Deletes firings of schedules before this time, and keeps the last one of each schedule.
///
/// # Errors
/// The database's.
pub async fn delete_firings(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from schedule_firings where ctid = any(array(
                  select ctid from schedule_firings f where fired_at < $1
                  and due_at < (select max(due_at) from schedule_firings l where l.schedule = f.schedule)
                  order by fired_at limit $2))";
    delete_batch(db, delete, before).await
}

/// Deletes machines that ended before this time.
///
/// # Errors
/// The database's.
pub async fn delete_machines(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from machines where name in (
                  select name from machines where stage = 'ended' and stage_at < $1 order by stage_at limit $2)";
    delete_batch(db, delete, before).await
}

/// Deletes agents that are not live and were seen last before this time, unless the target in force has replicas there.
///
/// # Errors
/// The database's.
pub async fn delete_agents(db: &mut PgConnection, before: Time) -> Result<u64> {
    // The condition stands twice: an agent that registers meanwhile stays.
    let delete = "delete from agents where number in (
                    select number from agents where state <> $3 and seen_at < $1 and number <> all(array(
                      select (r ->> 'agent')::bigint from target t, jsonb_array_elements(t.placement -> 'replicas') r))
                    order by number limit $2)
                  and state <> $3 and seen_at < $1";
    let delete = sqlx::query(delete).bind(before).bind(BATCH_ROWS_MAX).bind(AgentState::Live.name());
    Ok(delete.execute(db).await?.rows_affected())
}

/// Deletes tokens that were revoked or have expired before this time.
///
/// # Errors
/// The database's.
pub async fn delete_tokens(db: &mut PgConnection, before: Time) -> Result<u64> {
    let delete = "delete from tokens where id in (
                  select id from tokens where least(revoked_at, expires_at) < $1 order by id limit $2)";
    delete_batch(db, delete, before).await
}

/// The time of the oldest row of each kind that has any, by the name of the kind. Periods of sums have so many seconds.
///
/// # Errors
/// The database's.
pub async fn oldest(db: &mut PgConnection, period_s: i64) -> Result<Vec<(String, Option<Time>)>> {
    sqlx::query_as(
        "select 'arrivals'::text, to_timestamp(min(second)::double precision) from arrivals
         union all select 'sums', to_timestamp((min(period) * $1)::double precision) from group_sums
         union all (select 'decisions', made_at from decisions order by id limit 1)
         union all (select 'events', made_at from events order by id limit 1)
         union all (select 'audit', made_at from audit order by id limit 1)
         union all (select 'targets', committed_at from target_history order by generation limit 1)
         union all (select 'plans', created_at from plans order by id limit 1)
         union all (select 'analyses', created_at from analyses order by id limit 1)
         union all select 'firings', min(fired_at) from schedule_firings
         union all select 'machines', min(stage_at) from machines where stage = 'ended'
         union all select 'agents', min(seen_at) from agents where state <> 'live'
         union all select 'tokens', min(least(revoked_at, expires_at)) from tokens
                   where least(revoked_at, expires_at) < now()",
    )
    .bind(period_s)
    .fetch_all(db)
    .await
}
