//! Is a new plan worth the change? Our own rule compares the costs of both plans under the loads of the last minute.
//!
//! A plan that is cheaper now may have been more expensive half a minute ago. While the new plan loads, both plans are
//! held and paid for. So the new plan must save more over the compared periods than its change costs. The simulated and
//! the real control plane both use this rule.

use std::collections::VecDeque;

/// Length of a period, in seconds.
pub const PERIOD_SECONDS: usize = 10;
/// A plan in force that still holds is not improved before this age, in seconds. A load that has just fallen may be back:
/// InferLine's tuner scales down after 15 s without a change (section 5).
pub const IMPROVE_AFTER_SECONDS: u64 = 15;
/// Plans are made with all of the headroom, and stay while they hold with this share of it. In between, the load may move
/// without a change of plan.
const KEEP_HEADROOM: f64 = 0.5;
/// Periods over which two plans are compared: a minute.
const COMPARED: usize = 6;
/// Periods for which replicas stay once a load has asked for them, as ladders keep them
/// ([`KEPT_SECONDS`](apportion_serving::ladder::KEPT_SECONDS)).
const KEPT: usize = apportion_serving::ladder::KEPT_SECONDS / PERIOD_SECONDS;
/// Cost of a change: periods of the new plan, which is held beside the old one while it loads.
const CHANGE: f64 = 1.0;
/// Periods that are remembered.
pub const PERIODS_MAX: usize = COMPARED + KEPT - 1;

/// Mean loads of the last periods of [`PERIOD_SECONDS`], the youngest last; at most [`PERIODS_MAX`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    qps: VecDeque<f64>,
}

impl Loads {
    /// Adds a period, and removes the oldest one if there are too many.
    pub fn push(&mut self, qps: f64) {
        self.qps.push_back(qps);
        if self.qps.len() > PERIODS_MAX {
            self.qps.pop_front();
        }
    }

    /// The highest mean load of the last periods that reach this far back; 0 if no load was seen.
    #[must_use]
    pub fn peak_qps(&self, seconds: f64) -> f64 {
        let periods = (seconds / PERIOD_SECONDS as f64).ceil().max(1.0) as usize;
        self.qps.iter().rev().take(periods).copied().fold(0.0, f64::max)
    }

    /// Compares the costs of the plan in force and of a new plan, each by its price per hour at a load. An infinite price
    /// means that the plan does not fit.
    #[must_use]
    pub fn compare(&self, in_force: impl Fn(f64) -> f64, new: impl Fn(f64) -> f64) -> CostComparison {
        let loads: Vec<f64> = self.qps.iter().copied().collect();
        let Some(&present) = loads.last() else { return CostComparison::default() };
        let kept = KEPT.min(loads.len());
        let sum = |price: &dyn Fn(f64) -> f64| -> f64 {
            loads.windows(kept).map(|kept| price(kept.iter().copied().fold(0.0, f64::max))).sum()
        };
        let periods = loads.len() + 1 - kept;
        CostComparison { periods, in_force: sum(&in_force), new: sum(&new), change: CHANGE * new(present) }
    }
}

/// The factor on the load at which a plan must still hold to stay, if plans are made with this headroom.
#[must_use]
pub fn keep_headroom(headroom: f64) -> f64 {
    1.0 + (headroom - 1.0) * KEEP_HEADROOM
}

impl FromIterator<f64> for Loads {
    fn from_iter<T: IntoIterator<Item = f64>>(qps: T) -> Self {
        let mut loads = Self::default();
        qps.into_iter().for_each(|qps| loads.push(qps));
        loads
    }
}

/// Costs of two plans under the same loads, in periods times a price per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostComparison {
    periods: usize,
    in_force: f64,
    new: f64,
    change: f64,
}

