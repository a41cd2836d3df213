//! What do the jobs of one process share?

use super::places::JobPlaces;
use crate::app::App;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A lease ends after this time without renewal: its worker is dead.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// After the database was unavailable, expired leases are left alone for this time: their workers come back, too.
const CALM: Duration = Duration::from_secs(2);

/// The state that all jobs of one process share.
pub(super) struct JobContext {
    pub(super) app: App,
    pub(super) places: JobPlaces,
    own: Mutex<BTreeSet<Uuid>>,
    outage: Mutex<Option<Instant>>,
}

/// A job that this process has, until it is dropped.
pub(super) struct OwnJob<'a> {
    context: &'a JobContext,
    id: Uuid,
}

impl Drop for OwnJob<'_> {
    fn drop(&mut self) {
        self.context.lock_own().remove(&self.id);
    }
}

impl JobContext {
    pub(super) fn new(app: App) -> Self {
        Self { app, places: JobPlaces::new(), own: Mutex::default(), outage: Mutex::default() }
    }

    fn lock_own(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plans and the analyses of the jobs that this process has.
    pub(super) fn own_jobs(&self) -> Vec<Uuid> {
        self.lock_own().iter().copied().collect()
    }

    /// Notes that this process has a job.
    pub(super) fn note_own_job(&self, id: Uuid) -> OwnJob<'_> {
        self.lock_own().insert(id);
        OwnJob { context: self, id }
    }

    /// Notes that the database was unavailable.
    pub(super) fn note_outage(&self) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the database has been available for a while.
    pub(super) fn is_calm(&self) -> bool {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|at| at.elapsed() > CALM)
    }
}
