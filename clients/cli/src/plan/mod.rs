//! How does `apportion plan` find and show a plan?

mod create;
pub mod explanation;
mod interrupt;
mod reference;
pub mod scaling;
mod show;
mod stored;
mod table;

pub use show::plan_table;

use self::reference::{FormulationArgs, FormulationFlag, ReferenceArguments};
use self::stored::StoredPlanCommand;
use self::table::TableArgs;
use crate::args;
use crate::workload::{self, BatchTimesFlag};
use apportion_api::analyses::simulation::SimulatedTimes;
use apportion_domain::{LatencyRule, PlanOutcome, PlanningReport, Problem, ScalingProblem};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::{ExplanationDepth, Incumbent, Listener, Planner, PlanningOptions};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, number};
use apportion_support::progress::spinner;
use apportion_wire::{BadInput, PlanFile, ProblemFile};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Arguments of `apportion plan`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PlanArgs {
    #[command(subcommand)]
    stored: Option<StoredPlanCommand>,
    /// Problem file, JSON or YAML. Or profiles: JSON as `profile` and `import profile` write it, or tables in CSV; they
    /// need --qps, --slo-ms and --hardware. Their tasks are a chain, in the order in which they first appear.
    #[arg(required = true, value_name = "PROBLEM")]
    files: Vec<String>,
    #[command(flatten)]
    table: TableArgs,
    /// Which planner.
    #[arg(long, default_value = "milp", value_parser = PossibleValuesParser::new(Planner::NAMES))]
    planner: String,
    #[command(flatten)]
    formulation: FormulationArgs,
    /// Which queries must meet the SLO, instead of the file's rule.
    #[arg(long, value_parser = PossibleValuesParser::new(LatencyRule::NAMES))]
    latency_rule: Option<String>,
    /// Queries per second to plan for, instead of the file's: QPS, or PIPELINE=QPS; may be repeated.
    #[arg(long, value_name = "QPS")]
    demand: Vec<String>,
    /// Trace on which the plan must hold: F, PIPELINE=F or PIPELINE=F:COLUMN; may be repeated.
    #[arg(long)]
    trace: Vec<String>,
    /// Times of batches that the plan is checked on: draws with the profile's median and 99th percentile (`p99-matched`),
    /// or its `median` alone. The report warns of the latter.
    #[arg(long, value_enum, default_value_t)]
    service: BatchTimesFlag,
    /// Stop solving after this time, for example 10s or 500ms. Ctrl-C stops it too, and a second Ctrl-C ends the command.
    /// A search that is stopped keeps its best plan so far.
    #[arg(long, value_parser = args::duration)]
    time_limit: Option<Duration>,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, default_value = "1e-4", value_parser = args::gap, allow_negative_numbers = true)]
    gap: f64,
    /// Also find the replicas for other loads, from the demand divided by TIMES to the demand multiplied by TIMES (1 to
    /// 100). Agents and `simulate` follow them.
    #[arg(long, value_name = "TIMES", value_parser = args::times)]
    ladder: Option<f64>,
    /// How far the plan is explained. `full` also searches for the price of one more unit of each resource and for other
    /// variants and hardware; that may take 10 s.
    #[arg(long, value_enum, default_value_t)]
    explain: ExplainFlag,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Also write the plan file here.
    #[arg(long)]
    out: Option<String>,
}

/// Longest search for prices and alternatives, if they are asked for.
const EXPLANATION_TIME_MAX: Duration = Duration::from_secs(10);

/// How far a plan is explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ExplainFlag {
    /// Reasons, binding limits and neighbouring batch sizes.
    #[default]
    Brief,
    /// Also prices, and other variants and hardware.
    Full,
}

impl ExplainFlag {
    fn depth(self) -> ExplanationDepth {
        match self {
            Self::Brief => ExplanationDepth::Brief,
            Self::Full => ExplanationDepth::Full { within: EXPLANATION_TIME_MAX },
        }
    }
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> CommandResult {
    if let Some(command) = &args.stored {
        return stored::run(command);
    }
    args.formulation.check(&request(args))?;
    let problem = match read_problem(args)? {
        ProblemFile::Allocation(problem) => with_flags(args, workload::with_demands(problem, &args.demand)?),
        ProblemFile::Scaling(problem) => return plan_scaling(args, &problem),
    };
    let name = args.name();
    let trace = match args.trace.is_empty() {
        true => None,
        false => Some(workload::read_workload(&problem, &args.trace, ArrivalProcess::Poisson, workload::SEED)?),
    };
    let mut options = options(args, trace);
    let progress = spinner(&format!("planning {name}"));
    if args.formulation.formulation == FormulationFlag::Reference {
        let (outcome, report) = reference::plan(&args.formulation.settings(&request(args)), &problem)?;
        progress.finish_and_clear();
        return finish(args, &problem, &outcome, &report);
    }
    options.listener = Some(listener(&progress, &name));
    interrupt::stop_on_interrupt(options.stop.clone(), &progress)?;
    let (outcome, report) = apportion_planning::plan(&problem, &options);
    progress.finish_and_clear();
    finish(args, &problem, &outcome, &report)
}

impl PlanArgs {
    /// The files as progress and errors name them.
    fn name(&self) -> String {
        self.files.join(" ")
    }
}

/// The problem of the only file, or of the profiles.
fn read_problem(args: &PlanArgs) -> Result<ProblemFile, Failure> {
    match table::profiles(&args.files)? {
        Some(profile) => table::problem(&profile, &args.table, &args.trace).map(ProblemFile::Allocation),
        None => {
            args.table.refuse_for_problem(&args.files[0])?;
            input::read_problem(&args.files[0])
        }
    }
}

fn request(args: &PlanArgs) -> ReferenceArguments<'_> {
    let PlanArgs { planner, trace, ladder, gap, time_limit, .. } = args;
    ReferenceArguments { planner, trace, ladder: *ladder, gap: *gap, time_limit: *time_limit }
}

