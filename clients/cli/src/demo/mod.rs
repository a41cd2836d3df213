//! `apportion demo`: the main job on real input, by the commands and calls that a user would type.
//!
//! It starts the service with a private database and several agents, profiles a pipeline on this machine, rehearses to see what of it is
//! free, deploys the pipeline, plays a load that doubles and falls back, checks every answer against its label, compares what was
//! measured with what the plans promised and the estimator says, and judges itself by what was free.

mod answers;
mod children;
mod estimate;
pub mod fidelity;
mod fit;
mod fleet;
mod judge;
mod load;
mod meter;
pub mod push;
mod rehearse;
mod report;
mod service;
mod watch;

use crate::exit::{Exit, Outcome as Ended};
use anyhow::{Context, Result, ensure};
use clap::Args;
use fit::HEADROOM;
use fleet::{Fleet, FleetArgs};
use indicatif::{ProgressBar, ProgressStyle};
use judge::{Promise, Verdict, describe, judge};
use load::{Load, Outcome, Progress, Sent};
use meter::{Meter, Use};
use rehearse::{Rehearsal, Rehearsed};
use report::{Conditions, PlanInForce, Summary};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Hardware type of the demo's devices.
const HARDWARE: &str = "demo-slot";
/// How often the machine's processors are looked at.
const METER_EVERY: Duration = Duration::from_secs(1);

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
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=3600))]
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
    Ok(start_runtime(args)?)
}

