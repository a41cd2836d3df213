//! `/v1/files`: model files by digest.

use super::access::Principal;
use super::body::{FILE_BYTES_MAX, broken};
use super::paging::{ListPage, PageQuery, PrefixQuery};
use super::project_storage::{check_file_room, claim_file_room};
use super::refusal::{HandlerResult, Refusal, RefusalReply};
use crate::app::model_files::{ModelFileError, PartialModelFile, SharingRoom};
use crate::app::{App, now};
use crate::hex::hex;
use crate::store::files::{self as rows, FileNeeds, FileRow};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, ByteRangeSpec, ContentRange, ContentRangeSpec, ContentType};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use utoipa::{IntoParams, ToSchema};

/// Most characters of a file's source.
pub const SOURCE_CHARS_MAX: usize = 1_000;
/// Bytes read from the disk at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// Longest wait for another request that stores or deletes the same file.
const TURN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Pause between two looks whether that one has ended.
const TURN_POLL: Duration = Duration::from_millis(100);

/// A stored file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FileDocument {
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: i64,
}

/// A stored file, with its origin.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StoredFileDocument {
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: i64,
    /// Where it came from: `source` of the upload; null if nobody has said it.
    pub source: Option<String>,
    /// Who has said that; else who has stored it first.
    pub stored_by: Option<String>,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// The project for whose storage it counts: that of the token that stored it first. Null: it counts for none.
    pub project: Option<String>,
}

impl From<FileRow> for StoredFileDocument {
    fn from(row: FileRow) -> Self {
        let FileRow { sha256, bytes, source, stored_by, created_at, project } = row;
        Self { sha256, bytes, source, stored_by, created_at, project }
    }
}

/// What a client says of a file that it stores.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SourceQuery {
    /// Where the file came from, for example its address or its path at the client: 1 to 1,000 characters without control
    /// characters. The first source that is said stays.
    #[param(min_length = 1, max_length = 1000)]
    pub source: Option<String>,
}

/// The bytes of a file.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)] // only for the description
pub struct FileBytes(Vec<u8>);

/// The path of a file.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct FilePath {
    /// Its SHA-256 in lower-case hexadecimal.
    #[param(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
}

/// The part of a file.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // read by the framework's own type
pub struct RangeHeader {
    /// One range of bytes, such as `bytes=0-1023`. With any other form the answer is the whole file.
    #[param(rename = "Range", required = false, value_type = String, example = "bytes=0-1023")]
    pub range: Option<String>,
}

/// The routes of this resource.
pub fn configure(config: &mut web::ServiceConfig) {
    config.service(web::resource("/v1/files").route(web::get().to(list))).service(
        web::resource("/v1/files/{sha256}")
            .route(web::get().to(get))
            .route(web::head().to(head))
            .route(web::put().to(put))
            .route(web::delete().to(delete)),
    );
}

/// Where the file lies in this process's folder, if it is here.
fn path(app: &App, sha256: &str) -> Result<PathBuf, Refusal> {
    let valid = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !valid {
        return Err(Refusal::value("/sha256", "expected 64 digits of lower-case hexadecimal"));
    }
    Ok(app.model_files.path(sha256))
}

fn not_to_be_had(error: ModelFileError) -> Refusal {
    match error {
        ModelFileError::Folder(error) => disk(error),
        ModelFileError::Database(error) => error.into(),
        ModelFileError::Elsewhere(_) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        ModelFileError::Digest { .. } | ModelFileError::Broken(_) => {
            tracing::error!(%error, "a model file could not be fetched from the database");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

fn disk(error: std::io::Error) -> Refusal {
    tracing::error!(%error, "a model file could not be read or written");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be read or written; the service's log says why")
}

/// All model files, by digest, with where they came from.
#[utoipa::path(get, path = "/v1/files", tag = "files", operation_id = "list_files", params(PrefixQuery, PageQuery),
    responses((status = 200, description = "The files.", body = [StoredFileDocument])))]
pub async fn list(app: web::Data<App>, page: ListPage<String, PrefixQuery>) -> HandlerResult {
    let (prefix, after) = (page.filter.prefix.as_deref(), page.after.as_deref());
    let rows = rows::page(&mut *app.pool.acquire().await?, prefix, after, page.rows_max()).await?;
    Ok(page.answer(rows, |row| row.sha256.clone(), StoredFileDocument::from))
}

/// Stores a file under its digest. The bytes are verified.
#[utoipa::path(put, path = "/v1/files/{sha256}", tag = "files", operation_id = "put_file", params(FilePath, SourceQuery),
    request_body(content = inline(FileBytes), content_type = "application/octet-stream", description = "The file."),
    responses((status = 200, description = "It was there.", body = FileDocument),
        (status = 201, description = "It is new.", body = FileDocument), RefusalReply<409>))]
