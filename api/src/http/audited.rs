//! What does the audit say of a change besides its request? Why a client asked for it, and the resource before and after.
//!
//! Example: anna lowers the price of `t4` with `Apportion-Why: a new contract`. The entry has these words, the hardware
//! type with the old price, and the one with the new price. The forms are read beside the change: of two changes at the
//! same moment each entry may have the form of both. The versions in the forms tell that.

use super::project_access::key_in;
use crate::app::App;
use crate::store;
use crate::store::audit::{self, AuditedKind};
use actix_web::http::header::HeaderMap;
use serde_json::Value;

/// The header with the reason for a change.
const WHY_HEADER: &str = "apportion-why";
/// Most characters of a reason; the rest is cut off.
const WHY_CHARS_MAX: usize = 500;

/// The reason that a client says.
pub(super) fn why(headers: &HeaderMap) -> Option<String> {
    let text = std::str::from_utf8(headers.get(WHY_HEADER)?.as_bytes()).ok()?;
    let why: String = text.trim().chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
    Some(why).filter(|why| !why.is_empty())
}

/// A resource that an operation changes.
pub(super) struct AuditedResource {
    kind: AuditedKind,
    key: String,
}

impl AuditedResource {
    /// The resource of a path that has this pattern; `None` if its form is not in the audit.
    pub(super) fn of(path: &str, pattern: &str) -> Option<Self> {
        let kind = match pattern {
            "/v1/agents/{number}" => AuditedKind::Agent,
            "/v1/hardware/{name}" => AuditedKind::Hardware,
            "/v1/hold" | "/v1/pipelines/{name}/hold" => AuditedKind::Hold,
            "/v1/pipelines/{name}" => AuditedKind::Pipeline,
            "/v1/pipelines/{name}/profiles" => AuditedKind::Profile,
            "/v1/projects/{name}" => AuditedKind::Project,
            "/v1/schedules/{name}" => AuditedKind::Schedule,
            "/v1/target" | "/v1/target/rollback" => AuditedKind::Target,
            "/v1/tokens/{id}" => AuditedKind::Token,
            "/v1/webhooks/{name}" => AuditedKind::Webhook,
            _ => return None,
        };
        // PostgreSQL has no text with this character, and no resource such a key.
        Some(Self { kind, key: key_in(path, pattern) }).filter(|resource| !resource.key.contains('\0'))
    }

    /// Its present form; `None` if there is none.
    pub(super) async fn form(&self, app: &App) -> store::Result<Option<Value>> {
        audit::form(&mut *app.pool.acquire().await?, self.kind, &self.key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    #[test]
    fn a_reason_is_cut_and_has_no_control_characters() {
        let of = |text: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(WHY_HEADER), HeaderValue::from_bytes(text).expect("a header"));
            why(&headers)
        };
        assert_eq!(why(&HeaderMap::new()), None);
        assert_eq!(of(b" a new contract "), Some("a new contract".into()));
        assert_eq!(of("pr\u{e4}zise\tknapp".as_bytes()), Some("pr\u{e4}ziseknapp".into()));
        assert_eq!((of(b" "), of(b"\xff")), (None, None));
        assert_eq!(of(&[b'x'; WHY_CHARS_MAX + 1]).map(|why| why.len()), Some(WHY_CHARS_MAX));
    }

    #[test]
    fn a_hold_of_the_fleet_has_an_empty_key() {
        let of = |path: &str, pattern: &str| AuditedResource::of(path, pattern).map(|found| (found.kind, found.key));
        assert_eq!(of("/v1/hold", "/v1/hold"), Some((AuditedKind::Hold, String::new())));
        let pattern = "/v1/pipelines/{name}/hold";
        assert_eq!(of("/v1/pipelines/a%20b/hold", pattern), Some((AuditedKind::Hold, "a b".into())));
        assert_eq!(of("/v1/hardware/a%00", "/v1/hardware/{name}"), None);
        assert_eq!(of("/v1/plans", "/v1/plans"), None);
    }
}