fn options(args: &PlanArgs, trace: Option<Workload>) -> PlanningOptions {
    let start = Instant::now();
    PlanningOptions {
        planner: Planner::from_name(&args.planner).unwrap_or_default(),
        gap: args.gap,
        time_limit: args.time_limit,
        cancel: Arc::new(AtomicBool::new(false)),
        trace,
        ladder: args.ladder,
        explain: args.explain.depth(),
        ..PlanningOptions::new(Arc::new(move || start.elapsed()))
    }
}

/// Plans a scaling problem. It has one rule of its own, and no requests that a trace could replay.
fn plan_scaling(args: &PlanArgs, problem: &ScalingProblem) -> CommandResult {
    if let Some(trace) = args.trace.first() {
        let expected = "no --trace: a scaling problem has loads, and no requests to replay";
        return Err(BadInput::one("--trace", trace, format!("{} is a scaling problem", args.name()), expected).into());
    }
    if let Some(demand) = args.demand.first() {
        let expected = "no --demand: the loads of a scaling problem are its applications'";
        return Err(BadInput::one("--demand", demand, format!("{} is a scaling problem", args.name()), expected).into());
    }
    if !scaling::PLANNERS.contains(&args.planner.as_str()) {
        let expected = scaling::PLANNERS.join(" or ");
        return Err(
            BadInput::one("--planner", &args.planner, format!("{} is a scaling problem", args.name()), expected).into()
        );
    }
    if let Some(ladder) = args.ladder {
        let expected = "no --ladder: a scaling problem has loads, and no pipeline that follows them";
        let (place, shown) = (format!("{} is a scaling problem", args.name()), ladder.to_string());
        return Err(BadInput::one("--ladder", &shown, place, expected).into());
    }
    let print = scaling::Print { format: args.format, out: args.out.as_deref() };
    let progress = spinner(&format!("planning {}", args.name()));
    let (outcome, report) = match args.formulation.formulation {
        FormulationFlag::Production => {
            let options = options(args, None);
            interrupt::stop_on_interrupt(options.stop.clone(), &progress)?;
            apportion_planning::scaling::plan(problem, &options)
        }
        FormulationFlag::Reference => reference::plan_scaling(&args.formulation.settings(&request(args)), problem)?,
    };
    progress.finish_and_clear();
    scaling::finish(problem, &outcome, &report, &print)
}

/// The problem with the latency rule and the times of batches of the command line.
fn with_flags(args: &PlanArgs, problem: Problem) -> Problem {
    let problem = SimulatedTimes::from(args.service).planned(problem);
    let Some(rule) = args.latency_rule.as_deref().and_then(LatencyRule::from_name) else { return problem };
    problem.changed(|draft| draft.objective.latency_rule = rule).expect("the rule alone makes no problem invalid")
}

fn finish(args: &PlanArgs, problem: &Problem, outcome: &PlanOutcome, report: &PlanningReport) -> CommandResult {
    let file = PlanFile::from_outcome(problem, outcome, report);
    if let Some(out) = &args.out {
        output::write_file(out, |f| writeln!(f, "{}", file.to_json()))?;
    }
    args.format.print_text(&file.to_json(), || plan_table(&file))?;
    Ok(match outcome {
        PlanOutcome::Optimal(_) | PlanOutcome::Feasible { .. } => Exit::Done,
        PlanOutcome::Infeasible { .. } => Exit::Infeasible,
        PlanOutcome::Unknown { .. } => Exit::NoAnswer,
    })
}

/// Shows the progress of the search beside the spinner.
fn listener(progress: &ProgressBar, problem: &str) -> Listener {
    let (bar, problem) = (progress.clone(), problem.to_owned());
    Arc::new(move |now: Incumbent| {
        let known = |value: Option<f64>| value.map_or_else(|| "none yet".to_owned(), number);
        bar.set_message(format!("planning {problem}: {} {}, bound {}", now.goal, known(now.value), known(now.bound)));
    })
}
