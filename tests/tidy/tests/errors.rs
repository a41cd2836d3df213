//! No `Result` has a text as its error: each error is a type whose variants name the causes.

use apportion_tidy::errors::text_errors;
use apportion_tidy::{GENERATED, files};

#[test]
fn no_result_has_a_text_as_its_error() {
    let sources = files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str()));
    let of = |(path, text): (String, String)| text_errors(&text).into_iter().map(move |line| format!("{path}:{line}"));
    let found: Vec<String> = sources.flat_map(of).collect();
    assert!(
        found.is_empty(),
        "{} errors are a String, not a thiserror enum (STYLE.md):\n{}",
        found.len(),
        found.join("\n")
    );
}
