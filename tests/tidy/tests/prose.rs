//! Sentences, lines and words of documents and of documentation are as STYLE.md asks.

use apportion_tidy::prose::{self, BANNED, COLUMNS_MAX, Passage, WORDS_MAX};
use apportion_tidy::{files, root};
use std::collections::BTreeMap;

/// Crates with sentences in their documentation that are too long, and how many. A count may only go down.
const SENTENCES_TO_SHORTEN: &[(&str, usize)] = &[
    ("clients/cli", 3),
    ("domain", 1),
    ("profiler", 2),
    ("serving", 9),
    ("solver/checker", 1),
    ("solver/estimator", 4),
    ("solver/planning", 15),
    ("tests", 3),
];
/// Crates with comments that are too wide, and how many lines. A count may only go down.
const LINES_TO_WRAP: &[(&str, usize)] = &[
    ("api", 16),
    ("api/wire", 14),
    ("clients/cli", 68),
    ("domain", 7),
    ("executor/fuzz", 1),
    ("executor/protocol", 1),
    ("profiler", 5),
    ("serving", 96),
    ("solver/bindgen", 4),
    ("solver/checker", 1),
    ("solver/estimator", 96),
    ("solver/planning", 104),
    ("tests", 16),
];
/// Crates with banned words in their documentation, and how many. A count may only go down.
const WORDS_TO_REPLACE: &[(&str, usize)] = &[
    ("api", 11),
    ("api/wire", 3),
    ("clients/cli", 7),
    ("serving", 5),
    ("solver/estimator", 2),
    ("solver/planning", 3),
    ("tests", 2),
    ("tests/needs", 1),
];
/// Sources that programs wrote.
const GENERATED: [&str; 3] = ["solver/bindgen/bindings.rs", "executor/protocol/src/v1.rs", "executor/src/gateway/proto.rs"];

fn long_sentences(path: &str, passages: &[Passage]) -> Vec<String> {
    let of = |passage: &Passage| {
        let long = prose::sentences(&passage.text).into_iter().filter(|(_, words)| *words > WORDS_MAX);
        long.map(|(text, words)| format!("{path}:{}: {words} words: {text}", passage.line)).collect::<Vec<_>>()
    };
    passages.iter().flat_map(of).collect()
}

fn banned_words(path: &str, passages: &[Passage]) -> Vec<String> {
    let instead = |phrase: &str| BANNED.iter().find(|(p, _)| *p == phrase).map_or("", |(_, better)| *better);
    let of = |passage: &Passage| {
        let line = passage.line;
        let phrases = prose::banned(&passage.text).into_iter();
        phrases.map(|p| format!("{path}:{line}: {p:?}, better: {}", instead(p))).collect::<Vec<_>>()
    };
    passages.iter().flat_map(of).collect()
}

#[test]
fn documents_have_short_sentences_and_plain_words() {
    let mut wrong = Vec::new();
    for (path, text) in files(&["md"]) {
        let passages = prose::passages(&text);
        wrong.extend(long_sentences(&path, &passages));
        // STYLE.md and the glossary name the words that they replace.
        if path != "STYLE.md" && path != "docs/glossary.md" {
            wrong.extend(banned_words(&path, &passages));
        }
    }
    assert!(wrong.is_empty(), "{} passages to mend (STYLE.md):\n{}", wrong.len(), wrong.join("\n"));
}

/// The folder of the crate that a source belongs to.
fn crate_of(path: &str) -> String {
    let mut folder = root().join(path);
    while folder.pop() {
        if folder.join("Cargo.toml").is_file() {
            break;
        }
    }
    folder.strip_prefix(root()).expect("below the root").display().to_string()
}

/// Compares what `find` finds in each crate's sources with the counts that are allowed.
fn compare(rule: &str, allowed: &[(&str, usize)], find: impl Fn(&str, &str) -> Vec<String>) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sources = files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str()));
    for (path, text) in sources {
        found.entry(crate_of(&path)).or_default().extend(find(&path, &text));
    }
    for (folder, count) in allowed {
        assert!(found.contains_key(*folder) && *count > 0, "{rule}: take {folder} out of the table");
    }
    let mut wrong = Vec::new();
    for (folder, places) in &found {
        let count = allowed.iter().find(|(name, _)| name == folder).map_or(0, |(_, count)| *count);
        if places.len() != count {
            wrong.push(format!("(\"{folder}\", {}): the table says {count}\n{}", places.len(), places.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{rule}; correct the table of this file where there are fewer:\n{}", wrong.join("\n\n"));
}

#[test]
fn documentation_has_short_sentences() {
    let rule = format!("a sentence has at most {WORDS_MAX} words");
    compare(&rule, SENTENCES_TO_SHORTEN, |path, text| long_sentences(path, &prose::documentation(text)));
}

#[test]
fn documentation_has_plain_words() {
    let is_list = |path: &str| path == "tests/tidy/src/prose.rs";
    let find =
        |path: &str, text: &str| if is_list(path) { vec![] } else { banned_words(path, &prose::documentation(text)) };
    compare("these words have a plainer one", WORDS_TO_REPLACE, find);
}

#[test]
fn comments_are_narrow() {
    let rule = format!("a comment has at most {COLUMNS_MAX} columns");
    compare(&rule, LINES_TO_WRAP, |path, text| {
        prose::wide_comments(text).into_iter().map(|line| format!("{path}:{line}")).collect()
    });
}
