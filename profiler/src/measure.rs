//! How is a variant timed over its batch sizes?
//!
//! Each batch size is measured by the executor's [`time_point`], as an agent measures it for a profile job.

use crate::shapes::GivenShape;
use apportion_domain::Share;
use apportion_executor::backend::{Backend, BackendError};
use apportion_executor::measuring::point::{PointRule, time_point};
use apportion_executor::measuring::rows::windows;
use apportion_executor::measuring::stats::{ProfilePoint, fit_profile};
use apportion_executor::tensor::Tensor;

/// The extent of the measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureOptions {
    /// Batch sizes, increasing.
    pub batches: Vec<u32>,
    /// When the measurement of one batch size ends.
    pub point: PointRule,
    /// Factor on the latencies, for a device that holds its slot for a multiple of the measured time, as in the demo. Load
    /// times stay those of this machine.
    pub multiple: f64,
    /// Most examples of the validation set that are run.
    pub examples_max: usize,
    /// The shapes of the queries, of all tasks. They count where inputs are drawn from shapes that leave an inner size
    /// open.
    pub shapes: Vec<GivenShape>,
    /// Shares of a device that are measured beside neighbours ([`crate::beside`]). Whole devices are always measured.
    pub shares: Vec<Share>,
    /// Processors of a device: the copies of a variant on a share stay on so many. `None` if the device is another one, or
    /// has all processors.
    pub processors: Option<usize>,
}

impl Default for MeasureOptions {
    /// Batches 1 to 32 in powers of two (INFaaS goes on to 64, section 7).
    fn default() -> Self {
        let batches = vec![1, 2, 4, 8, 16, 32];
        Self {
            batches,
            point: PointRule::default(),
            multiple: 1.0,
            examples_max: 1_000,
            shapes: Vec::new(),
            shares: Vec::new(),
            processors: None,
        }
    }
}

/// Times a variant on rows of `samples`: all its inputs, with equally many rows, at least one. Rows repeat if a batch needs
/// more. The latencies never fall with the batch size ([`fit_profile`]).
///
/// # Errors
/// As the backend's.
pub fn profile_variant(
    backend: &mut dyn Backend,
    samples: &[Tensor],
    options: &MeasureOptions,
) -> Result<Vec<ProfilePoint>, BackendError> {
    assert!(options.batches.is_sorted_by(|a, b| a < b), "increasing batch sizes");
    let mut times = Vec::with_capacity(options.batches.len());
    for &batch in &options.batches {
        let timed = time_point(backend, &windows(samples, batch), batch, &options.point, &|| false)?;
        times.push(timed.expect("nobody stops it"));
    }
    Ok(fit_profile(&times, options.multiple))
}
