//! Makes the fleet's authorities, and hands them to the streams of agents.

use crate::app::fleet_authorities::FleetAuthorities;
use crate::app::{App, now};
use crate::decide::authorities::{AuthorityTimes, next_authority};
use crate::store::{self, PgConnection, Time, authorities::AuthorityRow};
use apportion_certificates::{FleetAuthority, IssueError, ValidityPeriod};
use chrono::Duration;
use std::sync::Arc;
use uuid::Uuid;

/// How much earlier than now an authority begins: before the earliest certificate that it signs.
const BEGINS_EARLIER_HOURS: i64 = 24;

/// Makes the parts of an authority. The database numbers it.
///
/// # Errors
/// If the system gives no random bytes.
pub fn make(at: Time, times: AuthorityTimes) -> Result<AuthorityRow, IssueError> {
    let seconds = |at: Time| u64::try_from(at.timestamp()).unwrap_or(0);
    let begins = at - Duration::hours(BEGINS_EARLIER_HOURS);
    let validity = ValidityPeriod { from_s: seconds(begins), until_s: seconds(times.ends_at) };
    let made = FleetAuthority::generate(&Uuid::new_v4().simple().to_string(), validity)?;
    let AuthorityTimes { signs_from, renew_at, ends_at } = times;
    Ok(AuthorityRow { number: 0, certificate: made.certificate, key: made.key, signs_from, renew_at, ends_at })
}

/// Makes the next authority if it is time for it; returns whether it did.
///
/// # Errors
/// The database's.
pub async fn renew(tx: &mut PgConnection) -> store::Result<bool> {
    let rows = store::authorities::newest(tx).await?;
    let newest = rows.first().map(AuthorityTimes::from);
    let Some(times) = next_authority(newest, now()) else { return Ok(false) };
    match make(now(), times) {
        Ok(row) => store::authorities::insert(tx, &row).await.map(|()| true),
        Err(error) => {
            tracing::error!(%error, "the fleet's next authority cannot be made");
            Ok(false)
        }
    }
}

/// Hands the stored authorities to the streams, if others count or another one signs now.
pub fn refresh(app: &App, rows: &[AuthorityRow]) {
    let is_same = |known: &Arc<FleetAuthorities>| known.is_of(rows, now());
    if app.authorities.borrow().as_ref().is_some_and(is_same) {
        return;
    }
    match FleetAuthorities::read(rows, now()) {
        Ok(Some(read)) => _ = app.authorities.send_replace(Some(Arc::new(read))),
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "the fleet's authorities cannot be read; the last ones stay"),
    }
}
