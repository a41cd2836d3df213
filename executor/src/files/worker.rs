//! What does the thread that fetches files do?

use super::disk::{hex, is_digest, path_of, write};
use super::download::{Partial, hashed};
use super::error::{FetchError, FileError};
use super::spare::{NamedFiles, delete_spare};
use super::{Source, checked};
use crate::parts::{part, stand_back};
use sha2::Digest;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// How often a file is asked for without a byte of it coming, before it cannot be had.
pub const TRIES_MAX: u32 = 10;
/// How long between.
const AGAIN: Duration = Duration::from_secs(1);
/// Files that are fetched at a time.
const DOWNLOADS_MAX: usize = 4;

type Got = Result<PathBuf, Arc<FileError>>;

/// What the thread is asked for.
pub(super) enum Job {
    /// A model file.
    Get { digest: String, is_patient: bool, reply: oneshot::Sender<Got> },
    /// To keep these bytes under this name.
    Keep { name: &'static str, bytes: Vec<u8> },
    /// To keep the model files with these digests, which the target names, and to delete old ones if too many are here.
    Name { digests: BTreeSet<String> },
}

/// Who waits for a file, and whether any of them waits for more than one try.
#[derive(Default)]
struct Waiting {
    replies: Vec<oneshot::Sender<Got>>,
    is_patient: Arc<AtomicBool>,
}

struct Worker {
    directory: PathBuf,
    http: reqwest::Client,
    source: watch::Receiver<Source>,
    places: Semaphore,
    /// Bytes of the files that no target names.
    spare_bytes_max: u64,
}

/// The state directory of a thread, and from where it fetches files.
pub(super) struct FilesPlace {
    pub directory: PathBuf,
    pub source: watch::Receiver<Source>,
    pub spare_bytes_max: u64,
}

/// Starts the thread; it ends when nobody can ask for anything any more.
pub(super) fn start(place: FilesPlace, jobs: mpsc::Receiver<Job>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let FilesPlace { directory, source, spare_bytes_max } = place;
    let (http, places) = (reqwest::Client::new(), Semaphore::new(DOWNLOADS_MAX));
    let worker = Worker { directory, http, source, places, spare_bytes_max };
    std::thread::Builder::new().name("files".into()).spawn(move || {
        stand_back();
        runtime.block_on(part("files", work(Arc::new(worker), jobs)));
    })?;
    Ok(())
}

async fn work(worker: Arc<Worker>, mut jobs: mpsc::Receiver<Job>) {
    let mut waiting: HashMap<String, Waiting> = HashMap::new();
    let mut running: JoinSet<(String, Got)> = JoinSet::new();
    let mut named = NamedFiles::default();
    loop {
        tokio::select! {
            job = jobs.recv() => match job {
                None => return,
                Some(Job::Keep { name, bytes }) => {
                    if let Err(error) = write(&worker.directory, &worker.directory.join(name), &bytes) {
                        tracing::error!(%error, "a file cannot be kept for the next start");
                    }
                }
                Some(Job::Name { digests }) => {
                    named.follow(digests);
                    worker.delete_spare(&named, &waiting);
                }
                Some(Job::Get { digest, is_patient, reply }) => {
                    let waits = waiting.entry(digest.clone()).or_default();
                    waits.replies.push(reply);
                    waits.is_patient.fetch_or(is_patient, Relaxed);
                    if waits.replies.len() == 1 {
                        let (worker, is_patient) = (worker.clone(), waits.is_patient.clone());
                        running.spawn(part("files", async move {
                            let got = worker.get(&digest, &is_patient).await.map_err(Arc::new);
                            (digest, got)
                        }));
                    }
                }
            },
            Some(Ok((digest, got))) = running.join_next(), if !running.is_empty() => {
                let has_come = got.is_ok();
                for reply in waiting.remove(&digest).unwrap_or_default().replies {
                    let _nobody_waits = reply.send(got.clone());
                }
                if has_come {
                    worker.delete_spare(&named, &waiting);
                }
            }
        }
    }
}

impl Worker {
    /// Deletes files that neither a target names nor anybody waits for, if they are too many.
    fn delete_spare(&self, named: &NamedFiles, waiting: &HashMap<String, Waiting>) {
        let is_spare = |digest: &str| named.is_spare(digest) && !waiting.contains_key(digest);
        delete_spare(&self.directory, is_spare, self.spare_bytes_max);
    }

    async fn get(&self, digest: &str, is_patient: &AtomicBool) -> Result<PathBuf, FileError> {
        if !is_digest(digest) {
            return Err(FileError::Fetch(digest.to_owned(), FetchError::NotADigest));
        }
        let path = path_of(&self.directory, digest);
        if checked::is_set(&path) || is_right(&path, digest).await {
            checked::note_use(&path);
            return Ok(path);
        }
        let _place = self.places.acquire().await.expect("it is never closed");
        let mut partial = Partial::open(&self.directory, digest).await?;
        let mut tries = 0;
        loop {
            let source = self.source(is_patient).await;
            let before = partial.bytes();
            let error = match partial.complete(&source, &self.http).await {
                Ok(path) => {
                    checked::set(&path);
                    tracing::info!(file = digest, bytes = partial.bytes(), "a model file has come");
                    return Ok(path);
                }
                Err(error) => error,
            };
            if matches!(error, FileError::Disk(..)) {
                return Err(error);
            }
            // What goes on is not given up.
            tries = if partial.bytes() > before { 0 } else { tries + 1 };
            if tries >= TRIES_MAX || !is_patient.load(Relaxed) {
                return Err(error);
            }
            tracing::warn!(file = digest, bytes = partial.bytes(), %error, "a model file is not here yet; trying again");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Who has files; waits until somebody is known, if there is time.
    async fn source(&self, is_patient: &AtomicBool) -> Source {
        let mut source = self.source.clone();
        if is_patient.load(Relaxed) {
            // An error means that nobody waits for the file any more.
            let _gone = source.wait_for(|source| !source.is_empty()).await;
        }
        source.borrow_and_update().clone()
    }
}

/// Whether the file is there and has the contents that its name says.
async fn is_right(path: &Path, digest: &str) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let is_right = hashed(&mut file).await.is_ok_and(|(hasher, _)| hex(&hasher.finalize()) == digest);
    if is_right {
        checked::set(path);
    } else {
        tracing::warn!(path = %path.display(), "a model file here is damaged and is fetched again");
    }
    is_right
}