pub async fn put(
    app: web::Data<App>,
    request: HttpRequest,
    client: Principal,
    file: web::Path<FilePath>,
    query: web::Query<SourceQuery>,
    mut payload: web::Payload,
) -> HandlerResult {
    let FilePath { sha256 } = file.into_inner();
    let path = path(&app, &sha256)?;
    let SourceQuery { source } = query.into_inner();
    check_source(source.as_deref())?;
    check_file_room(&mut *app.pool.acquire().await?, &client, &sha256, announced_bytes(&request)).await?;
    // Two uploads of one file write to two places. The last one to end moves the same bytes.
    let partial = PartialModelFile::beside(&path);
    tokio::fs::create_dir_all(path.parent().expect("a folder")).await.map_err(disk)?;
    let Received { digest, bytes } = receive(&mut payload, &partial.0).await?;
    if digest != sha256 {
        return Err(Refusal::value("", format!("these {bytes} bytes have digest {digest}")));
    }
    let bytes = bytes as i64;
    // A deletion at the same time removes the bytes before or not at all.
    let StoringTurn { mut tx, room } = StoringTurn::begin(&app, &sha256).await?;
    check_file_room(&mut tx, &client, &sha256, bytes as u64).await?;
    tokio::fs::rename(&partial.0, &path).await.map_err(disk)?;
    // The row outlives a loss of power, and so must the name of the file.
    let folder = tokio::fs::File::open(path.parent().expect("a folder")).await.map_err(disk)?;
    folder.sync_all().await.map_err(disk)?;
    let (stored_by, project) = (Some(client.name.clone()), client.project.clone());
    let row = FileRow { sha256: sha256.clone(), bytes, source, stored_by, created_at: now(), project };
    let created = rows::put(&mut tx, &row).await?;
    app.model_files.share(&mut tx, &sha256).await.map_err(not_to_be_had)?;
    if created {
        claim_file_room(&mut tx, &client, bytes as u64, &path).await?;
    }
    tx.commit().await?;
    drop(room);
    let mut response = if created { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(response.json(FileDocument { sha256, bytes }))
}

/// The bytes that a request announces; 1 if it announces none: so much it has at least.
fn announced_bytes(request: &HttpRequest) -> u64 {
    let header = request.headers().get(header::CONTENT_LENGTH);
    header.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(1)
}

/// A transaction that alone stores or deletes a file.
type FileTransaction = sqlx::Transaction<'static, sqlx::Postgres>;

/// Begins a transaction that alone stores or deletes this file. A request that waits for another one keeps no connection:
/// a large file takes minutes, and all other requests need connections too.
async fn begin_alone(app: &App, sha256: &str) -> Result<FileTransaction, Refusal> {
    let begin = Instant::now();
    loop {
        let mut tx = app.pool.begin().await?;
        if rows::try_lock(&mut tx, sha256).await? {
            return Ok(tx);
        }
        tx.rollback().await?;
        if begin.elapsed() > TURN_WAIT_MAX {
            let detail = format!("file {sha256} is being stored or deleted by another request: try again");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        tokio::time::sleep(TURN_POLL).await;
    }
}

/// The turn of a request that stores a file.
struct StoringTurn {
    tx: FileTransaction,
    /// There if the bytes must go into the database.
    room: Option<SharingRoom>,
}

impl StoringTurn {
    /// Waits for the turn. A request that waits for room keeps no connection.
    async fn begin(app: &App, sha256: &str) -> Result<Self, Refusal> {
        let mut room = None;
        loop {
            let mut tx = begin_alone(app, sha256).await?;
            if room.is_some() || !app.model_files.must_share(&mut tx, sha256).await.map_err(not_to_be_had)? {
                return Ok(Self { tx, room });
            }
            tx.rollback().await?;
            room = Some(app.model_files.sharing_room().await);
        }
    }
}

fn check_source(source: Option<&str>) -> Result<(), Refusal> {
    let is_right =
        |text: &str| (1..=SOURCE_CHARS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    match source {
        Some(text) if !is_right(text) => {
            let expected = format!("expected 1 to {SOURCE_CHARS_MAX} characters without control characters");
            Err(Refusal::value("source", expected))
        }
        _ => Ok(()),
    }
}

/// A file that was received completely.
struct Received {
    /// Its SHA-256 in lower-case hexadecimal.
    digest: String,
    /// Its size in bytes.
    bytes: u64,
}

async fn receive(payload: &mut web::Payload, partial: &std::path::Path) -> Result<Received, Refusal> {
    let mut file = tokio::fs::File::create(partial).await.map_err(disk)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0_u64);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(broken)?;
        bytes += chunk.len() as u64;
        if bytes > FILE_BYTES_MAX {
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a file has at most {FILE_BYTES_MAX} bytes")));
        }
        hasher.update(&chunk);
        file.write_all(&chunk).await.map_err(disk)?;
    }
    file.sync_all().await.map_err(disk)?;
    Ok(Received { digest: hex(&hasher.finalize()), bytes })
}

/// The part of a file that a client asks for.
struct AskedPart {
    /// [`StatusCode::OK`] for the whole file.
    status: StatusCode,
    /// Its first byte.
    first: u64,
    /// Its number of bytes.
    length: u64,
    /// That of the whole file.
    size: u64,
}

impl AskedPart {
    /// The part of a file of this size.
    ///
    /// # Errors
    /// 416 if the file has no byte of the range.
    fn of(range: Option<web::Header<header::Range>>, size: u64) -> Result<Self, Refusal> {
        match range {
            Some(web::Header(header::Range::Bytes(specs))) if specs.len() == 1 => {
                let outside = || Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"));
                let (first, last) = within(&specs[0], size).ok_or_else(outside)?;
                Ok(Self { status: StatusCode::PARTIAL_CONTENT, first, length: last - first + 1, size })
            }
            _ => Ok(Self { status: StatusCode::OK, first: 0, length: size, size }),
        }
    }

    /// The answer with this part of the file, without its bytes.
    fn answer(&self, sha256: &str) -> HttpResponseBuilder {
        let &Self { status, first, length, size } = self;
        let mut response = HttpResponse::build(status);
        response.insert_header(ContentType::octet_stream()).insert_header((header::ACCEPT_RANGES, "bytes"));
        response.insert_header((header::ETAG, format!("\"{sha256}\"")));
        if status == StatusCode::PARTIAL_CONTENT {
            let range = Some((first, first + length - 1));
            response.insert_header(ContentRange(ContentRangeSpec::Bytes { range, instance_length: Some(size) }));
        }
        response.no_chunking(length);
        response
    }
}

/// The size of a stored file in bytes.
async fn stored_size(app: &App, sha256: &str) -> Result<u64, Refusal> {
    path(app, sha256)?;
    let size = rows::size(&mut *app.pool.acquire().await?, sha256).await?;
    Ok(size.ok_or_else(|| Refusal::not_found(format!("file {sha256}")))? as u64)
}

/// A file's bytes, or one range of them.
#[utoipa::path(get, path = "/v1/files/{sha256}", tag = "files", operation_id = "get_file", params(FilePath, RangeHeader),
    responses(
        (status = 200, description = "The whole file.", body = inline(FileBytes), content_type = "application/octet-stream",
            headers(("ETag" = String, description = "Its digest."))),
        (status = 206, description = "The range.", body = inline(FileBytes), content_type = "application/octet-stream",
            headers(("ETag" = String, description = "Its digest."),
                ("Content-Range" = String, description = "Where it lies."))),
        RefusalReply<404>, RefusalReply<416>))]
