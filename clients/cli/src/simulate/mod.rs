//! How does `apportion simulate` replay a trace through a plan?

mod requests;

use crate::analysis::{RemoteProgress, read_tree, run_on_service, upload_traces};
use crate::args;
use crate::service::{RemoteArgs, ServerArgs};
use crate::workload::{BatchTimesFlag, WorkloadArgs, read_traces, with_demand};
use anyhow::Context;
use apportion_api::analyses::load::arrivals_text;
use apportion_api::analyses::series::SERIES_WINDOWS_MAX;
use apportion_api::analyses::simulation::{
    SimulatedClients, SimulatedRun, SimulatedScaler, SimulationInput, SimulationRequest,
};
use apportion_api::ladder_headroom::LadderHeadroom;
use apportion_domain::{Batching, Dropping, Problem, Queueing};
use apportion_estimator::{INGRESSES_MAX, SimulateOptions, Window};
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat, TextTable, number, optional};
use apportion_support::progress::spinner;
use apportion_wire::{AnalysisKind, BadInput, EstimateFile, SimulatedChangesFile, SimulationFile};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
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
    /// Times of batches: draws with the profile's median and 99th percentile (`p99-matched`), or its `median`.
    #[arg(long, value_enum, default_value_t)]
    service: BatchTimesFlag,
    /// Ingresses at which requests come in. Each chooses replicas by itself, as each agent does.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(INGRESSES_MAX)))]
    ingresses: u32,
    /// How clients choose among several ingresses.
    #[arg(long, value_enum, default_value_t)]
    clients: ClientChoice,
    /// Write one row per request here, as CSV.
    #[arg(long)]
    requests: Option<String>,
    /// The scaler of replicas during the run: `plan` (its own ladder, if it has one), `none`, `tuner` (InferLine's), `hpa`
    /// (Kubernetes, by utilisation), `ray-serve`, or `coarse`. `coarse` scales whole pipelines once they are overloaded; it
    /// is the baseline of InferLine's evaluation.
    #[arg(long, value_enum, default_value_t)]
    autoscaler: Autoscaler,
    /// The headroom of the plan's ladder: a factor from 0.1 to 10, or `feedback`: the misses move it, as in agents.
    /// Without it: 1.
    #[arg(long, value_name = "FACTOR")]
    ladder_headroom: Option<LadderHeadroom>,
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
    /// Give up requests that have no answer after ten times their SLO, and after 2 s at least, as agents do. Without it
    /// they wait for ever.
    #[arg(long)]
    give_up: bool,
    /// Write one row per second (or longer, for long runs) here, as CSV.
    #[arg(long)]
    windows: Option<String>,
    /// Count the requests in time, on a fallback, late, dropped and failed over time, in at most this many windows. The
    /// JSON then has `series`.
    #[arg(long, value_name = "WINDOWS", value_parser = clap::value_parser!(u32).range(1..=i64::from(SERIES_WINDOWS_MAX)))]
    series: Option<u32>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// How clients choose the ingress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ClientChoice {
    /// Each ingress in its turn.
    #[default]
    InTurn,
    /// Each ingress with the same probability.
    AtRandom,
    /// Each of 16 clients keeps an ingress, which is drawn from the seed.
    Sticky,
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

impl From<ClientChoice> for SimulatedClients {
    fn from(choice: ClientChoice) -> Self {
        match choice {
            ClientChoice::InTurn => Self::InTurn,
            ClientChoice::AtRandom => Self::AtRandom,
            ClientChoice::Sticky => Self::Sticky,
        }
    }
}

impl From<Autoscaler> for SimulatedScaler {
    fn from(autoscaler: Autoscaler) -> Self {
        match autoscaler {
            Autoscaler::Plan => Self::Plan,
            Autoscaler::None => Self::None,
            Autoscaler::Tuner => Self::Tuner,
            Autoscaler::Hpa => Self::Hpa,
            Autoscaler::RayServe => Self::RayServe,
            Autoscaler::Coarse => Self::Coarse,
        }
    }
}

/// The simulation that the arguments ask for, without its problem, its plan and its traces.
fn request(args: &SimulateArgs) -> SimulationRequest {
    SimulationRequest {
        seed: args.workload.seed,
        arrivals: arrivals_text(args.workload.arrivals),
        policy: args.policy.clone(),
        queueing: args.queueing.clone(),
        batching: args.batching.clone(),
        service: args.service.into(),
        ingresses: args.ingresses,
        clients: args.clients.into(),
        autoscaler: args.autoscaler.into(),
        ladder_headroom: args.ladder_headroom,
        hpa_target: args.hpa_target,
        steward: args.steward,
        give_up: args.give_up,
        series_windows: args.series,
        ..SimulationRequest::default()
    }
}

