//! How does a demo run from start to end?

use super::estimate;
use super::fit::HEADROOM;
use super::in_force::{self, PlanInForce};
use super::judge::{Promise, describe_use, judge};
use super::meter::{Meter, ProcessorUse};
use super::rehearse::{Rehearsal, RehearsalResult};
use super::report::{self, RunConditions, Summary};
use super::settings::DemoSettings;
use super::tour::{TOUR_QUERY, publish_load};
use super::verdict::DemoVerdict;
use crate::live::console::print_progress;
use crate::live::fleet::LocalFleet;
use crate::live::load::{ClientOutcome, LiveLoad, LoadProgress, SentRequest};
use crate::live::service::JoinedAgent;
use crate::live::validation::ValidationSet;
use anyhow::{Context, Result, ensure};
use apportion_support::exit::{CommandResult, Exit};
use apportion_support::output;
use apportion_support::progress;
use indicatif::ProgressBar;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The time between two samples of the processors.
const METER_EVERY: Duration = Duration::from_secs(1);

/// Runs the demo.
///
/// # Errors
/// If a program is not built, a port is taken, the database does not start, or an agent does not join.
pub fn run(settings: &DemoSettings) -> CommandResult {
    Ok(start_runtime(settings)?)
}

fn start_runtime(settings: &DemoSettings) -> Result<Exit> {
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(play_demo(settings))
}

async fn play_demo(settings: &DemoSettings) -> Result<Exit> {
    let pipeline_file = settings.fleet.pipeline_file()?;
    let spec = ValidationSet::read(&pipeline_file)?;
    print_progress(&format!(
        "{} agents with {} devices each on this machine. A demo device is a thread. It runs the real variant, and then \
         holds its slot until a multiple of the measured time has passed. So the devices are the bottleneck, and not \
         this machine's cores.",
        settings.fleet.agents, settings.fleet.devices
    ));
    let mut fleet = LocalFleet::start(&settings.fleet).await?;
    print_progress(&format!("watch it in a browser, with a guided tour: {}/{TOUR_QUERY}", fleet.api));
    let agents = fleet.wait_for_agents().await?;
    fleet.profile(&pipeline_file, 1.0).await?;
    let requests = Arc::new(spec.requests()?);
    let rehearsal = Rehearsal {
        fleet: &fleet,
        settings: &settings.fleet,
        spec: &spec,
        requests: &requests,
        agents: &agents,
        seed: settings.seed,
    };
    let rehearsed = match rehearsal.run().await? {
        Ok(rehearsed) => rehearsed,
        Err(why) => {
            print_progress(&format!("{why}. Nothing is played"));
            return Ok(Exit::NoAnswer);
        }
    };
    let base_qps = rehearsed.load.base_qps;
    let promise = promise_of(settings, &rehearsed);
    announce(settings, &rehearsed, &promise);
    deploy(&fleet, &spec, base_qps, &agents).await?;

    let mut used: Vec<String> = agents.iter().map(|agent| agent.ingress_http.clone()).collect();
    if settings.kill_at.is_some() {
        used.pop();
    }
    let load = LiveLoad {
        ingresses: used.clone(),
        pipeline: spec.name.clone(),
        requests,
        arrivals: estimate::doubling_arrivals(base_qps, settings.seconds, settings.seed)?,
        slo: Duration::from_secs_f64(spec.slo_ms / 1e3),
    };
    publish_load(&fleet.service, &spec.name, settings.seconds, &load.arrivals).await?;
    let PlayedRun { sent, plans, machine } = play_load(settings, &mut fleet, &load).await?;
    let network = estimate::DemoNetwork { hops_ms: &rehearsed.hops_ms, ingresses: load.ingresses.len() as u32 };
    let runs = estimate::estimate_demo(&fleet.service, &plans, &load.arrivals, &promise.steps, network, &spec.name).await?;
    let figures = report::measured_figures(&sent, &promise.steps, spec.slo_ms);
    let RehearsalResult { slowness, hops_ms, load: fitted } = rehearsed;
    let conditions = RunConditions { load: fitted, devices: slowness, hops_ms, machine };
    let mut summary = Summary::new(&sent, &figures, &runs, plans, conditions);
    summary.verdict = judge(&summary, &promise, &slowness, machine.as_ref());
    show_summary(settings, &summary, &spec.name, &sent)?;
    hold_until_signal(settings, &fleet, &used[0], &spec.name).await?;
    let exit = summary.verdict.exit();
    exit.with_context(|| format!("{} requests failed; logs are in {}", summary.failed, fleet.keep_logs().display()))
}

fn promise_of(settings: &DemoSettings, rehearsed: &RehearsalResult) -> Promise {
    let third = settings.seconds as f64 / 3.0;
    let steps = [third, 2.0 * third].map(Duration::from_secs_f64);
    Promise { steps, needs_cheaper: rehearsed.load.needs_cheaper, kills: settings.kill_at.is_some() }
}

