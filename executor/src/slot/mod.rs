//! How does a loaded replica run its batches?
//!
//! A thread of its own loads the variant and runs the batches one after the other. A batch that is shorter than waking
//! this thread runs at once on the caller's thread.
//!
//! The slots of a continuous task run side by side: each emulated query for its own time, and the queries of a model with
//! state step by step.

mod given;
mod side_by_side;
mod steps;
mod times;

pub use given::{GivenBatch, QUICK_MAX, wait_until};
pub use times::SlotTimes;

use crate::backend::{Backend, BackendError, BackendKind, BackendLoader, ReplicaVariant};
use crate::causes::describe;
use crate::parts::contained;
use apportion_domain::VariantRuntime;
use apportion_node::replica_event::ReplicaEvent;
use apportion_node::tensor::{Tensor, zero_row};
use given::{SlotBatch, SlotOrder, guarded, run_backend};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A batch that takes this long was not quick.
const SLOW_MIN: Duration = Duration::from_millis(1);
/// After this many batches in a row that were not quick, the profile is wrong: all batches go to the replica's thread.
const SLOW_RUNS_MAX: u32 = 3;

/// Where a batch runs.
#[derive(Debug)]
pub enum BatchRun {
    /// On the caller's thread: it has ended.
    Now(ReplicaEvent),
    /// On the replica's thread: its report follows.
    Later,
}

/// The loaded variant. One batch runs at a time, so nobody waits for the lock.
type Loaded = Arc<OnceLock<Mutex<Box<dyn Backend>>>>;

/// A replica's thread and its variant. Dropping the slot unloads the variant after the current batch.
pub struct Slot {
    /// Dropped before `orders`, so that the thread unloads the variant: unloading a large one takes long.
    loaded: Loaded,
    orders: mpsc::Sender<SlotOrder>,
    /// Batches in a row that were not as quick as their profile. At [`SLOW_RUNS_MAX`] no batch counts as quick.
    slow_runs: u32,
}

impl Slot {
    /// Starts the thread; `report` is called from it.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(
        name: String,
        wanted: ReplicaVariant,
        loader: BackendLoader,
        report: impl Fn(ReplicaEvent) + Send + 'static,
    ) -> std::io::Result<Slot> {
        let (orders, inbox) = mpsc::channel();
        let loaded = Loaded::default();
        // The answer of another server or process is never quick, whatever the profile says.
        let is_elsewhere = loader.kind() == BackendKind::Remote || wanted.group.runtime == VariantRuntime::Python;
        // The caller's thread cannot run several slots.
        let slow_runs = if is_elsewhere || wanted.task.is_continuous { SLOW_RUNS_MAX } else { 0 };
        let of_thread = loaded.clone();
        std::thread::Builder::new().name(name).spawn(move || serve(&wanted, &loader, &of_thread, &inbox, &report))?;
        Ok(Slot { loaded, orders, slow_runs })
    }

    /// Runs a batch. None if the thread is gone.
    pub fn run(&mut self, given: GivenBatch) -> Option<BatchRun> {
        let batch = SlotBatch { begun: Instant::now(), given };
        if batch.given.expected <= QUICK_MAX
            && self.slow_runs < SLOW_RUNS_MAX
            && let Some(backend) = self.loaded.get()
        {
            let happened = run(backend, &batch);
            let was_slow = matches!(&happened, ReplicaEvent::BatchEnded { took, .. } if *took >= SLOW_MIN);
            self.slow_runs = if was_slow { self.slow_runs + 1 } else { 0 };
            return Some(BatchRun::Now(happened));
        }
        self.orders.send(SlotOrder::Run(batch)).is_ok().then_some(BatchRun::Later)
    }

    /// Has the query of a slot of a continuous task leave between two steps. The thread reports exactly one end of it:
    /// [`ReplicaEvent::Left`], or [`ReplicaEvent::BatchEnded`] if it had ended before.
    pub fn leave(&self, server: u32) {
        // Without the thread nothing runs.
        let _gone = self.orders.send(SlotOrder::Leave(server));
    }
}

fn serve(
    wanted: &ReplicaVariant,
    loader: &BackendLoader,
    loaded: &Loaded,
    inbox: &mpsc::Receiver<SlotOrder>,
    report: &impl Fn(ReplicaEvent),
) {
    let mut backend = match contained(|| loader.load(wanted)) {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => return report(ReplicaEvent::Failed(describe(&error))),
        Err(panic) => return report(ReplicaEvent::Failed(format!("the backend panicked while it was loaded: {panic}"))),
    };
    let zeros: Vec<Tensor> = backend.signature().inputs.iter().map(zero_row).collect();
    if let Err(error) = guarded(|| warm_up(&mut *backend, &zeros)) {
        // Zeros need not be a valid input; a variant that cannot run at all shows it at its first batch.
        tracing::warn!(variant = wanted.group.variant, %error, "the warm-up batch failed");
    }
    let backend = loaded.get_or_init(|| Mutex::new(backend));
    report(ReplicaEvent::Ready);
    if wanted.task.is_continuous {
        let is_stepped = backend.lock().unwrap_or_else(PoisonError::into_inner).stepping().is_some();
        return if is_stepped { steps::serve(backend, inbox, report) } else { side_by_side::serve(backend, inbox, report) };
    }
    while let Ok(order) = inbox.recv() {
        // Members of a batch end together: none leaves before.
        if let SlotOrder::Run(batch) = order {
            report(run(backend, &batch));
        }
    }
}

/// Runs a row of zeros; of a model with state one step, because zeros need not have an end.
fn warm_up(backend: &mut dyn Backend, zeros: &[Tensor]) -> Result<(), BackendError> {
    let Some(steps) = backend.stepping() else { return backend.run(zeros).map(drop) };
    let mut running = vec![steps.begin(0, zeros)?];
    steps.step(&mut running).into_iter().try_for_each(|end| end.result.map(drop))
}

/// Runs a batch here and now. A held device is an emulated one. It is busy from the moment at which the batch was started.
/// Counted from the moment at which this thread woke, each batch would take longer than its profile.
fn run(backend: &Mutex<Box<dyn Backend>>, batch: &SlotBatch) -> ReplicaEvent {
    let start = if batch.given.hold.is_zero() { Instant::now() } else { batch.begun };
    let result = run_backend(backend, &batch.given.inputs);
    wait_until(start + batch.given.hold);
    ReplicaEvent::BatchEnded { server: batch.given.server, result, took: start.elapsed() }
}

#[cfg(test)]
mod tests;
