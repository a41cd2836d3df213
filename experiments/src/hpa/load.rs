//! Which load do both sides get, and which rate does a measurement of it show?

use crate::live::estimate::poisson_arrivals;
use anyhow::Result;
use apportion_domain::Moment;
use serde::Serialize;
use std::time::Duration;

/// Rate at the start and after the fall, in requests per second. Each task then has three replicas or more at the peak.
pub const BASE_QPS: f64 = 160.0;
/// The rate at the end of the ramp, over the base. The doubling follows.
const RAMPED: f64 = 1.5;
/// Both sides see the mean rate of this time, as `rate(...[15s])` of a Prometheus shows it.
pub const METRIC_WINDOW: Duration = Duration::from_secs(15);

/// How long the load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpaRunLength {
    /// 15 minutes, with the periods and windows that Kubernetes has by default.
    Full,
    /// 3 minutes, with shorter periods and windows of the autoscaler: for tests.
    Quick,
}

/// The moments of a load, in seconds from its start: the base, a ramp to 1.5 times, a doubling, and the base again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadPhases {
    /// The ramp begins.
    pub ramp_from_s: u32,
    /// The ramp ends.
    pub ramp_until_s: u32,
    /// The rate doubles.
    pub double_at_s: u32,
    /// The rate falls to the base.
    pub fall_at_s: u32,
    /// The load ends.
    pub end_s: u32,
}

impl LoadPhases {
    /// The moments for a length. After the fall, the full one leaves the autoscaler's window of 300 s and two minutes more.
    pub const fn of(length: HpaRunLength) -> Self {
        match length {
            HpaRunLength::Full => Self { ramp_from_s: 90, ramp_until_s: 240, double_at_s: 300, fall_at_s: 480, end_s: 900 },
            HpaRunLength::Quick => Self { ramp_from_s: 20, ramp_until_s: 45, double_at_s: 55, fall_at_s: 95, end_s: 180 },
        }
    }

    /// The rate in one second, in requests per second.
    fn rate_qps(&self, second: u32) -> f64 {
        let ramp = f64::from(self.ramp_until_s - self.ramp_from_s);
        let risen = f64::from(second.saturating_sub(self.ramp_from_s)).min(ramp) / ramp;
        let factor = match second {
            _ if second >= self.fall_at_s => 1.0,
            _ if second >= self.double_at_s => 2.0 * RAMPED,
            _ => 1.0 + (RAMPED - 1.0) * risen,
        };
        BASE_QPS * factor
    }

    /// The rates, second by second.
    pub fn rates(&self) -> Vec<(u64, f64)> {
        (0..self.end_s).map(|second| (u64::from(second), self.rate_qps(second))).collect()
    }

    /// The length of the load.
    pub fn end(&self) -> Duration {
        Duration::from_secs(self.end_s.into())
    }
}

/// The requests of a load: their moments from its start, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedTrace {
    arrivals: Vec<Duration>,
}

impl OfferedTrace {
    /// Poisson arrivals at the rates of the phases.
    ///
    /// # Errors
    /// If the rates are not valid.
    pub fn draw(phases: &LoadPhases, seed: u64) -> Result<Self> {
        Ok(Self { arrivals: poisson_arrivals(phases.rates(), seed)? })
    }

    /// Mean rate over the last [`METRIC_WINDOW`] before `at`, in requests per second. At the start the window is shorter,
    /// and without any time the rate is the base.
    pub fn seen_qps(&self, at: Duration) -> f64 {
        let from = at.saturating_sub(METRIC_WINDOW);
        let before = |moment: Duration| self.arrivals.partition_point(|arrival| *arrival < moment);
        let seconds = (at - from).as_secs_f64();
        if seconds > 0.0 { (before(at) - before(from)) as f64 / seconds } else { BASE_QPS }
    }

    /// The arrivals for a replay.
    pub fn moments(&self) -> Vec<Moment> {
        self.arrivals.iter().map(|at| Moment::from_nanos(at.as_nanos() as u64)).collect()
    }

    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.arrivals.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_ramps_doubles_and_falls() {
        for length in [HpaRunLength::Full, HpaRunLength::Quick] {
            let phases = LoadPhases::of(length);
            let at = |second: u32| phases.rate_qps(second);
            assert_eq!((at(0), at(phases.ramp_from_s), at(phases.ramp_until_s)), (160.0, 160.0, 240.0));
            assert_eq!((at(phases.double_at_s - 1), at(phases.double_at_s)), (240.0, 480.0));
            assert_eq!((at(phases.fall_at_s - 1), at(phases.fall_at_s)), (480.0, 160.0));
            assert_eq!(phases.rates().len(), phases.end_s as usize);
        }
    }

    #[test]
    fn the_seen_rate_is_a_mean_of_fifteen_seconds() {
        let trace = OfferedTrace { arrivals: (0..40).map(Duration::from_secs).collect() };
        assert_eq!(trace.seen_qps(Duration::ZERO), BASE_QPS);
        assert_eq!(trace.seen_qps(Duration::from_secs(5)), 1.0);
        assert_eq!(trace.seen_qps(Duration::from_secs(30)), 1.0);
        assert_eq!(trace.seen_qps(Duration::from_secs(45)), 10.0 / 15.0);
        assert_eq!(trace.seen_qps(Duration::from_secs(60)), 0.0);
    }

    #[test]
    fn the_same_seed_draws_the_same_requests() {
        let phases = LoadPhases::of(HpaRunLength::Quick);
        let trace = OfferedTrace::draw(&phases, 1).expect("rates");
        assert_eq!(trace, OfferedTrace::draw(&phases, 1).expect("rates"));
        assert_ne!(trace, OfferedTrace::draw(&phases, 2).expect("rates"));
        let expected: f64 = phases.rates().iter().map(|(_, qps)| qps).sum();
        assert!((trace.requests() as f64 / expected - 1.0).abs() < 0.03, "{} of {expected}", trace.requests());
    }
}
