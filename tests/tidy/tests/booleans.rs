//! Few functions take a boolean: a caller cannot read it.

use apportion_tidy::booleans::{boolean_functions, test_files};
use apportion_tidy::{GENERATED, files};

/// Most functions outside tests that take a boolean. An enum with two named variants, or two functions, say more.
const FUNCTIONS_MAX: usize = 9;

#[test]
fn few_functions_take_a_boolean() {
    let sources: Vec<(String, String)> =
        files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str())).collect();
    let tests = test_files(&sources);
    let mut found = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| !tests.contains(path)) {
        let row = |f: apportion_tidy::booleans::BooleanFunction| {
            format!("{path}:{}: {} takes {}", f.line, f.name, f.parameters.join(", "))
        };
        found.extend(boolean_functions(text).into_iter().map(row));
    }
    eprintln!("{} functions take a boolean", found.len());
    assert!(
        found.len() <= FUNCTIONS_MAX,
        "{} functions take a boolean, at most {FUNCTIONS_MAX}:\n{}",
        found.len(),
        found.join("\n")
    );
}