/// Prints the load that will be played, and the promises.
fn announce(settings: &DemoSettings, rehearsed: &RehearsalResult, promise: &Promise) {
    let (load, [up, down]) = (&rehearsed.load, promise.steps.map(|step| step.as_secs_f64()));
    let devices = settings.fleet.agents * settings.fleet.devices;
    let cheaper = if load.needs_cheaper {
        "more than that, so cheaper variants are needed until the load falls back"
    } else {
        "still no more than that: the cheaper variants of this pipeline, if it has any, serve too little more"
    };
    print_progress(&format!(
        "the planner finds that {devices} devices serve {:.1} queries/s with the most accurate variants. The load is \
         {:.1} queries/s, from {up:.0} s to {down:.0} s {:.1}, and then {:.1} again. Plans are made for {HEADROOM} \
         times the measured load. The high load is {cheaper}",
        load.accurate_qps,
        load.base_qps,
        load.peak_qps(),
        load.base_qps
    ));
    let slowness = &rehearsed.slowness;
    if !slowness.fits {
        print_progress(&format!(
            "THIS MACHINE IS TOO BUSY for a fair run: the load takes {:.2} processors, and {:.2} are set aside for it. \
             It is played all the same. If promises are not kept, the demo says so and ends with 5",
            slowness.needed, slowness.allowed
        ));
    }
}

/// Plans for the base load, makes that the target, and hands the pipeline to the replanning job.
async fn deploy(fleet: &LocalFleet, spec: &ValidationSet, qps: f64, agents: &[JoinedAgent]) -> Result<()> {
    fleet.deploy(&spec.name, qps * HEADROOM, agents).await?;
    let replan = json!({"mode": "apply", "period_s": 10.0, "headroom": HEADROOM, "min_qps": HEADROOM * qps});
    fleet.change_pipeline(&spec.name, |registered| registered["replan"] = replan).await
}

/// The results of a played load.
struct PlayedRun {
    sent: Vec<SentRequest>,
    plans: Vec<PlanInForce>,
    machine: Option<ProcessorUse>,
}

async fn play_load(settings: &DemoSettings, fleet: &mut LocalFleet, load: &LiveLoad) -> Result<PlayedRun> {
    let (progress, seen) = (Arc::new(LoadProgress::default()), in_force::PlansInForce::default());
    let meter = Arc::new(Mutex::new(Meter::start()));
    let start = Instant::now();
    let mut beside = JoinSet::new();
    beside.spawn(in_force::watch_target(fleet.service.clone(), load.pipeline.clone(), start, seen.clone()));
    beside.spawn(sample_processors(meter.clone()));
    let bar = progress::bar(load.arrivals.len() as u64, "demo: {bar:40} {pos}/{len} sent, {msg}");
    beside.spawn(show_progress(bar.clone(), progress.clone()));
    if let Some((at, mut victim)) = settings.kill_at.and_then(|at| Some((at, fleet.agents.pop()?))) {
        beside.spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(at)).await;
            print_progress(&format!("killing {}", victim.name()));
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
    let machine = ProcessorUse::mean(&meter.lock().expect("no holder panics").seen);
    Ok(PlayedRun { sent, plans, machine })
}

/// Samples the processors until the task is aborted.
async fn sample_processors(meter: Arc<Mutex<Meter>>) {
    loop {
        tokio::time::sleep(METER_EVERY).await;
        meter.lock().expect("no holder panics").sample();
    }
}

async fn show_progress(bar: ProgressBar, progress: Arc<LoadProgress>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (sent, ok) = (progress.sent.load(Ordering::Relaxed), progress.ok.load(Ordering::Relaxed));
        bar.set_position(sent);
        bar.set_message(format!("{ok} in time of {} answered", progress.answered.load(Ordering::Relaxed)));
    }
}

fn show_summary(settings: &DemoSettings, summary: &Summary, pipeline: &str, sent: &[SentRequest]) -> Result<()> {
    match &summary.conditions.machine {
        Some(machine) => print_progress(&describe_use(machine, &summary.conditions.devices)),
        None => print_progress("the share of other work on this machine cannot be measured here"),
    }
    if settings.kill_at.is_some() {
        print_progress("the estimate knows nothing of the killed agent: it has all devices");
    }
    for failed in sent.iter().filter(|s| matches!(s.outcome, ClientOutcome::GivenUp | ClientOutcome::Failed)).take(5) {
        print_progress(&format!("failed at {:.3} s: {}", failed.at.as_secs_f64(), failed.error.as_deref().unwrap_or("?")));
    }
    let printed = settings.format.print(summary, || summary.table(pipeline));
    printed.map_err(|_| anyhow::anyhow!("writing to stdout"))?;
    match &summary.verdict {
        DemoVerdict::Kept => print_progress("all that was promised was kept"),
        DemoVerdict::Disturbed(_) => {
            print_progress("this run says nothing, because other work took the machine; not kept:")
        }
        DemoVerdict::Missed(_) | DemoVerdict::Broken(_) => print_progress("NOT KEPT of what was promised:"),
    }
    summary.verdict.broken_promises().iter().for_each(|missed| print_progress(&format!("- {missed}")));
    Ok(())
}

async fn hold_until_signal(settings: &DemoSettings, fleet: &LocalFleet, ingress: &str, pipeline: &str) -> Result<()> {
    if !settings.hold {
        return Ok(());
    }
    let grpc = fleet.service.ingress_grpc(ingress).await?;
    let http = format!("http://{ingress}");
    let tour = format!("{}/{TOUR_QUERY}", fleet.api);
    let addresses =
        json!({"api": fleet.api, "ingress_http": http, "ingress_grpc": grpc, "pipeline": pipeline, "tour": tour});
    output::print(&addresses.to_string()).map_err(|_| anyhow::anyhow!("writing to stdout"))?;
    print_progress("everything stays up: end with Ctrl-C");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
