//! Sentences, lines and words of documents and of documentation are as STYLE.md asks.

use apportion_tidy::prose::{self, BANNED, COLUMNS_MAX, Passage, WORDS_MAX};
use apportion_tidy::{GENERATED, files};

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

/// Asserts that `find` finds nothing in any source that people wrote.
fn assert_none(rule: &str, find: impl Fn(&str, &str) -> Vec<String>) {
    let sources = files(&["rs"]).into_iter().filter(|(path, _)| !GENERATED.contains(&path.as_str()));
    let wrong: Vec<String> = sources.flat_map(|(path, text)| find(&path, &text)).collect();
    assert!(wrong.is_empty(), "{rule}: {} places to mend (STYLE.md):\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn documentation_has_short_sentences() {
    let rule = format!("a sentence has at most {WORDS_MAX} words");
    assert_none(&rule, |path, text| long_sentences(path, &prose::documentation(text)));
}

#[test]
fn documentation_has_plain_words() {
    let is_list = |path: &str| path == "tests/tidy/src/prose.rs";
    let find =
        |path: &str, text: &str| if is_list(path) { vec![] } else { banned_words(path, &prose::documentation(text)) };
    assert_none("these words have a plainer one", find);
}

#[test]
fn comments_are_narrow() {
    let rule = format!("a comment has at most {COLUMNS_MAX} columns");
    assert_none(&rule, |path, text| prose::wide_comments(text).into_iter().map(|line| format!("{path}:{line}")).collect());
}
