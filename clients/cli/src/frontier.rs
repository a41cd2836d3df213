//! `apportion frontier`: how cost, accuracy and replicas change while one value is varied.

use crate::args;
use crate::exit::{Exit, Failure, Outcome};
use crate::frontier_plot;
use crate::input;
use crate::output::{self, Table, number, optional};
use apportion_domain::{Binding, HardwareIndex, ObjectiveStep, PipelineIndex, PlanStatus, Problem, Shortfall};
use apportion_planning::PlanOptions;
use apportion_planning::frontier::{self, FrontierPoint, NoRange, POINTS_MAX, Sweep};
use apportion_wire::BadInput;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SweepName {
    /// Queries per second.
    Demand,
    /// Milliseconds within which a request must be answered.
    Slo,
    /// Cap on the cost per hour.
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
    problem: String,
    /// What is varied.
    #[arg(long, value_enum)]
    sweep: SweepName,
    /// First value; default: where something begins to happen.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    from: Option<f64>,
    /// Last value.
    #[arg(long, value_parser = args::rate, allow_negative_numbers = true)]
    to: Option<f64>,
    /// How many values; whole numbers appear once each in a sweep of the count.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=POINTS_MAX as i64))]
    points: u32,
    /// Which pipeline's demand or SLO; default: the demand of all together, the SLO of the only one.
    #[arg(long)]
    pipeline: Option<String>,
    /// Which hardware type's count; default: the only one.
    #[arg(long)]
    hardware: Option<String>,
    /// Stop the search for each point after this time.
    #[arg(long, default_value = "10s", value_parser = args::duration)]
    time_limit: Duration,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, default_value = "1e-4", value_parser = args::gap, allow_negative_numbers = true)]
    gap: f64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: FrontierFormat,
    /// Also write the result here: as SVG, CSV or JSON if the name ends so, else as printed.
    #[arg(long)]
    out: Option<String>,
}

/// A frontier with what it is about.
pub struct Frontier {
    /// Where the problem was read from.
    pub file: String,
    /// What was varied.
    pub sweep: Sweep,
    /// Name of the pipeline or hardware that it was varied of.
    pub of: Option<String>,
    /// The value in the problem file.
    pub present: Option<f64>,
    /// By increasing value.
    pub points: Vec<FrontierPoint>,
}

