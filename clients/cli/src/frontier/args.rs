//! Which arguments does `apportion frontier` take, and which sweep do they ask for?

use crate::args;
use apportion_domain::{HardwareIndex, PipelineIndex, Problem};
use apportion_planning::PlanningOptions;
use apportion_planning::frontier::{self, NoRange, POINTS_MAX, Sweep, SweepRange};
use apportion_support::exit::Failure;
use apportion_support::output::number;
use apportion_support::progress::spinner;
use apportion_wire::BadInput;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// The value that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepName {
    /// Queries per second.
    Demand,
    /// Milliseconds within which a request must be answered.
    Slo,
    /// Limit on the cost per hour.
    Budget,
    /// Devices of one hardware type.
    Count,
}

/// How a frontier is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FrontierFormat {
    /// For people.
    #[default]
    Table,
    /// For spreadsheets.
    Csv,
    /// For programs.
    Json,
    /// A plot.
    Svg,
}

/// Arguments of `apportion frontier`.
#[derive(Args, Debug)]
pub struct FrontierArgs {
    /// Problem file, JSON or YAML.
    pub problem: String,
    /// The value that varies.
    #[arg(long, value_enum)]
    sweep: SweepName,
    /// First value; default: where the plan begins to change.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    from: Option<f64>,
    /// Last value.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    to: Option<f64>,
    /// How many values; whole numbers appear once each in a sweep of the count.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=POINTS_MAX as i64))]
    pub points: u32,
    /// Which pipeline's demand or SLO; default: the demand of all together, the SLO of the only one.
    #[arg(long)]
    pipeline: Option<String>,
    /// Which hardware type's count; default: the only one.
    #[arg(long)]
    hardware: Option<String>,
    /// Stop the search for each point after this time.
    #[arg(long, default_value = "10s", value_parser = args::duration)]
    pub time_limit: Duration,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, default_value = "1e-4", value_parser = args::gap, allow_negative_numbers = true)]
    pub gap: f64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    pub format: FrontierFormat,
    /// Also write the result here: as SVG, CSV or JSON if the name ends so, else as printed.
    #[arg(long)]
    pub out: Option<String>,
}

fn refused(flag: &str, found: String, expected: String) -> Failure {
    BadInput::one(flag, "", found, expected).into()
}

/// The sweep that the arguments ask for.
///
/// # Errors
/// If they name no pipeline or hardware of the problem, or do not fit the sweep.
pub fn sweep(args: &FrontierArgs, problem: &Problem) -> Result<Sweep, Failure> {
    let listed = |names: Vec<&str>| names.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
    let pipelines = || listed(problem.pipelines.iter().map(|p| p.name.as_str()).collect());
    let hardware = || listed(problem.hardware.iter().map(|h| h.name.as_str()).collect());
    let pipeline = match &args.pipeline {
        Some(_) if matches!(args.sweep, SweepName::Budget | SweepName::Count) => {
            return Err(refused("--pipeline", "a pipeline".into(), "none: it goes with --sweep demand or slo".into()));
        }
        Some(name) => match problem.pipeline_named(name) {
            Some(p) => Some(p),
            None => return Err(refused("--pipeline", format!("{name:?}"), format!("one of {}", pipelines()))),
        },
        None => (problem.pipelines.len() == 1).then_some(PipelineIndex(0)),
    };
    let device = match &args.hardware {
        Some(_) if args.sweep != SweepName::Count => {
            return Err(refused("--hardware", "a hardware type".into(), "none: it goes with --sweep count".into()));
        }
        Some(name) => match problem.hardware_named(name) {
            Some(h) => Some(h),
            None => return Err(refused("--hardware", format!("{name:?}"), format!("one of {}", hardware()))),
        },
        None => (problem.hardware.len() == 1).then_some(HardwareIndex(0)),
    };
    match args.sweep {
        SweepName::Demand => Ok(Sweep::Demand(pipeline)),
        SweepName::Budget => Ok(Sweep::Budget),
        SweepName::Slo => pipeline
            .map(Sweep::Slo)
            .ok_or_else(|| refused("--pipeline", "nothing".into(), format!("one of {}", pipelines()))),
        SweepName::Count => device
            .map(Sweep::Count)
            .ok_or_else(|| refused("--hardware", "nothing".into(), format!("one of {}", hardware()))),
    }
}

/// The first and the last value of the sweep, as asked for or by default.
///
/// # Errors
/// If the range is empty.
pub fn range(
    args: &FrontierArgs,
    problem: &Problem,
    sweep: Sweep,
    options: &PlanningOptions,
) -> Result<Result<SweepRange, NoRange>, Failure> {
    let default = match (args.from, args.to) {
        (Some(from), Some(to)) => Ok(SweepRange { from, to }),
        _ => {
            let bar = spinner("looking for the range");
            let found = frontier::default_range(problem, sweep, options);
            bar.finish_and_clear();
            found
        }
    };
    let Ok(SweepRange { from, to }) = default else { return Ok(default) };
    let (from, to) = (args.from.unwrap_or(from), args.to.unwrap_or(to));
    if from <= to {
        return Ok(Ok(SweepRange { from, to }));
    }
    match args.to {
        Some(_) => Err(refused("--to", number(to), format!("at least {}, the first value", number(from)))),
        None => Err(refused("--from", number(from), format!("at most {}, or --to as well", number(to)))),
    }
}
