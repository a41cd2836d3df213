//! Pure: arrivals seen, second by second, in; the demand to plan for, and whether it has changed much, out.
//!
//! The rate is an exponentially weighted mean of *offered* arrivals (shed ones included), which Loki's resource manager
//! uses too (section 4.2). A large change does not wait for the mean to follow: it is what two seconds in a row, or one that
//! is far out, say themselves.

use apportion_planning::change::{Loads, PERIOD_SECONDS, PERIODS_MAX};
use std::collections::VecDeque;

/// Weight of the newest second: a time constant of 5 s, half of the default period of replanning.
const NEWEST_WEIGHT: f64 = 0.181;
/// Two seconds in a row this far from what was planned for are a large change. A third more load is what the usual
/// headroom of 1.2 and a batch's slack can no longer hide.
const CHANGE_TWICE: f64 = 0.35;
/// One second this far out is a large change by itself.
const CHANGE_ONCE: f64 = 0.7;
/// Arrivals scatter: a Poisson count of mean m has a deviation of sqrt(m). Less than this many of them prove nothing; at
/// three, a stationary load raises a false alarm twice in a row about once in 10^5 seconds.
const DEVIATIONS_TWICE: f64 = 3.0;
/// The same for one second alone.
const DEVIATIONS_ONCE: f64 = 5.0;

/// Offered load of one pipeline.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    mean_qps: Option<f64>,
    planned_for_qps: Option<f64>,
    outside: Option<f64>,
    /// What the last seconds offered, the youngest last: as many as plans are compared by.
    seconds: VecDeque<u64>,
}

impl Demand {
    /// The rate now, before headroom; 0 before anything was seen.
    #[must_use]
    pub fn rate_qps(&self) -> f64 {
        self.mean_qps.unwrap_or(0.0)
    }

    /// Demand to plan for: `max(min_qps, rate * headroom)`.
    #[must_use]
    pub fn to_plan_for(&self, headroom: f64, min_qps: f64) -> f64 {
        (self.rate_qps() * headroom).max(min_qps)
    }

    /// Says that the plan in force is made for this rate (before headroom): changes are measured against it.
    pub fn planned_for(&mut self, rate_qps: f64) {
        self.planned_for_qps = Some(rate_qps);
        self.outside = None;
    }

    /// Means of the last whole periods, counted back from now; before the first is over, of what there is of it. None if nothing was seen.
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

    /// Takes one more second into account; answers whether the load has changed much.
    pub fn observe(&mut self, offered: u64) -> bool {
        self.seconds.push_back(offered);
        if self.seconds.len() > PERIODS_MAX * PERIOD_SECONDS {
            self.seconds.pop_front();
        }
        let offered = offered as f64;
        self.mean_qps = Some(match self.mean_qps {
            Some(mean) => mean + NEWEST_WEIGHT * (offered - mean),
            None => offered,
        });
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
        // The larger of the two counts: upwards the second of the step has only part of it, downwards it is the safe side.
        let rate = before.filter(|_| twice).map_or(offered, |b| b.max(offered));
        self.mean_qps = Some(rate);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rate: u64, planned: f64) -> Demand {
        let mut demand = Demand::default();
        (0..60).for_each(|_| assert!(!demand.observe(rate)));
        demand.planned_for(planned);
        demand
    }

    #[test]
    fn the_mean_follows_slowly() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(120));
        assert!(demand.rate_qps() > 102.0 && demand.rate_qps() < 105.0);
        assert_eq!(demand.to_plan_for(1.2, 500.0), 500.0);
        assert!(demand.to_plan_for(1.2, 1.0) > 122.0);
    }

    #[test]
    fn a_doubled_load_is_a_large_change_at_once_and_is_believed() {
        let mut demand = steady(100, 100.0);
        assert!(demand.observe(200));
        assert_eq!(demand.rate_qps(), 200.0);
    }

    #[test]
    fn half_as_much_again_must_be_seen_twice() {
        let mut demand = steady(100, 100.0);
        assert!(!demand.observe(145));
        assert!(demand.observe(150));
        assert_eq!(demand.rate_qps(), 150.0);
    }

    #[test]
    fn two_outliers_of_different_sign_or_apart_are_none() {
        let mut demand = steady(100, 100.0);
        for offered in [145, 55, 145, 100, 145, 100] {
            assert!(!demand.observe(offered), "{offered}");
        }
    }

    #[test]
    fn the_scatter_of_a_small_load_is_no_change() {
        let mut demand = steady(4, 4.0);
        for offered in [8, 9, 1, 0, 7, 8] {
            assert!(!demand.observe(offered), "{offered}");
        }
        assert!(!demand.observe(11));
        assert!(demand.observe(11));
    }

    #[test]
    fn loads_are_means_of_whole_periods_back_from_now() {
        let of = |seconds: &[u64]| {
            let mut demand = Demand::default();
            for &offered in seconds {
                demand.observe(offered);
            }
            demand.loads()
        };
        let loads = |qps: &[f64]| qps.iter().copied().collect::<Loads>();
        assert_eq!(of(&[]), loads(&[]));
        assert_eq!(of(&[1, 2, 3]), loads(&[2.0]), "what there is of the first period");
        let ramp: Vec<u64> = (0..25).collect();
        assert_eq!(of(&ramp), loads(&[9.5, 19.5]), "the first five seconds are no period yet");
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
