//! How long does a batch of one variant take?

use crate::processor::thread_time;
use crate::rows::cycle;
use crate::stats::{BatchTimes, ProfilePoint, fit_profile};
use apportion_executor::backend::{Backend, BackendError};
use apportion_executor::tensor::Tensor;
use std::time::{Duration, Instant};

/// The clock that times a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The wall clock: the time that a client waits.
    #[default]
    Wall,
    /// The processor time of the calling thread, as the mean of all runs of a batch size. It is for emulated devices on a
    /// busy machine, and for backends that compute in the calling thread. If the system does not report it, the wall clock
    /// is used.
    Processor,
}

/// The extent of the measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasureOptions {
    /// Batch sizes, increasing.
    pub batches: Vec<u32>,
    /// Runs of each batch size that are not timed.
    pub warm_up_runs: u32,
    /// Fewest timed runs of each batch size, whatever they take.
    pub repeats_min: u32,
    /// Most timed runs of each batch size.
    pub repeats_max: u32,
    /// After this time no further run of a batch size begins, if there are `repeats_min`.
    pub point_time_max: Duration,
    /// Factor on the latencies, for a device that holds its slot for a multiple of the measured time, as in the demo. Load
    /// times stay those of this machine.
    pub multiple: f64,
    /// Most examples of the validation set that are run.
    pub examples_max: usize,
    /// The clock that times a batch.
    pub clock: Clock,
}

impl Default for MeasureOptions {
    /// Batches 1 to 32 in powers of two (INFaaS goes on to 64, section 7). A 99th percentile needs 100 runs: batches below
    /// 8 ms get them in 0.8 s.
    fn default() -> Self {
        Self {
            batches: vec![1, 2, 4, 8, 16, 32],
            warm_up_runs: 3,
            repeats_min: 7,
            repeats_max: 200,
            point_time_max: Duration::from_millis(800),
            multiple: 1.0,
            examples_max: 1_000,
            clock: Clock::Wall,
        }
    }
}

/// Number of different batches at each size, so that the times do not depend on one input.
const WINDOWS_MAX: usize = 16;

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
    assert!(1 <= options.repeats_min && options.repeats_min <= options.repeats_max, "at least one repeat");
    let mut times = Vec::with_capacity(options.batches.len());
    for &batch in &options.batches {
        times.push(BatchTimes { batch, times_ms: time_batch(backend, samples, batch, options)? });
    }
    Ok(fit_profile(&times, options.multiple))
}

/// Shortest latency in milliseconds: it is above 0 even with a coarse clock.
pub(crate) const TIME_MS_MIN: f64 = 1e-6;

/// Milliseconds of each timed run of batches of one size.
fn time_batch(
    backend: &mut dyn Backend,
    samples: &[Tensor],
    batch: u32,
    options: &MeasureOptions,
) -> Result<Vec<f64>, BackendError> {
    let windows = windows(samples, batch);
    for inputs in windows.iter().cycle().take(options.warm_up_runs as usize) {
        backend.run(inputs)?;
    }
    time_runs(backend, &windows, options)
}

/// Batches of one size, spread over all the samples, so that a fan-out is seen with its usual content.
pub(crate) fn windows(samples: &[Tensor], batch: u32) -> Vec<Vec<Tensor>> {
    let size = batch as usize;
    let rows = samples.iter().map(Tensor::rows).min().unwrap_or(0);
    assert!(rows > 0, "samples to measure with");
    let windows = rows.div_ceil(size).min(WINDOWS_MAX);
    let start = |window: usize| window * rows / windows;
    (0..windows).map(|w| samples.iter().map(|s| cycle(s, start(w), size)).collect()).collect()
}

/// Milliseconds of each run of these batches, one after the other, as often as the options say.
///
/// # Errors
/// As the backend's.
pub(crate) fn time_runs(
    backend: &mut dyn Backend,
    windows: &[Vec<Tensor>],
    options: &MeasureOptions,
) -> Result<Vec<f64>, BackendError> {
    let processor = || if options.clock == Clock::Processor { thread_time() } else { None };
    let (begun, had) = (Instant::now(), processor());
    let mut times = Vec::new();
    for inputs in windows.iter().cycle().take(options.repeats_max as usize) {
        if times.len() >= options.repeats_min as usize && begun.elapsed() >= options.point_time_max {
            break;
        }
        times.push(time_run(backend, inputs)?);
    }
    if let (Some(had), Some(has)) = (had, processor()) {
        let mean_ms = (has - had).as_secs_f64() * 1e3 / times.len() as f64;
        times.fill(mean_ms.max(TIME_MS_MIN));
    }
    Ok(times)
}

/// Milliseconds of one run of this batch, above 0.
///
/// # Errors
/// As the backend's.
pub(crate) fn time_run(backend: &mut dyn Backend, inputs: &[Tensor]) -> Result<f64, BackendError> {
    let before = Instant::now();
    backend.run(inputs)?;
    Ok((before.elapsed().as_secs_f64() * 1e3).max(TIME_MS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_executor::backend::Signature;
    use apportion_executor::tensor::Datatype;
    use apportion_needs::{Need, need};

    /// Sleeps for this time, and computes nothing.
    struct Sleeping {
        time: Duration,
        signature: Signature,
    }

    impl Backend for Sleeping {
        fn signature(&self) -> &Signature {
            &self.signature
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
            std::thread::sleep(self.time);
            Ok(inputs.to_vec())
        }
    }

    #[test]
    fn processor_time_excludes_waiting() {
        let now = thread_time().ok_or("/proc/thread-self/schedstat is not there");
        let Some(_now) = need(Need::ProcessorTimes, now) else { return };
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        let mut backend = Sleeping { time: Duration::from_millis(20), signature };
        let sample = Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![4, 1], data: vec![0; 4].into() };
        let mut latency_ms = |clock| {
            let options = MeasureOptions { batches: vec![1, 2], repeats_max: 7, clock, ..MeasureOptions::default() };
            let points = profile_variant(&mut backend, std::slice::from_ref(&sample), &options).expect("it runs");
            assert!(points.iter().all(|point| point.repeats == 7 && point.latency_ms > 0.0), "{points:?}");
            points[0].latency_ms
        };
        assert!(latency_ms(Clock::Wall) >= 20.0);
        assert!(latency_ms(Clock::Processor) < 10.0, "half of its time a sleeper does not compute");
    }
}
