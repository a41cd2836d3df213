//! How does `apportion compare` run planners side by side on one trace?

use crate::args;
use crate::judged::fresh_samples;
use crate::workload::WorkloadArgs;
use apportion_domain::{JudgedVerdict, ObjectiveStep, PlanStatus, StopReason};
use apportion_planning::compare::{Contender, PlannerComparison, compare};
use apportion_planning::{Planner, PlanningOptions};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable, number, optional};
use apportion_support::progress::spinner;
use apportion_wire::JudgedOnFile;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let workload = args.workload.read(&problem)?;
    let mut contenders: Vec<Contender> = args.planner.iter().filter_map(|name| Contender::from_name(name)).collect();
    if contenders.is_empty() {
        contenders = Contender::ALL.to_vec();
    }
    let start = Instant::now();
    let options = PlanningOptions {
        planner: Planner::default(),
        gap: args.gap,
        time_limit: Some(args.time_limit),
        ..PlanningOptions::new(Arc::new(move || start.elapsed()))
    };
    let progress = spinner("planning");
    let show = |contender: Contender| progress.set_message(format!("planning with {}", contender.name()));
    let rows = compare(&problem, &contenders, &options, &workload, show);
    progress.finish_and_clear();
    match args.format {
        OutputFormat::Json => output::print(&output::json(&document(&rows, args.workload.seed))?)?,
        OutputFormat::Table => output::print(&table(&rows))?,
    }
    let has = |status: PlanStatus| rows.iter().any(|r| r.outcome.status() == status);
    Ok(match () {
        () if rows.iter().any(|r| r.plan().is_some()) => Exit::Done,
        () if has(PlanStatus::Infeasible) => Exit::Infeasible,
        () => Exit::NoAnswer,
    })
}

/// The step of Loki's planner that made a plan.
fn step(row: &PlannerComparison) -> Option<&'static str> {
    row.report.objective.step.map(ObjectiveStep::name)
}

fn table(rows: &[PlannerComparison]) -> String {
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
    for row in rows {
        let figure = |value: fn(&apportion_domain::Estimate) -> f64| optional(row.estimate.as_ref().map(value));
        table.row(vec![
            row.contender.name().to_owned(),
            row.outcome.status().to_string(),
            step(row).unwrap_or("-").to_owned(),
            optional(row.plan().map(|p| p.cost_per_hour)),
            row.plan().map_or_else(|| "-".to_owned(), |p| p.replicas().to_string()),
            figure(|e| e.accuracy),
            figure(|e| e.attainment),
            figure(|e| e.p99_ms),
            row.verdict().map_or("-", JudgedVerdict::name).to_owned(),
            row.report.rounds.len().to_string(),
            number(row.report.seconds),
            row.outcome.stopped().map_or("-", StopReason::name).to_owned(),
        ]);
    }
    let judged = samples(rows).map(|judged| format!("\nevery plan is judged on {}\n", fresh_samples(&judged)));
    table.text("") + &judged.unwrap_or_default()
}

/// The samples on which all plans were judged.
fn samples(rows: &[PlannerComparison]) -> Option<JudgedOnFile> {
    rows.iter().find_map(PlannerComparison::judged_on).map(JudgedOnFile::from)
}

fn document(rows: &[PlannerComparison], seed: u64) -> Value {
    let judged_on = samples(rows).map(|JudgedOnFile { load, samples, first_seed, .. }| {
        json!({"load": load, "samples": samples, "first_seed": first_seed})
    });
    json!({"version": 1, "seed": seed, "judged_on": judged_on, "planners": rows.iter().map(entry).collect::<Vec<_>>()})
}

fn entry(row: &PlannerComparison) -> Value {
    let pipelines = row.plan().map(|plan| {
        let pipeline_json = |p: &apportion_domain::PipelinePlan| {
            json!({"name": p.name, "demand_qps": p.demand_qps, "accuracy": p.accuracy})
        };
        plan.pipelines.iter().map(pipeline_json).collect::<Vec<_>>()
    });
    let estimate = row.estimate.as_ref().map(|e| {
        json!({"requests": e.requests, "ok": e.ok, "late": e.late, "dropped": e.dropped, "failed": e.failed,
               "attainment": e.attainment, "p50_ms": e.p50_ms, "p99_ms": e.p99_ms, "accuracy": e.accuracy})
    });
    let o = &row.report.objective;
    json!({
        "planner": row.contender.name(),
        "status": row.outcome.status().name(),
        "stopped": row.outcome.stopped().map(StopReason::name),
        "objective": {"step": step(row), "value": o.value, "bound": o.bound, "gap": o.gap()},
        "cost_per_hour": row.plan().map(|p| p.cost_per_hour),
        "replicas": row.plan().map(|p| p.replicas()),
        "pipelines": pipelines,
        "estimate": estimate,
        "holds": row.verdict().map(|verdict| verdict == JudgedVerdict::Holds),
        "verdict": row.verdict().map(JudgedVerdict::name),
        "pipelines_judged": row.judged_on().map(|judged| JudgedOnFile::from(judged).pipelines),
        "rounds": row.report.rounds.len(),
        "seconds": row.report.seconds,
    })
}
