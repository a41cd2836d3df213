//! Webhooks: their documents, and how far each one is.

use super::audit::{self, AuditRow};
use super::connection::{Condition, Deletion, PgConnection, Result, Time, delete_row};
use super::events::EventRow;

/// The kind by which a webhook asks for the entries of the audit. Without it a webhook gets none.
pub const AUDIT_KIND: &str = "audit";
/// Most waiting events that are counted.
pub const WAITING_COUNTED_MAX: i64 = 1_000;

/// A webhook without its secret.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct WebhookRow {
    /// Its name.
    pub name: String,
    /// Its receiver.
    pub url: String,
    /// Only events of these kinds; `None`: of all.
    pub kinds: Option<Vec<String>>,
    /// Only events of this pipeline; `None`: all events.
    pub pipeline: Option<String>,
    /// Whether it gets events.
    pub enabled: bool,
    /// Its version: the number of its replacements.
    pub version: i64,
    /// Who wrote it.
    pub made_by: String,
    /// When it was written.
    pub updated_at: Time,
    /// No event up to this one waits.
    pub sent_until: i64,
    /// Events that wait, at most [`WAITING_COUNTED_MAX`].
    pub waiting: i64,
    /// Failed attempts of the next event.
    pub attempts: i32,
    /// When the next event is tried; `None`: at once.
    pub next_at: Option<Time>,
    /// Events that were delivered.
    pub delivered: i64,
    /// Failed attempts of all events.
    pub failures: i64,
    /// Events that were given up.
    pub skipped: i64,
    /// The last failure.
    pub last_error: Option<String>,
    /// When it was.
    pub last_error_at: Option<Time>,
}

/// A webhook to be written. It has no `Debug`, because it has a secret.
#[derive(Clone, Copy)]
pub struct NewWebhook<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its receiver.
    pub url: &'a str,
    /// Only events of these kinds.
    pub kinds: Option<&'a [String]>,
    /// Only events of this pipeline.
    pub pipeline: Option<&'a str>,
    /// Whether it gets events.
    pub enabled: bool,
    /// The key of its signatures; `None`: the present one stays.
    pub secret: Option<&'a [u8]>,
    /// Who writes it.
    pub made_by: &'a str,
    /// When it is written.
    pub at: Time,
}

/// A webhook that may have events to be sent. It has no `Debug`, because it has a secret.
#[derive(Clone, sqlx::FromRow)]
pub struct DueWebhook {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: i64,
    /// Its receiver.
    pub url: String,
    /// Only events of these kinds.
    pub kinds: Option<Vec<String>>,
    /// Only events of this pipeline.
    pub pipeline: Option<String>,
    /// The key of its signatures.
    pub secret: Vec<u8>,
    /// No event up to this one waits.
    pub sent_until: i64,
    /// Failed attempts of the next event.
    pub attempts: i32,
}

impl DueWebhook {
    /// Whether it gets the entries of the audit.
    #[must_use]
    pub fn has_audit(&self) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| kinds.iter().any(|kind| kind == AUDIT_KIND))
    }
}

/// What waits for a webhook.
#[derive(Clone, Debug)]
pub enum WaitingEntry {
    /// An event.
    Event(EventRow),
    /// An entry of the audit.
    Audit(AuditRow),
}

impl WaitingEntry {
    /// Its number. No event and no entry of the audit share one.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Self::Event(event) => event.id,
            // Entries without numbers wait for no webhook.
            Self::Audit(entry) => entry.number.unwrap_or_default(),
        }
    }
}

/// The result of an attempt, or of a look without one.
#[derive(Clone, Debug, Default)]
pub struct DeliveryNote {
    /// No event up to this one waits.
    pub sent_until: i64,
    /// Failed attempts of the next event.
    pub attempts: i32,
    /// When the next event is tried; `None`: at once.
    pub next_at: Option<Time>,
    /// Whether an event was delivered.
    pub is_delivered: bool,
    /// Whether an event was given up.
    pub is_skipped: bool,
    /// Whether the webhook gets no more events.
    pub is_disabled: bool,
    /// The failure of the attempt, with its time.
    pub failure: Option<(String, Time)>,
}

