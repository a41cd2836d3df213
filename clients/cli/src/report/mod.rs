//! How does `apportion report` write a result as one HTML file?

mod requests;

use crate::digest::sha256_hex;
use apportion_domain::{Plan, Problem};
use apportion_page::report::report_html;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_wire::{BadInput, ResultDocument, ResultKind, parse_tree, read_result};
use clap::Args;
use requests::read_requests;
use serde_json::{Value, json};
use std::io::Write as _;

/// Arguments of `apportion report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// A plan file, or the JSON of `simulate`, `compare` or `frontier`.
    file: String,
    /// Write the page here.
    #[arg(long, short, value_name = "HTML")]
    out: String,
    /// The problem of the plan: adds graphs, loads and costs of pipelines.
    #[arg(long)]
    problem: Option<String>,
    /// The requests of the simulation, of `simulate --requests`: adds their classes over time and the tail of the latency.
    #[arg(long, value_name = "CSV")]
    requests: Option<String>,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> CommandResult {
    let text = input::read_text(&args.file)?;
    let ResultDocument { kind, tree } = read_result(&args.file, &text)?;
    let problem = args.problem.as_deref().map(|file| problem_of(kind, &args.file, &tree, file)).transpose()?;
    let requests = args.requests.as_deref().map(|file| requests_of(kind, file)).transpose()?;
    let digest = sha256_hex(text.as_bytes());
    let document = json!({
        "kind": kind.name(), "file": args.file, "digest": digest, "version": env!("CARGO_PKG_VERSION"),
        "result": tree, "problem": problem, "requests": requests,
    });
    let html = report_html(&document.to_string());
    output::write_file(&args.out, |out| out.write_all(html.as_bytes()))?;
    Ok(Exit::Done)
}

/// The keys of the plan's problem. A plan that is there must fit it.
fn problem_of(kind: ResultKind, plan: &str, tree: &Value, file: &str) -> Result<Value, Failure> {
    if kind != ResultKind::Plan {
        return Err(needs("--problem", kind, "a plan for pipelines"));
    }
    let problem = input::read_allocation_problem(file)?;
    let has_plan = tree["pipelines"].as_array().is_some_and(|parts| !parts.is_empty());
    if has_plan {
        check_names(&problem, file, plan, &input::read_plan_for(&problem, plan)?)?;
    }
    Ok(parse_tree(file, &input::read_text(file)?)?)
}

/// Refuses a plan with pipelines or tasks that its problem does not have.
fn check_names(problem: &Problem, problem_file: &str, file: &str, plan: &Plan) -> Result<(), BadInput> {
    let unknown = |at: String, name: &str, of: &str| {
        BadInput::one(file, at, format!("{name:?}"), format!("the name of a {of} in {problem_file}"))
    };
    for (i, part) in plan.pipelines.iter().enumerate() {
        let pipeline = problem.pipelines.iter().find(|p| p.name == part.name);
        let pipeline = pipeline.ok_or_else(|| unknown(format!("/pipelines/{i}/name"), &part.name, "pipeline"))?;
        for (j, task) in part.assignments.iter().map(|a| &a.group.task).enumerate() {
            if !pipeline.tasks.iter().any(|known| known.name == *task) {
                return Err(unknown(format!("/pipelines/{i}/assignments/{j}/task"), task, "task"));
            }
        }
    }
    Ok(())
}

fn requests_of(kind: ResultKind, file: &str) -> Result<Value, Failure> {
    if kind != ResultKind::Simulation {
        return Err(needs("--requests", kind, "a simulation"));
    }
    Ok(json!(read_requests(file, &input::read_text(file)?)?))
}

fn needs(flag: &str, kind: ResultKind, expected: &str) -> Failure {
    BadInput::one(flag, "", format!("beside a {}", kind.name().replace('_', " ")), format!("it beside {expected}")).into()
}
