//! Model files for agents, over the port by which they join: what lets an agent's stream through lets its files through.

use crate::app::App;
use crate::store;
use apportion_protocol::v1::{FileChunk, FileRequest};
use sha2::{Digest, Sha256};
use std::io::SeekFrom;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Response, Status};

/// Bytes in a message.
const CHUNK_BYTES: usize = 256 * 1024;
/// Files that are handed out at a time; an agent that asks for one more comes again.
pub const FETCHES_MAX: usize = 256;

/// A file on its way.
pub type Chunks = Pin<Box<dyn futures::Stream<Item = Result<FileChunk, Status>> + Send>>;

/// Places for [`FETCHES_MAX`] files.
#[must_use]
pub fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(FETCHES_MAX))
}

/// The file that is asked for, from the byte on that is asked for.
///
/// # Errors
/// As `Control.Fetch` of the protocol says.
pub async fn fetch(app: &App, request: FileRequest) -> Result<Response<Chunks>, Status> {
    let FileRequest { token, sha256, offset } = request;
    // Digests are compared, so that the time taken says nothing about the token.
    if Sha256::digest(token.as_bytes()) != Sha256::digest(app.token.as_bytes()) {
        return Err(Status::unauthenticated("the token is not the service's"));
    }
    if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(Status::invalid_argument("sha256: expected 64 digits of lower-case hexadecimal"));
    }
    let place = app.fetches.clone().try_acquire_owned();
    let place =
        place.map_err(|_| Status::resource_exhausted(format!("{FETCHES_MAX} files are being fetched: come again")))?;
    let size = async { store::files::size(&mut *app.pool.acquire().await?, &sha256).await }.await.map_err(|error| {
        tracing::error!(%error, "whether a model file is there is not known");
        Status::unavailable("the database does not answer")
    })?;
    let size = size.ok_or_else(|| Status::not_found(format!("there is no file {sha256}")))? as u64;
    if offset >= size && size > 0 {
        return Err(Status::out_of_range(format!("the file has {size} bytes")));
    }
    let path = app.data_dir.join("files").join(&sha256);
    let opened = async {
        let mut file = tokio::fs::File::open(&path).await?;
        file.seek(SeekFrom::Start(offset)).await.map(|_| file)
    };
    let file = opened.await.map_err(|error| {
        tracing::error!(%error, path = %path.display(), "a model file could not be read");
        Status::internal("the file could not be read; the service's log says why")
    })?;
    Ok(Response::new(chunks(file, (size - offset, size), place)))
}

/// The rest of a file; its place is free at its end.
fn chunks(file: tokio::fs::File, (left, file_bytes): (u64, u64), place: OwnedSemaphorePermit) -> Chunks {
    Box::pin(futures::stream::try_unfold((file, left, place), move |(mut file, left, place)| async move {
        if left == 0 {
            return Ok::<_, Status>(None);
        }
        let mut data = vec![0; CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
        file.read_exact(&mut data).await.map_err(|error| {
            tracing::error!(%error, "a model file could not be read");
            Status::internal("the file could not be read; the service's log says why")
        })?;
        let left = left - data.len() as u64;
        Ok(Some((FileChunk { data, file_bytes }, (file, left, place))))
    }))
}
