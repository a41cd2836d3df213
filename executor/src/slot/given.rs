//! What is a batch that a slot was given, and how does it run?

use crate::backend::{Backend, BackendError};
use crate::parts::{CallPanic, contained};
use apportion_node::replica_event::BatchFault;
use apportion_node::tensor::Tensor;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest batch, by its profile, that runs on the caller's thread. Handing it to the replica's thread and back would take
/// longer.
pub const QUICK_MAX: Duration = Duration::from_micros(20);
/// How late the system's sleep ends.
pub(super) const SLEEP_LATE: Duration = Duration::from_micros(60);

/// A batch that a replica is to run.
#[derive(Debug)]
pub struct GivenBatch {
    /// The server of the replica's station: 0, or a slot of a continuous task.
    pub server: u32,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
    /// How long it should take.
    pub expected: Duration,
    /// The device is held for at least so long.
    pub hold: Duration,
}

/// A batch that has been started.
pub(super) struct SlotBatch {
    pub(super) given: GivenBatch,
    /// When it was started.
    pub(super) begun: Instant,
}

impl SlotBatch {
    /// When the device is free again at the earliest.
    pub(super) fn due(&self) -> Instant {
        self.begun + self.given.hold
    }
}

/// What the thread of a replica is told.
pub(super) enum SlotOrder {
    /// Run this batch.
    Run(SlotBatch),
    /// The query in this slot is to leave. It may have ended meanwhile.
    Leave(u32),
}

/// The outputs of the variant for these inputs.
pub(super) fn run_backend(backend: &Mutex<Box<dyn Backend>>, inputs: &[Tensor]) -> Result<Vec<Tensor>, BatchFault> {
    let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
    guarded(|| backend.run(inputs)).map_err(|error| fault_of(&error))
}

/// The result of a call of the backend. If it panics, the call has failed.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    contained(call).unwrap_or_else(|panic| Err(panicked(&panic)))
}

/// A panic of the backend as its error.
pub(super) fn panicked(panic: &CallPanic) -> BackendError {
    BackendError::Run(format!("the backend panicked: {panic}"))
}

/// An error of the backend as the node hears of it.
pub(super) fn fault_of(error: &BackendError) -> BatchFault {
    BatchFault { why: error.to_string(), is_of_batch: error.is_of_batch() }
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
