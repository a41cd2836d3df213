//! How does the state directory name and write its files?

use super::error::FileError;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file with the last target.
pub(super) const TARGET: &str = "target.bin";

/// Name of the file with the agent's certificates and their keys. Like all files here, its owner alone can read it.
pub(super) const CERTIFICATES: &str = "certificates.bin";

/// Whether this is a digest as files are named by it.
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Where the model file with this digest is.
pub(super) fn path_of(directory: &Path, digest: &str) -> PathBuf {
    directory.join(format!("{digest}.onnx"))
}

/// All of it or nothing. Only the owner can read the file (mode 0600, as temporary files have it).
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
