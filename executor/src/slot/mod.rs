//! How does a loaded replica run its batches?
//!
//! A thread of its own loads the variant and runs the batches one after the other. A batch that is shorter than waking
//! this thread runs at once on the caller's thread.

use crate::backend::{Backend, BackendError, BackendKind, BackendLoader, ReplicaVariant};
use crate::causes::describe;
use crate::parts::contained;
use apportion_domain::VariantRuntime;
use apportion_node::replica_event::{BatchFault, ReplicaEvent};
use apportion_node::tensor::{Tensor, zero_row};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Longest batch, by its profile, that runs on the caller's thread. Handing it to the replica's thread and back would take
/// longer.
pub const QUICK_MAX: Duration = Duration::from_micros(20);
/// How late the system's sleep ends.
const SLEEP_LATE: Duration = Duration::from_micros(60);
/// A batch that takes this long was not quick.
const SLOW_MIN: Duration = Duration::from_millis(1);
/// After this many batches in a row that were not quick, the profile is wrong: all batches go to the replica's thread.
const SLOW_RUNS_MAX: u32 = 3;

struct Batch {
    inputs: Vec<Tensor>,
    /// When it was started. From then on the device is held for at least `hold`.
    begun: Instant,
    hold: Duration,
}

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
    /// Dropped before `batches`, so that the thread unloads the variant: unloading a large one takes long.
    loaded: Loaded,
    batches: mpsc::Sender<Batch>,
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
        let (batches, inbox) = mpsc::channel();
        let loaded = Loaded::default();
        // The answer of another server or process is never quick, whatever the profile says.
        let is_elsewhere = loader.kind() == BackendKind::Remote || wanted.group.runtime == VariantRuntime::Python;
        let slow_runs = if is_elsewhere { SLOW_RUNS_MAX } else { 0 };
        let of_thread = loaded.clone();
        std::thread::Builder::new().name(name).spawn(move || serve(&wanted, &loader, &of_thread, &inbox, &report))?;
        Ok(Slot { loaded, batches, slow_runs })
    }

    /// Runs a batch that should take `expected`; the device is held for at least `hold`. None if the thread is gone.
    pub fn run(&mut self, inputs: Vec<Tensor>, expected: Duration, hold: Duration) -> Option<BatchRun> {
        if expected <= QUICK_MAX
            && self.slow_runs < SLOW_RUNS_MAX
            && let Some(backend) = self.loaded.get()
        {
            let happened = run(backend, &Batch { inputs, begun: Instant::now(), hold });
            let was_slow = matches!(&happened, ReplicaEvent::BatchEnded(_, took) if *took >= SLOW_MIN);
            self.slow_runs = if was_slow { self.slow_runs + 1 } else { 0 };
            return Some(BatchRun::Now(happened));
        }
        self.batches.send(Batch { inputs, begun: Instant::now(), hold }).is_ok().then_some(BatchRun::Later)
    }
}

fn serve(
    wanted: &ReplicaVariant,
    loader: &BackendLoader,
    loaded: &Loaded,
    inbox: &mpsc::Receiver<Batch>,
    report: &impl Fn(ReplicaEvent),
) {
    let mut backend = match contained(|| loader.load(wanted)) {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => return report(ReplicaEvent::Failed(describe(&error))),
        Err(panic) => return report(ReplicaEvent::Failed(format!("the backend panicked while it was loaded: {panic}"))),
    };
    let zeros: Vec<Tensor> = backend.signature().inputs.iter().map(zero_row).collect();
    let warm = contained(|| backend.run(&zeros));
    if let Err(error) = warm.unwrap_or_else(|panic| Err(BackendError::Run(format!("the backend panicked: {panic}")))) {
        // Zeros need not be a valid input; a variant that cannot run at all shows it at its first batch.
        tracing::warn!(variant = wanted.group.variant, %error, "the warm-up batch failed");
    }
    let backend = loaded.get_or_init(|| Mutex::new(backend));
    report(ReplicaEvent::Ready);
    while let Ok(batch) = inbox.recv() {
        report(run(backend, &batch));
    }
}

/// Runs a batch here and now. A held device is an emulated one. It is busy from the moment at which the batch was started.
/// Counted from the moment at which this thread woke, each batch would take longer than its profile.
fn run(backend: &Mutex<Box<dyn Backend>>, batch: &Batch) -> ReplicaEvent {
    let start = if batch.hold.is_zero() { Instant::now() } else { batch.begun };
    let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
    let result = match contained(|| backend.run(&batch.inputs)) {
        Ok(result) => result.map_err(|e| BatchFault { why: e.to_string(), is_of_batch: e.is_of_batch() }),
        Err(panic) => Err(BatchFault::of_batch(format!("the backend panicked: {panic}"))),
    };
    wait_until(start + batch.hold);
    ReplicaEvent::BatchEnded(result, start.elapsed())
}

/// Waits until a moment. The system's sleep is late by about 60 us: that much of it is not slept.
pub fn wait_until(moment: Instant) {
    let left = || moment.saturating_duration_since(Instant::now());
    let slept = left().saturating_sub(SLEEP_LATE);
    if slept > QUICK_MAX {
        std::thread::sleep(slept);
    }
    while !left().is_zero() {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
