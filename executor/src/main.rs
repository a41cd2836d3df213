//! `apportion-agent`: serves its part of the fleet's target on its devices.

use apportion_executor::agent::{self, Command, Options};
use apportion_executor::backend::{Kind, Loader, Provider, find_library};
use apportion_executor::bench::{self, BenchError, Figure};
use apportion_executor::control::{ControlError, Identity, attend};
use apportion_executor::devices::{Devices, VISIBLE_VARIABLE};
use apportion_executor::files::Files;
use apportion_executor::gateway::{self, Gateway, Limits, REQUESTS_MAX, WAITING_BYTES_MAX};
use apportion_executor::peers;
use apportion_executor::telemetry::Tracer;
use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Tensors are allocated by one thread and freed by another, many thousand times a second, and large ones must not cost fresh
/// pages each time: the system's allocator gives them back to the system and takes them again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a stopping agent waits for what it has begun.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long it then waits for its clients to hang up.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Exit status of an agent that the control plane refuses, or that was started wrongly.
const REFUSED: u8 = 2;

/// The first argument that asks for figures instead of an agent.
const BENCH: &str = "bench";

/// Measures what an agent costs: time per hop, large tensors, requests per second, each beside the plainest way to do it.
#[derive(Parser)]
#[command(name = "apportion-agent bench", version)]
struct BenchFlags {
    /// Seconds for each figure
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Let processors sleep between requests, as an agent with that flag does
    #[arg(long)]
    save_power: bool,
    /// Measure the hop of the example `digits` too, of this folder: variants of ONNX Runtime, whose library is found as an agent finds it
    #[arg(long)]
    digits: Option<PathBuf>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|n| (1..=1 << 24).contains(n));
    count.ok_or_else(|| "expected a whole number from 1 to 16777216".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| (0.01..=3_600.0).contains(s));
    seconds.ok_or_else(|| "expected seconds from 0.01 to 3600".into())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|r: &f64| (0.0..=1.0).contains(r));
    ratio.ok_or_else(|| "expected a number from 0 to 1".into())
}

/// Serves its part of the fleet's target on this machine's devices.
#[derive(Parser)]
#[command(name = "apportion-agent", version, after_help = "`apportion-agent bench` measures what an agent costs.")]
struct Flags {
    /// The control plane, for example http://127.0.0.1:7071
    #[arg(long)]
    join: String,
    /// The token that the control plane asks for
    #[arg(long, env = "APPORTION_TOKEN", hide_env_values = true)]
    token: String,
    /// Unique name in the fleet [default: host name and process number]
    #[arg(long)]
    name: Option<String>,
    /// Hardware type of the devices
    #[arg(long, default_value = "cpu")]
    hardware: String,
    /// How many devices
    #[arg(long, default_value_t = 1)]
    devices: u32,
    /// Where clients come in
    #[arg(long, default_value = "127.0.0.1:0")]
    http: String,
    /// Where clients come in by gRPC
    #[arg(long, default_value = "127.0.0.1:0")]
    ingress_grpc: String,
    /// Where other agents come in
    #[arg(long, default_value = "127.0.0.1:0")]
    data: String,
    /// Model files and the last target; an agent that comes back here comes back with what it served
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// How batches are run: `onnx` here, `emulated` from their profiles without any variant (answers are zeros), or
    /// `remote=http://host:port` by a server of the Open Inference Protocol that has the variants under their names
    #[arg(long, default_value = "onnx")]
    backend: Way,
    /// What the backend `onnx` runs variants on: `cpu`, or `cuda`: the agent's devices are then CUDA's, by number, and what
    /// cannot run there fails to load
    #[arg(long, default_value = "cpu")]
    provider: Provider,
    /// The ONNX Runtime library [default: where ORT_DYLIB_PATH says, or the system]
    #[arg(long)]
    onnxruntime: Option<PathBuf>,
    /// Threads of one batch
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Requests that may wait for their answers at this gateway; more get 429 at once
    #[arg(long, default_value_t = REQUESTS_MAX, value_parser = at_least_one)]
    requests_max: usize,
    /// MiB of inputs that those requests may have
    #[arg(long, default_value_t = WAITING_BYTES_MAX >> 20, value_parser = at_least_one)]
    inputs_mib_max: usize,
    /// Where spans of traced requests go: an OTLP endpoint over gRPC, for example http://127.0.0.1:4317 [default: no traces]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// How many of the requests that do not say whether they are sampled are traced, from 0 to 1
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0, value_parser = ratio)]
    trace_ratio: f64,
    /// Logs on stderr: `text`, or `json` with an object on each line
    #[arg(long, env = "APPORTION_LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Let processors sleep between requests at any load [default: they are kept awake while 1,000 events a second come, where
    /// the agent may write to /dev/cpu_dma_latency; a hop takes less than half as long then]
    #[arg(long)]
    save_power: bool,
    /// Record all that the agent's machines are told and do into this file, to replay it
    #[arg(long, hide = true)]
    record: Option<PathBuf>,
    /// Batches take at least as long as the profile says: devices are emulated
    #[arg(long)]
    pace: bool,
}

