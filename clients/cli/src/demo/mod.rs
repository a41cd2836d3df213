//! `apportion demo`: the main job on real input, by the commands and calls that a user would type.
//!
//! It starts the service with a private database and several agents, profiles a pipeline on this machine, deploys it, replays a
//! load that doubles and falls back, checks every answer against its label, and compares what was measured with what
//! the plan promised and the estimator predicts.

mod answers;
mod children;
mod estimate;
pub mod fidelity;
mod fleet;
mod load;
pub mod push;
mod report;
mod service;
mod watch;

use crate::exit::{Exit, Outcome as Ended};
use anyhow::{Context, Result, ensure};
use children::CpuReading;
use clap::Args;
use fleet::{Fleet, FleetArgs};
use indicatif::{ProgressBar, ProgressStyle};
use load::{Load, Outcome, Progress, Sent};
use report::{PlanInForce, Summary};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Hardware type of the demo's devices.
const HARDWARE: &str = "demo-slot";
/// Base load as a share of what the devices serve with the most accurate variants; the step doubles it.
///
/// Twice 0.4 with the headroom of replanning is past what the most accurate variants can do, so that the step needs
/// cheaper variants and not only more devices, while what the cheapest can do is far away.
const BASE_LOAD: f64 = 0.4;

/// Factor on the observed load that plans are made for.
const HEADROOM: f64 = 1.2;

/// Arguments of `apportion demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// `table` for people, `json` for programs.
    #[arg(long, default_value = "table", value_parser = ["table", "json"])]
    format: String,
    /// Keep everything up after the summary and print one JSON line with the addresses.
    #[arg(long)]
    hold: bool,
    /// Length of the load in seconds: a third at the base rate, a third at twice that, a third at the base rate.
    #[arg(long, default_value_t = 66, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill the last agent this many seconds into the load (clients use the other agents' ingresses).
    #[arg(long)]
    kill_at: Option<f64>,
}

/// Runs the demo.
///
/// # Errors
/// Anything that keeps it from its end: a program that is not built, a port, the database, an agent that does not join.
pub fn run(args: &DemoArgs) -> Ended {
    start_runtime(args)?;
    Ok(Exit::Done)
}