fn start_runtime(args: &DemoArgs) -> Result<Exit> {
    args.fleet.check()?;
    ensure!(args.kill_at.is_none() || args.fleet.agents >= 2, "--kill-at needs at least two agents");
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> Result<Exit> {
    let pipeline_file = args.fleet.pipeline_file()?;
    let spec = answers::Example::read(&pipeline_file)?;
    say(&format!(
        "{} agents with {} devices each on this machine. A demo device is a thread that runs the real variant and then holds \
         its slot until a multiple of the measured time has passed: the devices are the bottleneck, not this machine's cores.",
        args.fleet.agents, args.fleet.devices
    ));
    let mut fleet = Fleet::start(&args.fleet).await?;
    let ingresses = fleet.service.agents(args.fleet.agents as usize).await?;
    fleet.profile(&pipeline_file, 1.0).await?;
    let canvases = Arc::new(spec.canvases()?);
    let rehearsal = Rehearsal {
        fleet: &fleet,
        args: &args.fleet,
        spec: &spec,
        canvases: &canvases,
        ingresses: &ingresses,
        seed: args.seed,
    };
    let rehearsed = match rehearsal.run().await? {
        Ok(rehearsed) => rehearsed,
        Err(why) => {
            say(&format!("{why}. Nothing is played"));
            return Ok(Exit::NoAnswer);
        }
    };
    let base_qps = rehearsed.load.base_qps;
    let promise = promise(args, &rehearsed);
    announce(args, &rehearsed, &promise);
    deploy(&fleet, &spec, base_qps, &ingresses).await?;

    let mut used: Vec<String> = ingresses.iter().map(|(_, address)| address.clone()).collect();
    if args.kill_at.is_some() {
        used.pop();
    }
    let load = Load {
        ingresses: used.clone(),
        pipeline: spec.name.clone(),
        canvases,
        arrivals: estimate::arrivals(base_qps, args.seconds, args.seed)?,
        slo: Duration::from_secs_f64(spec.slo_ms / 1e3),
    };
    let Ran { sent, plans, machine } = replay(args, &mut fleet, &load).await?;
    let hops_ms = &rehearsed.hops_ms;
    let played = (&load.arrivals[..], &promise.steps[..]);
    let runs = estimate::estimates(&fleet.service, &plans, played, hops_ms, &spec.name).await?;
    let figures = report::measured(&sent, &promise.steps, spec.slo_ms);
    let Rehearsed { slowness, hops_ms, load: fitted } = rehearsed;
    let conditions = Conditions { load: fitted, devices: slowness, hops_ms, machine };
    let mut summary = Summary::new(&sent, &figures, &runs, plans, conditions);
    summary.verdict = judge(&summary, &promise, &slowness, machine.as_ref());
    show(args, &summary, &spec.name, &sent)?;
    hold(args, &fleet, &used[0], &spec.name).await?;
    let exit = summary.verdict.exit();
    exit.with_context(|| format!("{} requests failed; logs are in {}", summary.failed, fleet.keep_logs().display()))
}

fn promise(args: &DemoArgs, rehearsed: &Rehearsed) -> Promise {
    let third = args.seconds as f64 / 3.0;
    let steps = [third, 2.0 * third].map(Duration::from_secs_f64);
    Promise { steps, needs_cheaper: rehearsed.load.needs_cheaper, kills: args.kill_at.is_some() }
}

/// What will be played, and what should be seen.
fn announce(args: &DemoArgs, rehearsed: &Rehearsed, promise: &Promise) {
    let (load, [up, down]) = (&rehearsed.load, promise.steps.map(|step| step.as_secs_f64()));
    let devices = args.fleet.agents * args.fleet.devices;
    let cheaper = if load.needs_cheaper {
        "more than that, so cheaper variants are needed until the load falls back"
    } else {
        "still no more than that: the cheaper variants of this pipeline, if it has any, serve too little more"
    };
    say(&format!(
        "the planner finds that {devices} devices serve {:.1} queries/s with the most accurate variants. The load is {:.1} queries/s, from \
         {up:.0} s to {down:.0} s {:.1}, and then {:.1} again. Plans are made for {HEADROOM} times what is seen; the high load is {cheaper}",
        load.accurate_qps,
        load.base_qps,
        load.peak_qps(),
        load.base_qps
    ));
    let slowness = &rehearsed.slowness;
    if !slowness.fits {
        say(&format!(
            "THIS MACHINE IS TOO BUSY for a fair run: the load takes {:.2} processors, and {:.2} are set aside for it. It is played all the \
             same; if promises are not kept, the demo says so and ends with 5",
            slowness.needed, slowness.allowed
        ));
    }
}

/// One line for whoever watches; results alone go to stdout.
fn say(line: &str) {
    eprintln!("demo: {line}");
}

/// Plans for the base load, makes that the target, and hands the pipeline to the replanning job.
async fn deploy(fleet: &Fleet, spec: &answers::Example, qps: f64, ingresses: &[(String, String)]) -> Result<()> {
    fleet.deploy(&spec.name, qps * HEADROOM, ingresses).await?;
    let replan = json!({"mode": "apply", "period_s": 10.0, "headroom": HEADROOM, "min_qps": HEADROOM * qps});
    fleet.change(&spec.name, |registered| registered["replan"] = replan).await
}

/// What a load has come to.
struct Ran {
    sent: Vec<Sent>,
    plans: Vec<PlanInForce>,
    machine: Option<Use>,
}

async fn replay(args: &DemoArgs, fleet: &mut Fleet, load: &Load) -> Result<Ran> {
    let (progress, seen) = (Arc::new(Progress::default()), watch::Seen::default());
    let meter = Arc::new(Mutex::new(Meter::start()));
    let start = Instant::now();
    let mut beside = JoinSet::new();
    beside.spawn(watch::watch(fleet.service.clone(), load.pipeline.clone(), start, seen.clone()));
    beside.spawn(measure(meter.clone()));
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
    let machine = Use::mean(&meter.lock().expect("no holder panics").seen);
    Ok(Ran { sent, plans, machine })
}

/// Looks at the processors until it is aborted.
async fn measure(meter: Arc<Mutex<Meter>>) {
    loop {
        tokio::time::sleep(METER_EVERY).await;
        meter.lock().expect("no holder panics").look();
    }
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

fn show(args: &DemoArgs, summary: &Summary, pipeline: &str, sent: &[Sent]) -> Result<()> {
    match &summary.conditions.machine {
        Some(machine) => say(&describe(machine, &summary.conditions.devices)),
        None => say("what other work took of this machine cannot be seen here"),
    }
    if args.kill_at.is_some() {
        say("the estimate knows nothing of the killed agent: it has all devices");
    }
    for failed in sent.iter().filter(|s| matches!(s.outcome, Outcome::GivenUp | Outcome::Failed)).take(5) {
        say(&format!("failed at {:.3} s: {}", failed.at.as_secs_f64(), failed.error.as_deref().unwrap_or("?")));
    }
    let text = if args.format == "json" { serde_json::to_string_pretty(summary)? } else { summary.table(pipeline) };
    crate::output::print(&text).map_err(|_| anyhow::anyhow!("writing to stdout"))?;
    match &summary.verdict {
        Verdict::Kept => say("all that was promised was kept"),
        Verdict::Disturbed(_) => say("this run says nothing, for other work took the machine; not kept:"),
        Verdict::Missed(_) | Verdict::Broken(_) => say("NOT KEPT of what was promised:"),
    }
    summary.verdict.missed().iter().for_each(|missed| say(&format!("- {missed}")));
    Ok(())
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
