//! How long does a batch take on a share of a device, while neighbours work on the same device?
//!
//! Example: a batch takes 8 ms alone. On half a device it takes 13 ms, because a second copy of its variant runs batches of
//! the same size all the time. A plan has to promise 13 ms, so the profile has 13 ms for this share. Its *interference* is
//! 13 / 8. Without such rows replicas that share a device are slower than profiled (INFaaS section 4, figure 4).
//!
//! The neighbours are threads of this process, as the replicas of an agent are. They end with the measurement, whatever
//! ends it: its bounds, an error, a panic, or the end of the process.

use crate::measure::MeasureOptions;
use apportion_domain::{INTERFERENCE_MAX, isotonic};
use apportion_executor::backend::{Backend, BackendError};
use apportion_executor::measuring::noise::calculation_noise;
use apportion_executor::measuring::point::{Clock, PointRule, time_point, time_runs, warm_up};
use apportion_executor::measuring::rows::windows;
use apportion_executor::measuring::stats::{BatchTimes, ProfilePoint, TimingConditions, fit_profile};
use apportion_executor::tensor::Tensor;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, scope, sleep};
use std::time::Duration;

/// How often a measurement looks whether all its neighbours have begun.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Why a share of a device could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The measured copy failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A copy beside it failed. The measurement would have had fewer neighbours.
    #[error("a copy beside the measured one failed")]
    Neighbour(#[source] BackendError),
    /// A copy beside it panicked.
    #[error("a copy beside the measured one panicked")]
    Panic,
    /// There is no thread for a copy.
    #[error("a thread for a copy beside the measured one")]
    Thread(#[source] std::io::Error),
    /// The copies cannot be kept on the processors of one device.
    #[error("choosing the processors of a device")]
    Processors(#[source] Errno),
    /// Something else than its neighbours disturbed the measurement.
    #[error(
        "a batch of {batch} takes {alone_ms:.3} ms alone and {beside_ms:.3} ms beside its copies: expected at most \
         {INTERFERENCE_MAX} times as long; end other work on this device and measure again"
    )]
    Interference {
        /// Rows of the batch.
        batch: u32,
        /// Its time alone.
        alone_ms: f64,
        /// Its time beside neighbours.
        beside_ms: f64,
    },
}

/// Times the first copy of a variant beside the other copies, which run batches of the same size all the time. There is at
/// least one copy. `samples` are as for [`crate::measure::profile_variant`].
///
/// The latency of a row is the larger of median and mean beside the others, and never below the median alone. A processor
/// gives its threads turns of some milliseconds. A shorter batch has a whole turn for itself or waits for one: its median
/// says nothing of the waits, and its mean says how many batches a second has.
///
/// The noise of a row is that of the machine without the neighbours, once before them and once after them.
///
/// # Errors
/// As [`ShareError`] lists.
pub fn profile_share(
    copies: &mut [Box<dyn Backend>],
    samples: &[Tensor],
    options: &MeasureOptions,
) -> Result<Vec<ProfilePoint>, ShareError> {
    let (first, neighbours) = copies.split_first_mut().expect("a copy that is measured");
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for &batch in &options.batches {
        let windows = windows(samples, batch);
        let calm = time_point(first.as_mut(), &windows, batch, &options.point, &|| false)?.expect("nobody stops it");
        beside.push(time_beside(first.as_mut(), neighbours, &windows, &calm, &options.point)?);
        alone.push(calm);
    }
    fit_share(&alone, &beside, options.multiple)
}

/// What a measurement and its neighbours tell each other.
#[derive(Default)]
struct NeighbourLoad {
    /// Neighbours that have run a batch.
    begun: AtomicUsize,
    /// A neighbour has ended.
    is_short: AtomicBool,
    /// The neighbours are to end.
    is_over: AtomicBool,
}

/// Ends the neighbours when it is dropped.
struct LoadEnd<'a>(&'a NeighbourLoad);

impl Drop for LoadEnd<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Says that a neighbour has ended when it is dropped, also by a panic.
struct NeighbourEnd<'a>(&'a NeighbourLoad);

impl Drop for NeighbourEnd<'_> {
    fn drop(&mut self) {
        self.0.is_short.store(true, Ordering::Release);
    }
}