fn start_runtime(args: &DemoArgs) -> Result<()> {
    args.fleet.check()?;
    ensure!(args.kill_at.is_none() || args.fleet.agents >= 2, "--kill-at needs at least two agents");
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> Result<()> {
    let pipeline_file = args.fleet.pipeline_file()?;
    let spec = answers::Example::read(&pipeline_file)?;
    say(&format!(
        "{} agents with {} devices each on this machine. A demo device is a thread that runs the real variant and then holds \
         its slot until {} times the measured time has passed: the devices are the bottleneck, not this machine's cores.",
        args.fleet.agents, args.fleet.devices, args.fleet.multiple
    ));
    let mut fleet = Fleet::start(&args.fleet).await?;
    let ingresses = fleet.service.agents(args.fleet.agents as usize).await?;
    fleet.profile(&args.fleet, &pipeline_file).await?;
    let devices = args.fleet.agents * args.fleet.devices;
    let capacity_qps = estimate::capacity_of_most_accurate_qps(&fleet.service, &spec.name, HARDWARE, devices).await?;
    let base_qps = BASE_LOAD * capacity_qps;
    let third = args.seconds as f64 / 3.0;
    say(&format!(
        "by the profiles, {devices} devices serve {capacity_qps:.1} queries/s with the most accurate variants: \
         the load is {base_qps:.1} queries/s, twice that from {third:.0} s to {:.0} s, then {base_qps:.1} again",
        2.0 * third
    ));
    deploy(&fleet, &spec, base_qps, &ingresses).await?;

    let steps = [third, 2.0 * third].map(Duration::from_secs_f64);
    let used: Vec<String> = ingresses.iter().map(|(_, address)| address.clone()).collect();
    let used = if args.kill_at.is_some() { used[..used.len() - 1].to_vec() } else { used };
    let load = Load {
        ingresses: used.clone(),
        pipeline: spec.name.clone(),
        canvases: Arc::new(spec.canvases()?),
        arrivals: estimate::arrivals(base_qps, args.seconds, args.seed)?,
        slo: Duration::from_secs_f64(spec.slo_ms / 1e3),
    };
    let cpu = CpuReading::now();
    let (sent, plans) = replay(args, &mut fleet, &load).await?;
    let cpu = cpu.zip(CpuReading::now()).map(|(before, after)| after.share_since(before));
    let predicted = estimate::predict(&fleet.service, &plans, &load.arrivals, &spec.name).await?;
    let summary = Summary::new(&sent, &steps, plans, predicted);
    show(args, &summary, &spec.name, &sent, cpu)?;
    hold(args, &fleet, &used[0], &spec.name).await?;
    ensure!(summary.failed == 0, "{} requests failed; logs are in {}", summary.failed, fleet.keep_logs().display());
    Ok(())
}

/// One line for whoever watches; results alone go to stdout.
fn say(line: &str) {
    eprintln!("demo: {line}");
}

/// Plans for the base load, makes that the target, and hands the pipeline to the replanning job.
async fn deploy(fleet: &Fleet, spec: &answers::Example, qps: f64, ingresses: &[(String, String)]) -> Result<()> {
    fleet.deploy(&spec.name, qps * HEADROOM, ingresses).await?;
    let path = format!("/v1/pipelines/{}", spec.name);
    let mut registered = fleet.service.get(&path).await?;
    registered["replan"] = json!({"mode": "apply", "period_s": 10.0, "headroom": HEADROOM, "min_qps": HEADROOM * qps});
    fleet.service.put(&path, &registered).await?;
    Ok(())
}

async fn replay(args: &DemoArgs, fleet: &mut Fleet, load: &Load) -> Result<(Vec<Sent>, Vec<PlanInForce>)> {
    let (progress, seen) = (Arc::new(Progress::default()), watch::Seen::default());
    let start = Instant::now();
    let mut beside = JoinSet::new();
    beside.spawn(watch::watch(fleet.service.clone(), load.pipeline.clone(), start, seen.clone()));
    let bar = progress_bar(load.arrivals.len() as u64);
    beside.spawn(show_progress(bar.clone(), progress.clone()));
    if let Some((at, mut victim)) = args.kill_at.and_then(|at| Some((at, fleet.agents.pop()?))) {
        beside.spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(at)).await;
            say(&format!("killing {}", victim.name()));
            victim.kill();
        });
    }
    let sent = load.run(progress).await?;
    beside.shutdown().await;
    bar.finish_and_clear();
    for agent in &mut fleet.agents {
        ensure!(agent.ended().is_none(), "{} ended during the run: see {}", agent.name(), fleet.data_dir.display());
    }
    let plans = seen.lock().expect("no holder panics").clone();
    Ok((sent, plans))
}

async fn show_progress(bar: ProgressBar, progress: Arc<Progress>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (sent, ok) = (progress.sent.load(Ordering::Relaxed), progress.ok.load(Ordering::Relaxed));
        bar.set_position(sent);
        bar.set_message(format!("{ok} in time of {} answered", progress.answered.load(Ordering::Relaxed)));
    }
}

fn progress_bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("demo: {bar:40} {pos}/{len} sent, {msg}");
    let bar = ProgressBar::new(length); // hidden by itself where stderr is no terminal
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn show(args: &DemoArgs, summary: &Summary, pipeline: &str, sent: &[Sent], cpu: Option<f64>) -> Result<()> {
    if let Some(cpu) = cpu {
        let verdict = if cpu < 0.6 { "below" } else { "NOT below" };
        say(&format!(
            "{:.0} % of this machine's processor time was in use, {verdict} the 60 % that a fair run needs",
            cpu * 100.0
        ));
    }
    for failed in sent.iter().filter(|s| matches!(s.outcome, Outcome::GivenUp | Outcome::Failed)).take(5) {
        say(&format!("failed at {:.3} s: {}", failed.at.as_secs_f64(), failed.error.as_deref().unwrap_or("?")));
    }
    let text = if args.format == "json" { serde_json::to_string_pretty(summary)? } else { summary.table(pipeline) };
    crate::output::print(&text).map_err(|_| anyhow::anyhow!("writing to stdout"))
}

async fn hold(args: &DemoArgs, fleet: &Fleet, ingress: &str, pipeline: &str) -> Result<()> {
    if !args.hold {
        return Ok(());
    }
    let grpc = fleet.service.ingress_grpc(ingress).await?;
    let http = format!("http://{ingress}");
    let addresses = json!({"api": fleet.api, "ingress_http": http, "ingress_grpc": grpc, "pipeline": pipeline});
    crate::output::print(&addresses.to_string()).map_err(|_| anyhow::anyhow!("writing to stdout"))?;
    say("everything stays up: end with Ctrl-C");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
