//! Few blocks of lines stand twice.

use apportion_tidy::repeats::{BLOCK_LINES, repeats};
use apportion_tidy::{GENERATED, files};

/// Most pairs of places with the same lines. What is there was looked at: tables of cases, and set-up of tests.
const PAIRS_MAX: usize = 40;

#[test]
fn few_blocks_stand_twice() {
    let sources: Vec<(String, String)> =
        files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str())).collect();
    let found = repeats(&sources);
    let text = |r: &apportion_tidy::repeats::Repeat| {
        format!("{} lines: {}:{} and {}:{}", r.lines, r.first.0, r.first.1, r.second.0, r.second.1)
    };
    let list: Vec<String> = found.iter().map(text).collect();
    eprintln!("{} pairs of blocks of {BLOCK_LINES} lines and more", found.len());
    assert!(found.len() <= PAIRS_MAX, "{} pairs, at most {PAIRS_MAX}:\n{}", found.len(), list.join("\n"));
}
