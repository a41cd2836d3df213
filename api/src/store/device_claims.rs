//! Devices that measure for profile jobs.

use super::connection::{PgConnection, Result, Time};
use apportion_wire::AgentState;
use uuid::Uuid;

/// A device that measures for a job.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct ClaimRow {
    /// Its number. A later claim has a higher one.
    pub claim: i64,
    /// The job.
    pub job: Uuid,
    /// The hardware type of the device.
    pub hardware: String,
    /// The agent.
    pub agent: i64,
    /// The agent's device.
    pub device: i32,
    /// Number of its last order.
    pub point: i64,
    /// Task of the order that is not answered yet; `None`: there is none.
    pub task: Option<String>,
    /// Its variant.
    pub variant: Option<String>,
    /// Its batch size.
    pub batch: Option<i32>,
    /// Why the agent gave the device to a replica; `None`: it did not.
    pub yielded: Option<String>,
    /// When it was claimed.
    pub claimed_at: Time,
}

/// A claim with the versions of the documents from which its order is made.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct VersionedClaimRow {
    /// The claim.
    #[sqlx(flatten)]
    pub claim: ClaimRow,
    /// The version of its job's pipeline.
    pub version: i64,
    /// The version of the profile; `None` without one.
    pub profile_version: Option<i64>,
}

/// A device to claim.
#[derive(Clone, Copy, Debug)]
pub struct NewClaim<'a> {
    /// The job.
    pub job: Uuid,
    /// The hardware type of the device.
    pub hardware: &'a str,
    /// The agent.
    pub agent: i64,
    /// The agent's device.
    pub device: i32,
    /// When it is claimed.
    pub at: Time,
}

/// An order to measure one batch size.
#[derive(Clone, Copy, Debug)]
pub struct NewOrder<'a> {
    /// The task.
    pub task: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// The batch size.
    pub batch: i32,
}

/// A select of [`ClaimRow`]s with its condition.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select c.claim, c.job, c.hardware, c.agent, c.device, c.point, c.task, c.variant, c.batch, c.yielded,
             c.claimed_at from device_claims c ",
            $rest
        )
    };
}

/// All claims by number.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection) -> Result<Vec<ClaimRow>> {
    sqlx::query_as(select!("order by c.claim")).fetch_all(db).await
}

/// The claims of one job.
///
/// # Errors
/// The database's.
pub async fn of_job(db: &mut PgConnection, job: Uuid) -> Result<Vec<ClaimRow>> {
    sqlx::query_as(select!("where c.job = $1 order by c.claim")).bind(job).fetch_all(db).await
}

/// The claims of live agents whose streams this process holds, without those that an agent gave away.
///
/// # Errors
/// The database's.
pub async fn held_by(db: &mut PgConnection, process: Uuid) -> Result<Vec<VersionedClaimRow>> {
    sqlx::query_as(
        "select c.*, p.version, f.version as profile_version from device_claims c
         join agents a on a.number = c.agent join profile_jobs j on j.id = c.job join pipelines p on p.name = j.pipeline
         left join profiles f on f.pipeline = p.name
         where a.holder = $1 and a.state = $2 and c.yielded is null order by c.claim",
    )
    .bind(process)
    .bind(AgentState::Live.name())
    .fetch_all(db)
    .await
}

/// The claim with this number.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, claim: i64) -> Result<Option<ClaimRow>> {
    sqlx::query_as(select!("where c.claim = $1")).bind(claim).fetch_optional(db).await
}

/// The claim with this number, locked until the transaction ends. Its job is locked first, as by everybody who changes
/// both.
///
/// # Errors
/// The database's.
pub async fn lock(db: &mut PgConnection, claim: i64) -> Result<Option<ClaimRow>> {
    sqlx::query_as(select!("where c.claim = $1 for update of c")).bind(claim).fetch_optional(db).await
}

/// Claims a device for a job; returns whether neither the agent nor the job's hardware type had a claim.
///
/// # Errors
/// The database's.
pub async fn take(db: &mut PgConnection, new: NewClaim<'_>) -> Result<bool> {
    let done = sqlx::query(
        "insert into device_claims (job, hardware, agent, device, claimed_at) values ($1, $2, $3, $4, $5)
         on conflict do nothing",
    )
    .bind(new.job)
    .bind(new.hardware)
    .bind(new.agent)
    .bind(new.device)
    .bind(new.at)
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends a claim.
///
/// # Errors
/// The database's.
pub async fn end(db: &mut PgConnection, claim: i64) -> Result<()> {
    sqlx::query("delete from device_claims where claim = $1").bind(claim).execute(db).await?;
    Ok(())
}

/// Notes that the agent gave its device to a replica. The leader ends the claim.
///
/// # Errors
/// The database's.
pub async fn note_yielded(db: &mut PgConnection, claim: i64, why: &str) -> Result<()> {
    sqlx::query("update device_claims set yielded = $2 where claim = $1").bind(claim).bind(why).execute(db).await?;
    Ok(())
}

/// Gives the next order of a claim, or none. Returns its number.
///
/// # Errors
/// The database's.
pub async fn set_order(db: &mut PgConnection, claim: i64, order: Option<NewOrder<'_>>) -> Result<i64> {
    sqlx::query_scalar(
        "update device_claims set task = $2, variant = $3, batch = $4,
         point = point + case when $2::text is null then 0 else 1 end where claim = $1 returning point",
    )
    .bind(claim)
    .bind(order.map(|order| order.task))
    .bind(order.map(|order| order.variant))
    .bind(order.map(|order| order.batch))
    .fetch_one(db)
    .await
}
