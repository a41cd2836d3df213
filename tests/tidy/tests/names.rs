//! Each public type has a name of its own.

use apportion_tidy::names::shared_names;
use apportion_tidy::{GENERATED, files};

#[test]
fn no_two_public_types_share_a_name() {
    let sources: Vec<(String, String)> =
        files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str())).collect();
    let found = shared_names(&sources);
    let list: Vec<String> = found.iter().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect();
    assert!(found.is_empty(), "{} names of several public types; qualify the noun:\n{}", found.len(), list.join("\n"));
}
