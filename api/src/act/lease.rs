//! How does a process do work that only one process may do? It holds a lease meanwhile.
//!
//! The lease is a row of the database with an epoch. The holder renews it each second; without an answer it stops by itself
//! before the lease expires ([`crate::decide::lease`]). A holder that was suspended meanwhile may not know that another one
//! leads. So each of its writes asks for the epoch in its own transaction ([`super::apply::fence`]).

use super::apply::ApplyError;
use crate::app::App;
use crate::app::parts::ServicePart;
use crate::decide::lease::{HolderStep, LEASE_TIME, LeaseClock, RenewalAnswer, TAKE_EVERY};
use crate::store::{self, leases::HeldLease};
use std::time::{Duration, Instant};

/// The lease of the process that watches fleet and load.
pub const LEADER: &str = "leader";
/// The lease of the process that advises pipelines without agents.
pub const ADVISOR: &str = "advisor";
/// Pause after work that failed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for giving a lease back. After it the lease expires by itself.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Does work whenever this process holds the lease, until the service stops. The work is dropped when the lease is lost.
pub async fn work_while_held<W>(app: &App, name: &'static str, part: ServicePart, work: impl Fn(HeldLease) -> W)
where
    W: Future<Output = Result<(), ApplyError>>,
{
    while !app.is_stopping() {
        let taken = tokio::select! {
            () = app.stopped() => return,
            taken = take(app, name, part) => taken,
        };
        let held = taken.held;
        tracing::info!(lease = name, epoch = held.epoch, "this process has the lease");
        let failed = tokio::select! {
            () = app.stopped() => false,
            () = renew_until_lost(app, taken) => {
                tracing::warn!(lease = name, epoch = held.epoch, "the lease is lost");
                false
            }
            result = work(held) => {
                if let Err(error) = result {
                    tracing::error!(error = %Chain(&error), lease = name, "the work failed; it starts again");
                }
                true
            }
        };
        let release = async { store::leases::release(&mut *app.pool.acquire().await?, held).await };
        if let Ok(Err(error)) = tokio::time::timeout(RELEASE_MAX, release).await {
            tracing::debug!(%error, lease = name, "the lease could not be given back");
        }
        if failed {
            tokio::time::sleep(FAILED_PAUSE).await;
        }
    }
}

/// A lease with the clock of its holder.
struct TakenLease {
    held: HeldLease,
    clock: LeaseClock,
}

/// Waits until the lease is free, and takes it.
async fn take(app: &App, name: &'static str, part: ServicePart) -> TakenLease {
    loop {
        let asked = Instant::now();
        let taken = async {
            let mut db = app.pool.acquire().await?;
            store::leases::take(&mut db, name, app.heartbeats.process, LEASE_TIME.as_secs_f64()).await
        };
        match tokio::time::timeout(LEASE_TIME, taken).await {
            Ok(Ok(Some(held))) => return TakenLease { held, clock: LeaseClock::taken(asked) },
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, lease = name, "the database does not say who has the lease"),
            Err(_) => tracing::debug!(lease = name, "the database does not answer"),
        }
        app.parts.note_alive(part);
        tokio::time::sleep(TAKE_EVERY).await;
    }
}

/// Renews a lease as long as this process has it.
async fn renew_until_lost(app: &App, taken: TakenLease) {
    let TakenLease { held, mut clock } = taken;
    let mut pause = Duration::ZERO;
    loop {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        let renewed = async {
            let mut db = app.pool.acquire().await?;
            store::leases::renew(&mut db, held, LEASE_TIME.as_secs_f64()).await
        };
        let answer = match tokio::time::timeout(clock.answer_within(asked), renewed).await {
            Ok(Ok(true)) => RenewalAnswer::Extended,
            Ok(Ok(false)) => RenewalAnswer::Gone,
            Ok(Err(_)) | Err(_) => RenewalAnswer::None,
        };
        match clock.answered(asked, Instant::now(), answer) {
            HolderStep::RenewAfter(next) => pause = next,
            HolderStep::Stop => return,
        }
    }
}

/// An error with its causes, on one line.
pub(super) struct Chain<'a>(pub &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
