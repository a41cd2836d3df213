//! What do the parts of one service process share?

pub mod access;
pub mod agent_records;
pub mod agent_security;
pub mod clock;
pub mod counts;
pub mod fleet_authorities;
pub mod heartbeats;
pub mod measurements;
pub mod model_files;
pub mod parts;
pub mod prometheus_access;
pub mod rate_limit;
pub mod retention;
pub mod spans;

use crate::decide::link_keys::PushedTarget;
use access::AccessPolicy;
use agent_records::AgentRecords;
use agent_security::AgentSecurity;
use apportion_kubernetes::KubernetesClient;
use apportion_substrates::Substrates;
use fleet_authorities::FleetAuthorities;
use heartbeats::Heartbeats;
use measurements::MeasureQueue;
use model_files::ModelFiles;
use parts::{Parts, ServicePart};
use prometheus_access::PrometheusAccess;
use retention::RetentionState;
use spans::ServiceSpans;
use sqlx::PgPool;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Shared by handlers, workers and the control loop.
#[derive(Clone)]
pub struct App(Arc<AppState>);

/// Fields of [`App`].
pub struct AppState {
    /// The database.
    pub pool: PgPool,
    /// The model files of this process.
    pub model_files: ModelFiles,
    /// The token that agents must send.
    pub token: String,
    /// Who may use the HTTP interface.
    pub access: AccessPolicy,
    /// How agents prove themselves, to the service and to each other.
    pub agent_security: AgentSecurity,
    /// The authorities that sign certificates of agents; `None` before the first.
    pub authorities: watch::Sender<Option<Arc<FleetAuthorities>>>,
    /// The URL from which agents fetch model files by HTTP; empty: they fetch them over gRPC.
    pub files_url: String,
    /// Permits for files that agents fetch over gRPC.
    pub fetch_permits: Arc<tokio::sync::Semaphore>,
    /// Woken when this process enqueues a job.
    pub job_enqueued: Notify,
    /// Woken when an agent joins or leaves this process, and when requests want variants that are not loaded.
    pub fleet_changed: Notify,
    /// The heartbeats of the agents whose streams this process holds.
    pub heartbeats: Heartbeats,
    /// Messages of agents that wait for the database.
    pub records: AgentRecords,
    /// Orders to measure, and measurements that wait for the database.
    pub measurements: MeasureQueue,
    /// The Prometheus servers that it may ask.
    pub prometheus: PrometheusAccess,
    /// The Kubernetes whose workloads it scales; `None`: it scales none.
    pub kubernetes: Option<KubernetesClient>,
    /// The substrates that it asks for machines; `None`: it asks for none.
    pub substrates: Option<Substrates>,
    /// For how long it keeps rows, and what it has deleted.
    pub retention: RetentionState,
    /// Its spans.
    pub spans: ServiceSpans,
    /// The parts of the service and their health.
    pub parts: Parts,
    /// The target in force with the fleet's keys, of which agents receive their parts; `None` before the first.
    pub target: watch::Sender<Option<Arc<PushedTarget>>>,
    /// The number of the newest event.
    pub newest_event: watch::Sender<i64>,
    /// The number of the newest entry of the audit.
    pub newest_audit_entry: watch::Sender<i64>,
    /// True once the service stops.
    pub stopping: watch::Sender<bool>,
}

impl App {
    /// Shares `inner`.
    #[must_use]
    pub fn new(inner: AppState) -> Self {
        Self(Arc::new(inner))
    }

    /// Runs a part that works until the service stops. If it panics or ends earlier, the service fails.
    pub fn run(&self, part: ServicePart, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let app = self.clone();
        tokio::spawn(async move {
            if app.parts.watch(part, work).await.is_some() && !app.is_stopping() {
                app.parts.fail(part, "it ended by itself");
            }
        })
    }

    /// Runs work of a part that may end at any time. If it panics, the service fails.
    pub fn spawn<T: Send + 'static>(
        &self,
        part: ServicePart,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let app = self.clone();
        tokio::spawn(async move { app.parts.watch(part, work).await })
    }

    /// Waits until the service stops.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender is gone, and the service with it.
        let _gone = stopping.wait_for(|&stop| stop).await;
    }

    /// Whether the service stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

impl std::ops::Deref for App {
    type Target = AppState;
    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// Now, by the database's clock, for rows and decisions. All processes of the service have the same time.
#[must_use]
pub fn now() -> crate::store::Time {
    clock::now()
}
