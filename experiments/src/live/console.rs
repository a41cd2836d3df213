//! How does an experiment show its progress to a person?

/// Prints one line to stderr; stdout holds results only.
pub fn print_progress(line: &str) {
    eprintln!("demo: {line}");
}
