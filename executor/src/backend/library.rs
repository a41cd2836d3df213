//! Where is the shared library of ONNX Runtime?

use super::BackendError;
use std::path::{Path, PathBuf};

/// The variable that names the library.
pub(super) const LIBRARY_VARIABLE: &str = "ORT_DYLIB_PATH";
/// Where `make setup` puts it, below the repository's root.
const LIBRARY_IN_REPOSITORY: &str = ".cache/onnxruntime/libonnxruntime.so";
/// What marks a folder as a repository's root: without it a library left in, say, `/tmp` would be loaded.
const ROOT_MARK: &str = "Cargo.lock";

/// Finds ONNX Runtime's library. The first of these places counts:
///
/// 1. `explicit`, a flag of the command line;
/// 2. the file that the environment variable `ORT_DYLIB_PATH` names;
/// 3. `.cache/onnxruntime/libonnxruntime.so` in the repository of the executable or of the working directory.
///
/// # Errors
/// [`BackendError::Runtime`] if there is no such file. It says where the library was sought and what to do. A library that
/// was named explicitly is never replaced by another.
pub fn find_library(explicit: Option<&Path>) -> Result<PathBuf, BackendError> {
    if let Some(path) = explicit {
        return existing(path, "as asked");
    }
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|v| !v.is_empty()) {
        return existing(Path::new(&path), &format!("as {LIBRARY_VARIABLE} says"));
    }
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    in_repositories(starts.iter().flatten().map(PathBuf::as_path)).ok_or_else(|| {
        BackendError::Runtime(format!(
            "no ONNX Runtime library found: run `make setup`, which puts it at {LIBRARY_IN_REPOSITORY} in the repository, or \
             set {LIBRARY_VARIABLE} to a libonnxruntime.so, for example that of the Python package onnxruntime (in its folder \
             onnxruntime/capi)"
        ))
    })
}

fn existing(path: &Path, why: &str) -> Result<PathBuf, BackendError> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let place = path.display();
    Err(BackendError::Runtime(format!("{place}, {why}, is no file: name a libonnxruntime.so, or run `make setup`")))
}

/// The library of the first repository that one of `starts` lies in and that has it.
fn in_repositories<'a>(starts: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    starts
        .flat_map(Path::ancestors)
        .filter(|folder| folder.join(ROOT_MARK).is_file())
        .map(|folder| folder.join(LIBRARY_IN_REPOSITORY))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_that_is_missing_is_an_error() {
        let error = find_library(Some(Path::new("/nowhere/lib.so"))).expect_err("there is no such file").to_string();
        assert!(error.contains("/nowhere/lib.so") && error.contains("make setup"), "{error}");
    }

    #[test]
    fn only_a_repository_is_searched() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join(LIBRARY_IN_REPOSITORY);
        std::fs::create_dir_all(library.parent().expect("a parent")).expect("a folder");
        std::fs::write(&library, "").expect("a file");
        let deep = folder.path().join("target/debug/deps");
        assert_eq!(in_repositories([deep.as_path()].into_iter()), None, "no mark of a root yet");
        std::fs::write(folder.path().join(ROOT_MARK), "").expect("a file");
        assert_eq!(in_repositories([deep.as_path()].into_iter()), Some(library));
    }
}
