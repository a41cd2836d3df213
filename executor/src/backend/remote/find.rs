//! How is a variant found on a server by its name alone?

use super::connection::{RequestBody, ServerConnection};
use super::error::{AnswerFailure, ConnectionError, RemoteVariantError, UnreadAnswer};
use super::metadata::{Configuration, IndexEntry, Metadata, ServerMetadata};
use crate::backend::interface::Signature;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

/// A variant that is ready on a server, and what the server says of it.
pub(super) struct FoundVariant {
    pub connection: ServerConnection,
    /// Its path at the server, without an end.
    pub path: String,
    pub about: ServerMetadata,
    pub signature: Signature,
    /// Most rows of a batch, if the server bounds them.
    pub batch_max: Option<u32>,
}

impl FoundVariant {
    /// Asks the server at `url` for itself, for the variant's state, its tensors, and its largest batch.
    pub(super) fn find(url: &str, variant: &str) -> Result<Self, RemoteVariantError> {
        let name = || url.trim_end_matches('/').to_owned();
        let no_client = |e: ConnectionError| RemoteVariantError::Server { server: name(), why: e.to_string() };
        let connection = ServerConnection::open(url).map_err(no_client)?;
        let no_server = |e: UnreadAnswer| RemoteVariantError::Server { server: name(), why: e.to_string() };
        let about: ServerMetadata = read(connection.get("/v2"), "GET /v2").map_err(no_server)?;
        let path = format!("/v2/models/{variant}");
        if let Err(failure) = connection.get(&format!("{path}/ready")) {
            return Err(not_ready(&connection, variant, &failure));
        }
        let metadata: Metadata = read(connection.get(&path), &format!("GET {path}")).map_err(no_server)?;
        let unfit = |source| RemoteVariantError::Signature { server: name(), variant: variant.to_owned(), source };
        let signature = metadata.signature().map_err(unfit)?;
        let mut configuration = Configuration::default();
        if about.has("model_configuration") {
            let config = format!("{path}/config");
            configuration = read(connection.get(&config), &format!("GET {config}")).map_err(no_server)?;
        }
        let batch_max = Some(configuration.max_batch_size).filter(|most| *most > 0);
        Ok(Self { connection, path, about, signature, batch_max })
    }
}

/// An answer as a value.
fn read<T: DeserializeOwned>(answer: Result<Bytes, AnswerFailure>, request: &str) -> Result<T, UnreadAnswer> {
    let body = answer.map_err(|failure| UnreadAnswer::Failed { request: request.to_owned(), failure })?;
    serde_json::from_slice(&body).map_err(|error| UnreadAnswer::Json { request: request.to_owned(), error })
}

/// Why a variant is not ready. The server's index says whether it has the variant at all.
fn not_ready(connection: &ServerConnection, variant: &str, failure: &AnswerFailure) -> RemoteVariantError {
    let (server, variant) = (connection.url(""), variant.to_owned());
    let index = connection.post("/v2/repository/index", RequestBody::Json(b"{}".to_vec())).ok();
    let entries: Option<Vec<IndexEntry>> = index.and_then(|answer| serde_json::from_slice(&answer.body).ok());
    let Some(entries) = entries else {
        return RemoteVariantError::NotReady { server, variant, why: failure.to_string() };
    };
    let Some(entry) = entries.iter().find(|entry| entry.name == variant) else {
        let known: BTreeSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        return RemoteVariantError::Unknown { server, variant, known: known.into_iter().collect() };
    };
    let words = [entry.state.as_str(), entry.reason.lines().next().unwrap_or_default()];
    let said: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let why = if said.is_empty() { failure.to_string() } else { said.join(": ") };
    RemoteVariantError::NotReady { server, variant, why }
}
