//! How does `apportion simulate` replay a trace through a plan?

mod requests;

use crate::args;
use crate::workload::{WorkloadArgs, read_workload};
use apportion_domain::{Batching, Dropping, Estimate, Plan, Problem, Queueing};
use apportion_estimator::{
    Controller, Replay, Scenario, ServiceTimes, SimulateOptions, Simulation, Window, Workload, controllers,
};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable, number, optional};
use apportion_support::progress::spinner;
use apportion_wire::EstimateFile;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Arguments of `apportion simulate`.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// Problem file, JSON or YAML.
    problem: String,
    /// Plan file, JSON or YAML.
    plan: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Policy for a query that will be late, instead of the plan's.
    #[arg(long, value_parser = PossibleValuesParser::new([&["none"], Dropping::NAMES].concat()))]
    policy: Option<String>,
    /// Where queries wait, instead of the plan's setting.
    #[arg(long, value_parser = PossibleValuesParser::new(Queueing::NAMES))]
    queueing: Option<String>,
    /// When a batch is closed, instead of the plan's setting.
    #[arg(long, value_parser = PossibleValuesParser::new(Batching::NAMES))]
    batching: Option<String>,
    /// Times of batches: the profile's `median`, or draws with its median and 99th percentile.
    #[arg(long, value_enum, default_value_t)]
    service: Service,
    /// Write one row per request here, as CSV.
    #[arg(long)]
    requests: Option<String>,
    /// The scaler of replicas during the run: `plan` (its own ladder, if it has one), `none`, `tuner` (InferLine's), `hpa`
    /// (Kubernetes, by utilisation), `ray-serve`, or `coarse`. `coarse` scales whole pipelines once they are overloaded; it
    /// is the baseline of InferLine's evaluation.
    #[arg(long, value_enum, default_value_t)]
    autoscaler: Autoscaler,
    /// The load that the plan was made for, as --trace. The tuner compares arrivals with it. Without one: the demand, for
    /// 60 s.
    #[arg(long, value_name = "TRACE")]
    sample: Vec<String>,
    /// Target of utilisation of `hpa`.
    #[arg(long, default_value_t = 0.7, value_parser = args::share)]
    hpa_target: f64,
    /// Once a second between plans, recompute module states, and routing tables from the measured load (for plans with
    /// `most_accurate_first`).
    #[arg(long)]
    steward: bool,
    /// Write one row per second (or longer, for long runs) here, as CSV.
    #[arg(long)]
    windows: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Times of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Service {
    /// The profile's median.
    #[default]
    Median,
    /// A draw for each batch with the profile's median and 99th percentile, where it has one.
    P99Matched,
}

/// The scaler of replicas during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Autoscaler {
    /// The plan's own ladder, if it has one.
    #[default]
    Plan,
    /// No scaler: the plan's replicas stay.
    None,
    /// InferLine's tuner.
    Tuner,
    /// Kubernetes' horizontal pod autoscaler.
    Hpa,
    /// Ray Serve's autoscaler.
    RayServe,
    /// The coarse-grained tuner of InferLine's evaluation.
    Coarse,
}

/// A simulated run.
struct Run {
    simulation: Simulation,
    /// The replay, if the run has scalers, a steward or windows.
    replay: Option<Replay>,
}

fn run_simulation(args: &SimulateArgs, problem: &Problem, plan: &Plan, workload: &Workload) -> Result<Run, Failure> {
    let bad = |e: apportion_estimator::SimulateError| Failure::BadInput(format!("{}: {e}", args.plan));
    let service = match args.service {
        Service::Median => ServiceTimes::Median,
        Service::P99Matched => ServiceTimes::P99Matched,
    };
    let options = SimulateOptions { requests: args.requests.is_some(), service, ..SimulateOptions::default() };
    let ladders = args.autoscaler == Autoscaler::Plan && plan.pipelines.iter().any(|part| !part.ladder.is_empty());
    let scales = ladders || !matches!(args.autoscaler, Autoscaler::Plan | Autoscaler::None);
    if !scales && args.windows.is_none() && !args.steward {
        let simulation = apportion_estimator::simulate(problem, plan, workload, &options).map_err(bad)?;
        return Ok(Run { simulation, replay: None });
    }
    let controllers: Vec<Box<dyn Controller>> = match args.autoscaler {
        Autoscaler::Plan | Autoscaler::None => Vec::new(),
        Autoscaler::Tuner => {
            let sample = read_workload(problem, &args.sample, args.workload.arrivals, args.workload.seed)?;
            vec![controllers::tuner(problem, plan, &sample).map_err(bad)?]
        }
        Autoscaler::Hpa => {
            vec![Box::new(controllers::Hpa::new(controllers::HpaConfig { target: args.hpa_target, ..Default::default() }))]
        }
        Autoscaler::RayServe => vec![Box::new(controllers::RayServe::new(controllers::RayServeConfig::default()))],
        Autoscaler::Coarse => {
            let config = controllers::CoarseConfig::default();
            vec![Box::new(controllers::Coarse::new(problem, plan, config).map_err(bad)?)]
        }
    };
    let scenario = Scenario { controllers, steward: args.steward, ladders, ..Scenario::default() };
    let replay = apportion_estimator::replay(problem, plan, workload, &options, scenario).map_err(bad)?;
    Ok(Run { simulation: replay.simulation.clone(), replay: Some(replay) })
}

