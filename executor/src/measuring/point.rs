//! How long does a batch of one size take? Runs are timed until their times are known well enough.

use super::interval::{TAIL_RUNS_MIN, is_narrow};
use super::noise::{calculation_noise, level_noise};
use super::percentiles::{STEADY_RUNS, is_steady};
use super::processor::thread_time;
use super::stats::{BatchTimes, TimingConditions};
use crate::backend::{Backend, BackendError};
use apportion_node::tensor::Tensor;
use std::time::{Duration, Instant};

/// Shortest latency in milliseconds: it is above 0 even with a coarse clock.
pub const TIME_MS_MIN: f64 = 1e-6;
/// Most runs of a batch size before its times count.
pub const WARM_UP_RUNS_MAX: u32 = 50;
/// Most runs by the processor's clock: their times are replaced by the mean, which has no interval.
const PROCESSOR_RUNS_MAX: u32 = 200;
/// The part of the time of a batch size that its warm-up may take.
const WARM_UP_PART: f64 = 0.25;
/// After this part more of the runs, the intervals are looked at again.
const LOOK_AGAIN_PART: usize = 8;

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

/// When the measurement of one batch size ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRule {
    /// The clock that times a batch.
    pub clock: Clock,
    /// Fewest runs that are not timed.
    pub warm_up_runs: u32,
    /// Fewest timed runs, whatever they take.
    pub repeats_min: u32,
    /// Most timed runs.
    pub repeats_max: u32,
    /// After this time no further run begins, if there are `repeats_min`.
    pub time_max: Duration,
}

impl Default for PointRule {
    /// Two thousand runs are enough for narrow intervals unless the times are scattered widely.
    fn default() -> Self {
        Self {
            clock: Clock::Wall,
            warm_up_runs: 3,
            repeats_min: 7,
            repeats_max: 2_000,
            time_max: Duration::from_millis(800),
        }
    }
}

