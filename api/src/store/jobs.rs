//! The queues of jobs: plans to be solved, and analyses to be run.
//!
//! A job has the key of its plan or analysis. Each queue has a table of its own, and all tables have the same columns.
//!
//! Leases are measured by the database's clock, so that processes with different clocks agree which workers are dead. A
//! transaction that changes a plan or an analysis and its job locks the job first. Because all lock in one order, they
//! never deadlock.

use super::connection::{PgConnection, Result};
use std::time::Duration;
use uuid::Uuid;

/// A queue of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobQueue {
    /// Plans to be solved.
    #[default]
    Plans,
    /// Simulations, frontiers and comparisons to be run.
    Analyses,
}

impl JobQueue {
    /// The other queue.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Plans => Self::Analyses,
            Self::Analyses => Self::Plans,
        }
    }
}

/// One part of a statement of `on_queue`.
macro_rules! queue_part {
    (plans jobs) => {
        "jobs"
    };
    (plans key) => {
        "plan"
    };
    (plans project) => {
        "(select project from plans where id = $1)"
    };
    (analyses jobs) => {
        "analysis_jobs"
    };
    (analyses key) => {
        "analysis"
    };
    (analyses project) => {
        "null"
    };
    ($queue:ident $text:literal) => {
        $text
    };
}

/// A statement on the table of a queue. The words `jobs` and `key` stand for the names of the table and its key, and
/// `project` for the project of the new job with the key `$1`.
macro_rules! on_queue {
    ($queue:expr; $($part:tt)+) => {
        match $queue {
            JobQueue::Plans => concat!($(queue_part!(plans $part)),+),
            JobQueue::Analyses => concat!($(queue_part!(analyses $part)),+),
        }
    };
}

/// How much time a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolveTime {
    /// At most the default limit.
    Usual,
    /// More than the default limit: the job must leave places to others.
    Long,
}

impl From<bool> for SolveTime {
    /// The column `long` of a job.
    fn from(long: bool) -> Self {
        if long { Self::Long } else { Self::Usual }
    }
}

/// A claimed job.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JobRow {
    /// Its queue.
    #[sqlx(skip)]
    pub queue: JobQueue,
    /// The plan to solve, or the analysis to run.
    #[sqlx(rename = "key")]
    pub id: Uuid,
    /// How often it was claimed, this claim included. A worker with another number has lost the job.
    pub attempts: i32,
    /// How often a worker let its lease expire.
    pub deaths: i32,
    /// How much time it may take.
    #[sqlx(rename = "long", try_from = "bool")]
    pub solve_time: SolveTime,
}

/// The jobs that a worker accepts.
#[derive(Clone, Debug)]
pub struct JobFilter<'a> {
    /// The duration of its lease.
    pub lease: Duration,
    /// Whether it accepts jobs with [`SolveTime::Long`].
    pub long: bool,
    /// Whether it takes over jobs whose lease has expired.
    pub take_over: bool,
    /// The jobs that its process has: its own expired lease is no death.
    pub own: &'a [Uuid],
}

/// Enqueues a plan or an analysis, in the transaction that stores it.
///
/// # Errors
/// The database's.
pub async fn enqueue(db: &mut PgConnection, queue: JobQueue, id: Uuid, solve_time: SolveTime) -> Result<()> {
    let insert = sqlx::query(on_queue!(queue;
        "insert into " jobs " (" key ", long, project) values ($1, $2, " project ")"));
    insert.bind(id).bind(solve_time == SolveTime::Long).execute(db).await?;
    Ok(())
}

/// Claims a job of a queue without a lease, or with an expired one. An expired lease counts as the death of its worker.
///
/// Projects take turns: a job of the project that has the fewest jobs at work comes first, and the oldest one of these. So
/// no project waits for the end of another one's queue. Jobs that are no project's alone count as those of one project.
///
/// # Errors
/// The database's.
pub async fn claim(db: &mut PgConnection, queue: JobQueue, offer: &JobFilter<'_>) -> Result<Option<JobRow>> {
    let claim = on_queue!(queue;
        "update " jobs " set attempts = attempts + 1, deaths = deaths + (lease_until is not null)::integer,
         lease_until = clock_timestamp() + make_interval(secs => $1) where " key " =
         (select waiting." key " from " jobs " waiting left join
          (select coalesce(project, '') as project, count(*) as running from " jobs "
           where lease_until >= clock_timestamp() group by 1) at_work
          on at_work.project = coalesce(waiting.project, '')
          where (waiting.lease_until is null or ($2 and waiting.lease_until < clock_timestamp()))
          and ($3 or not waiting.long) and waiting." key " <> all($4)
          order by coalesce(at_work.running, 0), waiting." key " limit 1 for update of waiting skip locked)
         returning " key " as key, attempts, deaths, long");
    let claim = sqlx::query_as(claim).bind(offer.lease.as_secs_f64()).bind(offer.take_over).bind(offer.long);
    let row: Option<JobRow> = claim.bind(offer.own).fetch_optional(db).await?;
    Ok(row.map(|job| JobRow { queue, ..job }))
}

/// Renews a lease; returns whether the worker still has the job.
///
/// # Errors
/// The database's.
pub async fn renew(db: &mut PgConnection, job: &JobRow, lease: Duration) -> Result<bool> {
    let update = on_queue!(job.queue;
        "update " jobs " set lease_until = clock_timestamp() + make_interval(secs => $3)
         where " key " = $1 and attempts = $2");
    let done = sqlx::query(update).bind(job.id).bind(job.attempts).bind(lease.as_secs_f64()).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Puts a job back for the next worker; returns whether the worker still had it. It counts as no death.
///
/// # Errors
/// The database's.
pub async fn put_back(db: &mut PgConnection, job: &JobRow) -> Result<bool> {
    let update = on_queue!(job.queue; "update " jobs " set lease_until = null where " key " = $1 and attempts = $2");
    let done = sqlx::query(update).bind(job.id).bind(job.attempts).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a job; returns whether the worker still had it.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, job: &JobRow) -> Result<bool> {
    let delete = on_queue!(job.queue; "delete from " jobs " where " key " = $1 and attempts = $2");
    let done = sqlx::query(delete).bind(job.id).bind(job.attempts).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the job of a plan or an analysis if no worker has it. A remaining job is locked until the transaction ends.
///
/// # Errors
/// The database's.
pub async fn withdraw(db: &mut PgConnection, queue: JobQueue, id: Uuid) -> Result<()> {
    let lock = on_queue!(queue; "select from " jobs " where " key " = $1 for update");
    sqlx::query(lock).bind(id).execute(&mut *db).await?;
    let delete = on_queue!(queue;
        "delete from " jobs " where " key " = $1 and (lease_until is null or lease_until < clock_timestamp())");
    sqlx::query(delete).bind(id).execute(db).await?;
    Ok(())
}

/// How many jobs of a queue wait or are being done.
///
/// # Errors
/// The database's.
pub async fn count_open(db: &mut PgConnection, queue: JobQueue) -> Result<i64> {
    sqlx::query_scalar(on_queue!(queue; "select count(*) from " jobs)).fetch_one(db).await
}

/// How many plans of the project of this plan wait or are being solved, itself included. Plans that are no project's alone
/// count as those of one project.
///
/// # Errors
/// The database's.
pub async fn count_open_beside(db: &mut PgConnection, plan: Uuid) -> Result<i64> {
    const COUNT: &str =
        "select count(*) from jobs where project is not distinct from (select project from jobs where plan = $1)";
    sqlx::query_scalar(COUNT).bind(plan).fetch_one(db).await
}