/// One row per window.
fn write_windows(windows: &[Window], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "start_s,length_s,arrived,ok,late,dropped,failed,attainment,goodput_qps,drop_rate,replicas,cost,utilisation"
    )?;
    for w in windows {
        let ended = w.ok + w.late + w.dropped + w.failed;
        let drop_rate = if ended == 0 { 0.0 } else { (w.late + w.dropped) as f64 / ended as f64 };
        let (start_s, length_s) = (w.start.as_millis() / 1e3, w.length.as_millis() / 1e3);
        let Window { arrived, ok, late, dropped, failed, replicas, cost, utilisation, .. } = w;
        let (attainment, goodput_qps) = (w.attainment(), w.goodput_qps());
        write!(out, "{start_s},{length_s},{arrived},{ok},{late},{dropped},{failed},{attainment},{goodput_qps},")?;
        writeln!(out, "{drop_rate},{replicas},{cost},{utilisation}")?;
    }
    Ok(())
}

/// The figures of a run with changes.
fn replay_json(replay: &Replay) -> Value {
    json!({
        "cost": replay.cost, "cost_per_hour": replay.cost_per_hour, "utilisation": replay.utilisation,
        "invalid_rate": replay.invalid_rate, "changes": replay.changes,
        "plans": replay.plans, "steerings": replay.steerings,
    })
}

fn replay_table(replay: &Replay) -> String {
    let mut table = TextTable::new(&["changes", "steerings", "cost", "cost per hour", "utilisation", "invalid rate"]);
    table.row(vec![
        replay.changes.to_string(),
        replay.steerings.to_string(),
        format!("{:.4}", replay.cost),
        number(replay.cost_per_hour),
        number(replay.utilisation),
        number(replay.invalid_rate),
    ]);
    table.text("")
}

/// Runs the command.
pub fn run(args: &SimulateArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let plan = with_serving_arguments(input::read_plan_for(&problem, &args.plan)?, args);
    let workload = args.workload.read(&problem)?;
    let progress = spinner("simulating");
    let result = run_simulation(args, &problem, &plan, &workload);
    progress.finish_and_clear();
    let Run { simulation, replay } = result?;
    if let (Some(file), Some(replay)) = (&args.windows, &replay) {
        output::write_file(file, |out| write_windows(&replay.windows, out))?;
    }
    if let Some(file) = &args.requests {
        output::write_file(file, |out| requests::write(&problem, &simulation, out))?;
    }
    match args.format {
        OutputFormat::Json => {
            let mut document = document(&problem, &simulation);
            if let Some(replay) = &replay {
                document["replay"] = replay_json(replay);
            }
            output::print(&output::json(&document)?)?;
        }
        OutputFormat::Table => {
            let more = replay.as_ref().map_or(String::new(), |replay| format!("\n{}", replay_table(replay)));
            output::print(&(table(&problem, &simulation) + &more))?;
        }
    }
    Ok(Exit::Done)
}

/// The plan with the policies of the command line.
fn with_serving_arguments(mut plan: Plan, args: &SimulateArgs) -> Plan {
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
        entry
    });
    document["pipelines"] = pipelines.collect();
    document
}

fn table(problem: &Problem, simulation: &Simulation) -> String {
    let header = ["pipeline", "requests", "ok", "late", "dropped", "failed", "attainment", "p50 ms", "p99 ms", "accuracy"];
    let mut table = TextTable::new(&header);
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
    let header = ["pipeline", "task", "queries", "queue ms", "batch wait", "wait p99", "exec ms", "batch", "busy"];
    let mut waiting = TextTable::new(&header);
    for w in simulation.pipelines.iter().flat_map(|e| &e.waiting) {
        waiting.row(vec![
            w.pipeline.clone(),
            w.task.clone(),
            w.queries.to_string(),
            number(w.queueing_ms),
            number(w.batch_wait_ms),
            number(w.p99_ms),
            number(w.service_ms),
            number(w.batch),
            number(w.utilisation),
        ]);
    }
    format!("{}\n{}", table.text(""), waiting.text(""))
}
