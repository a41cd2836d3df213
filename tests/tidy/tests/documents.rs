//! What the documents name is there.

use apportion_tidy::{files, root};
use std::collections::BTreeSet;

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Words after `make ` in code: in backticks, or at the start of a line.
fn make_commands(text: &str) -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for line in text.lines() {
        let starts = line.match_indices("make ").filter(|(at, _)| {
            let before = &line[..*at];
            before.trim().is_empty() || before.ends_with('`') || before.ends_with("&& ")
        });
        for (at, _) in starts {
            let word: String = line[at + 5..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            commands.insert(word);
        }
    }
    commands
}

#[test]
fn make_has_every_command_that_the_documents_name() {
    let makefile = read("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_once(':').map(|(target, _)| target))
        .collect();
    let readme = make_commands(&read("README.md"));
    assert!(readme.contains("demo") && readme.contains("test"), "the README's two commands: {readme:?}");
    for (path, text) in files(&["md", "rs"]).into_iter().filter(|(path, _)| !path.starts_with("tests/tidy/")) {
        let code: String = if path.ends_with(".md") { text } else { comments(&text) };
        for command in make_commands(&code).into_iter().filter(|c| !c.is_empty()) {
            assert!(targets.contains(command.as_str()), "{path} names `make {command}`; the Makefile has {targets:?}");
        }
    }
}

/// What a Rust source says of `make` in backticks; other text is prose or code.
fn comments(text: &str) -> String {
    text.lines()
        .filter(|line| line.contains("`make "))
        .map(|line| &line[line.find('`').unwrap_or(0)..])
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn links_between_documents_lead_somewhere() {
    for (path, text) in files(&["md"]) {
        let folder = root().join(&path).parent().expect("a folder").to_owned();
        for (at, _) in text.match_indices("](") {
            let target: String = text[at + 2..].chars().take_while(|c| *c != ')').collect();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            assert!(folder.join(file).exists(), "{path} links to {target}, which is not there");
        }
    }
}

#[test]
fn the_scripts_can_be_run() {
    use std::os::unix::fs::PermissionsExt;
    for script in ["scripts/setup", "scripts/check", "scripts/strip", "scripts/fuzz", ".ci/run"] {
        let mode = std::fs::metadata(root().join(script)).unwrap_or_else(|e| panic!("{script}: {e}")).permissions().mode();
        assert!(mode & 0o111 == 0o111, "{script} is not executable");
        let parsed = std::process::Command::new("bash").arg("-n").arg(root().join(script)).status().expect("bash");
        assert!(parsed.success(), "{script} is no bash script");
    }
}

#[test]
fn the_licence_is_the_one_that_the_crates_name() {
    assert!(read("Cargo.toml").contains("license = \"Apache-2.0\""));
    let licence = read("LICENSE");
    assert!(licence.contains("Apache License") && licence.contains("Version 2.0, January 2004"));
    assert!(licence.contains("END OF TERMS AND CONDITIONS"));
}
