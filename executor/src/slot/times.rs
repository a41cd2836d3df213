//! How long does a query stay in the slot of an emulated replica?
//!
//! Example: the profile has 80 ms, and 200 ms as the 99th percentile, for a replica with four slots. Half of the queries
//! stay for less than 80 ms, and one of a hundred for more than 200 ms, as in the estimator.

use apportion_domain::{TimeDistribution, TimeSpan};
use apportion_serving::mix::SplitMix;
use std::time::Duration;

/// Longest time that is drawn: a query that stays longer outlives every deadline.
const DRAWN_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Draws the times of queries in slots.
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

    /// The time of one query, by the profile's median and 99th percentile with all slots taken; zero: it is not known.
    pub fn draw(&mut self, median: Duration, p99: Duration) -> Duration {
        let [median_span, p99] = [median, p99].map(|time| TimeSpan::from_nanos(time.as_nanos() as u64));
        let factor = match TimeDistribution::of_slot(median_span, p99) {
            TimeDistribution::Lognormal(sigmas) => (sigmas.first().copied().unwrap_or(0.0) * self.normal()).exp(),
            TimeDistribution::Exponential => -self.positive().ln(),
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

    fn drawn(p99: Duration) -> Vec<Duration> {
        let mut times = SlotTimes::of_seed(7);
        let mut all: Vec<Duration> = (0..COUNT).map(|_| times.draw(MEDIAN, p99)).collect();
        all.sort();
        all
    }

    #[test]
    fn median_and_percentile_of_drawn_times_are_the_profiles() {
        let p99 = Duration::from_millis(200);
        let all = drawn(p99);
        for (at, expected) in [(COUNT / 2, MEDIAN), (COUNT * 99 / 100, p99)] {
            let ratio = all[at].as_secs_f64() / expected.as_secs_f64();
            assert!((0.93..1.07).contains(&ratio), "{:?}: expected about {expected:?}", all[at]);
        }
    }

    #[test]
    fn without_a_percentile_times_are_exponential() {
        let all = drawn(Duration::ZERO);
        let mean = all.iter().sum::<Duration>().as_secs_f64() / COUNT as f64;
        assert!((mean / MEDIAN.as_secs_f64() - 1.0).abs() < 0.05, "{mean}");
        // The median of an exponential distribution is ln 2 of its mean.
        assert!((all[COUNT / 2].as_secs_f64() / mean - std::f64::consts::LN_2).abs() < 0.05, "{:?}", all[COUNT / 2]);
    }
}
