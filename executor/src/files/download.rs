//! How is one file downloaded? Its bytes are hashed as they are written. After a break the next try goes on.

use super::Source;
use super::disk::{hex, path_of};
use super::error::{FetchError, FileError};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Bytes read from the disk at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that the kernel may owe the disk. With more, another program's write could wait for a whole file.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// The digest of what a file holds from where it stands, and how many bytes that is. Others of this thread have their
/// turns.
pub(super) async fn hashed(file: &mut File) -> std::io::Result<(Sha256, u64)> {
    let (mut hasher, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((hasher, bytes));
        }
        hasher.update(&chunk[..read]);
        bytes += read as u64;
        tokio::task::yield_now().await;
    }
}

/// A file that is not whole yet.
pub(super) struct Partial {
    directory: PathBuf,
    digest: String,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    bytes: u64,
    unsynced: u64,
}

impl Partial {
    /// Opens the part of a file that is here; it may be empty.
    pub async fn open(directory: &Path, digest: &str) -> Result<Self, FileError> {
        let path = directory.join(format!("{digest}.part"));
        let disk = |e| FileError::Disk(path.clone(), e);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(disk)?;
        let (hasher, bytes) = hashed(&mut file).await.map_err(disk)?;
        let (directory, digest) = (directory.to_path_buf(), digest.to_owned());
        Ok(Self { directory, digest, path, file, hasher, bytes, unsynced: 0 })
    }

    /// Bytes that are there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn disk(&self) -> impl Fn(std::io::Error) -> FileError + use<> {
        let path = self.path.clone();
        move |e| FileError::Disk(path.clone(), e)
    }

    fn restart(&mut self) -> Result<(), FileError> {
        (self.hasher, self.bytes, self.unsynced) = (Sha256::new(), 0, 0);
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(self.disk())
    }

    fn add(&mut self, data: &[u8]) -> Result<(), FileError> {
        self.file.write_all(data).map_err(self.disk())?;
        self.hasher.update(data);
        self.bytes += data.len() as u64;
        self.unsynced += data.len() as u64;
        if self.unsynced >= UNSYNCED_BYTES_MAX {
            self.unsynced = 0;
            self.file.sync_data().map_err(self.disk())?;
        }
        Ok(())
    }

    /// Fetches the rest, and gives the whole file's place.
    pub async fn complete(&mut self, source: &Source, http: &reqwest::Client) -> Result<PathBuf, FileError> {
        let place = source.place(&self.digest);
        let broke = |why: FetchError| FileError::Fetch(place.clone(), why);
        let mut stream = source.open(http, &self.digest, self.bytes).await.map_err(broke)?;
        if stream.from() != self.bytes {
            self.restart()?;
        }
        if self.bytes > 0 {
            tracing::info!(file = self.digest, bytes = self.bytes, "a download goes on where it broke off");
        }
        while let Some(data) = stream.next().await.map_err(broke)? {
            self.add(&data)?;
        }
        let found = hex(&self.hasher.clone().finalize());
        if found != self.digest {
            // What was there may have been damaged: the next try begins anew.
            self.restart()?;
            return Err(FileError::Digest { place, expected: self.digest.clone(), found });
        }
        let whole = path_of(&self.directory, &self.digest);
        self.file.sync_all().map_err(self.disk())?;
        std::fs::rename(&self.path, &whole).map_err(|e| FileError::Disk(whole.clone(), e))?;
        Ok(whole)
    }
}
