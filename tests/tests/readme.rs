//! The documents' commands do what the documents say.
//!
//! Every `sh` block of Markdown is run here, page by page and in order; those of the tutorial of wheels in `wheels.rs`. A
//! block that this machine cannot run says so in its first line, for example `sh needs-gpu`. `tests/tidy` has the list of
//! these words.

use apportion_needs::{Need, need};
use apportion_profiler::find_library;
use apportion_tests::documents::{DocumentFleet, DocumentShell, blocks, text};
use std::process::Command;

/// Pages whose commands need neither a service nor an agent. Each runs in a folder of its own.
const OFFLINE: &[&str] = &[
    "README.md",
    "docs/explanation/checking.md",
    "docs/explanation/planning.md",
    "docs/explanation/reference-formulations.md",
    "docs/explanation/estimating.md",
    "docs/explanation/dropping.md",
    "docs/explanation/steering.md",
    "docs/how-to/advise-an-existing-fleet.md",
    "docs/how-to/draft-a-pipeline.md",
    "docs/how-to/export-a-plan.md",
    "docs/how-to/plan-from-a-table.md",
    "docs/how-to/plan-without-a-service.md",
    "docs/how-to/sweep-and-compare.md",
    "docs/reference/reproduce.md",
];
/// The tutorial, and the pages that go on where it ends: they share its service and its agent.
const WITH_A_FLEET: &[&str] = &[
    "docs/tutorial/your-own-pipeline.md",
    "docs/how-to/send-requests.md",
    "docs/how-to/observe.md",
    "docs/how-to/use-the-command-line.md",
    "docs/how-to/profile.md",
    "docs/how-to/deploy-and-roll-back.md",
    "docs/how-to/replan-on-schedule.md",
    "docs/how-to/plan-at-given-times.md",
    "docs/how-to/share-a-fleet.md",
    "docs/how-to/receive-events-as-webhooks.md",
    "docs/how-to/troubleshoot.md",
    "docs/reference/http.md",
];
/// The page whose service is stopped and started again.
const BY_HAND: &str = "docs/how-to/plan-with-the-service.md";
/// The help texts of the programs.
const COMMANDS: &str = "docs/reference/commands.md";

#[test]
fn offline_pages_run() {
    for page in OFFLINE {
        let shell = DocumentShell::new();
        let blocks = blocks(page, "sh");
        assert!(!blocks.is_empty(), "{page} has no block to run");
        for block in blocks {
            shell.run(&block);
        }
    }
}

#[test]
fn offline_commands_make_a_plan_and_a_plot() {
    let shell = DocumentShell::new();
    for page in ["docs/how-to/plan-without-a-service.md", "docs/how-to/sweep-and-compare.md"] {
        blocks(page, "sh").iter().for_each(|block| drop(shell.run(block)));
    }
    let plan: serde_json::Value = serde_json::from_str(&shell.read("plan.json")).expect("JSON");
    assert_eq!(plan["status"], "optimal", "{plan}");
    let plot = shell.read("frontier.svg");
    assert!(plot.starts_with("<svg"), "{plot}");
}

#[test]
fn the_readme_plans_with_a_service_in_four_lines() {
    let mut fleet = DocumentFleet::new();
    fleet.run(&blocks(BY_HAND, "sh")[0]);
    let block = blocks("README.md", "sh needs-service").into_iter().next().expect("the block");
    assert_eq!(block.lines().count(), 4, "{block}");
    let block = format!("export APPORTION_SERVER=http://127.0.0.1:7070\n{block}");
    let printed = String::from_utf8(fleet.run(&block).expect("it ends").stdout).expect("text");
    assert!(printed.contains("status      optimal") && printed.contains("vision: 120 queries/s"), "{printed}");
    assert!(printed.lines().last().is_some_and(|row| row.contains("succeeded  vision")), "{printed}");
}

/// A printed plan without the line that says how long the planner took.
fn without_time(printed: &str) -> Vec<&str> {
    printed.trim().lines().filter(|line| !line.starts_with("planner ")).map(str::trim_end).collect()
}

#[test]
fn the_readme_prints_the_problem_and_its_plan() {
    let shell = DocumentShell::new();
    let problem = text("examples/photos.yaml");
    let problem = problem.lines().skip_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    assert_eq!(blocks("README.md", "yaml")[0], problem);
    let printed = String::from_utf8(shell.run("apportion plan examples/photos.yaml --explain full").stdout).expect("text");
    assert_eq!(without_time(&blocks("README.md", "text")[0]), without_time(&printed));
}

