//! How does `apportion serve` run the service until a signal stops it?

use crate::access_args::AccessArgs;
use crate::agent_security_args::AgentSecurityArgs;
use crate::args;
use crate::certificate_args::CertificateArgs;
use crate::machines::MachinesArgs;
use crate::prometheus_list::PrometheusListArgs;
use crate::retention_args::RetentionArgs;
use crate::scalers::ScalersArgs;
use crate::settings_file::settle;
use crate::traces_args::TracesArgs;
use anyhow::Context;
use apportion_api::{KubernetesAccess, ModelFilePlace, ServiceConfig};
use apportion_process::start_log;
use apportion_support::exit::{CommandResult, Exit, Failure};
use clap::Args;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The longest time to stop the rest of a broken service.
const STOP_BROKEN_MAX: Duration = Duration::from_secs(8);
/// The longest time to end blocked threads after the service has stopped.
const END_MAX: Duration = Duration::from_secs(1);

/// Words of the command line before the arguments of `apportion serve`.
const WORDS: usize = 2;

/// Arguments of `apportion serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// File with settings, YAML or JSON: the flags by name, with `_` for `-` (`data_dir: /var/lib/apportion`). Flags and
    /// variables win over it. An unknown key is refused.
    #[arg(long, value_name = "FILE", env = "APPORTION_CONFIG")]
    config: Option<String>,
    /// PostgreSQL to use; without it, a private one is run in the data directory.
    #[arg(long, env = "APPORTION_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Model files, the agents' token and the private database.
    #[arg(long, default_value = ".data")]
    data_dir: PathBuf,
    /// Where new model files are stored: `folder`, in the data directory; or `database`, there and in the database, for all
    /// service processes on it.
    #[arg(long, env = "APPORTION_MODEL_FILES", default_value = "folder", value_name = "PLACE",
        value_parser = ModelFilePlace::NAMES)]
    model_files: String,
    /// Address of HTTP; loopback by default.
    #[arg(long, default_value = "127.0.0.1:7070")]
    http: SocketAddr,
    /// Where agents join.
    #[arg(long, default_value = "127.0.0.1:7071")]
    grpc: SocketAddr,
    /// Token that agents must show; without it, the one in DATA_DIR/token, which is made if it is missing. Other users of
    /// this machine see the flags of a process: give it by the variable.
    #[arg(long, env = "APPORTION_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The URL by which agents reach HTTP, for example that of a proxy or a cache. They fetch model files there, with the
    /// token as bearer [default: the address by which they join].
    #[arg(long, env = "APPORTION_ADVERTISE_HTTP", value_parser = args::http_url)]
    advertise_http: Option<String>,
    #[command(flatten)]
    prometheus: PrometheusListArgs,
    #[command(flatten)]
    scalers: ScalersArgs,
    /// The Kubernetes whose workloads follow the plans of pipelines with `replan.kubernetes`, and which runs the Pods of
    /// `--machines`: a kubeconfig, or `in-cluster` for the service account of the service's own Pod [default: none].
    #[arg(long, env = "APPORTION_KUBERNETES_CONFIG", value_name = "FILE")]
    kubernetes: Option<String>,
    #[command(flatten)]
    machines: MachinesArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    certificate: CertificateArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    #[command(flatten)]
    traces: TracesArgs,
    #[command(flatten)]
    agent_security: AgentSecurityArgs,
    /// Logs on stderr: `text`, or `json` with an object on each line.
    #[arg(long, env = "APPORTION_LOG_FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
}

impl ServeArgs {
    /// The file with settings, if there is one.
    pub fn config_file(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// The configuration of the service. The files that it names are read.
    ///
    /// # Errors
    /// If a setting is refused, or if such a file cannot be read.
    pub fn service_config(self) -> Result<ServiceConfig, Failure> {
        let kubernetes = self.kubernetes.map(|text| match text.as_str() {
            "in-cluster" => KubernetesAccess::InCluster,
            file => KubernetesAccess::Kubeconfig(file.into()),
        });
        let certificates = self.certificate.read()?;
        Ok(ServiceConfig {
            database_url: self.database_url,
            data_dir: self.data_dir,
            model_files: ModelFilePlace::from_name(&self.model_files).unwrap_or_default(),
            http: self.http,
            grpc: self.grpc,
            token: self.token,
            advertise_http: self.advertise_http,
            prometheus: self.prometheus.read()?,
            scalers: self.scalers.read()?,
            kubernetes,
            machines: self.machines.read()?,
            access: self.access.read()?,
            tls: certificates.http,
            agents_tls: certificates.agents,
            retention: self.retention.read()?,
            traces: self.traces.read(),
            agent_security: self.agent_security.read(),
        })
    }
}

/// Runs the service.
pub fn run(given: ServeArgs) -> CommandResult {
    let args = match given.config.clone() {
        None => given,
        Some(file) => {
            let words: Vec<OsString> = std::env::args_os().skip(WORDS).collect();
            settle::<ServeArgs>(&words, Some(&file))?.args
        }
    };
    // `RUST_LOG` overrides the level.
    start_log("info", &args.log_format);
    let config = args.service_config()?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let ended = runtime.block_on(async {
        // From here on a signal waits until the service is up: a started private database must be stopped.
        let mut terminate = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("waiting for SIGINT")?;
        let running = apportion_api::serve(config).await.context("the service did not start")?;
        let broken = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            broken = running.broken() => Some(broken),
        };
        let Some(broken) = broken else {
            running.stop().await;
            return Ok(Exit::Done);
        };
        // The parts that still work are stopped in order, within a short time.
        let _late = tokio::time::timeout(STOP_BROKEN_MAX, running.stop()).await;
        Err(anyhow::anyhow!("the service ends: {broken}").into())
    });
    // A blocked thread does not keep the process alive.
    runtime.shutdown_timeout(END_MAX);
    ended
}
