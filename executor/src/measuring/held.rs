//! How is a device measured that holds its slot for the time of a profile?

use crate::backend::{Backend, BackendError, Signature};
use crate::slot::wait_until;
use apportion_node::layout::LayoutGroup;
use apportion_node::tensor::Tensor;
use std::time::{Duration, Instant};

/// A variant whose batches take at least a multiple of their known time, as in service on emulated devices.
pub struct HeldBackend {
    inner: Box<dyn Backend>,
    group: LayoutGroup,
    slowness: f64,
}

impl HeldBackend {
    /// Holds each batch for `slowness` times its latency in the group's profile.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, group: LayoutGroup, slowness: f64) -> Self {
        Self { inner, group, slowness }
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
        wait_until(begun + Duration::from_nanos(self.group.latency_ns(rows)).mul_f64(self.slowness));
        Ok(outputs)
    }
}
