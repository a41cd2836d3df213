//! The tutorial of models from wheels: its own commands, from the wheels to right answers and to checked plans.

use apportion_needs::{Need, models, need};
use apportion_profiler::find_library;
use apportion_tests::documents::{DocumentFleet, blocks, blocks_of, text};
use apportion_tests::root;
use serde_json::Value;
use std::path::Path;

const PAGE: &str = "docs/tutorial/models-from-wheels.md";
/// Most commands from the wheels to an answer and a checked plan.
const COMMANDS_MAX: usize = 5;
/// The headings of both parts.
const FILES: &str = "\n## A classifier of files\n";
const TEXTS: &str = "\n## A detector and a reader of texts\n";

/// The commands of the page.
struct Commands {
    /// Those that both parts begin with.
    start: Vec<String>,
    files: Vec<String>,
    texts: Vec<String>,
}

fn commands() -> Commands {
    let page = text(PAGE);
    let (start, rest) = page.split_once(FILES).expect("the first part");
    let (files, texts) = rest.split_once(TEXTS).expect("the second part");
    Commands { start: blocks_of(start, "sh"), files: blocks_of(files, "sh"), texts: blocks_of(texts, "sh") }
}

/// The folder in which a reader is, and a Python that finds the wheels without an index.
fn prepare(fleet: &mut DocumentFleet, models: &Path) {
    let shell = fleet.shell_mut();
    shell.prefer(&models.join("bin"));
    shell.set("PIP_NO_INDEX", "1");
    shell.set("PIP_FIND_LINKS", &models.join("wheels").display().to_string());
    let root = root().display().to_string();
    shell.run(&format!(
        "rm examples && mkdir examples scripts && cp {root}/scripts/models.txt scripts && \
         cp -r {root}/examples/files {root}/examples/ocr examples"
    ));
}

/// Runs commands; what the last one prints, and what the others print.
fn run(fleet: &mut DocumentFleet, blocks: &[String]) -> (String, String) {
    let mut printed = Vec::new();
    for block in blocks {
        let output = fleet.run(block).expect("it ends");
        printed.push(String::from_utf8(output.stdout).expect("text"));
    }
    (printed.pop().expect("a command"), printed.concat())
}

/// The accuracy in the table of `apportion profile`.
fn accuracy(table: &str, path: &str) -> f64 {
    let row = table.lines().find(|line| line.starts_with(path)).unwrap_or_else(|| panic!("{path} in {table}"));
    row.split_whitespace().next_back().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("a number: {row}"))
}

fn get(fleet: &DocumentFleet, path: &str) -> Value {
    let output = fleet.shell().run(&format!("curl -sf localhost:{}{path}", fleet.http()));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The plan in force for a pipeline passes the checker.
fn check_plan(fleet: &DocumentFleet, pipeline: &str) {
    let target = get(fleet, "/v1/target");
    let ids = target["plans"].as_array().expect("plans").iter().filter_map(Value::as_str);
    let documents: Vec<Value> = ids.map(|id| get(fleet, &format!("/v1/plans/{id}"))).collect();
    let has = |document: &&Value| {
        let pipelines = document["plan"]["pipelines"].as_array();
        pipelines.into_iter().flatten().any(|planned| planned["name"] == pipeline)
    };
    let document = documents.iter().find(has).unwrap_or_else(|| panic!("no plan for {pipeline}: {target:#}"));
    fleet.shell().write("problem.json", &document["problem"].to_string());
    fleet.shell().write("plan.json", &document["plan"].to_string());
    fleet.shell().run("apportion check problem.json plan.json");
}

#[test]
fn the_page_shows_the_files_and_has_few_commands() {
    let Commands { start, files, texts } = commands();
    for part in [&files, &texts] {
        assert!(!part.is_empty() && start.len() + part.len() <= COMMANDS_MAX, "{start:?} and {part:?}");
    }
    for block in start.iter().chain(&files).chain(&texts) {
        assert_eq!(block.replace("\\\n", " ").lines().count(), 1, "one command: {block}");
        assert!(!block.contains([';', '&', '|']), "one command: {block}");
    }
    let shown = |language: &str| blocks(PAGE, language);
    let written = |files: &[&str]| files.iter().map(|file| text(file).trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(shown("yaml"), written(&["examples/files/pipeline.yaml", "examples/ocr/pipeline.yaml"]));
    assert_eq!(shown("python"), written(&["examples/files/ends.py", "examples/files/ask.py", "examples/ocr/boxes.py"]));
}

#[test]
fn wheels_become_answers_and_checked_plans() {
    let (Some(models), Some(_library)) = (models(), need(Need::Onnx, find_library(None))) else { return };
    let Commands { start, files, texts } = commands();
    let mut fleet = DocumentFleet::new();
    prepare(&mut fleet, &models);
    start.iter().for_each(|block| drop(fleet.run(block)));

    let (answer, table) = run(&mut fleet, &files);
    assert_eq!(answer, "examples/ocr/sign.png: png\nexamples/files/ask.py: python\n");
    assert!(accuracy(&table, "classify:magika") >= 0.75, "{table}");
    check_plan(&fleet, "files");
    // Files that the tutorial does not have.
    let (rust, markdown) = (root().join("domain/src/lib.rs"), root().join("README.md"));
    let (rust, markdown) = (rust.display(), markdown.display());
    let ask = format!("PYTHONPATH=wheels python3 examples/files/ask.py 8000 {rust} {markdown}");
    let (answer, _) = run(&mut fleet, &[ask]);
    assert_eq!(answer, format!("{rust}: rust\n{markdown}: markdown\n"));

    let (answer, table) = run(&mut fleet, &texts);
    assert_eq!(lines(&answer), ["Apportion", "Elevator"]);
    assert!(accuracy(&table, "detect:detect>lines:boxes>read:read") >= 0.75, "{table}");
    check_plan(&fleet, "texts");
    // A picture that is drawn now.
    fleet.shell().write(
        "drawn.py",
        "import sys\nsys.path.insert(0, 'examples/ocr')\nfrom draw import sign\nsign('Library', 'Museum').save('drawn.png')\n",
    );
    let draw = "PYTHONPATH=wheels python3 drawn.py".to_owned();
    let ask = "PYTHONPATH=wheels python3 examples/ocr/ask.py 8000 drawn.png".to_owned();
    let (answer, _) = run(&mut fleet, &[draw, ask]);
    assert_eq!(lines(&answer), ["Library", "Museum"]);
}

/// The lines of an answer in the order of the alphabet: rows of a batch have no order that is promised.
fn lines(answer: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = answer.lines().collect();
    lines.sort_unstable();
    lines
}
