//! Which demand must a plan serve, and has it changed much?
//!
//! The rate is an exponentially weighted mean of *offered* arrivals, shed ones included, as in Loki's resource manager
//! (section 4.2). A large change does not wait for the mean: two seconds in a row, or one second far from the plan, replace
//! it. From then on the mean is that of the seconds since the change, until the weighted mean takes over.

use apportion_planning::change::{Loads, PERIOD_SECONDS, PERIODS_MAX};
use std::collections::VecDeque;

/// Weight of the newest second: a time constant of 5 s, half of the default period of replanning.
const NEWEST_WEIGHT: f64 = 0.181;
/// Two seconds in a row this far from the planned rate are a large change. The usual headroom of 1.2 and the slack of a
/// batch absorb about a third more load, and no more.
const CHANGE_TWICE: f64 = 0.35;
/// One second this far from the planned rate is a large change.
const CHANGE_ONCE: f64 = 0.7;
/// Arrivals scatter: a Poisson count of mean m has a standard deviation of sqrt(m). Fewer deviations than this prove
/// nothing. At three, a stationary load is twice in a row outside about once in 10^5 seconds.
const DEVIATIONS_TWICE: f64 = 3.0;
/// The same for one second alone.
const DEVIATIONS_ONCE: f64 = 5.0;
/// After a rise, the rate is known from one or two seconds. It is taken as higher by this many standard deviations. With
/// too few replicas the queue grows; with too many, only the accuracy of a few seconds is lower.
const DEVIATIONS_RISE: f64 = 1.0;

/// Offered load of one pipeline.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    mean_qps: Option<f64>,
    /// Seconds in the mean, since the last large change.
    seconds_of_mean: u32,
    planned_for_qps: Option<f64>,
    outside: Option<f64>,
    /// Offered arrivals of the last seconds, the newest last: as many as a comparison of plans needs.
    seconds: VecDeque<u64>,
}

impl Demand {
    /// The rate now, before headroom; 0 before anything was seen.
    #[must_use]
    pub fn rate_qps(&self) -> f64 {
        self.mean_qps.unwrap_or(0.0)
    }

    /// The demand to plan for: `max(min_qps, rate * headroom)`.
    #[must_use]
    pub fn planned_qps(&self, headroom: f64, min_qps: f64) -> f64 {
        (self.rate_qps() * headroom).max(min_qps)
    }

    /// Sets the rate, before headroom, that the plan in force is made for. Changes are measured against it.
    pub fn set_planned_rate(&mut self, rate_qps: f64) {
        self.planned_for_qps = Some(rate_qps);
        self.outside = None;
    }

    /// Means of the last whole periods, counted back from now. If the first period is not over, the mean of its seconds so
    /// far.
    #[must_use]
    pub fn loads(&self) -> Loads {
        let seconds: Vec<u64> = self.seconds.iter().copied().collect();
        let mean = |period: &[u64]| period.iter().sum::<u64>() as f64 / period.len() as f64;
        let whole = seconds.rchunks_exact(PERIOD_SECONDS);
        if whole.len() == 0 {
            return seconds.chunks(PERIOD_SECONDS).map(mean).collect();
        }
        whole.rev().map(mean).collect()
    }

