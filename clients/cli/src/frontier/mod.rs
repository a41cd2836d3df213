//! How does `apportion frontier` show cost, accuracy and replicas while one value varies?

mod args;
mod plot;
mod result;
mod show;

pub use args::FrontierArgs;

use apportion_domain::PlanStatus;
use apportion_planning::PlanningOptions;
use apportion_planning::frontier::{self, FrontierPoint, NoRange, Sweep};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output;
use apportion_support::progress::bar;
use apportion_wire::BadInput;
use args::{FrontierFormat, range, sweep};
use result::Frontier;
use show::{describe_shortfall, text};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Runs the command.
pub fn run(args: &FrontierArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let sweep = sweep(args, &problem)?;
    let start = Instant::now();
    let options = PlanningOptions {
        gap: args.gap,
        time_limit: Some(args.time_limit),
        ..PlanningOptions::new(Arc::new(move || start.elapsed()))
    };
    let range = match range(args, &problem, sweep, &options)? {
        Ok(range) => range,
        Err(NoRange::Infeasible(shortfalls)) => {
            let why = shortfalls.iter().map(describe_shortfall).collect::<Vec<_>>().join("; ");
            eprintln!("{}: infeasible at every {}: {why}", args.problem, sweep.name());
            return Ok(Exit::Infeasible);
        }
        Err(NoRange::Stopped(stopped)) => {
            eprintln!("{}: no range of values was found ({stopped}): say --from and --to", args.problem);
            return Ok(Exit::NoAnswer);
        }
    };
    let values = frontier::values(sweep, range, args.points as usize);
    let bar = bar(values.len() as u64, "{bar:40} {pos}/{len} points ({elapsed})");
    let points = frontier::frontier(&problem, sweep, &values, &options, &|| bar.inc(1));
    bar.finish_and_clear();
    let points = points.map_err(|invalids| BadInput::refused("--from, --to", invalids))?;
    let of = match sweep {
        Sweep::Demand(p) => p.map(|p| problem.pipeline(p).name.clone()),
        Sweep::Slo(p) => Some(problem.pipeline(p).name.clone()),
        Sweep::Budget => None,
        Sweep::Count(h) => Some(problem.hardware_at(h).name.clone()),
    };
    let result = Frontier { file: args.problem.clone(), sweep, of, present: sweep.present(&problem), points };
    write(args, &result)?;
    Ok(exit(&result.points))
}

fn exit(points: &[FrontierPoint]) -> Exit {
    let has = |status| points.iter().any(|p: &FrontierPoint| p.status == status);
    match () {
        () if points.iter().any(|p| p.plan.is_some()) => Exit::Done,
        () if has(PlanStatus::Unknown) => Exit::NoAnswer,
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
            _ => args.format,
        };
        let text = text(frontier, format)?;
        output::write_file(out, |f| f.write_all(text.as_bytes()))?;
    }
    output::print(&text(frontier, args.format)?)
}
