//! How long does an emulated replica take for a batch, and how long does a query stay in its slot?
//!
//! Example: the profile has 80 ms, and 200 ms as the 99th percentile, for a batch of four. Half of the batches take less
//! than 80 ms, and one of a hundred takes more than 200 ms, as in the estimator.

use apportion_domain::{TimeDistribution, TimeSpan, lognormal_sigma};
use apportion_node::node::RunSpread;
use apportion_serving::mix::SplitMix;
use std::time::Duration;

/// Longest time that is drawn: a query that takes longer outlives every deadline.
const DRAWN_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Draws the times of batches, and of queries in slots.
#[derive(Debug)]
pub struct SlotTimes {
    stream: SplitMix,
}

impl SlotTimes {
    /// Draws from a stream with this seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self { stream: SplitMix(seed) }
    }

    /// The time of one batch, or of one query in a slot, by the profile's median and 99th percentile. Batches without a
    /// percentile above the median take the median, and queries in slots are then exponential.
    pub fn draw(&mut self, median: Duration, spread: RunSpread) -> Duration {
        let span = |time: Duration| TimeSpan::from_nanos(time.as_nanos() as u64);
        let factor = match spread {
            RunSpread::Batch(p99) if p99 <= median => return median,
            RunSpread::Batch(p99) => (lognormal_sigma(span(median), span(p99)) * self.normal()).exp(),
            RunSpread::Slot(p99) => match TimeDistribution::of_slot(span(median), span(p99)) {
                TimeDistribution::Lognormal(sigmas) => (sigmas.first().copied().unwrap_or(0.0) * self.normal()).exp(),
                TimeDistribution::Exponential => -self.positive().ln(),
            },
        };
        Duration::try_from_secs_f64(median.as_secs_f64() * factor).map_or(DRAWN_MAX, |time| time.min(DRAWN_MAX))
    }

    /// Uniform from 0 (excluded) to 1 (included).
    fn positive(&mut self) -> f64 {
        1.0 - self.stream.unit()
    }

    /// Standard normal, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.positive().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.stream.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIAN: Duration = Duration::from_millis(80);
    const COUNT: usize = 20_000;

    fn drawn(spread: RunSpread) -> Vec<Duration> {
        let mut times = SlotTimes::of_seed(7);
        let mut all: Vec<Duration> = (0..COUNT).map(|_| times.draw(MEDIAN, spread)).collect();
        all.sort();
        all
    }

    #[test]
    fn median_and_percentile_of_drawn_times_are_the_profiles() {
        let p99 = Duration::from_millis(200);
        for spread in [RunSpread::Batch(p99), RunSpread::Slot(p99)] {
            let all = drawn(spread);
            for (at, expected) in [(COUNT / 2, MEDIAN), (COUNT * 99 / 100, p99)] {
                let ratio = all[at].as_secs_f64() / expected.as_secs_f64();
                assert!((0.93..1.07).contains(&ratio), "{:?}: expected about {expected:?} of {spread:?}", all[at]);
            }
        }
    }

    #[test]
    fn batches_without_a_percentile_take_the_median() {
        for p99 in [Duration::ZERO, MEDIAN / 2, MEDIAN] {
            let all = drawn(RunSpread::Batch(p99));
            assert!(all.iter().all(|time| *time == MEDIAN), "{p99:?}");
        }
    }

    #[test]
    fn slots_without_a_percentile_have_exponential_times() {
        let all = drawn(RunSpread::Slot(Duration::ZERO));
        let mean = all.iter().sum::<Duration>().as_secs_f64() / COUNT as f64;
        assert!((mean / MEDIAN.as_secs_f64() - 1.0).abs() < 0.05, "{mean}");
        // The median of an exponential distribution is ln 2 of its mean.
        assert!((all[COUNT / 2].as_secs_f64() / mean - std::f64::consts::LN_2).abs() < 0.05, "{:?}", all[COUNT / 2]);
    }
}
