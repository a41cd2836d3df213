//! How do clients and receivers see an entry of the audit?

use crate::store::audit::AuditRow;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A request for a change that was made or refused. Requests without a valid token are in the log alone.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditEntry {
    /// Its identifier.
    pub id: Uuid,
    /// Its number in the stream. All entries with lower numbers were committed before it. Null: it is older than the
    /// stream.
    pub number: Option<i64>,
    /// When it was made.
    pub made_at: DateTime<Utc>,
    /// The name of the client.
    pub who: String,
    /// Its token; null: none of the table.
    pub token: Option<Uuid>,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The status of the answer; 499 if the client left before it. Then the change may have been made.
    pub status: i32,
    /// The reason in the header `Apportion-Why` of the request; null if it had none.
    pub why: Option<String>,
    /// The resource before the change, without secrets. Null if there was none, if nothing has changed, if the operation is
    /// on no single resource, or if the form could not be read. More than 8 KiB are left out: then it has `version` and
    /// `sha256`.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// The resource after the change, in the same form.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        let AuditRow { id, number, made_at, who, token, method, path, status, why, before, after } = row;
        Self { id, number, made_at, who, token, method, path, status, why, before, after }
    }
}
