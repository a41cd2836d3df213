//! `apportion-agent`: serves its part of the fleet's target on its devices.

mod flags;

use apportion_executor::agent::{self, AgentCommand, AgentOptions};
use apportion_executor::backend::{BackendKind, BackendLoader, Provider, PythonSettings, find_library};
use apportion_executor::bench::{self, BenchError, Figure};
use apportion_executor::certificates::AgentCertificates;
use apportion_executor::connector::ControlConnector;
use apportion_executor::control::{ControlError, Identity, attend};
use apportion_executor::devices::{Devices, VISIBLE_VARIABLE};
use apportion_executor::files::{AgentIdentity, FileError, Files};
use apportion_executor::gateway::{self, Gateway, GatewayLimits, GatewayTls};
use apportion_executor::telemetry::Tracer;
use apportion_executor::{addresses, parts, peers};
use apportion_process::start_log;
use clap::Parser;
use flags::{BackendFlag, BenchFlags, Flags};
use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// One thread allocates tensors and another frees them, many thousand times a second. The system's allocator gives large
/// ones back to the system, so each would cost fresh pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a stopping agent waits for what it has begun.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long it then waits for its clients to hang up.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Exit status of an agent with wrong flags: another start changes nothing.
const WRONG: u8 = 2;
/// Exit status of an agent that the control plane refuses while it has nothing to serve.
const REFUSED: u8 = 3;

/// The first argument that asks for figures instead of an agent.
const BENCH: &str = "bench";

fn loader(
    way: BackendFlag,
    provider: Provider,
    library: Option<&Path>,
    threads: usize,
    python: Option<PythonSettings>,
) -> Result<BackendLoader, Box<dyn Error>> {
    match way {
        BackendFlag::Onnx => Ok(BackendLoader::Onnx { library: find_library(library)?, provider, threads, python }),
        _ if provider != Provider::Cpu => {
            let name = provider.name();
            Err(format!("--provider {name}: only the backend onnx runs variants here: expected --backend onnx with it")
                .into())
        }
        BackendFlag::Emulated => Ok(BackendLoader::Emulated),
        BackendFlag::Remote(url) => Ok(BackendLoader::Remote(url)),
    }
}

/// The source of the devices' memory and utilisation. The log says once if there is none.
fn devices(provider: Provider, count: u32) -> Devices {
    if !provider.is_on_gpu() {
        return Devices::default();
    }
    let visible = std::env::var(VISIBLE_VARIABLE).ok();
    let opened = Devices::open(visible.as_deref(), count);
    opened.unwrap_or_else(|error| {
        tracing::warn!(error = error.to_string(), "memory and utilisation of the devices are not known");
        Devices::default()
    })
}

/// A warning if the devices need more processors than there are: a device of the processor is a thread that runs batches.
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

fn main() {
    let mut arguments = std::env::args_os();
    let measures = arguments.nth(1).is_some_and(|first| first == BENCH);
    let levels = if measures { "warn" } else { "info,ort=warn" };
    if measures {
        start_log(levels, "text");
        let name = "apportion-agent bench".into();
        parts::end(measure(&BenchFlags::parse_from(std::iter::once(name).chain(arguments))));
    }
    let flags = Flags::parse();
    start_log(levels, &flags.log_format);
    parts::end_on_panic();
    actix_web::rt::System::new().block_on(async {
        let status = match run(flags).await {
            Ok(()) => 0,
            Err(error) => {
                tracing::error!("{error}");
                status_of(error.as_ref())
            }
        };
        // All that still runs, for example a variant that loads, ends here.
        parts::end(status)
    })
}

