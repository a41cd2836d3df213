//! What is a batch that a slot was given, and how does it run?

use crate::backend::Backend;
use crate::parts::contained;
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

/// The outputs of the variant for these inputs.
pub(super) fn run_backend(backend: &Mutex<Box<dyn Backend>>, inputs: &[Tensor]) -> Result<Vec<Tensor>, BatchFault> {
    let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
    match contained(|| backend.run(inputs)) {
        Ok(result) => result.map_err(|e| BatchFault { why: e.to_string(), is_of_batch: e.is_of_batch() }),
        Err(panic) => Err(BatchFault::of_batch(format!("the backend panicked: {panic}"))),
    }
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