/// A select of [`WebhookRow`]s with its condition. `$1` is the most events that are counted.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select name, url, kinds, pipeline, enabled, version, made_by, updated_at, sent_until, attempts, next_at,
             delivered, failures, skipped, last_error, last_error_at,
             (select count(*) from (select 1 from events e where e.id > w.sent_until
              and (w.kinds is null or e.kind = any(w.kinds)) and (w.pipeline is null or e.pipeline = w.pipeline)
              union all select 1 from audit a where a.number > w.sent_until and 'audit' = any(w.kinds)
              limit $1) counted) as waiting
             from webhooks w ",
            $rest
        )
    };
}

/// The first `limit` webhooks by name, after one.
///
/// # Errors
/// The database's.
pub async fn list(db: &mut PgConnection, prefix: Option<&str>, after: Option<&str>, limit: i64) -> Result<Vec<WebhookRow>> {
    let select = sqlx::query_as(select!(
        "where ($2::text is null or name > $2) and ($4::text is null or starts_with(name, $4)) order by name limit $3"
    ));
    select.persistent(false).bind(WAITING_COUNTED_MAX).bind(after).bind(limit).bind(prefix).fetch_all(db).await
}

/// The webhook with this name.
///
/// # Errors
/// The database's.
pub async fn get(db: &mut PgConnection, name: &str) -> Result<Option<WebhookRow>> {
    sqlx::query_as(select!("where name = $2")).bind(WAITING_COUNTED_MAX).bind(name).fetch_optional(db).await
}

/// Makes other writers of webhooks wait for the end of the transaction, and counts the webhooks.
///
/// # Errors
/// The database's.
pub async fn lock_and_count(db: &mut PgConnection) -> Result<i64> {
    sqlx::query("lock table webhooks in share row exclusive mode").execute(&mut *db).await?;
    sqlx::query_scalar("select count(*) from webhooks").fetch_one(db).await
}

/// Creates or replaces; returns its new version, 1 if it was created, or `None` if the condition does not hold. A new
/// webhook begins after the newest event; a replaced one goes on, and tries its next event at once.
///
/// # Errors
/// The database's. A new webhook without a secret is one.
pub async fn put(db: &mut PgConnection, new: &NewWebhook<'_>, condition: &Condition) -> Result<Option<i64>> {
    let statement = match condition.needs_row() {
        true => {
            "update webhooks set url = $2, kinds = $3, pipeline = $4, enabled = $5, secret = coalesce($6, secret),
             made_by = $7, updated_at = $8, version = version + 1, attempts = 0, next_at = null
             where name = $1 and ($9::bigint[] is null or version = any($9)) returning version"
        }
        false => {
            "insert into webhooks (name, url, kinds, pipeline, enabled, secret, made_by, updated_at, sent_until)
             select $1, $2, $3, $4, $5, coalesce($6, (select secret from webhooks where name = $1)), $7, $8,
             greatest((select max(id) from events), (select max(number) from audit), 0)
             where $9::bigint[] is null or 0 = any($9)
             on conflict (name) do update set url = $2, kinds = $3, pipeline = $4, enabled = $5,
             secret = excluded.secret, made_by = $7, updated_at = $8, version = webhooks.version + 1, attempts = 0,
             next_at = null where $9 is null returning version"
        }
    };
    let query = sqlx::query_scalar(statement).bind(new.name).bind(new.url).bind(new.kinds).bind(new.pipeline);
    let query = query.bind(new.enabled).bind(new.secret).bind(new.made_by).bind(new.at);
    query.bind(condition.versions()).fetch_optional(db).await
}

