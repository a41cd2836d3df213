//! How do tests run the program?

use std::path::Path;
use std::process::{Command, Output};

/// Runs `apportion` with these arguments.
pub fn apportion(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_apportion")).args(args).output().expect("the program runs")
}

/// The exit code.
pub fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code, not a signal")
}

/// The text on stdout.
pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

/// The text on stderr.
pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

/// The path of an example of the repository.
pub fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

/// Asserts that a command ends with 0 and prints nothing on stderr. Returns its stdout.
pub fn printed(args: &[&str]) -> String {
    let output = apportion(args);
    assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{args:?}");
    stdout(&output).to_owned()
}

/// Asserts that a command is refused: exit code 2, nothing on stdout, and `expected` on stderr.
pub fn assert_refused(args: &[&str], expected: &str) {
    let output = apportion(args);
    assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{args:?}");
    assert!(stderr(&output).contains(expected), "{args:?}: {} has no {expected}", stderr(&output));
}

/// A temporary folder for the files of a test.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file in it and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file that can be written");
        path
    }
}
