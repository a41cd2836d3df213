//! How is a device measured that holds its slot for the time of a profile?

use crate::backend::{Backend, BackendError, Signature};
use crate::slot::{SlotTimes, wait_until};
use apportion_node::layout::LayoutGroup;
use apportion_node::node::RunSpread;
use apportion_node::tensor::Tensor;
use std::time::{Duration, Instant};

/// A variant whose batches take at least a multiple of a time drawn from their known ones, as in service on emulated
/// devices.
pub struct HeldBackend {
    inner: Box<dyn Backend>,
    group: LayoutGroup,
    slowness: f64,
    times: SlotTimes,
}

impl HeldBackend {
    /// Holds each batch for `slowness` times a latency that `times` draws by the group's profile.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, group: LayoutGroup, slowness: f64, times: SlotTimes) -> Self {
        Self { inner, group, slowness, times }
    }
}

impl Backend for HeldBackend {
    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let begun = Instant::now();
        let outputs = self.inner.run(inputs)?;
        let rows = inputs.iter().map(Tensor::rows).max().unwrap_or(0);
        let [median, p99] = [self.group.latency_ns(rows), self.group.p99_ns(rows)].map(Duration::from_nanos);
        wait_until(begun + self.times.draw(median, RunSpread::Batch(p99)).mul_f64(self.slowness));
        Ok(outputs)
    }
}
