//! Serves model files to agents, over the port where they join: a network that lets streams through lets files through.

use super::connections::Guest;
use crate::app::agent_security::AgentCertificateRule;
use crate::app::counts;
use crate::app::model_files::ModelFileError;
use crate::app::{App, now};
use crate::store;
use apportion_protocol::v1::{FileChunk, FileRequest};
use sha2::{Digest, Sha256};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Response, Status};

/// Bytes in a message.
const CHUNK_BYTES: usize = 256 * 1024;
/// Files that are fetched at a time. An agent that asks for one more gets an error and tries again.
pub const FETCHES_MAX: usize = 256;

/// The chunks of a file.
pub type Chunks = Pin<Box<dyn futures::Stream<Item = Result<FileChunk, Status>> + Send>>;

/// Permits for [`FETCHES_MAX`] files.
#[must_use]
pub fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(FETCHES_MAX))
}

/// Fetches a file from an offset on.
///
/// # Errors
/// As `Control.Fetch` of the protocol says.
pub async fn fetch(app: &App, request: FileRequest, guest: Option<Guest>) -> Result<Response<Chunks>, Status> {
    let FileRequest { token, sha256, offset } = request;
    // Digests are compared, so that the duration reveals nothing about the token.
    if Sha256::digest(token.as_bytes()) != Sha256::digest(app.token.as_bytes()) {
        return Err(Status::unauthenticated("the token is not the service's"));
    }
    check_certificate(app, guest.as_ref())?;
    // A large file takes longer than a guest may stay.
    if let Some(guest) = guest {
        guest.admit();
    }
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(Status::invalid_argument("sha256: expected 64 digits of lower-case hexadecimal"));
    }
    let permit = app.fetch_permits.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| Status::resource_exhausted(format!("{FETCHES_MAX} files are being fetched: try again")))?;
    let size = async { store::files::size(&mut *app.pool.acquire().await?, &sha256).await }.await.map_err(|error| {
        tracing::error!(%error, "a model file could not be looked up");
        Status::unavailable("the database does not answer")
    })?;
    let size = size.ok_or_else(|| Status::not_found(format!("there is no file {sha256}")))? as u64;
    if offset >= size && size > 0 {
        return Err(Status::out_of_range(format!("the file has {size} bytes")));
    }
    let path = app.model_files.local(&app.pool, &sha256, size).await.map_err(|error| unfetched(&error, &sha256))?;
    let open = async {
        let mut file = tokio::fs::File::open(&path).await?;
        file.seek(SeekFrom::Start(offset)).await.map(|_| file)
    };
    let file = open.await.map_err(|error| unreadable(&error, &path))?;
    Ok(Response::new(chunks(Rest { file, path, left: size - offset, _permit: permit }, size)))
}

/// Where agents must have certificates, refuses a connection that has shown none of the fleet.
fn check_certificate(app: &App, guest: Option<&Guest>) -> Result<(), Status> {
    if app.agent_security.certificates != AgentCertificateRule::Require {
        return Ok(());
    }
    let Some(certificate) = guest.and_then(Guest::certificate) else {
        counts::WITHOUT_CERTIFICATE.increment();
        return Err(Status::unauthenticated("the connection shows no certificate: register first, and get one"));
    };
    let authorities = app.authorities.borrow().clone();
    let authorities = authorities.ok_or_else(|| Status::unavailable("the fleet has no authority yet"))?;
    authorities.check_issuer(certificate, now()).map_err(|refusal| {
        refusal.count().increment();
        Status::unauthenticated(refusal.to_string())
    })
}

fn unfetched(error: &ModelFileError, sha256: &str) -> Status {
    tracing::error!(error = error as &(dyn std::error::Error + 'static), sha256, "a model file is not to be had");
    match error {
        ModelFileError::Elsewhere(_) | ModelFileError::Database(_) => Status::unavailable(error.to_string()),
        ModelFileError::Digest { .. } | ModelFileError::Folder(_) | ModelFileError::Broken(_) => {
            Status::internal(error.to_string())
        }
    }
}

fn unreadable(error: &std::io::Error, path: &Path) -> Status {
    tracing::error!(%error, path = %path.display(), "a model file could not be read");
    Status::internal("the file could not be read; the service's log says why")
}

/// The rest of a file that was not sent yet. It holds its permit.
struct Rest {
    file: tokio::fs::File,
    path: PathBuf,
    left: u64,
    _permit: OwnedSemaphorePermit,
}

fn chunks(rest: Rest, file_bytes: u64) -> Chunks {
    Box::pin(futures::stream::try_unfold(rest, move |mut rest| async move {
        if rest.left == 0 {
            return Ok::<_, Status>(None);
        }
        let mut data = vec![0; CHUNK_BYTES.min(usize::try_from(rest.left).unwrap_or(CHUNK_BYTES))];
        rest.file.read_exact(&mut data).await.map_err(|error| unreadable(&error, &rest.path))?;
        rest.left -= data.len() as u64;
        Ok(Some((FileChunk { data, file_bytes }, rest)))
    }))
}