/// Times these batches, which have one size, one after the other. First they run until the times do not change. Then they
/// run until the intervals of the median and of the 99th percentile are narrow ([`is_narrow`]), or until the rule ends it.
/// `None` if `is_stopped` says so meanwhile.
///
/// # Errors
/// As the backend's.
pub fn time_point(
    backend: &mut dyn Backend,
    windows: &[Vec<Tensor>],
    batch: u32,
    rule: &PointRule,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<BatchTimes>, BackendError> {
    assert!(1 <= rule.repeats_min && rule.repeats_min <= rule.repeats_max, "at least one repeat");
    let Some(warm) = warm_up(backend, windows, rule, is_stopped)? else { return Ok(None) };
    let noise = if rule.clock == Clock::Wall { calculation_noise() } else { 0.0 };
    let Some(times_ms) = time_runs(backend, windows, rule, is_stopped)? else { return Ok(None) };
    let noise = noise.max(level_noise(&times_ms));
    let conditions = TimingConditions { noise, ..warm };
    Ok(Some(BatchTimes { batch, times_ms, conditions }))
}

/// Runs batches until their times are steady. With the processor's clock, the fewest runs are enough.
///
/// # Errors
/// As the backend's.
pub fn warm_up(
    backend: &mut dyn Backend,
    windows: &[Vec<Tensor>],
    rule: &PointRule,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<TimingConditions>, BackendError> {
    let (begun, mut times_ms) = (Instant::now(), Vec::new());
    let most = if rule.clock == Clock::Wall { WARM_UP_RUNS_MAX.max(rule.warm_up_runs) } else { rule.warm_up_runs };
    for inputs in windows.iter().cycle().take(most as usize) {
        if is_stopped() {
            return Ok(None);
        }
        times_ms.push(time_run(backend, inputs)?);
        let has_enough = times_ms.len() >= rule.warm_up_runs as usize;
        if has_enough && (is_steady(&times_ms) || begun.elapsed() >= rule.time_max.mul_f64(WARM_UP_PART)) {
            break;
        }
    }
    let warm_up_runs = u32::try_from(times_ms.len()).unwrap_or(u32::MAX);
    Ok(Some(TimingConditions { warm_up_runs, is_steady: is_steady(&times_ms), noise: 0.0 }))
}

/// Milliseconds of each run of these batches, one after the other, as often as the rule says.
///
/// # Errors
/// As the backend's.
pub fn time_runs(
    backend: &mut dyn Backend,
    windows: &[Vec<Tensor>],
    rule: &PointRule,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<Vec<f64>>, BackendError> {
    let processor = || if rule.clock == Clock::Processor { thread_time() } else { None };
    let (begun, had) = (Instant::now(), processor());
    let most = match rule.clock {
        Clock::Wall => rule.repeats_max,
        Clock::Processor => rule.repeats_max.min(PROCESSOR_RUNS_MAX.max(rule.repeats_min)),
    };
    let (mut times, mut look_at) = (Vec::new(), TAIL_RUNS_MIN);
    for inputs in windows.iter().cycle().take(most as usize) {
        if is_stopped() {
            return Ok(None);
        }
        let has_enough = times.len() >= rule.repeats_min as usize;
        if has_enough && begun.elapsed() >= rule.time_max {
            break;
        }
        if has_enough && rule.clock == Clock::Wall && times.len() >= look_at {
            look_at = times.len() + times.len() / LOOK_AGAIN_PART;
            if is_narrow(&times) {
                break;
            }
        }
        times.push(time_run(backend, inputs)?);
    }
    if let (Some(had), Some(has)) = (had, processor()) {
        let mean_ms = (has - had).as_secs_f64() * 1e3 / times.len() as f64;
        times.fill(mean_ms.max(TIME_MS_MIN));
    }
    Ok(Some(times))
}

/// Milliseconds of one run of this batch, above 0.
///
/// # Errors
/// As the backend's.
pub fn time_run(backend: &mut dyn Backend, inputs: &[Tensor]) -> Result<f64, BackendError> {
    let before = Instant::now();
    backend.run(inputs)?;
    Ok((before.elapsed().as_secs_f64() * 1e3).max(TIME_MS_MIN))
}

/// Fewest runs of a warm-up that can say whether times are steady.
pub const STEADY_WARM_UP_RUNS: u32 = 2 * STEADY_RUNS as u32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Signature;
    use apportion_needs::{Need, need};
    use apportion_node::tensor::Datatype;

    /// Sleeps for 10 ms and a time that halves with each run, and computes nothing.
    struct Warming {
        time: Duration,
        runs: u32,
        signature: Signature,
    }

    fn warming(time: Duration) -> Warming {
        Warming { time, runs: 0, signature: Signature { inputs: Vec::new(), outputs: Vec::new() } }
    }

    impl Backend for Warming {
        fn signature(&self) -> &Signature {
            &self.signature
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
            std::thread::sleep(self.time + Duration::from_millis(10));
            (self.time, self.runs) = (self.time / 2, self.runs + 1);
            Ok(inputs.to_vec())
        }
    }

    /// Takes no time.
    struct Idle(Signature);

    impl Backend for Idle {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
            Ok(inputs.to_vec())
        }
    }

    fn batches() -> Vec<Vec<Tensor>> {
        vec![vec![Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1], data: vec![0].into() }]]
    }

    #[test]
    fn a_warm_up_goes_on_until_times_are_steady() {
        let rule = PointRule { time_max: Duration::from_secs(240), ..PointRule::default() };
        let mut backend = warming(Duration::from_millis(80));
        let warm = warm_up(&mut backend, &batches(), &rule, &|| false).expect("it runs").expect("nobody stops it");
        assert!(warm.is_steady && backend.runs > STEADY_WARM_UP_RUNS && warm.warm_up_runs == backend.runs, "{warm:?}");
        let mut cold = warming(Duration::from_millis(80));
        let rule = PointRule { time_max: Duration::ZERO, ..rule };
        let warm = warm_up(&mut cold, &batches(), &rule, &|| false).expect("it runs").expect("nobody stops it");
        assert_eq!((warm.is_steady, cold.runs), (false, rule.warm_up_runs), "no time is left");
    }

    #[test]
    fn runs_end_by_their_bounds_or_a_stop() {
        let mut backend = Idle(Signature { inputs: Vec::new(), outputs: Vec::new() });
        let mut runs = |rule: PointRule, is_stopped: &dyn Fn() -> bool| {
            time_runs(&mut backend, &batches(), &rule, is_stopped).expect("it runs").map(|times| times.len())
        };
        let rule = PointRule { time_max: Duration::from_secs(60), ..PointRule::default() };
        assert_eq!(runs(PointRule { repeats_max: 30, ..rule }, &|| false), Some(30));
        assert_eq!(runs(PointRule { time_max: Duration::ZERO, ..rule }, &|| false), Some(7));
        assert_eq!(runs(rule, &|| true), None);
    }

    #[test]
    fn processor_time_excludes_waiting() {
        let now = thread_time().ok_or("/proc/thread-self/schedstat is not there");
        let Some(_now) = need(Need::ProcessorTimes, now) else { return };
        let latency_ms = |clock| {
            let rule = PointRule { repeats_max: 7, clock, ..PointRule::default() };
            let mut backend = warming(Duration::from_millis(10));
            let times = time_point(&mut backend, &batches(), 1, &rule, &|| false).expect("it runs").expect("no stop");
            assert!(times.times_ms.len() == 7 && times.times_ms.iter().all(|ms| *ms > 0.0), "{times:?}");
            times.times_ms[0]
        };
        assert!(latency_ms(Clock::Wall) >= 10.0);
        assert!(latency_ms(Clock::Processor) < 5.0, "most of its time a sleeper does not compute");
    }
}
