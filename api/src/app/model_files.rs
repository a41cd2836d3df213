//! Where are the bytes of model files, and how do they come to this process?
//!
//! Each process has a folder of them. Where several processes share their files, the database has the bytes too, in parts,
//! and a process fetches a file into its folder when it is first asked for. It checks the digest then. It fetches one file
//! at a time, and each to its end: an agent waits less than a large file takes, comes again, and finds it. It puts at most
//! [`SHARED_MAX`] files into the database at a time, because each of them has a connection until it is there.

use crate::hex::hex;
use crate::store::files::{self as rows, PART_BYTES};
use crate::store::{self, PgConnection, PgPool};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// An incomplete file that nobody has written to for so long is of a process that was killed.
const STALE_AFTER: Duration = Duration::from_secs(86_400);

/// Files that a process puts into the database at a time.
pub const SHARED_MAX: usize = 2;

/// Where new files are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelFilePlace {
    /// In the folder of the process that gets them.
    #[default]
    Folder,
    /// There, and in the database for all processes.
    Database,
}

impl ModelFilePlace {
    /// All names, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["folder", "database"];

    /// The one with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let places = [Self::Folder, Self::Database];
        Self::NAMES.iter().position(|known| *known == name).map(|at| places[at])
    }
}

/// Why the bytes of a file are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// Another process has them in its folder alone.
    #[error(
        "file {0} is in the folder of another service process only: expected a process with `--model-files database` to \
         store it again"
    )]
    Elsewhere(String),
    /// The database has other bytes.
    #[error("file {sha256} has the digest {found} in the database")]
    Digest {
        /// Its digest.
        sha256: String,
        /// That of the bytes.
        found: String,
    },
    /// The folder cannot be used.
    #[error("the folder of model files cannot be read or written")]
    Folder(#[from] std::io::Error),
    /// The task that fetched them ended without an answer.
    #[error("fetching a model file broke down")]
    Broken(#[from] JoinError),
    /// The database does not answer.
    #[error("the database has not handed out or stored a model file")]
    Database(#[from] store::Error),
}

/// A file that is not complete. It is removed if it does not get its name.
pub struct PartialModelFile(pub PathBuf);

impl PartialModelFile {
    /// A new one beside the complete file.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        Self(path.with_extension(format!("{}.part", uuid::Uuid::now_v7())))
    }
}

impl Drop for PartialModelFile {
    fn drop(&mut self) {
        // After the file was moved to its place, there is nothing to remove.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Room to put one file into the database.
#[derive(Debug)]
pub struct SharingRoom {
    _place: OwnedSemaphorePermit,
}

/// The model files of this process.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    folder: PathBuf,
    place: ModelFilePlace,
    /// Locked while a file is fetched from the database.
    turn: Arc<Mutex<()>>,
    /// One place for each of [`SHARED_MAX`] files.
    rooms: Arc<Semaphore>,
}

impl ModelFiles {
    /// Those in the folder `files` of the data directory. Incomplete files that a killed process left there are removed.
    #[must_use]
    pub fn open(data_dir: &Path, place: ModelFilePlace) -> Self {
        let folder = data_dir.join("files");
        remove_stale(&folder);
        Self { folder, place, turn: Arc::default(), rooms: Arc::new(Semaphore::new(SHARED_MAX)) }
    }

    /// Where a file with this digest lies if it is here.
    #[must_use]
    pub fn path(&self, sha256: &str) -> PathBuf {
        self.folder.join(sha256)
    }

    /// The path of a stored file of this size. It is fetched from the database if it is not here.
    ///
    /// # Errors
    /// As [`ModelFileError`] lists.
    pub async fn local(&self, pool: &PgPool, sha256: &str, bytes: u64) -> Result<PathBuf, ModelFileError> {
        let path = self.path(sha256);
        if tokio::fs::try_exists(&path).await? {
            return Ok(path);
        }
        let turn = self.turn.clone().lock_owned().await;
        if tokio::fs::try_exists(&path).await? {
            return Ok(path);
        }
        tokio::fs::create_dir_all(&self.folder).await?;
        let (pool, sha256, to) = (pool.clone(), sha256.to_owned(), path.clone());
        // A task of its own: it goes on if the client leaves.
        let fetching = tokio::spawn(async move {
            let fetched = fetch(&pool, &sha256, bytes, &to).await;
            drop(turn);
            fetched
        });
        fetching.await??;
        Ok(path)
    }

    /// Whether [`ModelFiles::local`] would find the bytes of a stored file, without fetching them.
    ///
    /// # Errors
    /// [`ModelFileError::Elsewhere`] if it would not, [`ModelFileError::Folder`] and [`ModelFileError::Database`].
    pub async fn check_reachable(&self, pool: &PgPool, sha256: &str) -> Result<(), ModelFileError> {
        let is_here = tokio::fs::try_exists(self.path(sha256)).await?;
        if is_here || rows::has_parts(&mut *pool.acquire().await?, sha256).await? {
            return Ok(());
        }
        Err(ModelFileError::Elsewhere(sha256.to_owned()))
    }

    /// Whether a file must still go into the database: processes share their files, and it is not there.
    ///
    /// # Errors
    /// [`ModelFileError::Database`].
    pub async fn must_share(&self, db: &mut PgConnection, sha256: &str) -> Result<bool, ModelFileError> {
        Ok(self.place == ModelFilePlace::Database && !rows::has_parts(db, sha256).await?)
    }

    /// Waits for room to put a file into the database. Ask for it before a connection.
    pub async fn sharing_room(&self) -> SharingRoom {
        SharingRoom { _place: self.rooms.clone().acquire_owned().await.expect("nobody closes it") }
    }

    /// Puts a file of this process into the database too, where processes share their files. One that is there stays.
    ///
    /// # Errors
    /// [`ModelFileError::Folder`] and [`ModelFileError::Database`].
    pub async fn share(&self, db: &mut PgConnection, sha256: &str) -> Result<(), ModelFileError> {
        if !self.must_share(&mut *db, sha256).await? {
            return Ok(());
        }
        let mut file = File::open(self.path(sha256)).await?;
        for part in 0.. {
            let mut content = Vec::with_capacity(PART_BYTES);
            (&mut file).take(PART_BYTES as u64).read_to_end(&mut content).await?;
            if content.is_empty() {
                break;
            }
            rows::put_part(&mut *db, sha256, part, &content).await?;
        }
        Ok(())
    }
}

/// Fetches a file from the database to `to`.
async fn fetch(pool: &PgPool, sha256: &str, bytes: u64, to: &Path) -> Result<(), ModelFileError> {
    let partial = PartialModelFile::beside(to);
    let found = copy_parts(pool, sha256, bytes, &partial.0).await?;
    if found != sha256 {
        return Err(ModelFileError::Digest { sha256: sha256.to_owned(), found });
    }
    Ok(tokio::fs::rename(&partial.0, to).await?)
}

/// Writes a file from its parts in the database to `to`; gives its digest. Each part is a query of its own, so that a slow
/// disk keeps no connection.
async fn copy_parts(pool: &PgPool, sha256: &str, bytes: u64, to: &Path) -> Result<String, ModelFileError> {
    let (mut file, mut hasher) = (File::create(to).await?, Sha256::new());
    for part in 0..bytes.div_ceil(PART_BYTES as u64) {
        let content = rows::part(&mut *pool.acquire().await?, sha256, part as i32).await?;
        let content = content.ok_or_else(|| ModelFileError::Elsewhere(sha256.to_owned()))?;
        hasher.update(&content);
        file.write_all(&content).await?;
    }
    file.sync_all().await?;
    Ok(hex(&hasher.finalize()))
}

/// Removes the incomplete files of a folder that are older than [`STALE_AFTER`].
fn remove_stale(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let is_old = written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > STALE_AFTER);
        if is_old
            && path.extension().is_some_and(|extension| extension == "part")
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(%error, path = %path.display(), "an incomplete model file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::SystemTime;

    #[test]
    fn incomplete_files_of_killed_processes_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("files");
        std::fs::create_dir(&folder).expect("a folder");
        let old = SystemTime::now() - STALE_AFTER - Duration::from_secs(60);
        let digest = "ab".repeat(32);
        let (complete, stale) = (folder.join(&digest), PartialModelFile::beside(&folder.join(&digest)));
        let uploading = PartialModelFile::beside(&complete);
        for (path, is_old) in [(&complete, true), (&stale.0, true), (&uploading.0, false)] {
            let file = std::fs::File::create(path).expect("a file");
            if is_old {
                file.set_modified(old).expect("a time");
            }
        }
        let files = ModelFiles::open(dir.path(), ModelFilePlace::Folder);
        let left = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        assert_eq!(left.collect::<BTreeSet<_>>(), BTreeSet::from([files.path(&digest), uploading.0.clone()]));
    }
}
