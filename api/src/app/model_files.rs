//! Where are the bytes of model files, and how do they come to this process?
//!
//! Each process has a folder of them. Where several processes share their files, the database has the bytes too, in parts,
//! and a process fetches a file into its folder when it is first asked for. It checks the digest then.

use crate::store::files::{self as rows, PART_BYTES};
use crate::store::{self, PgConnection, PgPool};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

/// The model files of this process.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    folder: PathBuf,
    place: ModelFilePlace,
}

impl ModelFiles {
    /// Those in the folder `files` of the data directory.
    #[must_use]
    pub fn new(data_dir: &Path, place: ModelFilePlace) -> Self {
        Self { folder: data_dir.join("files"), place }
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
        tokio::fs::create_dir_all(&self.folder).await?;
        let partial = PartialModelFile::beside(&path);
        let found = fetch(pool, sha256, bytes, &partial.0).await?;
        if found != sha256 {
            return Err(ModelFileError::Digest { sha256: sha256.to_owned(), found });
        }
        tokio::fs::rename(&partial.0, &path).await?;
        Ok(path)
    }

    /// Puts a file of this process into the database too, where processes share their files. One that is there stays.
    ///
    /// # Errors
    /// [`ModelFileError::Folder`] and [`ModelFileError::Database`].
    pub async fn share(&self, db: &mut PgConnection, sha256: &str) -> Result<(), ModelFileError> {
        if self.place == ModelFilePlace::Folder || rows::has_parts(&mut *db, sha256).await? {
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

/// Writes a file from its parts in the database to `to`; gives its digest. Each part is a query of its own, so that a slow
/// disk keeps no connection.
async fn fetch(pool: &PgPool, sha256: &str, bytes: u64, to: &Path) -> Result<String, ModelFileError> {
    let (mut file, mut hasher) = (File::create(to).await?, Sha256::new());
    for part in 0..bytes.div_ceil(PART_BYTES as u64) {
        let content = rows::part(&mut *pool.acquire().await?, sha256, part as i32).await?;
        let content = content.ok_or_else(|| ModelFileError::Elsewhere(sha256.to_owned()))?;
        hasher.update(&content);
        file.write_all(&content).await?;
    }
    file.sync_all().await?;
    Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
