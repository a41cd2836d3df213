//! Which words, marks and attributes must a source file not have, and which must it have?

use apportion_tidy::{GENERATED, files, root};

/// Longest file, in lines.
const LINES_MAX: usize = 500;
/// Where the pure crates are.
const PURE: [&str; 8] = [
    "domain",
    "serving",
    "executor/node",
    "solver/checker",
    "solver/estimator",
    "solver/mip",
    "solver/planning",
    "solver/reference",
];
/// What the `clippy.toml` of each must ban.
const BANS: [&str; 4] =
    ["std::time::Instant::now", "std::time::SystemTime::now", "std::collections::HashMap", "std::collections::HashSet"];
/// Words with a better one (STYLE.md), and the phrases, most of them other people's names, in which each may stand.
const BANNED: [(&str, &str, &[&str]); 2] = [
    ("scheduler", "jobs, substrate, batcher or planner", &["kube-scheduler"]),
    ("instance", "replica", &["for instance", "instance_length", "instance group", "instance_group", "instance_type"]),
];
/// Languages of blocks in documentation. Rust is absent: no step runs the examples of documentation.
const BLOCK_LANGUAGES: [&str; 4] = ["json", "sh", "text", "yaml"];
/// All Rust sources except these tests, which name the forbidden words, and generated files.
fn sources() -> Vec<(String, String)> {
    let ours = |path: &str| !path.starts_with("tests/tidy/") && !GENERATED.contains(&path);
    files(&["rs"]).into_iter().filter(|(path, _)| ours(path)).collect()
}

fn none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn files_are_short() {
    let long = sources().into_iter().filter(|(_, text)| text.lines().count() > LINES_MAX);
    none(long.map(|(path, _)| path).collect(), "a file has at most 500 lines; split it by decision");
}

#[test]
fn nothing_is_left_undone() {
    let marks = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore", "FIXME", "XXX"];
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(found, "no stubs, no ignored tests");
}

#[test]
fn banned_words_are_not_used() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, instead, phrases) in BANNED {
                if has_word(&line, word) && !phrases.iter().any(|phrase| line.contains(phrase)) {
                    found.push(format!("{path}:{}: {word} (say {instead}): {}", number + 1, line.trim()));
                }
            }
        }
    }
    none(found, "banned words");
}

/// Whether `line` has `word`, or its plural, as a word or a part of a name between underscores.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let rest = &line[at + word.len()..];
        !letter(line[..at].chars().next_back()) && !letter(rest.strip_prefix('s').unwrap_or(rest).chars().next())
    })
}

#[test]
fn has_word_knows_words() {
    for line in ["an instance", "instances", "self.instance_count", "(instance)"] {
        assert!(has_word(line, "instance"), "{line}");
    }
    for line in ["instantly", "instanced", "subinstance", "instant"] {
        assert!(!has_word(line, "instance"), "{line}");
    }
}

/// The lines at which code begins that rustdoc takes for an example in Rust: a block without one of the known
/// languages, and lines that are indented like code.
fn examples_in_rust(source: &str) -> Vec<usize> {
    let (mut found, mut is_open, mut is_after_blank) = (Vec::new(), false, true);
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else {
            (is_open, is_after_blank) = (false, true);
            continue;
        };
        let text = text.strip_prefix(' ').unwrap_or(text);
        if let Some(language) = text.trim_start().strip_prefix("```") {
            if !is_open && !BLOCK_LANGUAGES.contains(&language) {
                found.push(index + 1);
            }
            is_open = !is_open;
        } else if !is_open && is_after_blank && text.starts_with("    ") {
            found.push(index + 1);
        }
        is_after_blank = text.trim().is_empty();
    }
    found
}

#[test]
fn documentation_has_no_examples_in_rust() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        found.extend(examples_in_rust(&text).into_iter().map(|line| format!("{path}:{line}")));
    }
    none(found, "an example in Rust is a test; another block of documentation names its language");
}

#[test]
fn examples_in_rust_are_found() {
    let examples: [(&str, usize); 4] = [
        ("/// ```\n/// f();\n/// ```", 1),
        ("//! A.\n//!\n//! ```rust\n//! f();", 3),
        ("    /// ```no_run", 1),
        ("/// A.\n///\n///     f();", 3),
    ];
    for (source, line) in examples {
        assert_eq!(examples_in_rust(source), [line], "{source}");
    }
    for source in ["/// ```text\n///     f();\n///\n///     g();\n/// ```", "/// A\n///     b.", "let mark = \"```\";"] {
        assert!(examples_in_rust(source).is_empty(), "{source}");
    }
}

#[test]
fn pure_crates_ban_the_clock_and_unordered_maps() {
    for folder in PURE {
        let path = root().join(folder).join("clippy.toml");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for ban in BANS {
            assert!(text.contains(&format!("path = \"{ban}\"")), "{folder}/clippy.toml does not ban {ban}");
        }
    }
}

#[test]
fn every_crate_says_what_belongs_in_it_and_is_linted() {
    // A crate with a workspace of its own (the fuzzer's) cannot take another's lints.
    let is_ours = |text: &str| text.contains("[package]") && !text.contains("\n[workspace]\n");
    for (path, text) in files(&["toml"]).into_iter().filter(|(p, t)| p.ends_with("Cargo.toml") && is_ours(t)) {
        assert!(text.contains("[lints]\nworkspace = true"), "{path} does not take the workspace's lints");
        let folder = root().join(path.trim_end_matches("Cargo.toml"));
        let main = ["src/lib.rs", "src/main.rs"].into_iter().map(|f| folder.join(f)).find(|f| f.exists());
        let main = main.unwrap_or_else(|| panic!("{path}: no src/lib.rs or src/main.rs"));
        let text = std::fs::read_to_string(&main).expect("a source");
        let prose = text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join(" ");
        assert!(prose.contains("belongs here"), "{} does not begin with what belongs there", main.display());
    }
}

#[test]
fn tests_skip_by_the_rule_of_needs() {
    let skips = |text: &str| text.contains("eprintln!(\"skip") || text.contains("/venv/bin/python");
    let found = sources().into_iter().filter(|(path, text)| !path.starts_with("tests/needs/") && skips(text));
    none(found.map(|(path, _)| path).collect(), "a test that needs what a machine may lack asks apportion-needs");
}

#[test]
fn one_file_names_highs() {
    let marks = ["highs_sys", "HighsModelStatus", "extern crate highs", "good_lp::highs", "good_lp::solvers::highs"];
    let namers = sources().into_iter().filter(|(_, text)| marks.iter().any(|mark| text.contains(mark)));
    let namers: Vec<String> = namers.map(|(path, _)| path).collect();
    // The second one compares the bindings of HiGHS with its header; the third one hands the reference formulations to it.
    let expected = ["solver/mip/src/highs.rs", "solver/mip/tests/bindings/main.rs", "solver/reference/src/solver.rs"];
    assert_eq!(namers, expected);
}

#[test]
fn nothing_names_a_place_that_only_one_machine_has() {
    let homes = ["/work/", "/root/", "/home/"];
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "md", "toml", "yaml", "yml", "json", "sh", "py"]) {
        if !path.starts_with("tests/tidy/") && homes.iter().any(|home| text.contains(home)) {
            found.push(path);
        }
    }
    none(found, "a path of one machine; shared data is ../shared/data");
}
