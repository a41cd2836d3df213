//! How fast is a variant on a server that others run, for example Triton?
//!
//! One client sends batches of each size one after the other, as InferLine's profiler runs them on its own machine (section
//! 4.1). Where the server counts the time of requests in its queue, this time is left out of the latency, because a plan
//! makes its own queues.

use crate::measure::MeasureOptions;
use crate::mixture::{ShapePoints, of_all_shapes};
use crate::samples::ShapedInputs;
use crate::shapes::{ShapesError, task_shapes};
use apportion_executor::backend::{Backend, BackendError, RemoteBackend, RemoteStatistics, RemoteVariantError, Signature};
use apportion_executor::measuring::drawn::{DrawError, drawn_inputs};
use apportion_executor::measuring::noise::level_noise;
use apportion_executor::measuring::point::{PointRule, STEADY_WARM_UP_RUNS, TIME_MS_MIN, time_runs, warm_up};
use apportion_executor::measuring::rows::windows;
use apportion_executor::measuring::stats::{BatchTimes, ProfilePoint, TimingConditions, fit_profile};
use apportion_executor::tensor::Tensor;

/// Why a variant on a server is not measured.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// The server, or the variant on it, is not there.
    #[error("measuring a variant on a server")]
    Find(#[source] Box<RemoteVariantError>),
    /// No inputs can be made for the variant.
    #[error("variant {variant}")]
    Inputs {
        /// Its name.
        variant: String,
        /// Why not.
        #[source]
        source: DrawError,
    },
    /// The given shapes cannot be measured.
    #[error("the queries of variant {variant}")]
    Shapes {
        /// Its name.
        variant: String,
        /// Why not.
        #[source]
        source: ShapesError,
    },
    /// A batch failed.
    #[error("variant {variant} at batch {batch}: if the server takes no such batch, choose a smaller --batch-max")]
    Batch {
        /// Its name.
        variant: String,
        /// Rows of the batch.
        batch: u32,
        /// The error of the backend.
        #[source]
        source: Box<BackendError>,
    },
}

impl ServedError {
    /// Whether other arguments or another pipeline would help, and not only another server.
    #[must_use]
    pub fn is_of_input(&self) -> bool {
        match self {
            Self::Find(error) => {
                matches!(**error, RemoteVariantError::Unknown { .. } | RemoteVariantError::Signature { .. })
            }
            Self::Inputs { .. } | Self::Shapes { .. } => true,
            Self::Batch { .. } => false,
        }
    }
}

/// The measurements of a variant on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedVariant {
    /// What it takes and makes.
    pub signature: Signature,
    /// Most rows of a batch, if the server bounds them.
    pub batch_max: Option<u32>,
    /// One for each batch size, increasing. With several shapes it is that of all together.
    pub points: Vec<ServedPoint>,
    /// Latencies for each shape; empty if there is one.
    pub by_shape: Vec<ShapePoints>,
}

/// The times of one batch size on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedPoint {
    /// Latency as the client saw it, without the time in the server's queue.
    pub point: ProfilePoint,
    /// Mean time in the server's queue, if the server counts it.
    pub queue_ms: Option<f64>,
    /// Mean time of the batch itself, if the server counts it. The rest of the latency is messages.
    pub compute_ms: Option<f64>,
    /// Faults of the measurement.
    pub doubts: Doubts,
}

/// Why a measurement on a server may be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// The times still changed when the warm-up ended.
    pub is_unsteady: bool,
    /// Rows that other clients sent meanwhile.
    pub foreign_rows: u64,
    /// Requests that the server answered from its cache, without a run.
    pub cached: u64,
}

/// The runs of one batch size.
struct ServedRuns {
    times: BatchTimes,
    queue_ms: Option<f64>,
    compute_ms: Option<f64>,
    doubts: Doubts,
}

