//! Which files have the content that their names say? A file that has not changed since is not read again.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

fn note(file: &Path) -> PathBuf {
    file.with_extension("checked")
}

/// Size and time of the last change; none if that cannot be known.
fn state(file: &Path) -> Option<String> {
    let about = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    let changed = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} bytes, changed at {} ns", about.len(), changed.as_nanos()))
}

/// Says that a file's contents are right.
pub(super) fn set(file: &Path) {
    if let Some(state) = state(file)
        && let Err(error) = std::fs::write(note(file), state)
    {
        tracing::debug!(file = %file.display(), %error, "the file will be read again at its next use");
    }
}

/// Whether a file's contents were right and have not changed since.
pub(super) fn is_set(file: &Path) -> bool {
    state(file).is_some_and(|state| std::fs::read_to_string(note(file)).is_ok_and(|noted| noted == state))
}