/// The values of `--backend`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Onnx,
    Emulated,
    Remote(String),
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == Kind::Local.name() => Ok(Self::Onnx),
            None if text == Kind::Emulated.name() => Ok(Self::Emulated),
            Some(("remote", url)) => match tonic::transport::Uri::from_str(url) {
                Ok(u) if u.scheme_str() == Some("http") && u.host().is_some() && u.query().is_none() => {
                    Ok(Self::Remote(url.into()))
                }
                _ => Err(format!("{url:?} is no server: expected http://host:port")),
            },
            _ => Err("expected onnx, emulated or remote=http://host:port".into()),
        }
    }
}

fn loader(way: Way, provider: Provider, library: Option<&Path>, threads: usize) -> Result<Loader, Box<dyn Error>> {
    match way {
        Way::Onnx => Ok(Loader::Onnx { library: find_library(library)?, provider, threads }),
        _ if provider != Provider::Cpu => {
            let name = provider.name();
            Err(format!("--provider {name}: only the backend onnx runs variants here: expected --backend onnx with it")
                .into())
        }
        Way::Emulated => Ok(Loader::Emulated),
        Way::Remote(url) => Ok(Loader::Remote(url)),
    }
}

/// What can say how the devices are; what cannot is said once.
fn devices(provider: Provider, count: u32) -> Devices {
    if provider != Provider::Cuda {
        return Devices::default();
    }
    let visible = std::env::var(VISIBLE_VARIABLE).ok();
    let opened = Devices::open(visible.as_deref(), count);
    let opened = opened.inspect_err(|error| tracing::warn!(error, "memory and utilisation of the devices are not known"));
    opened.unwrap_or_default()
}

/// What is wrong with so many devices on so many processors, if anything: a device of the processor is a thread that runs batches.
fn crowded(devices: u32, threads: usize, processors: usize) -> Option<String> {
    let each = if threads == 0 { processors } else { threads };
    let wanted = (devices as usize).saturating_mul(each);
    (wanted > processors).then(|| {
        format!(
            "{devices} devices with {each} threads each want {wanted} processors and there are {processors}: batches take longer than \
             profiled when all are busy; expected --devices {} at most",
            (processors / each).max(1)
        )
    })
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let measures = arguments.nth(1).is_some_and(|first| first == BENCH);
    let usual = if measures { "warn" } else { "info,ort=warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| usual.into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if measures {
        log.init();
        let name = "apportion-agent bench".into();
        return measure(&BenchFlags::parse_from(std::iter::once(name).chain(arguments)));
    }
    let flags = Flags::parse();
    if flags.log_format == "json" {
        log.json().init()
    } else {
        log.init()
    }
    match actix_web::rt::System::new().block_on(run(flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(if error.is::<ControlError>() { REFUSED } else { 1 })
        }
    }
}