/// Times the variant `variant` on the server at `url` (`http://host:port`) with inputs by [`drawn_inputs`], for each shape
/// of the options that has an input of it. A batch size above the server's largest is replaced by the largest.
///
/// # Errors
/// As [`ServedError`] lists.
pub fn profile_served(url: &str, variant: &str, options: &MeasureOptions) -> Result<ServedVariant, ServedError> {
    let found = RemoteBackend::find(url, variant);
    let mut backend = found.map_err(|source| ServedError::Find(Box::new(source)))?;
    let (signature, batch_max) = (backend.signature().clone(), backend.batch_max());
    let batches = batches_within(&options.batches, batch_max);
    let rows = batches.last().map_or(1, |&batch| batch as usize);
    let shapes = task_shapes(&signature.inputs, &options.shapes)
        .map_err(|source| ServedError::Shapes { variant: variant.to_owned(), source })?;
    // All inputs are made before the first of them is measured.
    let mut samples = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let tensors = drawn_inputs(&signature.inputs, &shape.sizes, rows)
            .map_err(|source| ServedError::Inputs { variant: variant.to_owned(), source })?;
        samples.push(ShapedInputs { share: shape.share, tensors });
    }
    let measure = |inputs: &[Tensor]| -> Result<Vec<ServedRuns>, ServedError> {
        let mut runs = Vec::with_capacity(batches.len());
        for &batch in &batches {
            let timed = time_served(&mut backend, inputs, batch, options);
            let failed = |source| ServedError::Batch { variant: variant.to_owned(), batch, source: Box::new(source) };
            runs.push(timed.map_err(failed)?);
        }
        Ok(runs)
    };
    let (points, by_shape) = served_points(&samples, options.multiple, measure)?;
    Ok(ServedVariant { signature, batch_max, points, by_shape })
}

/// The measurements of all shapes together, and of each shape if there are several. `measure` runs every batch size on
/// given inputs. Mean times count by the shares of the shapes.
fn served_points<E>(
    samples: &[ShapedInputs],
    multiple: f64,
    mut measure: impl FnMut(&[Tensor]) -> Result<Vec<ServedRuns>, E>,
) -> Result<(Vec<ServedPoint>, Vec<ShapePoints>), E> {
    let mut by_sample: Vec<Vec<ServedRuns>> = Vec::with_capacity(samples.len());
    let (points, by_shape) = of_all_shapes::<E>(samples, |inputs| {
        let runs = measure(inputs)?;
        let times: Vec<BatchTimes> = runs.iter().map(|run| run.times.clone()).collect();
        by_sample.push(runs);
        Ok(fit_profile(&times, multiple))
    })?;
    let point = |(at, point): (usize, ProfilePoint)| {
        let runs = || samples.iter().zip(&by_sample).map(move |(inputs, runs)| (inputs.share, &runs[at]));
        let mean = |of: fn(&ServedRuns) -> Option<f64>| -> Option<f64> {
            runs().map(|(share, run)| of(run).map(|ms| share * ms)).sum()
        };
        let doubts = Doubts {
            is_unsteady: runs().any(|(_, run)| run.doubts.is_unsteady),
            foreign_rows: runs().map(|(_, run)| run.doubts.foreign_rows).sum(),
            cached: runs().map(|(_, run)| run.doubts.cached).sum(),
        };
        ServedPoint { point, queue_ms: mean(|run| run.queue_ms), compute_ms: mean(|run| run.compute_ms), doubts }
    };
    Ok((points.into_iter().enumerate().map(point).collect(), by_shape))
}

/// The batch sizes up to the server's largest. The largest itself is one of them, if it is below the last wanted one.
fn batches_within(wanted: &[u32], batch_max: Option<u32>) -> Vec<u32> {
    let Some(most) = batch_max else { return wanted.to_vec() };
    let mut batches: Vec<u32> = wanted.iter().copied().filter(|batch| *batch <= most).collect();
    if batches.len() < wanted.len() && batches.last() != Some(&most) {
        batches.push(most);
    }
    batches
}

fn time_served(
    backend: &mut RemoteBackend,
    samples: &[Tensor],
    batch: u32,
    options: &MeasureOptions,
) -> Result<ServedRuns, BackendError> {
    const NEVER: &str = "nobody stops it";
    let windows = windows(samples, batch);
    let rule = PointRule { warm_up_runs: options.point.warm_up_runs.max(STEADY_WARM_UP_RUNS), ..options.point };
    let warm = warm_up(backend, &windows, &rule, &|| false)?.expect(NEVER);
    let before = backend.statistics()?;
    let times_ms = time_runs(backend, &windows, &rule, &|| false)?.expect(NEVER);
    let seen = before.zip(backend.statistics()?).map(|(before, after)| after.since(before));
    let conditions = TimingConditions { noise: level_noise(&times_ms), ..warm };
    Ok(without_queue(BatchTimes { batch, times_ms, conditions }, seen))
}

