//! How does the state directory name and write its files, and why does that fail?

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file with the last target.
pub(super) const TARGET: &str = "target.bin";

/// Why a file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The state directory does not take it.
    #[error("{0}: {1}")]
    Disk(PathBuf, std::io::Error),
    /// The control plane did not hand it out.
    #[error("{0}: {1}")]
    Fetch(String, String),
    /// Its contents are not what they should be.
    #[error("{0}: expected a file with sha256 {1}, got {2}")]
    Digest(String, String, String),
    /// Another agent runs with this state directory.
    #[error("{0}: another agent runs with this state directory: give this one another --state-dir")]
    Taken(PathBuf),
    /// The thread that fetches files has ended.
    #[error("the agent stops")]
    Stopping,
}

/// Where the model file with this digest is.
pub(super) fn path_of(directory: &Path, digest: &str) -> PathBuf {
    directory.join(format!("{digest}.onnx"))
}

/// All of it or nothing.
pub(super) fn write(directory: &Path, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let written = || {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|e: std::io::Error| FileError::Disk(path.to_path_buf(), e))
}

/// Its sha256, as files are named.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// A digest in hexadecimal.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}
