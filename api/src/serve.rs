//! How does one service process start and stop?

use crate::act::{
    actuate, advise, agent_records, announce, connections, heartbeats, leader, machines, measuring, model_files, push,
    scalers, sessions::Sessions, webhooks,
};
use crate::app::access::{AccessConfig, AccessPolicy, TOKEN_CHARS_MIN};
use crate::app::agent_records::AgentRecords;
use crate::app::agent_security::{AgentSecurity, AgentSecurityError};
use crate::app::heartbeats::Heartbeats;
use crate::app::measurements::MeasureQueue;
use crate::app::model_files::{ModelFilePlace, ModelFiles};
use crate::app::parts::{PartFailure, Parts, ServicePart};
use crate::app::prometheus_access::{AccessError, AllowedPrometheus, PrometheusAccess};
use crate::app::retention::RetentionState;
use crate::app::spans::{ServiceSpans, TracesConfig, TracesError};
use crate::app::{App, AppState, clock};
use crate::certificates::{CertificateError, PortCertificates, follow_files, open_certificate};
use crate::database::{Database, DatabaseError};
use crate::decide::retention::RetentionPolicy;
use crate::{http, jobs, store};
use apportion_kubernetes::{KubernetesAccess, KubernetesClient, KubernetesError};
use apportion_protocol::v1::control_server::ControlServer;
use apportion_protocol::{AGENT_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX};
use apportion_substrates::{AgentAccess, RefusedSetting, SubstrateSettings, Substrates};
use apportion_tls::{ApplicationProtocol, ServerTls, TlsFiles};
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How long a part may take to end when the service stops.
const PART_END_MAX: Duration = Duration::from_secs(8);

/// The configuration of a service.
#[derive(Clone)]
pub struct ServiceConfig {
    /// PostgreSQL to use; `None`: a private one in `data_dir`.
    pub database_url: Option<String>,
    /// Model files, the token and the private database.
    pub data_dir: PathBuf,
    /// Where new model files are stored.
    pub model_files: ModelFilePlace,
    /// The address for HTTP; port 0 takes any free one.
    pub http: SocketAddr,
    /// The address where agents join; port 0 takes any free one.
    pub grpc: SocketAddr,
    /// The token that agents must send; `None`: the one in `data_dir/token`, which is made if there is none.
    pub token: Option<String>,
    /// The URL by which agents fetch model files over HTTP; `None`: they fetch them where they join.
    pub advertise_http: Option<String>,
    /// The Prometheus servers that pipelines may name.
    pub prometheus: Vec<AllowedPrometheus>,
    /// Where autoscalers ask; `None`: nowhere.
    pub scalers: Option<ScalersConfig>,
    /// The Kubernetes whose workloads it scales; `None`: it scales none.
    pub kubernetes: Option<KubernetesAccess>,
    /// The substrates that are asked for machines; `None`: none is asked.
    pub machines: Option<SubstrateSettings>,
    /// Who may use the HTTP interface.
    pub access: AccessConfig,
    /// The certificate of HTTP; `None`: it has no TLS.
    pub tls: Option<TlsFiles>,
    /// The certificate of the agents' port; `None`: it has no TLS.
    pub agents_tls: Option<TlsFiles>,
    /// For how long rows are kept.
    pub retention: RetentionPolicy,
    /// Where its spans go; `None`: it has none.
    pub traces: Option<TracesConfig>,
    /// How agents prove themselves, to the service and to each other.
    pub agent_security: AgentSecurity,
}

/// The port of the autoscalers.
#[derive(Clone, Debug)]
pub struct ScalersConfig {
    /// Its address; port 0 takes any free one.
    pub address: SocketAddr,
    /// Its files of TLS; `None`: it has no TLS.
    pub tls: Option<TlsFiles>,
}