pub async fn get(
    app: web::Data<App>,
    file: web::Path<FilePath>,
    range: Option<web::Header<header::Range>>,
) -> HandlerResult {
    let FilePath { sha256 } = file.into_inner();
    let size = stored_size(&app, &sha256).await?;
    let part = AskedPart::of(range, size)?;
    let path = app.model_files.local(&app.pool, &sha256, size).await.map_err(not_to_be_had)?;
    let mut file = tokio::fs::File::open(&path).await.map_err(disk)?;
    file.seek(std::io::SeekFrom::Start(part.first)).await.map_err(disk)?;
    let chunks = futures::stream::try_unfold((file, part.length), |(mut file, left)| async move {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let mut chunk = vec![0; CHUNK_BYTES.min(left as usize)];
        file.read_exact(&mut chunk).await?;
        let left = left - chunk.len() as u64;
        Ok(Some((web::Bytes::from(chunk), (file, left))))
    });
    Ok(part.answer(&sha256).streaming(chunks))
}

/// A file's size and digest, without its bytes.
#[utoipa::path(head, path = "/v1/files/{sha256}", tag = "files", operation_id = "head_file", params(FilePath, RangeHeader),
    responses(
        (status = 200, description = "It is there.", headers(("ETag" = String, description = "Its digest."))),
        (status = 206, description = "It is there, and has the range.",
            headers(("ETag" = String, description = "Its digest."))),
        (status = 401, description = "The token is missing, unknown, expired or revoked."),
        (status = 403,
            description = "The token's scope or project does not allow it, or a browser sent it for another site."),
        (status = 404, description = "There is no such file."),
        (status = 416, description = "The file has no byte of the range."),
        (status = 421, description = "The header `Host` has no name of this service."),
        (status = 422, description = "This is no digest."),
        (status = 429, description = "The client has sent too many requests."),
        (status = 500, description = "A defect of the service, or of its disk; its log says more."),
        (status = 503, description = "The database does not answer, or another process alone has the bytes.")))]
