//! Which files have the content that their names say, and when was each used last?
//!
//! A note beside the file says both: its text is the state of the file when it was checked, and its own time is that of the
//! last use. A file that has not changed since is not read again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Says that a file with a note is used now.
pub(super) fn note_use(file: &Path) {
    let noted = File::options().write(true).open(note(file)).and_then(|note| note.set_modified(SystemTime::now()));
    if let Err(error) = noted {
        tracing::debug!(file = %file.display(), %error, "the use of the file is not noted");
    }
}

/// When a file was used last; none without a note.
pub(super) fn used_at(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(note(file)).ok()?.modified().ok()
}

/// Removes the note of a file that is gone.
pub(super) fn forget(file: &Path) {
    if let Err(error) = std::fs::remove_file(note(file)) {
        tracing::debug!(file = %file.display(), %error, "there is no note of this file");
    }
}