impl ServiceConfig {
    /// The defaults: a private database, loopback, ports 7070 and 7071.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self {
            database_url: None,
            data_dir: data_dir.into(),
            model_files: ModelFilePlace::default(),
            http: loopback(7070),
            grpc: loopback(7071),
            token: None,
            advertise_http: None,
            prometheus: Vec::new(),
            scalers: None,
            kubernetes: None,
            machines: None,
            access: AccessConfig::default(),
            tls: None,
            agents_tls: None,
            retention: RetentionPolicy::default(),
            traces: None,
            agent_security: AgentSecurity::default(),
        }
    }
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The data directory cannot be used.
    #[error("the data directory {path} cannot be used")]
    DataDir {
        /// The directory, or the file in it.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A Prometheus of the list cannot be asked.
    #[error("a Prometheus of the configuration cannot be asked")]
    Prometheus(#[from] AccessError),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The access to Kubernetes cannot be used.
    #[error("Kubernetes of the configuration cannot be used")]
    Kubernetes(#[from] KubernetesError),
    /// The settings of the substrates cannot be used.
    #[error("the settings of the machines cannot be used")]
    Machines(#[from] RefusedSetting),
    /// The substrate `kubernetes` has no cluster.
    #[error("the settings of the machines have `kubernetes`: expected --kubernetes FILE (or in-cluster) beside --machines")]
    NoCluster,
    /// Spans cannot be exported.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The settings about agents contradict each other.
    #[error(transparent)]
    AgentSecurity(#[from] AgentSecurityError),
    /// A configured token is too easy to guess.
    #[error("the configured admin token has {0} characters: expected at least {TOKEN_CHARS_MIN}")]
    ShortToken(usize),
    /// Nobody could use the HTTP interface.
    #[error(
        "{0} can be reached from other machines, and there is no token that allows everything: expected \
         --admin-token-file FILE (apportion token new > FILE), or an address of loopback"
    )]
    NoToken(SocketAddr),
    /// The database did not answer a question at the start.
    #[error("the database did not say whether there is a token")]
    Store(#[from] store::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A running service. If it is dropped without [`RunningService::stop`], its parts end with the runtime.
pub struct RunningService {
    http: SocketAddr,
    grpc: SocketAddr,
    scalers: Option<SocketAddr>,
    app: App,
    database: Database,
    http_server: actix_web::dev::ServerHandle,
    parts: Vec<JoinHandle<()>>,
}

impl RunningService {
    /// The address for HTTP.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The address where agents join.
    #[must_use]
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// The address where autoscalers ask.
    #[must_use]
    pub fn scalers(&self) -> Option<SocketAddr> {
        self.scalers
    }

    /// The token that agents must send.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.app.token
    }

    /// Waits until a part of the service fails. The process should then end with an error, so that it is started again.
    pub async fn broken(&self) -> PartFailure {
        self.app.parts.broken().await
    }

    /// Stops the service: open requests are answered, agents keep their target, the private database shuts down.
    pub async fn stop(self) {
        self.app.stopping.send_replace(true);
        self.http_server.stop(true).await;
        for part in self.parts {
            if tokio::time::timeout(PART_END_MAX, part).await.is_err() {
                tracing::warn!("a part of the service did not end in time");
            }
        }
        self.app.spans.close().await;
        self.database.close().await;
        tracing::info!("stopped");
    }
}

/// Starts the service.
///
/// # Errors
/// If there is no database, or an address or the data directory cannot be used.
pub async fn serve(config: ServiceConfig) -> Result<RunningService, ServeError> {
    let data_dir = prepare_data_dir(&config.data_dir)?;
    let token = token(&config, &data_dir)?;
    check_config(&config)?;
    let prometheus = PrometheusAccess::new(config.prometheus).await?;
    let kubernetes = open_kubernetes(config.kubernetes.as_ref(), config.machines.as_ref()).await?;
    let tls = PortCertificates::open(config.tls, config.agents_tls, config.agent_security.certificates)?;
    config.agent_security.check(tls.agents_port())?;
    // Addresses come first: they fail at once, while the database takes a moment.
    let http_listener = std::net::TcpListener::bind(config.http).map_err(listen(config.http))?;
    let http = http_listener.local_addr().map_err(listen(config.http))?;
    let grpc_listener = tokio::net::TcpListener::bind(config.grpc).await.map_err(listen(config.grpc))?;
    let grpc = grpc_listener.local_addr().map_err(listen(config.grpc))?;
    let scalers = open_scalers(config.scalers).await?;
    let mut database = Database::open(config.database_url.as_deref(), &data_dir).await?;
    set_clock(&database).await;
    let access = AccessPolicy::new(&config.access, http.ip(), &token);
    if let Err(error) = check_first_token(&database, &access, http).await {
        database.close().await;
        return Err(error);
    }
    let here = AgentsAddress { scheme: tls.agents_scheme(), grpc };
    let substrates = config.machines.map(|own| open_substrates(own, &token, &here, &data_dir, kubernetes.as_ref()));
    let app = App::new(AppState {
        pool: database.pool.clone(),
        model_files: ModelFiles::open(&data_dir, config.model_files),
        token,
        access,
        agent_security: config.agent_security,
        authorities: watch::Sender::new(None),
        files_url: config.advertise_http.map_or_else(String::new, |url| format!("{}/v1/files", url.trim_end_matches('/'))),
        fetch_permits: model_files::permits(),
        job_enqueued: Notify::new(),
        fleet_changed: Notify::new(),
        heartbeats: Heartbeats::default(),
        records: AgentRecords::default(),
        measurements: MeasureQueue::default(),
        prometheus,
        kubernetes,
        substrates,
        retention: RetentionState::new(config.retention),
        spans: ServiceSpans::open(config.traces.as_ref())?,
        parts: Parts::default(),
        target: watch::Sender::new(None),
        newest_event: watch::Sender::new(0),
        newest_audit_entry: watch::Sender::new(0),
        stopping: watch::Sender::new(false),
    });
    let server = http::server(app.clone(), http_listener, tls.http.clone()).map_err(listen(http))?;
    let http_server = server.handle();
    let keeper = keep_database(app.clone(), database.died());
    let agents = serve_agents(app.clone(), grpc_listener, tls.agents.clone());
    let mut parts = start_parts(&app, server, agents, keeper);
    let scalers_address = scalers.as_ref().map(|open| open.address);
    parts.extend(scalers.into_iter().flat_map(|open| serve_scalers(&app, open)));
    announce(&app, http, grpc, &tls);
    parts.extend([tls.http, tls.agents].into_iter().flatten().map(|tls| follow_files(&app, tls)));
    Ok(RunningService { http, grpc, scalers: scalers_address, app, database, http_server, parts })
}

/// Starts the port of the autoscalers.
fn serve_scalers(app: &App, OpenScalers { listener, tls, .. }: OpenScalers) -> Vec<JoinHandle<()>> {
    let files = tls.clone().map(|tls| follow_files(app, tls));
    let port = app.run(ServicePart::Autoscalers, scalers::run(app.clone(), listener, tls));
    files.into_iter().chain([port]).collect()
}

/// Refuses settings that are wrong by themselves.
fn check_config(config: &ServiceConfig) -> Result<(), ServeError> {
    if let Some(admin) = config.access.admin_token.as_ref().filter(|text| text.len() < TOKEN_CHARS_MIN) {
        return Err(ServeError::ShortToken(admin.len()));
    }
    config.machines.as_ref().map_or(Ok(()), SubstrateSettings::check)?;
    Ok(())
}

/// Fails the service if its private database ends by itself.
async fn keep_database(app: App, died: impl Future<Output = String>) {
    tokio::select! {
        () = app.stopped() => {}
        why = died => app.parts.fail(ServicePart::Database, why),
    }
}

/// Starts the parts that need no port of their own.
fn start_parts(
    app: &App,
    server: actix_web::dev::Server,
    agents: impl Future<Output = ()> + Send + 'static,
    keeper: impl Future<Output = ()> + Send + 'static,
) -> Vec<JoinHandle<()>> {
    let mut parts = vec![
        app.run(ServicePart::Http, serve_http(app.clone(), server)),
        app.run(ServicePart::AgentsServer, agents),
        app.run(ServicePart::Push, push::run(app.clone())),
        app.run(ServicePart::Events, announce::run(app.clone())),
        app.run(ServicePart::Heartbeats, heartbeats::run(app.clone())),
        app.run(ServicePart::Records, agent_records::run(app.clone())),
        app.run(ServicePart::Jobs, jobs::run(app.clone())),
        app.run(ServicePart::Measuring, measuring::run(app.clone())),
        app.run(ServicePart::Leader, leader::run(app.clone())),
        app.run(ServicePart::Advisor, advise::run(app.clone())),
        app.run(ServicePart::Webhooks, webhooks::run(app.clone())),
        app.run(ServicePart::Database, keeper),
    ];
    if let Some(cluster) = app.kubernetes.clone() {
        parts.push(app.run(ServicePart::Actuator, actuate::run(app.clone(), cluster)));
    }
    if app.substrates.is_some() {
        parts.push(app.run(ServicePart::Machines, machines::run(app.clone())));
    }
    parts
}

/// A client of the cluster that the configuration names. The substrate `kubernetes` cannot do without one.
async fn open_kubernetes(
    access: Option<&KubernetesAccess>,
    machines: Option<&SubstrateSettings>,
) -> Result<Option<KubernetesClient>, ServeError> {
    match access {
        Some(access) => Ok(Some(KubernetesClient::new(access).await?)),
        None if machines.is_some_and(|settings| settings.kubernetes.is_some()) => Err(ServeError::NoCluster),
        None => Ok(None),
    }
}

/// The substrates. Agents join where this service listens for them, unless the settings say another address.
fn open_substrates(
    settings: SubstrateSettings,
    token: &str,
    here: &AgentsAddress,
    data_dir: &Path,
    cluster: Option<&KubernetesClient>,
) -> Substrates {
    let access = AgentAccess { join: settings.join.clone().unwrap_or_else(|| here.url()), token: token.to_owned() };
    Substrates::new(settings, &access, data_dir, cluster.cloned())
}

/// Where agents of this machine join.
struct AgentsAddress {
    scheme: &'static str,
    grpc: SocketAddr,
}

impl AgentsAddress {
    fn url(&self) -> String {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let host = if self.grpc.ip().is_unspecified() { loopback } else { self.grpc.ip() };
        format!("{}://{}", self.scheme, SocketAddr::new(host, self.grpc.port()))
    }
}

/// The bound port of the autoscalers.
struct OpenScalers {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
}

async fn open_scalers(config: Option<ScalersConfig>) -> Result<Option<OpenScalers>, ServeError> {
    let Some(ScalersConfig { address, tls }) = config else { return Ok(None) };
    let tls = open_certificate("the autoscalers' port", tls, &[ApplicationProtocol::Http2, ApplicationProtocol::Http1])?;
    let listener = tokio::net::TcpListener::bind(address).await.map_err(listen(address))?;
    let address = listener.local_addr().map_err(listen(address))?;
    tracing::info!("autoscalers ask at {address}{}", if tls.is_some() { " (TLS)" } else { "" });
    Ok(Some(OpenScalers { listener, address, tls }))
}

/// Sets the clock before the first row. Without an answer, the part that writes heartbeats sets it.
async fn set_clock(database: &Database) {
    let asked = Instant::now();
    let time = async { store::target::clock(&mut *database.pool.acquire().await?).await };
    match time.await {
        Ok(time) => clock::correct(asked, Instant::now(), time),
        Err(error) => tracing::warn!(%error, "the database does not say what time it is"),
    }
}

/// Refuses to listen beyond loopback before there is a token for anybody.
async fn check_first_token(database: &Database, access: &AccessPolicy, http: SocketAddr) -> Result<(), ServeError> {
    if http.ip().is_loopback() || access.admin.is_some() {
        return Ok(());
    }
    match store::tokens::has_admin(&mut *database.pool.acquire().await?, clock::now()).await? {
        true => Ok(()),
        false => Err(ServeError::NoToken(http)),
    }
}

fn announce(app: &App, http: SocketAddr, grpc: SocketAddr, tls: &PortCertificates) {
    let (scheme, agents) = (tls.http_scheme(), tls.agents_scheme());
    tracing::info!("HTTP on {scheme}://{http}, the page at /, description at /docs; agents join at {agents}://{grpc}");
    match app.access.is_token_required {
        true => tracing::info!("HTTP asks each client for a token"),
        false => tracing::info!("HTTP on loopback: every user of this machine may use it without a token"),
    }
    if !http.ip().is_loopback() && tls.http.is_none() {
        tracing::warn!(
            "HTTP beyond loopback has no TLS: give it a certificate (--tls-cert), or put it behind a proxy that has"
        );
    }
}

async fn serve_http(app: App, server: actix_web::dev::Server) {
    if let Err(error) = server.await {
        app.parts.fail(ServicePart::Http, error.to_string());
    }
}

async fn serve_agents(app: App, listener: tokio::net::TcpListener, tls: Option<ServerTls>) {
    let service = ControlServer::new(Sessions(app.clone()))
        .max_decoding_message_size(AGENT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let parts = app.clone();
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(connections::STREAMS_MAX)
        .http2_max_header_list_size(connections::HEADER_BYTES_MAX)
        .add_service(service)
        .serve_with_incoming_shutdown(connections::accept(listener, tls), async move { app.stopped().await });
    if let Err(error) = server.await {
        parts.parts.fail(ServicePart::AgentsServer, error.to_string());
    }
}

fn listen(address: SocketAddr) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::Listen { address, source }
}

fn data_dir_error(path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    let path = path.to_path_buf();
    move |source| ServeError::DataDir { path, source }
}

/// Makes the data directory. Other users may enter it, because the private database may run as another user. Secret files
/// in it are closed one by one.
fn prepare_data_dir(dir: &Path) -> Result<PathBuf, ServeError> {
    fs::create_dir_all(dir).map_err(data_dir_error(dir))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).map_err(data_dir_error(dir))?;
    dir.canonicalize().map_err(data_dir_error(dir))
}

/// The token of the configuration, or the one on disk, or a new one.
fn token(config: &ServiceConfig, data_dir: &Path) -> Result<String, ServeError> {
    if let Some(token) = &config.token {
        return Ok(token.clone());
    }
    let path = data_dir.join("token");
    match fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => return Ok(token.trim().to_string()),
        Ok(_) => fs::remove_file(&path).map_err(data_dir_error(&path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(data_dir_error(&path)(error)),
    }
    let token = uuid::Uuid::new_v4().simple().to_string();
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(data_dir_error(&path))?;
    file.write_all(token.as_bytes()).map_err(data_dir_error(&path))?;
    Ok(token)
}
