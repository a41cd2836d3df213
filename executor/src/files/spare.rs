//! Which model files go when no target names them?
//!
//! Example: a target names `a`, and `b` and `c` are files of earlier targets. They stay for the next target that needs
//! them, until all such files together exceed [`SPARE_BYTES_MAX`]. Then the one goes whose last use is longest ago.

use super::checked;
use super::disk::is_digest;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of the files that no target names, in all. Two of the largest model files have room.
pub const SPARE_BYTES_MAX: u64 = 16 << 30;

/// The files of the last two targets: a replica of the one before may drain, and a stage in Python starts again from its
/// file.
#[derive(Debug, Default)]
pub(super) struct NamedFiles {
    now: Option<BTreeSet<String>>,
    before: BTreeSet<String>,
}

impl NamedFiles {
    /// A target has come that names these files.
    pub(super) fn follow(&mut self, digests: BTreeSet<String>) {
        self.before = self.now.replace(digests).unwrap_or_default();
    }

    /// Whether a file may go. None may until a target has come.
    pub(super) fn is_spare(&self, digest: &str) -> bool {
        self.now.as_ref().is_some_and(|now| !now.contains(digest)) && !self.before.contains(digest)
    }
}

/// A file that no target names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SpareFile {
    used_at: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Deletes the files whose last use is longest ago, until all that `is_spare` together have at most `bytes_max`.
pub(super) fn delete_spare(directory: &Path, is_spare: impl Fn(&str) -> bool, bytes_max: u64) {
    let mut files = match spare_files(directory, is_spare) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(directory = %directory.display(), %error, "the model files here cannot be listed");
            return;
        }
    };
    files.sort();
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    for SpareFile { path, bytes, .. } in files {
        if total <= bytes_max {
            return;
        }
        match std::fs::remove_file(&path) {
            Ok(()) => {
                checked::forget(&path);
                tracing::info!(file = %path.display(), bytes, "a model file that no target names is deleted");
            }
            Err(error) => tracing::warn!(file = %path.display(), %error, "a model file cannot be deleted"),
        }
        total -= bytes;
    }
}

/// The whole files and the beginnings of files that may go.
fn spare_files(directory: &Path, is_spare: impl Fn(&str) -> bool) -> std::io::Result<Vec<SpareFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'));
        let Some((digest, "onnx" | "part")) = name else { continue };
        if !is_digest(digest) || !is_spare(digest) {
            continue;
        }
        // One that has gone meanwhile takes no room.
        let Ok(about) = std::fs::metadata(&path) else { continue };
        let used_at = checked::used_at(&path).or_else(|| about.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        files.push(SpareFile { used_at, bytes: about.len(), path });
    }
    Ok(files)
}
