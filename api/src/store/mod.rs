//! Rows in PostgreSQL. What belongs here: private row types and plain functions on a connection or transaction. What never
//! does: business rules, the clock (moments are arguments), JSON's inner shape.
//!
//! Missing is `Ok(None)`; a write that must hit a row says whether it did. A function that is part of a larger change takes
//! `&mut PgConnection`, so that its caller's transaction decides.

pub mod agents;
pub mod arrivals;
pub mod decisions;
pub mod files;
pub mod hardware;
pub mod jobs;
pub mod pipelines;
pub mod plans;
pub mod processes;
pub mod target;
pub mod traces;

pub use sqlx::{Error, PgConnection, PgPool};

/// Moments as PostgreSQL keeps them.
pub type Time = chrono::DateTime<chrono::Utc>;
/// Result of every query.
pub type Result<T> = std::result::Result<T, Error>;
/// Most rows that a list answers with.
pub const LIST_MAX: i64 = 1_000;

/// Whether the database was away, or in a state that passes: what failed may work when it is tried again.
#[must_use]
pub fn is_away(error: &Error) -> bool {
    /// Classes of SQLSTATE: connection, resources, operator's intervention (as at a shutdown), system; then a transaction that was
    /// rolled back for another's sake, and a database that only reads, as a standby does before it takes over.
    const PASSING: [&str; 6] = ["08", "53", "57", "58", "40", "25006"];
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

/// Which version of a row a write may touch. The statement that writes checks it, so that of two writes with one condition
/// one is too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any, and none at all.
    Any,
    /// Any that is there.
    Exists,
    /// One of these.
    Versions(Vec<i64>),
}

impl Condition {
    /// The versions allowed; `None`: every one.
    #[must_use]
    pub fn versions(&self) -> Option<&[i64]> {
        match self {
            Self::Any | Self::Exists => None,
            Self::Versions(versions) => Some(versions),
        }
    }

    /// Whether there must be a row.
    #[must_use]
    pub fn needs_row(&self) -> bool {
        *self != Self::Any
    }
}

/// What came of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The row is gone.
    Done,
    /// There was none.
    Missing,
    /// It is of a version that the condition does not allow.
    OtherVersion,
}