/// The times without the mean time in the queue, which the server has counted meanwhile.
fn without_queue(seen_by_client: BatchTimes, seen_by_server: Option<RemoteStatistics>) -> ServedRuns {
    let BatchTimes { batch, times_ms, conditions } = seen_by_client;
    let counts = seen_by_server.unwrap_or_default();
    // The last request of the warm-up may be counted after its answer.
    let sent = (times_ms.len() as u64 + 1) * u64::from(batch);
    let foreign_rows = if counts.rows > sent { counts.rows - (sent - u64::from(batch)) } else { 0 };
    let (queue_ms, compute_ms) = (counts.queue_ms(), counts.compute_ms());
    let waited_ms = queue_ms.unwrap_or(0.0);
    let times_ms = times_ms.into_iter().map(|ms| (ms - waited_ms).max(TIME_MS_MIN)).collect();
    let doubts = Doubts { is_unsteady: !conditions.is_steady, foreign_rows, cached: counts.cached };
    ServedRuns { times: BatchTimes { batch, times_ms, conditions }, queue_ms, compute_ms, doubts }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two batches of four rows after a steady warm-up.
    fn two_runs() -> BatchTimes {
        let conditions = TimingConditions { warm_up_runs: 10, is_steady: true, noise: 0.0 };
        BatchTimes { batch: 4, times_ms: vec![30.0, 31.0], conditions }
    }

    #[test]
    fn batches_end_at_the_largest_of_the_server() {
        let wanted = [1, 2, 4, 8];
        assert_eq!(batches_within(&wanted, None), wanted);
        assert_eq!(batches_within(&wanted, Some(64)), wanted);
        assert_eq!(batches_within(&wanted, Some(8)), wanted);
        assert_eq!(batches_within(&wanted, Some(6)), [1, 2, 4, 6]);
        assert_eq!(batches_within(&wanted, Some(1)), [1]);
    }

    #[test]
    fn time_in_the_queue_is_not_latency() {
        let times = two_runs();
        let seen = RemoteStatistics {
            requests: 2,
            rows: 8,
            batches: 2,
            queue_ns: 20_000_000,
            compute_ns: 38_000_000,
            ..RemoteStatistics::default()
        };
        let runs = without_queue(times.clone(), Some(seen));
        assert_eq!(runs.times.times_ms, [20.0, 21.0]);
        assert_eq!((runs.queue_ms, runs.compute_ms, runs.doubts), (Some(10.0), Some(19.0), Doubts::default()));
        let unknown = without_queue(times, None);
        assert_eq!(unknown.times.times_ms, [30.0, 31.0]);
        assert_eq!((unknown.queue_ms, unknown.compute_ms), (None, None));
    }

    #[test]
    fn shapes_of_a_server_are_one_row_together() {
        let shape = |share: f64, ms: f64, queue_ms: Option<f64>, foreign_rows: u64| {
            let doubts = Doubts { foreign_rows, ..Doubts::default() };
            let times = BatchTimes { times_ms: vec![ms; 3], ..two_runs() };
            let runs = vec![ServedRuns { times, queue_ms, compute_ms: None, doubts }];
            (ShapedInputs { share, tensors: Vec::new() }, runs)
        };
        let measured = |shapes: Vec<(ShapedInputs, Vec<ServedRuns>)>| {
            let (samples, runs): (Vec<ShapedInputs>, Vec<Vec<ServedRuns>>) = shapes.into_iter().unzip();
            let mut runs = runs.into_iter();
            served_points(&samples, 1.0, |_| runs.next().ok_or("each shape is measured once")).expect("runs of each shape")
        };
        let (together, by_shape) = measured(vec![shape(0.75, 10.0, Some(4.0), 2), shape(0.25, 30.0, Some(8.0), 3)]);
        assert_eq!(by_shape.iter().map(|shape| shape.share).collect::<Vec<_>>(), [0.75, 0.25]);
        let [both] = &together[..] else { panic!("one batch size") };
        assert!((both.point.latency_ms - 15.0).abs() < 1e-9 && both.point.batch == 4, "{both:?}");
        assert_eq!((both.queue_ms, both.compute_ms, both.doubts.foreign_rows), (Some(5.0), None, 5));
        let (one, by_shape) = measured(vec![shape(1.0, 10.0, Some(4.0), 0)]);
        assert!(by_shape.is_empty(), "one shape is the row itself");
        assert_eq!((one[0].point.latency_ms, one[0].queue_ms), (10.0, Some(4.0)));
        let (unknown, _) = measured(vec![shape(0.5, 10.0, None, 0), shape(0.5, 10.0, Some(4.0), 0)]);
        assert_eq!(unknown[0].queue_ms, None, "the server does not count it for both");
    }

    #[test]
    fn rows_of_other_clients_are_a_doubt() {
        let foreign = |rows: u64| {
            let seen = RemoteStatistics { requests: 2, rows, cached: 1, ..RemoteStatistics::default() };
            without_queue(two_runs(), Some(seen)).doubts
        };
        assert_eq!(foreign(12), Doubts { cached: 1, ..Doubts::default() }, "a batch of the warm-up is counted late");
        assert_eq!(foreign(13).foreign_rows, 5);
    }
}
