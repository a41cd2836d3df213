//! The fleet's authorities, which sign the certificates of agents.

use super::connection::{PgConnection, Result, Time};
use std::fmt;

/// An authority.
#[derive(Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AuthorityRow {
    /// Its number: a newer one has a higher number. The database gives it.
    pub number: i64,
    /// Its certificate, as DER.
    pub certificate: Vec<u8>,
    /// Its key, as PKCS #8. It is never printed.
    pub key: Vec<u8>,
    /// From then on it signs.
    pub signs_from: Time,
    /// Then the next one is made.
    pub renew_at: Time,
    /// Then it ends.
    pub ends_at: Time,
}

impl fmt::Debug for AuthorityRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityRow").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The newest authority and the one before it, in this order.
///
/// # Errors
/// The database's.
pub async fn newest(db: &mut PgConnection) -> Result<Vec<AuthorityRow>> {
    let select = "select number, certificate, key, signs_from, renew_at, ends_at from fleet_authorities
                  order by number desc limit 2";
    sqlx::query_as(select).fetch_all(db).await
}

/// Stores another authority, and deletes all but the newest two. Its number is not read.
///
/// # Errors
/// The database's.
pub async fn insert(db: &mut PgConnection, row: &AuthorityRow) -> Result<()> {
    sqlx::query(
        "insert into fleet_authorities (certificate, key, signs_from, renew_at, ends_at) values ($1, $2, $3, $4, $5)",
    )
    .bind(&row.certificate)
    .bind(&row.key)
    .bind(row.signs_from)
    .bind(row.renew_at)
    .bind(row.ends_at)
    .execute(&mut *db)
    .await?;
    sqlx::query(
        "delete from fleet_authorities
         where number not in (select number from fleet_authorities order by number desc limit 2)",
    )
    .execute(db)
    .await?;
    Ok(())
}
