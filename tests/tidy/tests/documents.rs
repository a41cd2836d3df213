//! What the documents name is there, and the reference pages are complete.

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
    let readme = make_commands(&marked(&read("README.md")));
    assert!(readme.contains("demo") && readme.contains("test"), "the README's two commands: {readme:?}");
    for (path, text) in files(&["md", "rs"]).into_iter().filter(|(path, _)| !path.starts_with("tests/tidy/")) {
        let code = if path.ends_with(".md") { marked(&text) } else { comments(&text) };
        for command in make_commands(&code).into_iter().filter(|c| !c.is_empty()) {
            assert!(targets.contains(command.as_str()), "{path} names `make {command}`; the Makefile has {targets:?}");
        }
    }
}

/// A Markdown text in which each line of prose begins with a mark, so that only lines of code blocks begin with a command.
fn marked(text: &str) -> String {
    let mut is_code = false;
    let mark = |line: &str| {
        is_code ^= line.starts_with("```");
        if is_code { format!("{line}\n") } else { format!("> {line}\n") }
    };
    text.lines().map(mark).collect()
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
            let linked = folder.join(file);
            assert!(linked.exists(), "{path} links to {target}, which is not there");
            let Some(anchor) = target.split_once('#').map(|(_, anchor)| anchor).filter(|_| file.ends_with(".md")) else {
                continue;
            };
            let anchors = anchors(&std::fs::read_to_string(linked).expect("a document"));
            assert!(anchors.contains(anchor), "{path} links to {target}; that page has the headings {anchors:?}");
        }
    }
}

