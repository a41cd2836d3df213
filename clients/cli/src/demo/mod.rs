//! `apportion demo`: the main job on real input, by the commands and calls that a user would type.
//!
//! It starts the service with a private database and several agents, profiles a pipeline on this machine, deploys it, replays a
//! load that doubles and falls back, checks every answer against its label, and compares what was measured with what
//! the plan promised and the estimator predicts.

mod answers;
mod children;
mod estimate;
mod load;
mod report;
mod service;
mod watch;

use crate::exit::{Exit, Outcome as Ended};
use anyhow::{Context, Result, ensure};
use children::{CpuReading, Process, free_port, sibling};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use load::{Load, Outcome, Progress, Sent};
use report::{PlanInForce, Summary};
use serde_json::{Value, json};
use service::Service;
use std::path::{Path, PathBuf};
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
    /// Agents to start.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    agents: u32,
    /// Devices of each agent.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    devices: u32,
    /// A device holds its slot until this multiple of the measured time, so that devices and not cores are the bottleneck.
    #[arg(long, default_value_t = 10.0)]
    multiple: f64,
    /// The pipeline to deploy; it must name a validation set.
    #[arg(long)]
    pipeline: Option<PathBuf>,
    /// Where the service and the agents keep their files and logs; a temporary folder by default.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Kill the last agent this many seconds into the load (clients use the other agents' ingresses).
    #[arg(long)]
    kill_at: Option<f64>,
}

