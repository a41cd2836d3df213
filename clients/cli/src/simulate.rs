//! `apportion simulate`: how a plan fares on a trace.

use crate::args::{self, Format};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Table, number, optional};
use crate::{input, plan, requests};
use apportion_domain::{Batching, Dropping, Estimate, Plan, Problem, Queueing, TaskWaiting};
use apportion_estimator::{ArrivalProcess, SimulateOptions, Simulation};
use apportion_wire::EstimateFile;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

/// Arguments of `apportion simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// Problem file, JSON or YAML.
    problem: String,
    /// Plan file, JSON or YAML.
    plan: String,
    /// Trace: F, PIPELINE=F or PIPELINE=F:COLUMN; may be repeated. Without one: the demand, for 60 s.
    #[arg(long)]
    trace: Vec<String>,
    /// Root of all random streams.
    #[arg(long, default_value_t = input::SEED)]
    seed: u64,
    /// How arrivals are drawn from rates: poisson, uniform or gamma:CV.
    #[arg(long, default_value = "poisson", value_parser = args::arrivals)]
    arrivals: ArrivalProcess,
    /// What happens to a query that will be late, instead of what the plan says.
    #[arg(long, value_parser = PossibleValuesParser::new([&["none"], Dropping::NAMES].concat()))]
    policy: Option<String>,
    /// Where queries wait, instead of what the plan says.
    #[arg(long, value_parser = PossibleValuesParser::new(Queueing::NAMES))]
    queueing: Option<String>,
    /// When a batch is closed, instead of what the plan says.
    #[arg(long, value_parser = PossibleValuesParser::new(Batching::NAMES))]
    batching: Option<String>,
    /// Write one row per request here, as CSV.
    #[arg(long)]
    requests: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
pub fn run(args: &SimulateArgs) -> Outcome {
    let problem = input::problem(&args.problem)?;
    let plan = served_as_asked(input::plan_for(&problem, &args.plan)?, args);
    let workload = input::workload(&problem, &args.trace, args.arrivals, args.seed)?;
    let options = SimulateOptions { requests: args.requests.is_some(), ..SimulateOptions::default() };
    let progress = plan::spinner("simulating");
    let result = apportion_estimator::simulate(&problem, &plan, &workload, &options);
    progress.finish_and_clear();
    let simulation = result.map_err(|e| Failure::BadInput(format!("{}: {e}", args.plan)))?;
    if let Some(file) = &args.requests {
        output::write_file(file, |out| requests::write(&problem, &simulation, out))?;
    }
    match args.format {
        Format::Json => output::print(&output::json(&document(&problem, &simulation))?)?,
        Format::Table => output::print(&table(&problem, &simulation))?,
    }
    Ok(Exit::Done)
}

/// The plan with the policies of the command line.
fn served_as_asked(mut plan: Plan, args: &SimulateArgs) -> Plan {
    for serving in plan.pipelines.iter_mut().map(|p| &mut p.serving) {
        let dropping = args.policy.as_deref().and_then(Dropping::from_name_or_alias);
        serving.dropping = dropping.unwrap_or(serving.dropping);
        serving.queueing = args.queueing.as_deref().and_then(Queueing::from_name).unwrap_or(serving.queueing);
        serving.batching = args.batching.as_deref().and_then(Batching::from_name).unwrap_or(serving.batching);
    }
    plan
}

/// The estimate over all pipelines, and for each pipeline its own with the waiting at its tasks.
fn document(problem: &Problem, simulation: &Simulation) -> Value {
    let mut document = json!(EstimateFile::from(&simulation.total));
    let pipelines = problem.pipelines.iter().zip(&simulation.pipelines).map(|(p, estimate)| {
        let mut entry = json!(EstimateFile::from(estimate));
        entry["name"] = json!(p.name);
        entry["tasks"] = estimate.waiting.iter().map(waiting_json).collect();
        entry
    });
    document["pipelines"] = pipelines.collect();
    document
}

fn waiting_json(w: &TaskWaiting) -> Value {
    json!({
        "task": w.task, "queries": w.queries, "waiting_mean_ms": w.mean_ms, "waiting_p99_ms": w.p99_ms,
        "service_ms": w.service_ms, "batch": w.batch, "utilisation": w.utilisation,
    })
}

fn table(problem: &Problem, simulation: &Simulation) -> String {
    let header = ["pipeline", "requests", "ok", "late", "dropped", "failed", "attainment", "p50 ms", "p99 ms", "accuracy"];
    let mut table = Table::new(&header);
    let mut row = |name: &str, estimate: &Estimate| {
        let e = EstimateFile::from(estimate);
        table.row(vec![
            name.to_owned(),
            e.requests.to_string(),
            e.ok.to_string(),
            e.late.to_string(),
            e.dropped.to_string(),
            e.failed.to_string(),
            number(e.attainment),
            optional(e.p50_ms),
            optional(e.p99_ms),
            optional(e.accuracy),
        ]);
    };
    for (p, estimate) in problem.pipelines.iter().zip(&simulation.pipelines) {
        row(&p.name, estimate);
    }
    if problem.pipelines.len() > 1 {
        row("all", &simulation.total);
    }
    let header = ["pipeline", "task", "queries", "wait ms", "wait p99", "service ms", "batch", "busy"];
    let mut waiting = Table::new(&header);
    for w in simulation.pipelines.iter().flat_map(|e| &e.waiting) {
        waiting.row(vec![
            w.pipeline.clone(),
            w.task.clone(),
            w.queries.to_string(),
            number(w.mean_ms),
            number(w.p99_ms),
            number(w.service_ms),
            number(w.batch),
            number(w.utilisation),
        ]);
    }
    format!("{}\n{}", table.text(""), waiting.text(""))
}