/// Runs the command.
pub fn run(args: &FrontierArgs) -> Outcome {
    let problem = input::problem(&args.problem)?;
    let sweep = sweep(args, &problem)?;
    let start = Instant::now();
    let options = PlanOptions {
        gap: args.gap,
        time_limit: Some(args.time_limit),
        ..PlanOptions::new(Arc::new(move || start.elapsed()))
    };
    let (from, to) = match range(args, &problem, sweep, &options)? {
        Ok(range) => range,
        Err(NoRange::Infeasible(shortfalls)) => {
            let why = shortfalls.iter().map(blame).collect::<Vec<_>>().join("; ");
            eprintln!("{}: infeasible at every {}: {why}", args.problem, sweep.name());
            return Ok(Exit::Infeasible);
        }
        Err(NoRange::Stopped(stopped)) => {
            eprintln!("{}: no range of values was found ({stopped}): say --from and --to", args.problem);
            return Ok(Exit::NoAnswer);
        }
    };
    let values = frontier::values(sweep, (from, to), args.points as usize);
    let bar = progress(values.len() as u64);
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

fn refused(flag: &str, found: String, expected: String) -> Failure {
    BadInput::one(flag, "", found, expected).into()
}

fn sweep(args: &FrontierArgs, problem: &Problem) -> Result<Sweep, Failure> {
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

/// The first and the last value: as asked for, else the default.
fn range(
    args: &FrontierArgs,
    problem: &Problem,
    sweep: Sweep,
    options: &PlanOptions,
) -> Result<Result<(f64, f64), NoRange>, Failure> {
    let default = match (args.from, args.to) {
        (Some(from), Some(to)) => Ok((from, to)),
        _ => {
            let bar = crate::plan::spinner("looking for the range");
            let found = frontier::default_range(problem, sweep, options);
            bar.finish_and_clear();
            found
        }
    };
    let Ok((from, to)) = default else { return Ok(default) };
    let (from, to) = (args.from.unwrap_or(from), args.to.unwrap_or(to));
    if from <= to {
        return Ok(Ok((from, to)));
    }
    match args.to {
        Some(_) => Err(refused("--to", number(to), format!("at least {}, the first value", number(from)))),
        None => Err(refused("--from", number(from), format!("at most {}, or --to as well", number(to)))),
    }
}

fn progress(points: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(points);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} points ({elapsed})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
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

fn text(frontier: &Frontier, format: FrontierFormat) -> Result<String, Failure> {
    Ok(match format {
        FrontierFormat::Table => table(frontier),
        FrontierFormat::Csv => csv(frontier),
        FrontierFormat::Json => output::json(&document(frontier))? + "\n",
        FrontierFormat::Svg => frontier_plot::svg(frontier)?,
    })
}

/// `0.5` or `-`: every digit, so that what is printed can be compared.
fn exact(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

/// A limit without room: `capacity of gpu`.
fn binding(b: &Binding) -> String {
    format!("{} of {}", b.constraint, b.place)
}

/// A limit that cannot be met.
fn blame(s: &Shortfall) -> String {
    let change = s.relax.as_ref().map_or_else(String::new, |r| format!(" (would do: {} {})", r.pointer, number(r.to)));
    format!("{} of {}{change}", s.constraint, s.place)
}

fn limits(point: &FrontierPoint) -> String {
    let binding: Vec<String> = point.binding.iter().map(binding).collect();
    let missing: Vec<String> = point.shortfalls.iter().map(blame).collect();
    [binding, missing].concat().join("; ")
}

fn table(frontier: &Frontier) -> String {
    let mut table = Table::new(&[
        frontier.sweep.unit(),
        "status",
        "step",
        "cost/h",
        "accuracy",
        "replicas",
        "value",
        "bound",
        "without room",
    ]);
    for p in &frontier.points {
        let limits = limits(p);
        table.row(vec![
            number(p.value),
            p.status.to_string(),
            p.step().map_or("-", ObjectiveStep::name).to_owned(),
            optional(p.cost_per_hour()),
            optional(p.accuracy),
            p.replicas().map_or_else(|| "-".to_owned(), |n| n.to_string()),
            optional(p.objective.value),
            optional(p.objective.bound),
            if limits.is_empty() { "-".to_owned() } else { limits },
        ]);
    }
    table.text("")
}

fn csv(frontier: &Frontier) -> String {
    let mut text =
        format!("{},status,step,cost_per_hour,accuracy,replicas,value,bound,gap,limits\n", frontier.sweep.unit());
    for p in &frontier.points {
        let limits = limits(p).replace('"', "\"\"");
        let cells = [
            exact(Some(p.value)),
            p.status.to_string(),
            p.step().map_or("", ObjectiveStep::name).to_owned(),
            exact(p.cost_per_hour()),
            exact(p.accuracy),
            p.replicas().map_or_else(String::new, |n| n.to_string()),
            exact(p.objective.value),
            exact(p.objective.bound),
            exact(p.objective.gap()),
            if limits.is_empty() { limits } else { format!("\"{limits}\"") },
        ];
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn document(frontier: &Frontier) -> Value {
    json!({
        "version": 1,
        "sweep": frontier.sweep.name(),
        "unit": frontier.sweep.unit(),
        "of": frontier.of,
        "present": frontier.present,
        "points": frontier.points.iter().map(point).collect::<Vec<_>>(),
    })
}

fn point(p: &FrontierPoint) -> Value {
    let binding =
        |b: &Binding| json!({"constraint": b.constraint.name(), "where": b.place, "used": b.used, "limit": b.limit});
    let shortfall = |s: &Shortfall| {
        let relax = s.relax.as_ref().map(|r| json!({"pointer": r.pointer, "from": r.from, "to": r.to}));
        json!({"constraint": s.constraint.name(), "where": s.place, "asked": s.asked, "best": s.best, "relax": relax})
    };
    let groups = |plan: &apportion_domain::Plan| -> Vec<Value> {
        let one = |name: &str, a: &apportion_domain::Assignment| {
            json!({"pipeline": name, "task": a.group.task, "variant": a.group.variant, "hardware": a.group.hardware,
                   "share": a.group.share.value(), "batch": a.batch, "replicas": a.replicas})
        };
        plan.pipelines.iter().flat_map(|part| part.assignments.iter().map(move |a| one(&part.name, a))).collect()
    };
    json!({
        "value": p.value,
        "status": p.status.name(),
        "stopped": p.stopped.map(apportion_domain::StopReason::name),
        "origin": p.origin.name(),
        "objective": {"step": p.step().map(ObjectiveStep::name), "value": p.objective.value, "bound": p.objective.bound,
                      "gap": p.objective.gap()},
        "cost_per_hour": p.cost_per_hour(),
        "accuracy": p.accuracy,
        "replicas": p.replicas(),
        "devices": p.plan.as_ref().map(|plan| json!(plan.devices())),
        "assignments": p.plan.as_ref().map(groups),
        "binding": p.binding.iter().map(binding).collect::<Vec<_>>(),
        "shortfalls": p.shortfalls.iter().map(shortfall).collect::<Vec<_>>(),
    })
}