#[test]
fn source_files_that_documents_name_exist() {
    let mut named = 0;
    for (path, text) in files(&["md"]) {
        for code in text.split('`').skip(1).step_by(2).filter(|code| code.contains('/') && code.ends_with(".rs")) {
            let is_path = code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            named += usize::from(is_path);
            assert!(!is_path || root().join(code).is_file(), "{path} names {code}: expected a file, from the root on");
        }
    }
    assert!(named > 5, "{named}");
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn the_scripts_can_be_run() {
    use std::os::unix::fs::PermissionsExt;
    let scripts = ["setup", "check", "strip", "fuzz", "valgrind", "compare-programs"].map(|name| format!("scripts/{name}"));
    for script in scripts.iter().map(String::as_str).chain(["packaging/build", ".ci/run"]) {
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

/// Reasons in the first line of a block for not running it.
const NOT_RUN: [&str; 12] = [
    "needs-backup",
    "needs-client-generator",
    "needs-collector",
    "needs-converters",
    "needs-docker",
    "needs-gpu",
    "needs-machines",
    "needs-prometheus",
    "needs-rust",
    "needs-service",
    "needs-triton",
    "takes-minutes",
];

#[test]
fn every_command_block_is_run_or_says_why_not() {
    let runner = ["tests/tests/readme.rs", "tests/tests/wheels.rs"].map(read).concat();
    let mut wrong = Vec::new();
    for (path, text) in files(&["md"]) {
        let mut is_open = false;
        for (index, line) in text.lines().enumerate() {
            let Some(info) = line.trim().strip_prefix("```") else { continue };
            is_open = !is_open;
            let words: Vec<&str> = info.split_whitespace().collect();
            let is_right = match words.as_slice() {
                _ if !is_open => true,
                ["sh"] => runner.contains(&format!("\"{path}\"")) && line.starts_with("```"),
                ["sh", reason] => NOT_RUN.contains(reason),
                ["text" | "json" | "yaml" | "hcl" | "python" | "mermaid" | "csv"] => true,
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{path}:{}: {line}", index + 1));
            }
        }
    }
    let rule = "a block has a language; `sh` is run by tests/tests/readme.rs or wheels.rs, or names one of";
    assert!(wrong.is_empty(), "{rule} {NOT_RUN:?}:\n{}", wrong.join("\n"));
}

/// Names that begin with `prefix` and go on with small letters and `_`.
fn names(text: &str, prefix: &str, part: fn(char) -> bool) -> BTreeSet<String> {
    let begins =
        text.match_indices(prefix).filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    let rest = |at: usize| text[at..].chars().take_while(|c| part(*c)).collect::<String>();
    begins.map(|(at, _)| rest(at)).filter(|name| name.len() > prefix.len()).collect()
}

/// Rust sources of these folders without their tests.
fn sources(folders: &[&str]) -> String {
    let is_source = |path: &str| folders.iter().any(|f| path.starts_with(f)) && path.contains("/src/");
    let code = |text: String| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    files(&["rs"]).into_iter().filter(|(path, _)| is_source(path)).map(|(_, text)| code(text)).collect()
}

#[test]
fn the_metrics_page_has_every_metric() {
    let page = read("docs/reference/metrics.md");
    let documented: BTreeSet<String> = names(&page, "apportion_", |c| c.is_ascii_lowercase() || c == '_');
    let agent = sources(&["executor/"]);
    let mut known: BTreeSet<String> = names(&agent, "apportion_", |c| c.is_ascii_lowercase() || c == '_')
        .into_iter()
        .filter(|name| agent.contains(&format!("\"{name}\"")) && name != "apportion_pipeline")
        .collect();
    // The service writes the common prefix once.
    let service = sources(&["api/"]);
    let figures = service.split("figure(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    known.extend(figures.filter_map(|rest| rest.split('"').next()).map(|name| format!("apportion_{name}")));
    let counted = service.split("Count::new(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let counted: Vec<&str> = counted.filter_map(|rest| rest.split('"').next()).collect();
    assert!(counted.contains(&"planner_panics_total"), "the sources' counts are {counted:?}");
    known.extend(counted.into_iter().map(|name| format!("apportion_{name}")));
    let wrong: Vec<&String> = documented.symmetric_difference(&known).collect();
    assert!(wrong.is_empty(), "docs/reference/metrics.md and the sources differ in {wrong:?}");
}

#[test]
fn the_http_page_has_every_operation() {
    let page = read("docs/reference/http.md");
    let description: serde_json::Value = serde_json::from_str(&read("api/openapi.json")).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() > 15, "{}", paths.len());
    let operations = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().expect("methods").keys().map(move |method| format!("`{} {path}`", method.to_uppercase()))
    });
    let missing: Vec<String> = operations.filter(|operation| !page.contains(operation)).collect();
    assert!(missing.is_empty(), "docs/reference/http.md lacks {missing:?}");
}

#[test]
fn the_configuration_page_has_every_variable() {
    let page = read("docs/reference/configuration.md");
    let code = sources(&["executor/", "api/", "clients/", "profiler/"]);
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let mut wrong = Vec::new();
    for prefix in ["APPORTION_", "OTEL_", "ORT_"] {
        let read: BTreeSet<String> = names(&code, prefix, is_part);
        let read = read.iter().filter(|name| code.contains(&format!("\"{name}\"")) && !name.starts_with("APPORTION_TEST"));
        wrong.extend(read.filter(|name| !page.contains(&format!("`{name}`"))).cloned());
    }
    assert!(wrong.is_empty(), "docs/reference/configuration.md lacks {wrong:?}");
}

/// The names of all properties in a JSON Schema.
fn properties(schema: &serde_json::Value, found: &mut BTreeSet<String>) {
    if let Some(object) = schema.as_object() {
        let named = object.get("properties").and_then(|properties| properties.as_object());
        found.extend(named.into_iter().flat_map(|properties| properties.keys().cloned()));
        object.values().for_each(|value| properties(value, found));
    }
}

/// The keys of all files, from the committed schemas.
fn keys() -> BTreeSet<String> {
    let is_schema = |path: &str| path.starts_with("docs/schemas/") && path.ends_with(".schema.json");
    let mut found = BTreeSet::new();
    for (path, text) in files(&["json"]).into_iter().filter(|(path, _)| is_schema(path)) {
        properties(&serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}")), &mut found);
    }
    found
}

#[test]
fn the_files_page_has_every_key() {
    let page = read("docs/reference/files.md");
    let keys = keys();
    assert!(keys.len() > 100, "{keys:?}");
    let missing: Vec<&String> = keys.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/files.md lacks {missing:?}");
}

#[test]
fn every_page_is_reached_from_the_list_of_documents() {
    let list = read("docs/README.md");
    let pages = files(&["md"]).into_iter().filter_map(|(path, _)| path.strip_prefix("docs/").map(str::to_owned));
    let missing: Vec<String> = pages.filter(|page| page != "README.md" && !list.contains(&format!("]({page})"))).collect();
    assert!(missing.is_empty(), "docs/README.md does not link to {missing:?}");
}

/// Parts of messages that the troubleshooting page explains.
const MESSAGES: [&str; 23] = [
    "have no live",
    "on which one could not be loaded (GET /v1/agents has the reasons)",
    "no live agent has a device for it",
    "the plan in force still holds and is within 5 % of the best",
    "the plan in force still holds and is too young to be improved on",
    "the plan in force still holds and no load has been seen yet",
    "not less by more than the change costs",
    "so it is made for the most they can",
    "and none does better",
    "no plan exists: ",
    "no demand was found that the devices can serve",
    "its database is older than the fleet",
    "the token is not the service's",
    "not succeeded",
    "queue_full",
    "join_full",
    "the agent is stopping",
    "parts of it never came back",
    "its timeout has passed",
    "requests wait for their answers",
    "the gateway is full",
    "there is no pipeline",
    "the database does not answer",
];

#[test]
fn the_troubleshooting_page_has_the_programs_messages() {
    let page = read("docs/how-to/troubleshoot.md");
    let code = sources(&["api/", "executor/", "serving/"]);
    let is_wrong = |message: &&&str| !page.contains(**message) || !code.contains(**message);
    let wrong: Vec<&&str> = MESSAGES.iter().filter(is_wrong).collect();
    assert!(
        wrong.is_empty(),
        "neither in docs/how-to/troubleshoot.md nor in the sources, or in one of them only: {wrong:?}"
    );
}
