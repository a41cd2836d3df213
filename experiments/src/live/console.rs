//! How does an experiment tell a person what it does?

/// Prints one line to stderr; stdout holds results only.
pub fn print_progress(line: &str) {
    eprintln!("demo: {line}");
}