/// Everything that has been started; dropping it stops it, agents first.
struct Fleet {
    agents: Vec<Process>,
    _service: Process,
    service: Service,
    api: String,
    data_dir: PathBuf,
    _temporary: Option<tempfile::TempDir>,
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
    ensure!(args.multiple >= 1.0 && args.multiple <= 1e4, "--multiple {}: expected 1 to 10000", args.multiple);
    ensure!(args.kill_at.is_none() || args.agents >= 2, "--kill-at needs at least two agents");
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> Result<()> {
    let pipeline_file = args.pipeline.clone().map_or_else(example, Ok)?;
    let spec = answers::Example::read(&pipeline_file)?;
    say(&format!(
        "{} agents with {} devices each on this machine. A demo device is a thread that runs the real variant and then holds \
         its slot until {} times the measured time has passed: the devices are the bottleneck, not this machine's cores.",
        args.agents, args.devices, args.multiple
    ));
    let mut fleet = start(args).await?;
    let ingresses = fleet.service.agents(args.agents as usize).await?;
    profile(args, &pipeline_file, &fleet).await?;
    let devices = args.agents * args.devices;
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

impl Fleet {
    /// Keeps the logs of a run that went wrong.
    fn keep_logs(mut self) -> PathBuf {
        if let Some(temporary) = self._temporary.take() {
            let _ = temporary.keep();
        }
        self.data_dir.clone()
    }
}

/// One line for whoever watches; results alone go to stdout.
fn say(line: &str) {
    eprintln!("demo: {line}");
}

/// The pipeline that ships with the project: beside the working directory, or above this program.
fn example() -> Result<PathBuf> {
    let name = Path::new("examples/digits/pipeline.yaml");
    let here = std::env::current_exe().unwrap_or_default();
    let places = std::iter::once(PathBuf::new()).chain(here.ancestors().skip(1).map(Path::to_path_buf));
    let found = places.map(|p| p.join(name)).find(|p| p.exists());
    found.with_context(|| format!("{} is not here: name a pipeline with --pipeline", name.display()))
}

async fn start(args: &DemoArgs) -> Result<Fleet> {
    let temporary = if args.data_dir.is_none() { Some(tempfile::tempdir().context("a temporary folder")?) } else { None };
    let data_dir = args.data_dir.clone().or(temporary.as_ref().map(|t| t.path().to_owned())).context("a folder")?;
    std::fs::create_dir_all(&data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
    let (http, grpc) = (free_port()?, free_port()?);
    let token = uuid::Uuid::now_v7().to_string();
    let api = format!("http://127.0.0.1:{http}");
    let flags =
        |pairs: &[(&str, String)]| pairs.iter().flat_map(|(k, v)| [format!("--{k}"), v.clone()]).collect::<Vec<_>>();
    let mut serve = vec!["serve".to_owned()];
    serve.extend(flags(&[
        ("data-dir", data_dir.join("service").display().to_string()),
        ("http", format!("127.0.0.1:{http}")),
        ("grpc", format!("127.0.0.1:{grpc}")),
        ("token", token.clone()),
    ]));
    say(&format!("starting the service on {api}, with its own private PostgreSQL"));
    let process = Process::start("service", &std::env::current_exe()?, &serve, &data_dir)?;
    let service = Service::new(api.clone())?;
    let mut fleet = Fleet { agents: Vec::new(), _service: process, service, api, data_dir, _temporary: temporary };
    if let Err(error) = fleet.service.ready().await {
        let log = std::fs::read_to_string(fleet.data_dir.join("service.log")).unwrap_or_default();
        return Err(error.context(format!("the service said:\n{log}")));
    }
    let body = json!({"name": HARDWARE, "price_per_hour": 1.0});
    fleet.service.put(&format!("/v1/hardware/{HARDWARE}"), &body).await?;
    for i in 1..=args.agents {
        let name = format!("agent-{i}");
        let mut flags = flags(&[
            ("join", format!("http://127.0.0.1:{grpc}")),
            ("token", token.clone()),
            ("name", name.clone()),
            ("hardware", HARDWARE.to_owned()),
            ("devices", args.devices.to_string()),
            ("state-dir", fleet.data_dir.join(&name).display().to_string()),
        ]);
        flags.push("--pace".to_owned());
        fleet.agents.push(Process::start(&name, &sibling("apportion-agent")?, &flags, &fleet.data_dir)?);
    }
    Ok(fleet)
}

/// Profiles the pipeline on this machine and registers it, with `apportion profile`.
async fn profile(args: &DemoArgs, file: &Path, fleet: &Fleet) -> Result<()> {
    say("profiling every variant alone, and the validation set through every combination");
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("profile").arg(file).args(["--hardware", HARDWARE, "--register", &fleet.api]);
    command.args(["--multiple", &args.multiple.to_string()]).stdout(std::process::Stdio::null());
    let status = command.status().await.context("running `apportion profile`")?;
    ensure!(status.success(), "`apportion profile` ended with {status}");
    Ok(())
}

/// Plans for the base load, makes that the target, and hands the pipeline to the replanning job.
async fn deploy(fleet: &Fleet, spec: &answers::Example, qps: f64, ingresses: &[(String, String)]) -> Result<()> {
    let plan = fleet.service.plan(&spec.name, qps * HEADROOM).await?;
    let id = plan["id"].as_str().context("a plan without an id")?;
    let generation = fleet.service.apply(id).await?;
    say(&format!("generation {generation}: {}", groups(&plan["plan"])));
    for (_, ingress) in ingresses {
        fleet.service.pipeline_ready(ingress, &spec.name).await?;
    }
    let path = format!("/v1/pipelines/{}", spec.name);
    let mut registered = fleet.service.get(&path).await?;
    registered["replan"] = json!({"mode": "apply", "period_s": 10.0, "headroom": HEADROOM, "min_qps": HEADROOM * qps});
    fleet.service.put(&path, &registered).await?;
    Ok(())
}

/// The groups of a plan file in one line.
fn groups(plan: &Value) -> String {
    let assignments = plan["pipelines"].as_array().into_iter().flatten().flat_map(|p| p["assignments"].as_array());
    let group = |a: &Value| {
        let text = |key: &str| a[key].as_str().unwrap_or("?").to_owned();
        format!("{} x {} (batch {})", a["replicas"], text("variant"), a["batch"])
    };
    assignments.flatten().map(group).collect::<Vec<_>>().join(", ")
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
    for failed in sent.iter().filter(|s| s.outcome == Outcome::Failed).take(5) {
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
