//! Which rules hold for all sources and documents? Arrows between crates, pure crates, words, sizes, typed errors, complete
//! documents.
//!
//! What belongs here: rules of ARCHITECTURE.md and STYLE.md that a program can check and clippy does not. Tests of
//! behaviour never belong here. The commonest addition is a crate: give it a row in `tests/arrows.rs`.

pub mod booleans;
pub mod errors;
pub mod names;
pub mod prose;
pub mod repeats;
pub mod shape;

use std::path::{Path, PathBuf};

/// Files that bindgen and prost wrote: foreign names, of any length.
pub const GENERATED: [&str; 4] = [
    "solver/bindgen/bindings.rs",
    "executor/protocol/src/v1.rs",
    "executor/src/gateway/proto.rs",
    "api/scalers/src/proto.rs",
];

/// The repository's root.
///
/// # Panics
/// If this crate was moved out of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/tidy lies in the repository");
    assert!(root.join("Cargo.lock").is_file(), "{} is the root", root.display());
    root.to_owned()
}

/// All files of the repository with one of these extensions, as (path from the root, text), sorted. Hidden folders, build
/// outputs and files that are not UTF-8 are left out.
///
/// # Panics
/// If a folder cannot be read.
#[must_use]
pub fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if name.starts_with('.') || path.is_symlink() || path.join("CACHEDIR.TAG").exists() || name == "target" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if extensions.iter().any(|e| path.extension().is_some_and(|x| x == *e))
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                let relative = path.strip_prefix(&root).expect("below the root").display().to_string();
                found.push((relative, text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no file with {extensions:?}");
    found
}
