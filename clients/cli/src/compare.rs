//! How does `apportion compare` run planners side by side on one trace?

use crate::analysis::{RemoteProgress, read_tree, run_on_service, upload_traces};
use crate::args;
use crate::judged::compared_samples;
use crate::service::{RemoteArgs, ServerArgs};
use crate::workload::{WorkloadArgs, with_demand};
use anyhow::Context;
use apportion_api::analyses::comparison::{ComparisonRequest, ComparisonWatch};
use apportion_api::analyses::load::arrivals_text;
use apportion_domain::{ArrivalTrace, PlanStatus, Problem};
use apportion_planning::compare::Contender;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{OutputFormat, TextTable, number, optional};
use apportion_support::progress::spinner;
use apportion_wire::{AnalysisKind, ComparedEstimateFile, ComparedPlannerFile, ComparisonFile};
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `apportion compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Problem file, JSON or YAML.
    problem: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Which planners, separated by commas; default: all. `milp-unchecked` is `milp` without the check loop.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Contender::ALL.map(Contender::name)))]
    planner: Vec<String>,
    /// Stop each planner's search after this time.
    #[arg(long, default_value = "60s", value_parser = args::duration)]
    time_limit: Duration,
    /// Relative gap at which a plan counts as optimal.
    #[arg(long, default_value = "1e-4", value_parser = args::gap, allow_negative_numbers = true)]
    gap: f64,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let traces = args.workload.read(&problem)?;
    let progress = spinner("planning");
    let found = match args.remote.server() {
        Some(server) => compare_on_service(args, &server, &problem, &traces, &progress),
        None => {
            let watch = ComparisonWatch {
                cancel: Arc::default(),
                on_begin: &|planner| progress.set_message(format!("planning with {planner}")),
                on_planned: &|_| (),
            };
            Ok(request(args).run(&problem, with_demand(&problem, traces), &watch))
        }
    };
    progress.finish_and_clear();
    let found = found?;
    // The keys have the order of the alphabet, as in the service's answers.
    let tree = serde_json::to_value(&found).context("writing JSON")?;
    args.format.print(&tree, || table(&found))?;
    let has = |status: PlanStatus| found.planners.iter().any(|row| row.status == status.name());
    Ok(match () {
        () if found.planners.iter().any(|row| row.cost_per_hour.is_some()) => Exit::Done,
        () if has(PlanStatus::Infeasible) => Exit::Infeasible,
        () => Exit::NoAnswer,
    })
}

/// The comparison that the arguments ask for, without its problem and its traces.
fn request(args: &CompareArgs) -> ComparisonRequest {
    ComparisonRequest {
        seed: args.workload.seed,
        arrivals: arrivals_text(args.workload.arrivals),
        planners: args.planner.clone(),
        time_limit_s: args.time_limit.as_secs_f64(),
        gap: args.gap,
        ..ComparisonRequest::default()
    }
}

fn compare_on_service(
    args: &CompareArgs,
    server: &ServerArgs,
    problem: &Problem,
    traces: &[Option<ArrivalTrace>],
    progress: &ProgressBar,
) -> Result<ComparisonFile, Failure> {
    let request = ComparisonRequest {
        problem: Some(read_tree(&args.problem)?),
        traces: upload_traces(server, problem, traces)?,
        ..request(args)
    };
    let show = |at: RemoteProgress| {
        progress.set_message(format!("planning: {} of {} planners", at.ready, at.total));
    };
    let tree = run_on_service(server, AnalysisKind::Comparison, &request, &show)?;
    Ok(serde_json::from_value(tree).context("reading the service's comparison")?)
}

fn table(found: &ComparisonFile) -> String {
    let mut table = TextTable::new(&[
        "planner",
        "status",
        "step",
        "cost/h",
        "replicas",
        "accuracy",
        "attainment",
        "p99 ms",
        "verdict",
        "rounds",
        "plan s",
        "stopped",
    ]);
    for row in &found.planners {
        table.row(cells(row));
    }
    let judged = found.judged_on.as_ref();
    let judged = judged.map(|judged| format!("\nevery plan is judged on {}\n", compared_samples(judged)));
    table.text("") + &judged.unwrap_or_default()
}

fn cells(row: &ComparedPlannerFile) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let figure = |value: fn(&ComparedEstimateFile) -> Option<f64>| optional(row.estimate.as_ref().and_then(value));
    vec![
        row.planner.clone(),
        row.status.clone(),
        text(&row.objective.step),
        optional(row.cost_per_hour),
        row.replicas.map_or_else(|| "-".to_owned(), |replicas| replicas.to_string()),
        figure(|e| e.accuracy),
        figure(|e| Some(e.attainment)),
        figure(|e| e.p99_ms),
        text(&row.verdict),
        row.rounds.to_string(),
        number(row.seconds),
        text(&row.stopped),
    ]
}
