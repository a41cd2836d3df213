//! What does an agent keep on disk? Model files by digest, its last target, its certificates, and its identity.
//!
//! One thread does everything slow: reading, hashing, downloads and the disk's acknowledgements. The threads that serve
//! requests do none of it.

mod checked;
mod disk;
mod download;
mod error;
mod source;
mod spare;
mod stream;
mod worker;

pub(crate) use disk::hex_digest;
pub use error::{FetchError, FileError};
pub use source::Source;
pub use spare::SPARE_BYTES_MAX;
pub use worker::TRIES_MAX;

use crate::certificates::AgentCertificates;
use apportion_protocol::v1;
use disk::{CERTIFICATES, TARGET, path_of, write};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use worker::{FilesPlace, Job};

/// Name of the file that says who the agent is.
const IDENTITY: &str = "identity.json";
/// Name of the file that a running agent holds a lock on.
const LOCK: &str = "lock";
/// How long a starting agent waits for the one before it to end.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(15);
/// Jobs that wait for the thread; who has one more waits.
const JOBS_MAX: usize = 1_024;

/// Who an agent is, from one start to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentIdentity {
    /// A UUID.
    pub agent_id: String,
    /// Its name in the fleet.
    pub name: String,
}

/// How often a missing file is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Once, and only if a source is known.
    OneTry,
    /// Until [`TRIES_MAX`] tries in a row brought nothing.
    ManyTries,
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct Files {
    directory: PathBuf,
    jobs: mpsc::Sender<Job>,
    source: Arc<watch::Sender<Source>>,
    certificates: AgentCertificates,
}

impl Files {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn open(directory: &Path) -> Result<Self, FileError> {
        Self::open_with(directory, SPARE_BYTES_MAX)
    }

    /// The same with another bound for the files that no target names.
    fn open_with(directory: &Path, spare_bytes_max: u64) -> Result<Self, FileError> {
        let disk = |e| FileError::Disk(directory.to_path_buf(), e);
        std::fs::create_dir_all(directory).map_err(disk)?;
        let (jobs, inbox) = mpsc::channel(JOBS_MAX);
        let (source, seen) = watch::channel(Source::default());
        let place = FilesPlace { directory: directory.to_path_buf(), source: seen, spare_bytes_max };
        worker::start(place, inbox).map_err(disk)?;
        // A directory without the file is that of an agent without certificates.
        let kept = std::fs::read(directory.join(CERTIFICATES)).unwrap_or_default();
        let certificates = AgentCertificates::decode(&kept);
        Ok(Self { directory: directory.to_path_buf(), jobs, source: Arc::new(source), certificates })
    }