impl CostComparison {
    /// Whether the new plan would have been cheaper by more than the change costs. Never if no load was seen.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        self.new + self.change < self.in_force
    }

    /// How long both were compared, in seconds; 0 if no load was seen.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        (self.periods * PERIOD_SECONDS) as u64
    }

    /// Mean price of the plan in force, per hour.
    #[must_use]
    pub fn in_force_per_hour(&self) -> f64 {
        self.mean(self.in_force)
    }

    /// Mean price of the new plan, per hour.
    #[must_use]
    pub fn new_per_hour(&self) -> f64 {
        self.mean(self.new)
    }

    /// Cost of the change per hour, spread over the compared time.
    #[must_use]
    pub fn change_per_hour(&self) -> f64 {
        self.mean(self.change)
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / self.periods.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In proportion to the load, as a ladder of very fine steps would be.
    fn by_load(price: f64) -> impl Fn(f64) -> f64 {
        move |qps| price * qps
    }

    #[test]
    fn a_change_must_save_more_than_one_period_of_the_plan() {
        let loads: Loads = [100.0; PERIODS_MAX].into_iter().collect();
        // 6 periods of the old against 7 of the new
        for (new, is_worth_it) in [(6.9, false), (6.01, false), (5.99, true), (1.0, true)] {
            let compared = loads.compare(|_| 7.0, |_| new);
            assert_eq!(compared.is_worth_it(), is_worth_it, "{new}");
            let means = [compared.in_force_per_hour(), compared.new_per_hour(), compared.change_per_hour()];
            let by_hand = [7.0, new, new / 6.0];
            assert!(means.iter().zip(by_hand).all(|(mean, by_hand)| (mean - by_hand).abs() < 1e-12), "{compared:?}");
            assert_eq!(compared.seconds(), 60);
        }
    }

    #[test]
    fn replicas_of_a_peak_cost_for_half_a_minute() {
        let peak = [0.0, 0.0, 0.0, 60.0, 0.0, 0.0, 0.0, 0.0];
        let loads: Loads = peak.into_iter().collect();
        // by hand: of the six windows of three periods those that end at the 4th, 5th and 6th have the peak
        let by_hand = 3.0 * 60.0 * 2.0 / 6.0;
        let compared = loads.compare(by_load(2.0), |_| 10.0);
        assert_eq!((compared.in_force_per_hour(), compared.new_per_hour()), (by_hand, 10.0));
        assert!(compared.is_worth_it(), "360 against 60 and 10");
        // the change is paid at the present load, which is 0
        assert_eq!(loads.compare(|_| 10.0, by_load(2.0)).change_per_hour(), 0.0);
    }

    #[test]
    fn drawn_loads_are_priced_like_a_sum_by_hand() {
        let mut state = 1_u32;
        for count in (1..=PERIODS_MAX).cycle().take(200) {
            let mut draw = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f64::from(state >> 24)
            };
            let loads: Vec<f64> = (0..count).map(|_| draw()).collect();
            let (old, new) = (|qps: f64| (qps / 50.0).ceil(), |qps: f64| 1.5 * (qps / 100.0).ceil());
            let (mut sums, mut periods) = ([0.0; 2], 0);
            for end in 2.min(count - 1)..count {
                let mut most = 0.0;
                for load in &loads[end.saturating_sub(2)..=end] {
                    most = load.max(most);
                }
                sums = [sums[0] + old(most), sums[1] + new(most)];
                periods += 1;
            }
            let change = new(loads[count - 1]);
            let by_hand = CostComparison { periods, in_force: sums[0], new: sums[1], change };
            assert_eq!(loads.iter().copied().collect::<Loads>().compare(old, new), by_hand, "{loads:?}");
            assert_eq!(by_hand.is_worth_it(), sums[0] > sums[1] + change);
        }
    }

    #[test]
    fn only_the_last_periods_are_compared() {
        let long: Loads = (0..100).map(|at| if at < 92 { 1e6 } else { 5.0 }).collect();
        assert_eq!(long, [5.0; PERIODS_MAX].into_iter().collect());
        let young: Loads = [5.0, 8.0].into_iter().collect();
        let compared = young.compare(by_load(1.0), by_load(0.4));
        assert_eq!((compared.seconds(), compared.in_force_per_hour(), compared.new_per_hour()), (10, 8.0, 3.2));
        assert!(
            compared.is_worth_it() && !young.compare(by_load(1.0), by_load(0.6)).is_worth_it(),
            "one period against one"
        );
    }

    #[test]
    fn the_peak_is_that_of_the_last_periods() {
        let loads: Loads = [90.0, 70.0, 20.0, 30.0].into_iter().collect();
        let peaks = [0.0, 10.0, 15.0, 21.0, 40.0, 1e9].map(|seconds| loads.peak_qps(seconds));
        assert_eq!(peaks, [30.0, 30.0, 30.0, 70.0, 90.0, 90.0]);
        assert_eq!(Loads::default().peak_qps(60.0), 0.0);
    }

    #[test]
    fn no_change_is_worth_it_without_loads_or_plan() {
        assert!(!Loads::default().compare(|_| 1e9, |_| 0.0).is_worth_it());
        let loads: Loads = [1.0].into_iter().collect();
        assert!(!loads.compare(|_| 1e9, |_| f64::INFINITY).is_worth_it());
        assert!(loads.compare(|_| f64::INFINITY, |_| 1.0).is_worth_it());
    }
}