pub async fn head(
    app: web::Data<App>,
    file: web::Path<FilePath>,
    range: Option<web::Header<header::Range>>,
) -> HandlerResult {
    let FilePath { sha256 } = file.into_inner();
    let part = AskedPart::of(range, stored_size(&app, &sha256).await?)?;
    app.model_files.check_reachable(&app.pool, &sha256).await.map_err(not_to_be_had)?;
    // The head names the length. The bytes stay where they are.
    let no_bytes = futures::stream::empty::<std::io::Result<web::Bytes>>();
    Ok(part.answer(&sha256).streaming(no_bytes))
}

/// Deletes a file. It stays while a variant of a registered pipeline, or of the target in force, has it.
#[utoipa::path(delete, path = "/v1/files/{sha256}", tag = "files", operation_id = "delete_file", params(FilePath),
    responses((status = 204, description = "It is gone."), RefusalReply<404>, RefusalReply<409>))]
pub async fn delete(app: web::Data<App>, file: web::Path<FilePath>) -> HandlerResult {
    let FilePath { sha256 } = file.into_inner();
    let path = path(&app, &sha256)?;
    let mut tx = begin_alone(&app, &sha256).await?;
    if rows::size(&mut tx, &sha256).await?.is_none() {
        return Err(Refusal::not_found(format!("file {sha256}")));
    }
    let needs = rows::needs(&mut tx, &sha256).await?;
    if let Some(who) = who_needs(&needs) {
        let detail = format!("file {sha256} is needed by {who}: expected a file that no variant has");
        return Err(Refusal::new(StatusCode::CONFLICT, detail));
    }
    rows::delete(&mut tx, &sha256).await?;
    tx.commit().await?;
    let app = (**app).clone();
    // A task of its own: it goes on if the client leaves.
    let removing = tokio::spawn(async move {
        if let Err(refusal) = remove_bytes(&app, &sha256, &path).await {
            // Nobody can read them any more. They take room until the file is stored and deleted again.
            tracing::error!(sha256, %refusal, "the bytes of a deleted file stay");
        }
    });
    if let Err(error) = removing.await {
        tracing::error!(%error, "the removal of a deleted file broke down");
    }
    Ok(HttpResponse::NoContent().finish())
}

/// The pipelines that need a file, in words; `None`: nobody needs it.
fn who_needs(needs: &FileNeeds) -> Option<String> {
    const SHOWN_MAX: usize = 10;
    let registered = needs.registered.iter().map(|name| format!("pipeline {name}"));
    let deployed = needs.deployed.iter().map(|name| format!("the target's {name}"));
    let all: Vec<String> = registered.chain(deployed).collect();
    let rest = all.len().saturating_sub(SHOWN_MAX);
    let shown = all.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match (all.is_empty(), rest) {
        (true, _) => None,
        (false, 0) => Some(shown),
        (false, rest) => Some(format!("{shown} and {rest} more")),
    }
}

/// Removes the bytes of a file without a row from the database and from the folder.
async fn remove_bytes(app: &App, sha256: &str, path: &Path) -> Result<(), Refusal> {
    let mut tx = begin_alone(app, sha256).await?;
    // It may have been stored again meanwhile.
    if rows::size(&mut tx, sha256).await?.is_none() {
        rows::delete_parts(&mut tx, sha256).await?;
        match tokio::fs::remove_file(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(disk)?,
        }
    }
    Ok(tx.commit().await?)
}

/// First and last byte of a range, as far as the file has them.
fn within(spec: &ByteRangeSpec, size: u64) -> Option<(u64, u64)> {
    spec.to_satisfiable_range(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_some_of_many_pipelines() {
        assert_eq!(who_needs(&FileNeeds::default()), None);
        let needs = FileNeeds { registered: vec!["a".into()], deployed: vec!["a".into()] };
        assert_eq!(who_needs(&needs).as_deref(), Some("pipeline a, the target's a"));
        let many = FileNeeds { registered: (0..12).map(|i| format!("p{i}")).collect(), deployed: Vec::new() };
        assert!(who_needs(&many).is_some_and(|who| who.ends_with("pipeline p9 and 2 more")));
    }

    #[test]
    fn a_range_is_cut_at_the_files_end() {
        assert_eq!(within(&ByteRangeSpec::From(4), 10), Some((4, 9)));
        assert_eq!(within(&ByteRangeSpec::FromTo(4, 99), 10), Some((4, 9)));
        assert_eq!(within(&ByteRangeSpec::Last(3), 10), Some((7, 9)));
        assert_eq!(within(&ByteRangeSpec::From(10), 10), None);
    }
}
