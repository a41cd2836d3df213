//! What the parts of one service process share.

use crate::control::heard::Heard;
use crate::control::records::Records;
use crate::parts::{Part, Parts};
use apportion_protocol::v1;
use sqlx::PgPool;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Shared by handlers, workers and the control loop.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// Fields of [`App`].
pub struct Inner {
    /// The database.
    pub pool: PgPool,
    /// Files that are not in the database: model files, the token.
    pub data_dir: PathBuf,
    /// What agents must show.
    pub token: String,
    /// Where agents fetch model files by HTTP; empty: by the call of their own port.
    pub files_url: String,
    /// Places for files that are fetched there.
    pub fetches: Arc<tokio::sync::Semaphore>,
    /// Woken when a job was enqueued here.
    pub job_enqueued: Notify,
    /// Woken when an agent came or went here.
    pub fleet_changed: Notify,
    /// Which agents were heard of here.
    pub heard: Heard,
    /// What agents said, on its way to the database.
    pub records: Records,
    /// Which parts work.
    pub parts: Parts,
    /// The target in force, as it is sent to agents; `None` before the first.
    pub target: watch::Sender<Option<Arc<v1::Target>>>,
    /// True once the service stops.
    pub stopping: watch::Sender<bool>,
}

impl App {
    /// Shares `inner`.
    #[must_use]
    pub fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Runs a part that is to work until the service stops: it is broken if it panics or ends before.
    pub fn run(&self, part: Part, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let app = self.clone();
        tokio::spawn(async move {
            if app.parts.watch(part, work).await.is_some() && !app.is_stopping() {
                app.parts.fail(part, "it ended by itself");
            }
        })
    }

    /// Runs work of a part that may end at any time, but not by a panic.
    pub fn spawn<T: Send + 'static>(
        &self,
        part: Part,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let app = self.clone();
        tokio::spawn(async move { app.parts.watch(part, work).await })
    }

    /// Waits until the service stops.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender is gone, and with it the service.
        let _gone = stopping.wait_for(|&stop| stop).await;
    }

    /// Whether the service stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Now, for rows and decisions, by the database's clock: the same for all processes of the service.
#[must_use]
pub fn now() -> crate::store::Time {
    crate::clock::now()
}
