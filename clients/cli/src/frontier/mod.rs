//! How does `apportion frontier` show cost, accuracy and replicas while one value varies?

mod args;
mod plot;
mod result;
mod show;

pub use args::FrontierArgs;

use crate::analysis::{read_tree, run_on_service};
use anyhow::Context;
use apportion_api::analyses::frontier::{FrontierError, FrontierRequest, FrontierWatch};
use apportion_domain::{Invalid, PlanStatus, Problem, StopReason};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_support::progress::ticking_bar;
use apportion_wire::{AnalysisKind, BadInput, FrontierFile, FrontierPointFile};
use args::FrontierFormat;
use indicatif::ProgressBar;
use result::{Frontier, has_plan, has_status};
use serde_json::Value;
use show::{describe_shortfall, text};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub fn run(args: &FrontierArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let request = args.request();
    request.sweep(&problem).map_err(|invalid| refused_flag(&invalid))?;
    let bar = ticking_bar(u64::from(request.points), "{bar:40} {pos}/{len} points ({elapsed})");
    let found = match args.remote.server() {
        Some(server) => {
            let request = FrontierRequest { problem: Some(read_tree(&args.problem)?), ..request };
            let found = run_on_service(&server, AnalysisKind::Frontier, &request, &|progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.ready);
            });
            found.and_then(read_result)
        }
        None => run_here(&request, &problem, &bar),
    };
    bar.finish_and_clear();
    let result = match found? {
        FoundFrontier::Points(result) => result,
        FoundFrontier::NoRange(stopped) => {
            eprintln!("{}: no range of values was found ({stopped}): say --from and --to", args.problem);
            return Ok(Exit::NoAnswer);
        }
    };
    if result.points.is_empty() && !result.shortfalls.is_empty() {
        let why = result.shortfalls.iter().map(describe_shortfall).collect::<Vec<_>>().join("; ");
        eprintln!("{}: infeasible at every {}: {why}", args.problem, result.sweep);
        return Ok(Exit::Infeasible);
    }
    let frontier = Frontier { file: args.problem.clone(), result };
    write(args, &frontier)?;
    Ok(exit(&frontier.result.points))
}

/// The answer to a request for a frontier.
enum FoundFrontier {
    /// The frontier; without points if no value has a plan.
    Points(FrontierFile),
    /// No range of values was found.
    NoRange(StopReason),
}

/// The frontier of a service.
fn read_result(tree: Value) -> Result<FoundFrontier, Failure> {
    let result = serde_json::from_value(tree).context("reading the service's frontier")?;
    Ok(FoundFrontier::Points(result))
}

/// The frontier on this machine.
fn run_here(request: &FrontierRequest, problem: &Problem, bar: &ProgressBar) -> Result<FoundFrontier, Failure> {
    let watch = FrontierWatch {
        cancel: Arc::default(),
        on_total: &|total| bar.set_length(total as u64),
        on_point: &|_| bar.inc(1),
    };
    match request.run(problem, &watch) {
        Ok(result) => Ok(FoundFrontier::Points(result)),
        Err(FrontierError::NoRange(stopped)) => Ok(FoundFrontier::NoRange(stopped)),
        Err(FrontierError::BadOption(invalid)) => Err(refused_flag(&invalid)),
        Err(FrontierError::BadValue(invalids)) => Err(BadInput::refused("--from, --to", invalids).into()),
    }
}

/// The refusal of an option, under the name of its flag.
fn refused_flag(invalid: &Invalid) -> Failure {
    let flag = format!("--{}", invalid.pointer.trim_start_matches('/').replace('_', "-"));
    BadInput::one(&flag, "", &invalid.value, &invalid.expected).into()
}

fn exit(points: &[FrontierPointFile]) -> Exit {
    match () {
        () if points.iter().any(has_plan) => Exit::Done,
        () if points.iter().any(|point| has_status(point, PlanStatus::Unknown)) => Exit::NoAnswer,
        () => Exit::Infeasible,
    }
}

fn write(args: &FrontierArgs, frontier: &Frontier) -> Result<(), Failure> {
    if let Some(out) = &args.out {
        let ending = Path::new(out).extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let format = match ending.as_str() {
            "svg" => FrontierFormat::Svg,
            "csv" => FrontierFormat::Csv,
            "json" => FrontierFormat::Json,
            "yaml" | "yml" => FrontierFormat::Yaml,
            _ => args.format,
        };
        let text = text(frontier, format)?;
        output::write_file(out, |f| f.write_all(text.as_bytes()))?;
    }
    output::print(&text(frontier, args.format)?)
}
