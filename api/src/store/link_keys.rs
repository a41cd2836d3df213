//! The fleet's keys, from which those of the connections between agents are derived.

use super::connection::{PgConnection, Result};
use std::fmt;

/// One of the keys.
#[derive(Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LinkKeyRow {
    /// Its number: a newer key has a higher one.
    pub number: i64,
    /// The key, 32 bytes. It is never printed.
    pub key: Vec<u8>,
}

impl fmt::Debug for LinkKeyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkKeyRow").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The newest key and the one before it, in this order.
///
/// # Errors
/// The database's.
pub async fn newest(db: &mut PgConnection) -> Result<Vec<LinkKeyRow>> {
    sqlx::query_as("select number, key from link_keys order by number desc limit 2").fetch_all(db).await
}

/// Makes a key if the newest is older than so many seconds, and deletes all but the newest two. Returns whether it made
/// one.
///
/// # Errors
/// The database's.
pub async fn renew_after(db: &mut PgConnection, age_s: f64) -> Result<bool> {
    let made = sqlx::query(
        "insert into link_keys (made_at) select clock_timestamp()
         where not exists (select from link_keys where made_at > clock_timestamp() - make_interval(secs => $1))",
    )
    .bind(age_s)
    .execute(&mut *db)
    .await?;
    if made.rows_affected() == 1 {
        forget_all_but_two(db).await?;
    }
    Ok(made.rows_affected() == 1)
}

/// Makes a key.
///
/// # Errors
/// The database's.
pub async fn renew(db: &mut PgConnection) -> Result<()> {
    sqlx::query("insert into link_keys default values").execute(&mut *db).await?;
    forget_all_but_two(db).await
}

async fn forget_all_but_two(db: &mut PgConnection) -> Result<()> {
    sqlx::query("delete from link_keys where number not in (select number from link_keys order by number desc limit 2)")
        .execute(db)
        .await?;
    Ok(())
}