fn status_of(error: &(dyn Error + 'static)) -> u8 {
    match error.downcast_ref::<ControlError>() {
        Some(ControlError::Refused(_)) => REFUSED,
        Some(ControlError::Address(..) | ControlError::Authorities(_)) => WRONG,
        None => 1,
    }
}

fn measure(flags: &BenchFlags) -> u8 {
    let each = Duration::from_secs_f64(flags.seconds);
    let (may_sleep, digits, rate, links) = (flags.save_power, flags.digits.clone(), flags.rate, flags.links);
    let options = bench::BenchOptions { each, may_sleep, digits, rate, links };
    match bench::run(&options, |part| eprintln!("{part}")).and_then(|figures| print(&figures)) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{error}");
            1
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

/// Where the agent listens.
struct Sockets {
    http: TcpListener,
    grpc: tokio::net::TcpListener,
    data: tokio::net::TcpListener,
}

impl Sockets {
    async fn bind(flags: &Flags) -> Result<Self, Box<dyn Error>> {
        let http = TcpListener::bind(&flags.http).map_err(|e| format!("--http {}: {e}", flags.http))?;
        let asked = &flags.ingress_grpc;
        let grpc = tokio::net::TcpListener::bind(asked).await.map_err(|e| format!("--ingress-grpc {asked}: {e}"))?;
        let data = tokio::net::TcpListener::bind(&flags.data).await.map_err(|e| format!("--data {}: {e}", flags.data))?;
        Ok(Self { http, grpc, data })
    }
}

/// The state directory, who the agent is, and what keeps others out of the directory.
fn open_state(flags: &Flags) -> Result<(Files, AgentIdentity, File), FileError> {
    let (directory, name) = match &flags.state_dir {
        Some(directory) => (directory.clone(), flags.name.clone()),
        None => {
            let name = flags.name.clone().unwrap_or_else(|| format!("{}-{}", host(), std::process::id()));
            (std::env::temp_dir().join(format!("apportion-{name}")), Some(name))
        }
    };
    let files = Files::open(&directory)?;
    let lock = files.lock()?;
    let known = files.identity(name.as_deref(), &host())?;
    Ok((files, known, lock))
}

/// Who the agent is, and where it is reached.
fn identify(
    flags: &Flags,
    known: AgentIdentity,
    certificates: &AgentCertificates,
    sockets: &Sockets,
) -> Result<Identity, Box<dyn Error>> {
    let connector = ControlConnector::showing(&flags.join, flags.cacert.as_deref(), certificates);
    let connector = connector.map_err(ControlError::Authorities)?;
    // Each process of the control plane is reached from the same address.
    let first = flags.join.first().map_or("", String::as_str);
    let bound = [sockets.http.local_addr()?, sockets.grpc.local_addr()?, sockets.data.local_addr()?];
    let [ingress_http, ingress_grpc, data_address] = addresses::reachable(&flags.advertised(), bound, first);
    tracing::info!(known.name, http = ingress_http, grpc = ingress_grpc, data = data_address, "agent starts");
    for told in [&ingress_http, &data_address].into_iter().filter(|told| addresses::is_out_of_reach(told, first)) {
        tracing::warn!(
            address = told,
            "other machines cannot reach this address: listen on another one (--http, --ingress-grpc, --data), or name one with --advertise"
        );
    }
    Ok(Identity {
        join: flags.join.clone(),
        connector,
        token: flags.join_token()?,
        name: known.name,
        hardware: flags.hardware.clone(),
        devices: flags.devices,
        zone: flags.zone.clone(),
        ingress_http,
        ingress_grpc,
        data_address,
        process_id: uuid::Uuid::now_v7().to_string(),
        agent_id: known.agent_id,
    })
}

/// How the agent runs its replicas.
fn options(flags: &Flags, files: Files, name: &str) -> Result<AgentOptions, Box<dyn Error>> {
    let (way, library) = (flags.backend.clone(), flags.onnxruntime.as_deref());
    let loader = loader(way, flags.provider, library, flags.threads, flags.python_settings())?;
    match loader.kind() {
        BackendKind::Emulated => tracing::warn!("backend emulated: profiles are played back, and all answers are zeros"),
        kind => tracing::info!(backend = kind.name(), provider = flags.provider.name(), "batches are run"),
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runs_here = loader.kind() == BackendKind::Local && flags.provider == Provider::Cpu && !flags.pace;
    if let Some(warning) = crowded(flags.devices, flags.threads, processors).filter(|_| runs_here) {
        tracing::warn!("{warning}");
    }
    if flags.pace {
        tracing::info!("devices are emulated: each batch takes at least as long as its profile says");
    }
    // An empty variable of the environment counts as a missing one.
    let endpoint = flags.otlp_endpoint.as_ref().filter(|endpoint| !endpoint.is_empty());
    let tracer = endpoint.map(|at| Tracer::new(at, flags.trace_ratio, name)).transpose()?;
    let Flags { pace, slowness, save_power: may_sleep, .. } = *flags;
    Ok(AgentOptions { loader, pace, slowness, files, record: flags.record.clone(), tracer, may_sleep })
}

/// Runs a part that must run as long as the agent does; the set has its name and how it ended.
fn run_part<E: std::fmt::Display>(
    running: &mut JoinSet<String>,
    handle: &agent::AgentHandle,
    name: &'static str,
    part: impl Future<Output = Result<(), E>> + Send + 'static,
) {
    let status = handle.status.clone();
    running.spawn(async move {
        match status.run(name, part).await {
            Ok(()) => format!("the part {name} has ended"),
            Err(error) => format!("the part {name} has ended: {error}"),
        }
    });
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error>> {
    let (files, known, _lock) = open_state(&flags)?;
    let (certificates, options) = (files.certificates(), options(&flags, files, &known.name)?);
    let sockets = Sockets::bind(&flags).await?;
    let tls = flags.tls().map(GatewayTls::open).transpose()?;
    let identity = identify(&flags, known, &certificates, &sockets)?;
    let tracer = options.tracer.clone();
    let handle = agent::AgentHandle { devices: devices(flags.provider, flags.devices), ..agent::start(options) };
    let (stop, drained) = (CancellationToken::new(), CancellationToken::new());
    let limits = GatewayLimits { requests_max: flags.requests_max, bytes_max: flags.inputs_mib_max << 20 };
    let gateway = Gateway::with_limits(handle.clone(), limits);
    let gateway = match &tls {
        Some(tls) => gateway.with_tls(tls.clone()),
        None => gateway,
    };
    let server = gateway::http::serve(sockets.http, gateway.clone())?;
    let stopping = server.handle();
    let mut running = JoinSet::new();
    if let Some(tls) = tls {
        let until = drained.clone();
        run_part(&mut running, &handle, "certificate", async move {
            tokio::select! {
                () = tls.follow_files() => {}
                () = until.cancelled() => {}
            }
            Ok::<_, Infallible>(())
        });
    }
    run_part(&mut running, &handle, "http", server);
    run_part(&mut running, &handle, "grpc", gateway::grpc::serve(sockets.grpc, gateway, drained.clone()));
    let (keys, events, until) = (handle.link_keys.clone(), handle.events.clone(), drained.clone());
    run_part(&mut running, &handle, "peers", async move {
        peers::listen(sockets.data, keys, events, until).await;
        Ok::<_, Infallible>(())
    });
    let (status, attended) = (handle.status.clone(), attend(identity, handle.clone(), stop.clone()));
    let mut attending = tokio::spawn(async move { status.run("control", attended).await });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = &mut attending => return Ok(ended??),
        Some(ended) = running.join_next() => return Err(ended?.into()),
        () = handle.commands.closed() => return Err("the part loop has ended".into()),
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("stopping: what has begun is finished");
    // A loop that has ended has nothing left to finish.
    let _ended = handle.commands.send(AgentCommand::Leave).await;
    stop.cancel();
    attending.await??;
    drain(&handle).await;
    drained.cancel();
    stopping.stop(true).await;
    // Idle connections would hold it for ever; what was asked before is answered by now.
    let _hurried = tokio::time::timeout(CLOSE_MAX, async { while running.join_next().await.is_some() {} }).await;
    if let Some(tracer) = tracer {
        tokio::task::spawn_blocking(move || tracer.close()).await?;
    }
    Ok(())
}

async fn drain(handle: &agent::AgentHandle) {
    let begun = Instant::now();
    // Others need a moment to learn that this agent is leaving, and answers to reach their clients.
    let mut quiet = 0;
    while begun.elapsed() < DRAIN_MAX && quiet < 10 {
        let (reply, unfinished) = tokio::sync::oneshot::channel();
        if handle.commands.send(AgentCommand::Unfinished(reply)).await.is_err() {
            return;
        }
        quiet = if unfinished.await == Ok(0) { quiet + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "agent".into());
    host.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_the_backend_onnxs_alone() {
        let refused =
            loader(BackendFlag::Emulated, Provider::Cuda, None, 1, None).err().expect("nothing runs there").to_string();
        assert!(refused.contains("--provider cuda") && refused.contains("--backend onnx"), "{refused}");
        let emulated = loader(BackendFlag::Emulated, Provider::Cpu, None, 1, None).expect("needs nothing");
        assert_eq!((emulated.kind(), emulated.provider()), (BackendKind::Emulated, None));
        assert!(devices(Provider::Cpu, 1).read_all().is_empty(), "of processors nothing is said");
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
}
