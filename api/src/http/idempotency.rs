//! How is a request that is sent twice answered once? By the header `Idempotency-Key`.

use super::access::Principal;
use super::body;
use super::refusal::Refusal;
use crate::hex::hex;
use crate::store::idempotency::{KeyedRequest, UsedKey, known_key, remember_key};
use crate::store::{PgConnection, Time};
use actix_web::http::StatusCode;
use actix_web::{HttpMessage, HttpRequest};
use sha2::{Digest, Sha256};
use utoipa::IntoParams;
use uuid::Uuid;

/// The header `Idempotency-Key`.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by `IdempotencyKey::read`
pub struct IdempotencyHeader {
    /// The same key and body again give the same plan, analysis, job or trace, so a client may leave and come back. A
    /// token is not made twice either.
    #[param(rename = "Idempotency-Key", required = false, value_type = String, min_length = 1, max_length = 128,
        pattern = "^[ -~]+$")]
    pub idempotency_key: Option<String>,
}

/// The key of a client that may send its request again.
pub(super) struct IdempotencyKey {
    /// What the request asks for.
    asked: KeyedRequest,
    /// The header `Idempotency-Key`.
    key: String,
    /// The key as it is stored. Clients of one project have keys of their own. A key has no line feed.
    stored: String,
    /// SHA-256 of the kind and the body of the request, hex.
    digest: String,
}

impl IdempotencyKey {
    /// The client's key with the digest of its request. `kind` distinguishes requests that ask for the same.
    ///
    /// # Errors
    /// 400 if the key has another form.
    pub(super) fn read(
        request: &HttpRequest,
        asked: impl Into<KeyedRequest>,
        kind: &str,
        bytes: &[u8],
    ) -> Result<Option<Self>, Refusal> {
        let Some(key) = request.headers().get("idempotency-key") else { return Ok(None) };
        let key = key.to_str().ok().filter(|k| !k.is_empty() && k.len() <= body::NAME_CHARS_MAX);
        let expected = || format!("Idempotency-Key: expected 1 to {} characters of ASCII", body::NAME_CHARS_MAX);
        let key = key.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, expected()))?;
        let digest = Sha256::new().chain_update(kind).chain_update(bytes).finalize();
        let digest = hex(&digest);
        let project = request.extensions().get::<Principal>().and_then(|client| client.project.clone());
        let stored = project.map_or_else(|| key.to_owned(), |project| format!("{project}\n{key}"));
        Ok(Some(Self { asked: asked.into(), key: key.to_owned(), stored, digest }))
    }

    /// What a client has asked for under this key already.
    ///
    /// # Errors
    /// 422 if the key was used for another request.
    pub(super) async fn already_asked(&self, db: &mut PgConnection) -> Result<Option<Uuid>, Refusal> {
        match known_key(db, self.asked, &self.stored).await? {
            Some(known) if known.request == self.digest => Ok(Some(known.id)),
            Some(_) => {
                let detail = format!("Idempotency-Key {} was used for another request", self.key);
                Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
            }
            None => Ok(None),
        }
    }

    /// Stores the key with the plan, or whatever its request made.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn remember(&self, db: &mut PgConnection, id: Uuid, at: Time) -> Result<(), Refusal> {
        Ok(remember_key(db, self.asked, UsedKey { key: &self.stored, request: &self.digest, id }, at).await?)
    }
}