/// Runs batches one after the other until the load is over.
fn keep_busy(neighbour: &mut dyn Backend, windows: &[Vec<Tensor>], load: &NeighbourLoad) -> Result<(), BackendError> {
    let _end = NeighbourEnd(load);
    for (number, inputs) in windows.iter().cycle().enumerate() {
        if load.is_over.load(Ordering::Acquire) {
            break;
        }
        neighbour.run(inputs)?;
        if number == 0 {
            load.begun.fetch_add(1, Ordering::Release);
        }
    }
    Ok(())
}

/// Times batches of one size while all neighbours run batches of this size. `calm` is the measurement alone.
fn time_beside(
    first: &mut dyn Backend,
    neighbours: &mut [Box<dyn Backend>],
    windows: &[Vec<Tensor>],
    calm: &BatchTimes,
    rule: &PointRule,
) -> Result<BatchTimes, ShareError> {
    let load = &NeighbourLoad::default();
    let count = neighbours.len();
    let timed = scope(|scope| {
        // An error and a panic below drop it too, and the scope then waits for the threads.
        let end = LoadEnd(load);
        let mut threads = Vec::with_capacity(count);
        for neighbour in neighbours.iter_mut() {
            let busy = move || keep_busy(neighbour.as_mut(), windows, load);
            let named = Builder::new().name("neighbour".to_owned());
            threads.push(named.spawn_scoped(scope, busy).map_err(ShareError::Thread)?);
        }
        let timed = time_under(first, count, windows, load, rule);
        drop(end);
        // All are waited for, so that a panic of one of them is an error here.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let timed = timed?;
        for result in ended {
            result.map_err(|_panic| ShareError::Panic)?.map_err(ShareError::Neighbour)?;
        }
        Ok::<_, ShareError>(timed)
    })?;
    let TimesUnderLoad { times_ms, warm_up_runs } = timed.expect("a neighbour that ends early says why");
    let noise = if rule.clock == Clock::Wall { calculation_noise() } else { 0.0 };
    let TimingConditions { is_steady, noise: noise_before, .. } = calm.conditions;
    let conditions = TimingConditions { warm_up_runs, is_steady, noise: noise.max(noise_before) };
    Ok(BatchTimes { batch: calm.batch, times_ms, conditions })
}

/// The times of batches beside neighbours.
struct TimesUnderLoad {
    times_ms: Vec<f64>,
    /// Runs before them that did not count.
    warm_up_runs: u32,
}

/// Times batches after each of `count` neighbours has run one. `None` if a neighbour ends meanwhile.
fn time_under(
    first: &mut dyn Backend,
    count: usize,
    windows: &[Vec<Tensor>],
    load: &NeighbourLoad,
    rule: &PointRule,
) -> Result<Option<TimesUnderLoad>, BackendError> {
    let is_short = || load.is_short.load(Ordering::Acquire);
    while load.begun.load(Ordering::Acquire) < count {
        if is_short() {
            return Ok(None);
        }
        sleep(LOOK_AGAIN);
    }
    let Some(warm) = warm_up(first, windows, rule, &is_short)? else { return Ok(None) };
    let times_ms = time_runs(first, windows, rule, &is_short)?;
    Ok(times_ms.map(|times_ms| TimesUnderLoad { times_ms, warm_up_runs: warm.warm_up_runs }))
}

/// The rows of a share by the times alone and beside neighbours, which have the same batch sizes.
fn fit_share(alone: &[BatchTimes], beside: &[BatchTimes], multiple: f64) -> Result<Vec<ProfilePoint>, ShareError> {
    let mean = |of: &BatchTimes| multiple * of.times_ms.iter().sum::<f64>() / of.times_ms.len() as f64;
    let means = isotonic(&beside.iter().map(mean).collect::<Vec<f64>>());
    let rows = fit_profile(beside, multiple).into_iter().zip(fit_profile(alone, multiple)).zip(means);
    let row = |((point, calm), mean_ms): ((ProfilePoint, ProfilePoint), f64)| {
        let (alone_ms, beside_ms) = (calm.latency_ms, point.latency_ms.max(mean_ms).max(calm.latency_ms));
        let interference = beside_ms / alone_ms;
        if interference > INTERFERENCE_MAX {
            return Err(ShareError::Interference { batch: point.batch, alone_ms, beside_ms });
        }
        let (p99_ms, interference) = (point.p99_ms.max(beside_ms), Some(interference));
        Ok(ProfilePoint { latency_ms: beside_ms, p99_ms, interference, ..point })
    };
    rows.map(row).collect()
}

#[cfg(test)]
mod tests;