/// The run on this machine.
fn run_here(args: &SimulateArgs, problem: &Problem) -> Result<SimulatedRun, Failure> {
    let plan = input::read_plan_for(problem, &args.plan)?;
    let traces = with_demand(problem, args.workload.read(problem)?);
    let samples = match args.autoscaler {
        Autoscaler::Tuner => read_traces(problem, &args.sample)?,
        _ => vec![None; problem.pipelines.len()],
    };
    let settings = SimulateOptions { requests: args.requests.is_some(), ..SimulateOptions::default() };
    let keeps_windows = args.windows.is_some();
    let input = SimulationInput { problem, plan: &plan, traces, samples, settings, keeps_windows };
    let progress = spinner("simulating");
    let run = request(args).run(input);
    progress.finish_and_clear();
    run.map_err(|e| Failure::BadInput(format!("{}: {e}", args.plan)))
}

/// The simulation of a service, which keeps no rows.
fn run_there(args: &SimulateArgs, server: &ServerArgs, problem: &Problem) -> Result<SimulationFile, Failure> {
    let rows = [("--requests", &args.requests), ("--windows", &args.windows)];
    if let Some((flag, _)) = rows.iter().find(|(_, file)| file.is_some()) {
        let expected = "no --server with it: the service keeps no rows of requests or seconds";
        return Err(BadInput::one(flag, "", "a file", expected).into());
    }
    input::read_plan_for(problem, &args.plan)?;
    let request = SimulationRequest {
        problem: Some(read_tree(&args.problem)?),
        plan_file: Some(read_tree(&args.plan)?),
        traces: upload_traces(server, problem, &args.workload.read(problem)?)?,
        samples: upload_traces(server, problem, &read_traces(problem, &args.sample)?)?,
        ..request(args)
    };
    let progress = spinner("simulating");
    let show = |at: RemoteProgress| progress.set_message(format!("simulating: {} %", at.ready));
    let found = run_on_service(server, AnalysisKind::Simulation, &request, &show);
    progress.finish_and_clear();
    Ok(SimulationFile::from_tree("the service's simulation", found?)?)
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

fn changes_table(replay: &SimulatedChangesFile) -> String {
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
    let found = match args.remote.server() {
        Some(server) => run_there(args, &server, &problem)?,
        None => {
            let run = run_here(args, &problem)?;
            if let (Some(file), Some(replay)) = (&args.windows, &run.replay) {
                output::write_file(file, |out| write_windows(&replay.windows, out))?;
            }
            if let Some(file) = &args.requests {
                output::write_file(file, |out| requests::write(&problem, &run.simulation, out))?;
            }
            run.file(&problem)
        }
    };
    // The keys have the order of the alphabet, as in the service's answers.
    let tree = serde_json::to_value(&found).context("writing JSON")?;
    args.format.print(&tree, || {
        let more = found.replay.as_ref().map_or(String::new(), |changes| format!("\n{}", changes_table(changes)));
        table(&found) + &more
    })?;
    Ok(Exit::Done)
}

fn table(found: &SimulationFile) -> String {
    let header = ["pipeline", "requests", "ok", "late", "dropped", "failed", "attainment", "p50 ms", "p99 ms", "accuracy"];
    let mut table = TextTable::new(&header);
    let mut row = |name: &str, e: &EstimateFile| {
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
    for pipeline in &found.pipelines {
        row(&pipeline.name, &pipeline.estimate);
    }
    if found.pipelines.len() > 1 {
        row("all", &found.total);
    }
    let header = ["pipeline", "task", "queries", "queue ms", "batch wait", "wait p99", "exec ms", "batch", "busy"];
    let mut waiting = TextTable::new(&header);
    for w in found.pipelines.iter().flat_map(|pipeline| &pipeline.estimate.tasks) {
        waiting.row(vec![
            w.pipeline.clone(),
            w.task.clone(),
            w.queries.to_string(),
            number(w.queueing_ms),
            number(w.batch_wait_ms),
            number(w.waiting_p99_ms),
            number(w.service_ms),
            number(w.batch),
            number(w.utilisation),
        ]);
    }
    format!("{}\n{}", table.text(""), waiting.text(""))
}