/// Deletes the webhook, if its version is allowed.
///
/// # Errors
/// The database's.
pub async fn delete(db: &mut PgConnection, name: &str, condition: &Condition) -> Result<Deletion> {
    let statement = "delete from webhooks where name = $1 and ($2::bigint[] is null or version = any($2))";
    match delete_row(db, statement, name, condition).await? {
        true => Ok(Deletion::Done),
        false => Ok(if get(db, name).await?.is_some() { Deletion::OtherVersion } else { Deletion::Missing }),
    }
}

/// The webhooks with a later event than their last one, or entry of the audit if they ask for it, whose time has come.
///
/// # Errors
/// The database's.
pub async fn due(db: &mut PgConnection, at: Time) -> Result<Vec<DueWebhook>> {
    sqlx::query_as(
        "select name, version, url, kinds, pipeline, secret, sent_until, attempts from webhooks
         where enabled and (next_at is null or next_at <= $1) and sent_until < greatest((select max(id) from events),
         case when 'audit' = any(kinds) then (select max(number) from audit) end) order by name",
    )
    .bind(at)
    .fetch_all(db)
    .await
}

/// The number of the newest event, or entry of the audit if the webhook asks for it; 0 before the first.
///
/// # Errors
/// The database's.
pub async fn newest(db: &mut PgConnection, of: &DueWebhook) -> Result<i64> {
    let select = "select greatest((select max(id) from events), case when $1 then (select max(number) from audit) end, 0)";
    sqlx::query_scalar(select).bind(of.has_audit()).fetch_one(db).await
}

/// The oldest events that wait for a webhook, up to `newest`, in their order, with the entries of the audit if it asks for
/// them; at most `most`.
///
/// # Errors
/// The database's.
pub async fn waiting(db: &mut PgConnection, of: &DueWebhook, newest: i64, most: i64) -> Result<Vec<WaitingEntry>> {
    let events: Vec<EventRow> = sqlx::query_as(
        "select id, made_at, kind, pipeline, detail from events where id > $1 and id <= $2
         and ($3::text[] is null or kind = any($3)) and ($4::text is null or pipeline = $4) order by id limit $5",
    )
    .bind(of.sent_until)
    .bind(newest)
    .bind(&of.kinds)
    .bind(&of.pipeline)
    .bind(most)
    .fetch_all(&mut *db)
    .await?;
    let mut waiting: Vec<WaitingEntry> = events.into_iter().map(WaitingEntry::Event).collect();
    if of.has_audit() {
        let entries = audit::after(db, of.sent_until, None, most).await?;
        // Later ones have no end yet: an event before them may not be read.
        let up_to_newest = entries.into_iter().filter(|entry| entry.number.is_some_and(|number| number <= newest));
        waiting.extend(up_to_newest.map(WaitingEntry::Audit));
        waiting.sort_by_key(WaitingEntry::number);
        waiting.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    Ok(waiting)
}

/// Notes a result. Returns whether the webhook is still there in the same version.
///
/// # Errors
/// The database's.
pub async fn note(db: &mut PgConnection, of: &DueWebhook, note: &DeliveryNote) -> Result<bool> {
    let (error, error_at) = note.failure.clone().unzip();
    let done = sqlx::query(
        "update webhooks set sent_until = $3, attempts = $4, next_at = $5, delivered = delivered + $6::int,
         skipped = skipped + $7::int, enabled = enabled and not $8::bool, version = version + ($8::bool)::int,
         failures = failures + ($9::text is not null)::int, last_error = coalesce($9, last_error),
         last_error_at = coalesce($10, last_error_at) where name = $1 and version = $2",
    )
    .bind(&of.name)
    .bind(of.version)
    .bind(note.sent_until)
    .bind(note.attempts)
    .bind(note.next_at)
    .bind(i32::from(note.is_delivered))
    .bind(i32::from(note.is_skipped))
    .bind(note.is_disabled)
    .bind(error)
    .bind(error_at)
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}