#[test]
fn the_service_remembers_plans_after_a_restart() {
    let mut fleet = DocumentFleet::new();
    let blocks = blocks(BY_HAND, "sh");
    blocks.iter().for_each(|block| drop(fleet.run(block)));
    let list = format!("curl -sf localhost:{}/v1/plans", fleet.http());
    let plans: serde_json::Value = serde_json::from_slice(&fleet.shell().run(&list).stdout).expect("JSON");
    assert_eq!(plans[0]["state"], "succeeded", "{plans}");
    fleet.stop();
    fleet.run(&blocks[0]);
    let after: serde_json::Value = serde_json::from_slice(&fleet.shell().run(&list).stdout).expect("JSON");
    assert_eq!(plans, after);
}

#[test]
fn the_tutorial_and_the_pages_after_it_run() {
    let Some(_library) = need(Need::Onnx, find_library(None)) else { return };
    let mut fleet = DocumentFleet::new();
    let pipeline = blocks(WITH_A_FLEET[0], "yaml").into_iter().next().expect("the reader's pipeline");
    assert!(pipeline.starts_with("name: mine"), "{pipeline}");
    fleet.shell().write("mine.yaml", &pipeline);
    for page in WITH_A_FLEET {
        for block in blocks(page, "sh") {
            let printed = fleet.run(&block).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            match printed {
                Some(printed) if block.contains("apportion plan mine.json") => {
                    assert!(printed.contains("find-s") && printed.contains("status"), "a plan: {printed}");
                    let problem: serde_json::Value = serde_json::from_str(&fleet.shell().read("mine.json")).expect("JSON");
                    assert_eq!(problem["hardware"][0]["name"], "cpu", "{problem}");
                }
                Some(printed) if block.contains("models/mine/infer") => check_answer(&printed),
                _ => {}
            }
        }
    }
    let ready = format!("curl -sf localhost:{}/v2/models/mine", fleet.ingress());
    fleet.shell().run(&ready);
}

/// Whether the answer has the digits of `examples/digits/request.json`.
fn check_answer(printed: &str) {
    let at = printed.find("{\"model_name\"").unwrap_or_else(|| panic!("an answer: {printed}"));
    let answer: serde_json::Value = serde_json::from_str(printed[at..].trim()).expect("JSON");
    let label = answer["outputs"].as_array().and_then(|all| all.iter().find(|o| o["name"] == "label")).cloned();
    let labels = label.and_then(|l| l["data"].as_array().cloned()).unwrap_or_else(|| panic!("labels: {answer}"));
    assert!(!labels.is_empty(), "three digits are on that canvas: {answer}");
    assert!(labels.iter().all(|l| l.as_i64().is_some_and(|l| (0..10).contains(&l))), "{answer}");
}

/// The help text of `PROGRAM SUBCOMMAND...`, without the values that this machine's environment gives it.
fn help(command: &str) -> String {
    let mut words = command.split(' ');
    let program = apportion_tests::programs().join(words.next().expect("a program"));
    let mut run = Command::new(program);
    run.args(words).arg("--help");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("APPORTION_") || name.starts_with("OTEL_")) {
        run.env_remove(name);
    }
    let output = run.output().expect("the program starts");
    assert!(output.status.success(), "{command} --help: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Every command, as `commands.md` has it under a heading, with its help text. `APPORTION_WRITE=1` writes the page again.
#[test]
fn the_commands_page_has_every_help_text() {
    let page = text(COMMANDS);
    let (head, _) = page.split_once("\n## `").expect("a heading for each command");
    let mut written = head.to_owned();
    for command in commands() {
        written.push_str(&format!("\n## `{command}`\n\n```text\n{}\n```\n", help(&command)));
    }
    if std::env::var_os("APPORTION_WRITE").is_some() {
        std::fs::write(apportion_tests::root().join(COMMANDS), &written).expect("written");
    } else {
        assert!(page == written, "{COMMANDS} is old: APPORTION_WRITE=1 writes it again");
    }
}

/// The programs and all their subcommands, as their help texts list them.
fn commands() -> Vec<String> {
    let mut open = vec!["apportion".to_owned()];
    let mut found = Vec::new();
    while let Some(command) = open.pop() {
        let help = help(&command);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
        let names = names.filter_map(|line| line.split_whitespace().next());
        // It passes its arguments on to the agent's program, which is listed by itself.
        let passes_on = |name: &&str| command == "apportion dev bench" && *name == "agent";
        open.extend(names.filter(|n| *n != "help" && !passes_on(n)).map(|name| format!("{command} {name}")));
        found.push(command);
    }
    found.extend(["apportion-agent", "apportion-agent bench"].map(str::to_owned));
    found.sort();
    found
}