    /// Takes one more second into account; returns whether the load has changed much.
    pub fn observe(&mut self, offered: u64) -> bool {
        self.seconds.push_back(offered);
        if self.seconds.len() > PERIODS_MAX * PERIOD_SECONDS {
            self.seconds.pop_front();
        }
        let offered = offered as f64;
        self.seconds_of_mean = self.seconds_of_mean.saturating_add(1);
        let mean = self.mean_qps.unwrap_or(offered);
        self.mean_qps = Some(mean + NEWEST_WEIGHT.max(1.0 / f64::from(self.seconds_of_mean)) * (offered - mean));
        let Some(planned) = self.planned_for_qps else { return false };
        let distance = offered - planned;
        let is_out =
            |share: f64, deviations: f64| distance.abs() > (share * planned).max(deviations * planned.max(1.0).sqrt());
        let before = self.outside.take();
        if !is_out(CHANGE_TWICE, DEVIATIONS_TWICE) {
            return false;
        }
        let twice = before.is_some_and(|b| (b > planned) == (offered > planned));
        if !twice && !is_out(CHANGE_ONCE, DEVIATIONS_ONCE) {
            self.outside = Some(offered);
            return false;
        }
        // The larger of the two seconds counts. When the load rises, the first has only part of the step. When it falls,
        // the larger one is the safe choice.
        let rate = before.filter(|_| twice).map_or(offered, |b| b.max(offered));
        let surplus = if rate > planned { DEVIATIONS_RISE * rate.sqrt() } else { 0.0 };
        self.mean_qps = Some(rate + surplus);
        self.seconds_of_mean = 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rate: u64, planned: f64) -> Demand {
        let mut demand = Demand::default();
        (0..60).for_each(|_| assert!(!demand.observe(rate)));
        demand.set_planned_rate(planned);
        demand
    }

    #[test]
    fn the_mean_follows_slowly() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(120));
        assert!(demand.rate_qps() > 102.0 && demand.rate_qps() < 105.0);
        assert_eq!(demand.planned_qps(1.2, 500.0), 500.0);
        assert!(demand.planned_qps(1.2, 1.0) > 122.0);
    }

    #[test]
    fn a_doubled_load_is_a_large_change_at_once() {
        let mut demand = steady(100, 100.0);
        assert!(demand.observe(200));
        assert_eq!(demand.rate_qps(), 200.0 + 200f64.sqrt());
    }

    #[test]
    fn after_a_rise_the_mean_is_that_of_the_seconds_since() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(160));
        assert!(demand.observe(170));
        let first = 170.0 + 170f64.sqrt();
        demand.set_planned_rate(first);
        [210, 190, 200].into_iter().for_each(|offered| assert!(!demand.observe(offered)));
        assert!((demand.rate_qps() - (first + 600.0) / 4.0).abs() < 1e-9, "{}", demand.rate_qps());
        (0..60).for_each(|_| assert!(!demand.observe(200)));
        assert!((demand.rate_qps() - 200.0).abs() < 0.01);
    }

    #[test]
    fn half_more_load_must_be_seen_twice() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(145));
        assert!(demand.observe(150));
        assert_eq!(demand.rate_qps(), 150.0 + 150f64.sqrt());
    }

    #[test]
    fn outliers_of_different_sign_are_no_change() {
        let mut demand = steady(100, 100.0);
        for offered in [145, 55, 145, 100, 145, 100] {
            assert!(!demand.observe(offered), "{offered}");
        }
    }

    #[test]
    fn scatter_of_a_small_load_is_no_change() {
        let mut demand = steady(4, 4.0);
        for offered in [8, 9, 1, 0, 7, 8] {
            assert!(!demand.observe(offered), "{offered}");
        }
        assert!(!demand.observe(11));
        assert!(demand.observe(11));
    }

    #[test]
    fn loads_are_means_of_whole_periods() {
        let of = |seconds: &[u64]| {
            let mut demand = Demand::default();
            for &offered in seconds {
                demand.observe(offered);
            }
            demand.loads()
        };
        let loads = |qps: &[f64]| qps.iter().copied().collect::<Loads>();
        assert_eq!(of(&[]), loads(&[]));
        assert_eq!(of(&[1, 2, 3]), loads(&[2.0]), "the first period is not over");
        let ramp: Vec<u64> = (0..25).collect();
        assert_eq!(of(&ramp), loads(&[9.5, 19.5]), "the first five seconds are no whole period");
        let long: Vec<u64> = (0..1_000).map(|s| if s < 920 { 1_000 } else { 7 }).collect();
        assert_eq!(of(&long), loads(&[7.0; PERIODS_MAX]));
    }

    #[test]
    fn a_fall_to_half_is_a_change_after_two_seconds() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(60));
        assert!(demand.observe(50));
        assert_eq!(demand.rate_qps(), 60.0);
    }
}
