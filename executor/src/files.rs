//! What an agent keeps on disk: model files by digest, and the target that it obeyed last.

use crate::causes::describe;
use apportion_protocol::v1;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file with the last target.
const TARGET: &str = "target.bin";

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
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct Files {
    directory: PathBuf,
    client: reqwest::Client,
}

impl Files {
    /// Opens or makes the directory.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn open(directory: &Path) -> Result<Self, FileError> {
        std::fs::create_dir_all(directory).map_err(|e| FileError::Disk(directory.to_path_buf(), e))?;
        Ok(Self { directory: directory.to_path_buf(), client: reqwest::Client::new() })
    }

    /// The file with this digest, fetched from `{url}/{digest}` if it is not here or is damaged.
    ///
    /// # Errors
    /// [`FileError`] by cause.
    pub async fn get(&self, digest: &str, url: &str) -> Result<PathBuf, FileError> {
        let address = format!("{url}/{digest}");
        if digest.is_empty() || !digest.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(FileError::Fetch(address, "this is no digest".into()));
        }
        let path = self.directory.join(format!("{digest}.onnx"));
        if tokio::fs::read(&path).await.is_ok_and(|bytes| hex_digest(&bytes) == digest) {
            return Ok(path);
        }
        let fetched = async { self.client.get(&address).send().await?.error_for_status()?.bytes().await }.await;
        let bytes = fetched.map_err(|e| FileError::Fetch(address.clone(), describe(&e)))?;
        let actual = hex_digest(&bytes);
        if actual != digest {
            return Err(FileError::Digest(address, digest.to_string(), actual));
        }
        self.write(&path, &bytes)?;
        Ok(path)
    }

    /// Puts a model file here that nobody need fetch any more, and says its digest.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn add(&self, bytes: &[u8]) -> Result<String, FileError> {
        let digest = hex_digest(bytes);
        self.write(&self.directory.join(format!("{digest}.onnx")), bytes)?;
        Ok(digest)
    }

    /// The target that was obeyed last, with the number that the agent had; none if there is none that can be read.
    #[must_use]
    pub fn last_target(&self) -> Option<(u64, v1::Target)> {
        let bytes = std::fs::read(self.directory.join(TARGET)).ok()?;
        let (number, target) = bytes.split_first_chunk::<8>()?;
        Some((u64::from_be_bytes(*number), prost::Message::decode(target).ok()?))
    }

    /// Keeps a target for the next start.
    ///
    /// # Errors
    /// [`FileError::Disk`].
    pub fn keep_target(&self, agent: u64, target: &v1::Target) -> Result<(), FileError> {
        let mut bytes = agent.to_be_bytes().to_vec();
        bytes.extend(prost::Message::encode_to_vec(target));
        self.write(&self.directory.join(TARGET), &bytes)
    }

    /// All of it or nothing.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let written = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        written().map_err(|e: std::io::Error| FileError::Disk(path.to_path_buf(), e))
    }
}

/// Its sha256, as files are named.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cached_file_is_used_if_its_digest_fits() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::open(directory.path()).expect("opens");
        let digest = hex_digest(b"contents");
        let path = directory.path().join(format!("{digest}.onnx"));
        std::fs::write(&path, b"contents").expect("writes");
        assert_eq!(files.get(&digest, "http://127.0.0.1:1").await.expect("cached"), path);
        std::fs::write(&path, b"damaged").expect("writes");
        assert!(matches!(files.get(&digest, "http://127.0.0.1:1").await, Err(FileError::Fetch(..))));
        assert!(matches!(files.get("../etc", "http://127.0.0.1:1").await, Err(FileError::Fetch(..))));
    }

    #[test]
    fn the_last_target_survives() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::open(directory.path()).expect("opens");
        assert_eq!(files.last_target(), None);
        let target = crate::layout::tests::chain();
        files.keep_target(3, &target).expect("writes");
        assert_eq!(files.last_target(), Some((3, target)));
    }
}