fn measure(flags: &BenchFlags) -> ExitCode {
    let each = Duration::from_secs_f64(flags.seconds);
    let options = bench::Options { each, may_sleep: flags.save_power, digits: flags.digits.clone() };
    match bench::run(&options, |part| eprintln!("{part}")).and_then(|figures| print(&figures)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a table, ready for docs/benchmarks.md.
fn print(figures: &[Figure]) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "| what | agents | plain | agents / plain | aim |\n|---|---|---|---|---|")?;
    for f in figures {
        let plain = f.plain.map_or_else(|| "-".into(), |p| format!("{p:.0} {}", f.unit));
        let ratio = f.plain.map_or_else(|| "-".into(), |p| format!("{:.2}", f.agents / p));
        writeln!(out, "| {} | {:.0} {} | {plain} | {ratio} | {} |", f.what, f.agents, f.unit, f.aim)?;
    }
    Ok(())
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error>> {
    let name = flags.name.unwrap_or_else(default_name);
    let loader = loader(flags.backend, flags.provider, flags.onnxruntime.as_deref(), flags.threads)?;
    let devices = devices(flags.provider, flags.devices);
    let directory = flags.state_dir.unwrap_or_else(|| std::env::temp_dir().join(format!("apportion-{name}")));
    let http = TcpListener::bind(&flags.http).map_err(|e| format!("--http {}: {e}", flags.http))?;
    let asked = &flags.ingress_grpc;
    let grpc = tokio::net::TcpListener::bind(asked).await.map_err(|e| format!("--ingress-grpc {asked}: {e}"))?;
    let data = tokio::net::TcpListener::bind(&flags.data).await.map_err(|e| format!("--data {}: {e}", flags.data))?;
    let identity = Identity {
        join: flags.join,
        token: flags.token,
        name: name.clone(),
        hardware: flags.hardware,
        devices: flags.devices,
        ingress_http: http.local_addr()?.to_string(),
        ingress_grpc: grpc.local_addr()?.to_string(),
        data_address: data.local_addr()?.to_string(),
        process_id: uuid::Uuid::now_v7().to_string(),
    };
    tracing::info!(
        identity.name,
        http = identity.ingress_http,
        grpc = identity.ingress_grpc,
        data = identity.data_address,
        "agent starts"
    );
    match loader.kind() {
        Kind::Emulated => tracing::warn!("backend emulated: profiles are played back, and all answers are zeros"),
        kind => tracing::info!(backend = kind.name(), provider = flags.provider.name(), "batches are run"),
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runs_here = loader.kind() == Kind::Local && flags.provider == Provider::Cpu && !flags.pace;
    if let Some(warning) = crowded(flags.devices, flags.threads, processors).filter(|_| runs_here) {
        tracing::warn!("{warning}");
    }
    if flags.pace {
        tracing::info!("devices are emulated: each batch takes at least as long as its profile says");
    }
    let files = Files::open(&directory)?;
    // An empty variable of the environment is as good as none.
    let endpoint = flags.otlp_endpoint.filter(|endpoint| !endpoint.is_empty());
    let tracer = endpoint.map(|at| Tracer::new(&at, flags.trace_ratio, &name)).transpose()?;
    let (pace, record, may_sleep) = (flags.pace, flags.record, flags.save_power);
    let options = Options { loader, pace, files, record, tracer: tracer.clone(), may_sleep };
    let handle = agent::Handle { devices, ..agent::start(options) };
    let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
    tokio::spawn(peers::listen(data, handle.events.clone(), drained.clone()));
    let limits = Limits { requests_max: flags.requests_max, bytes_max: flags.inputs_mib_max << 20 };
    let gateway = Gateway::with_limits(handle.clone(), limits);
    let mut grpc = tokio::spawn(gateway::grpc::serve(grpc, gateway.clone(), drained.clone()));
    let server = gateway::http::serve(http, gateway)?;
    let stopping = server.handle();
    tokio::spawn(server);
    let attending = tokio::spawn(attend(identity, handle.clone(), stop.clone()));
    let mut attending = std::pin::pin!(attending);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = &mut attending => return Ok(ended??),
        ended = &mut grpc => return Err(format!("--ingress-grpc: {:?}", ended?).into()),
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("stopping: what has begun is finished");
    // A loop that has ended has nothing left to finish.
    let _ended = handle.commands.send(Command::Leave).await;
    stop.cancel();
    attending.await??;
    drain(&handle).await;
    drained.cancel();
    stopping.stop(true).await;
    // Idle connections would hold it for ever; what was asked before is answered by now.
    let _hurried = tokio::time::timeout(CLOSE_MAX, grpc).await;
    if let Some(tracer) = tracer {
        tokio::task::spawn_blocking(move || tracer.close()).await?;
    }
    Ok(())
}

async fn drain(handle: &agent::Handle) {
    let begun = Instant::now();
    // Others need a moment to learn that this agent is leaving, and answers to reach their clients.
    let mut quiet = 0;
    while begun.elapsed() < DRAIN_MAX && quiet < 10 {
        let (reply, unfinished) = tokio::sync::oneshot::channel();
        if handle.commands.send(Command::Unfinished(reply)).await.is_err() {
            return;
        }
        quiet = if unfinished.await == Ok(0) { quiet + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "agent".into());
    format!("{}-{}", host.trim(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_the_backend_onnxs_alone() {
        let refused = loader(Way::Emulated, Provider::Cuda, None, 1).err().expect("nothing runs there").to_string();
        assert!(refused.contains("--provider cuda") && refused.contains("--backend onnx"), "{refused}");
        let emulated = loader(Way::Emulated, Provider::Cpu, None, 1).expect("needs nothing");
        assert_eq!((emulated.kind(), emulated.provider()), (Kind::Emulated, None));
        assert!(devices(Provider::Cpu, 1).look().is_empty(), "of processors nothing is said");
    }

    #[test]
    fn more_devices_than_processors_are_warned_of() {
        assert_eq!(crowded(2, 1, 2), None);
        assert_eq!(crowded(1, 0, 8), None, "one device may take them all");
        let warning = crowded(3, 2, 4).expect("six threads on four processors");
        assert!(
            warning.contains("want 6 processors and there are 4") && warning.contains("--devices 2 at most"),
            "{warning}"
        );
        assert!(crowded(2, 0, 8).is_some() && crowded(u32::MAX, usize::MAX, 8).is_some());
    }

    #[test]
    fn backends_are_read_and_others_refused() {
        assert_eq!("onnx".parse(), Ok(Way::Onnx));
        assert_eq!("emulated".parse(), Ok(Way::Emulated));
        assert_eq!("remote=http://gpu1:8000".parse(), Ok(Way::Remote("http://gpu1:8000".into())));
        for wrong in ["", "Emulated", "remote", "remote=", "remote=gpu1:8000", "remote=https://gpu1", "emulated=1"] {
            assert!(wrong.parse::<Way>().expect_err(wrong).contains("expected"), "{wrong}");
        }
    }
}