    /// Takes the directory for this process, as long as the returned file lives. Two agents with one identity would take
    /// each other's place in the fleet. It waits some seconds for an agent that is about to end.
    ///
    /// # Errors
    /// [`FileError::Taken`], [`FileError::Disk`].
    pub fn lock(&self) -> Result<File, FileError> {
        let path = self.directory.join(LOCK);
        let disk = |e| FileError::Disk(path.clone(), e);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(disk)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(std::fs::TryLockError::Error(error)) => return Err(disk(error)),
                Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() > LOCK_WAIT_MAX => {
                    return Err(FileError::Taken(self.directory.clone()));
                }
                Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Who the agent of this directory is: as it was at its last start, but for a name that is given now. `host` begins
    /// the name of an agent that has never had one.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn identity(&self, name: Option<&str>, host: &str) -> Result<AgentIdentity, FileError> {
        let path = self.directory.join(IDENTITY);
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<AgentIdentity>(&bytes).ok());
        let known = read.clone().unwrap_or_else(|| {
            let agent_id = uuid::Uuid::new_v4().simple().to_string();
            AgentIdentity { name: format!("{host}-{}", &agent_id[..8]), agent_id }
        });
        let known = AgentIdentity { name: name.map_or(known.name, str::to_owned), agent_id: known.agent_id };
        if read.as_ref() != Some(&known) {
            self.write(&path, &serde_json::to_vec(&known).expect("texts are JSON"))?;
        }
        Ok(known)
    }

    /// From where files are fetched from now on.
    pub fn set_source(&self, source: Source) {
        self.source.send_if_modified(|now| {
            let is_new = *now != source;
            *now = source;
            is_new
        });
    }

    /// The file with this digest, fetched if it is not here or is damaged: tried [`TRIES_MAX`] times without any progress.
    ///
    /// # Errors
    /// [`FileError`] by cause.
    pub async fn get(&self, digest: &str) -> Result<PathBuf, Arc<FileError>> {
        self.fetch(digest, Patience::ManyTries).await
    }

    /// The same with one try, and none while no source is known.
    ///
    /// # Errors
    /// [`FileError`] by cause.
    pub async fn try_get(&self, digest: &str) -> Result<PathBuf, Arc<FileError>> {
        self.fetch(digest, Patience::OneTry).await
    }

    async fn fetch(&self, digest: &str, patience: Patience) -> Result<PathBuf, Arc<FileError>> {
        let (reply, got) = oneshot::channel();
        let job = Job::Get { digest: digest.to_owned(), is_patient: patience == Patience::ManyTries, reply };
        self.jobs.send(job).await.map_err(|_| Arc::new(FileError::Stopping))?;
        got.await.unwrap_or_else(|_| Err(Arc::new(FileError::Stopping)))
    }

    /// Puts a model file here, so that it need not be fetched. Returns its digest.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn add(&self, bytes: &[u8]) -> Result<String, FileError> {
        let digest = hex_digest(bytes);
        self.write(&path_of(&self.directory, &digest), bytes)?;
        Ok(digest)
    }

    /// The target that was obeyed last, with the number that the agent had; none without a file that can be read.
    #[must_use]
    pub fn last_target(&self) -> Option<(u64, v1::Target)> {
        let bytes = std::fs::read(self.directory.join(TARGET)).ok()?;
        let (number, target) = bytes.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*number), prost::Message::decode(target).ok()?))
    }

    /// Keeps a target for the next start, now.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn keep_target(&self, agent: u64, target: &v1::Target) -> Result<(), FileError> {
        self.write(&self.directory.join(TARGET), &kept(agent, target))
    }

    /// Keeps a target for the next start, soon; the log says if that fails.
    pub fn keep_target_soon(&self, agent: u64, target: &v1::Target) {
        self.keep_soon(TARGET, kept(agent, target));
    }

    /// Keeps the model files that this target names. Those of earlier targets may go, the longest unused first: all of them
    /// have at most [`SPARE_BYTES_MAX`] bytes.
    pub fn follow_target(&self, target: &v1::Target) {
        let groups = target.pipelines.iter().flat_map(|pipeline| &pipeline.groups);
        let digests = groups.map(|group| group.file_digest.clone()).filter(|digest| !digest.is_empty()).collect();
        if self.jobs.try_send(Job::Name { digests }).is_err() {
            tracing::error!("old model files stay until the next target: too much waits for the disk");
        }
    }

    /// The certificates of the agent, as they were at its last start and as they are now.
    #[must_use]
    pub fn certificates(&self) -> AgentCertificates {
        self.certificates.clone()
    }

    /// Keeps the certificates for the next start, soon; the log says if that fails.
    pub fn keep_certificates_soon(&self) {
        self.keep_soon(CERTIFICATES, self.certificates.encode());
    }

    fn keep_soon(&self, name: &'static str, bytes: Vec<u8>) {
        if self.jobs.try_send(Job::Keep { name, bytes }).is_err() {
            tracing::error!(name, "a file cannot be kept for the next start: too much waits for the disk");
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        write(&self.directory, path, bytes)
    }
}

/// A target as it is kept.
fn kept(agent: u64, target: &v1::Target) -> Vec<u8> {
    let mut bytes = agent.to_be_bytes().to_vec();
    bytes.extend(prost::Message::encode_to_vec(target));
    bytes
}

#[cfg(test)]
mod tests;
