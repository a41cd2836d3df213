//! What do the tables share? Connections, errors, conditions of writes.

pub use sqlx::{Error, PgConnection, PgPool};

/// Moments as PostgreSQL keeps them.
pub type Time = chrono::DateTime<chrono::Utc>;
/// Result of every query.
pub type Result<T> = std::result::Result<T, Error>;
/// Most entries of a list that a client gets in one answer.
pub const LIST_MAX: i64 = 1_000;

/// Why a database stores nothing for a while, although it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStop {
    /// It is read-only, as a standby is before it takes over.
    ReadOnly,
    /// Its disk is full.
    DiskFull,
}

impl WriteStop {
    /// The reason that an error tells, if it is one of these.
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        let code = error.as_database_error()?.code()?;
        match &*code {
            "25006" => Some(Self::ReadOnly),
            "53100" => Some(Self::DiskFull),
            _ => None,
        }
    }
}

/// The project of the pipeline whose spec this column has. One that names none is of the project `default`.
macro_rules! project_in {
    ($spec:literal) => {
        concat!("coalesce(", $spec, " -> 'replan' ->> 'project', 'default')")
    };
}
pub(crate) use project_in;

/// Whether the transactions of a connection can store nothing.
///
/// # Errors
/// The database's.
pub async fn is_read_only(db: &mut PgConnection) -> Result<bool> {
    sqlx::query_scalar("select current_setting('transaction_read_only')::boolean").fetch_one(db).await
}

/// Whether the database was unavailable, or in a state that passes: a second try may succeed.
#[must_use]
pub fn is_unavailable(error: &Error) -> bool {
    /// Classes of SQLSTATE: connection, resources, operator's intervention (as at a shutdown), system, rollback in favour
    /// of another transaction. The last two are single states: a read-only database, as a standby is before it takes over,
    /// and a lock that another transaction has for too long.
    const PASSING: [&str; 7] = ["08", "53", "57", "58", "40", "25006", "55P03"];
    match error {
        Error::Io(_)
        | Error::Tls(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed
        | Error::Protocol(_) => true,
        Error::Database(error) => error.code().is_some_and(|code| PASSING.iter().any(|class| code.starts_with(class))),
        _ => false,
    }
}

/// The versions of a row that a write may change. The statement that writes checks the condition, so that of two writes
/// with the same condition one fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any version; there may be no row.
    Any,
    /// There must be no row.
    Absent,
    /// Any version; there must be a row.
    Exists,
    /// One of these versions.
    Versions(Vec<i64>),
}

impl Condition {
    /// The versions allowed; `None`: every one. Versions count from 1: a row that is not there has version 0.
    #[must_use]
    pub fn versions(&self) -> Option<&[i64]> {
        match self {
            Self::Any | Self::Exists => None,
            Self::Absent => Some(&[0]),
            Self::Versions(versions) => Some(versions),
        }
    }

    /// Whether there must be a row.
    #[must_use]
    pub fn needs_row(&self) -> bool {
        !matches!(self, Self::Any | Self::Absent)
    }
}

/// Runs the statement that deletes the row of a name (`$1`) with one of some versions (`$2`); returns whether it was there.
///
/// # Errors
/// The database's.
pub(super) async fn delete_row(
    db: &mut PgConnection,
    statement: &'static str,
    name: &str,
    condition: &Condition,
) -> Result<bool> {
    let done = sqlx::query(statement).bind(name).bind(condition.versions()).execute(db).await?;
    Ok(done.rows_affected() == 1)
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The row is gone.
    Done,
    /// There was no row.
    Missing,
    /// The row has a version that the condition does not allow.
    OtherVersion,
}
