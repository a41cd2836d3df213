//! Ray Serve's autoscaler, with ongoing requests per replica as its metric.
//!
//! Source: docs.ray.io, "Advanced Ray Serve Autoscaling", with its defaults. The formula is `desired = ceil(replicas *
//! ongoing per replica / target)`, of the mean over the look-back period. A change is made when all decisions during the
//! delay agree on its direction.

use crate::scenario::{Controller, Observation, ScenarioEvent};
use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// Settings; the defaults are the documented ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RayServeConfig {
    /// `target_ongoing_requests`: running and waiting queries for each replica.
    pub target_ongoing: f64,
    /// `upscale_delay_s`.
    pub upscale_delay: TimeSpan,
    /// `downscale_delay_s`.
    pub downscale_delay: TimeSpan,
    /// `look_back_period_s`.
    pub look_back: TimeSpan,
    /// How often it decides. Ray decides ten times a second; its metrics are pushed every ten seconds and averaged over
    /// thirty.
    pub period: TimeSpan,
    /// The most replicas of a group.
    pub replicas_max: u32,
}

impl Default for RayServeConfig {
    fn default() -> Self {
        Self {
            target_ongoing: 2.0,
            upscale_delay: TimeSpan::from_nanos(30_000_000_000),
            downscale_delay: TimeSpan::from_nanos(600_000_000_000),
            look_back: TimeSpan::from_nanos(30_000_000_000),
            period: TimeSpan::from_nanos(1_000_000_000),
            replicas_max: 1 << 16,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Deployment {
    /// Ongoing queries at the last decisions, oldest first.
    ongoing: VecDeque<OngoingQueries>,
    /// The sum of their counts.
    sum: u64,
    /// The count that was asked for last: Ray's target, which its replicas may not have reached.
    target: u32,
    /// The change that it has wanted lately.
    wanted: Option<WantedChange>,
}

/// The queries that waited or ran at one decision.
#[derive(Clone, Copy, Debug)]
struct OngoingQueries {
    at: Moment,
    count: u64,
}

/// A change that all decisions since a moment wanted.
#[derive(Clone, Copy, Debug)]
struct WantedChange {
    direction: Direction,
    since: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// One autoscaler for each group of a plan.
#[derive(Clone, Debug)]
pub struct RayServe {
    config: RayServeConfig,
    deployments: Vec<Deployment>,
}

impl RayServe {
    /// With these settings.
    #[must_use]
    pub fn new(config: RayServeConfig) -> Self {
        Self { config, deployments: Vec::new() }
    }
}

impl Deployment {
    fn decide(&mut self, config: &RayServeConfig, now: Moment, ongoing: u64) -> Option<u32> {
        self.ongoing.push_back(OngoingQueries { at: now, count: ongoing });
        self.sum += ongoing;
        while self.ongoing.front().is_some_and(|o| now.since(o.at) >= config.look_back) {
            self.sum -= self.ongoing.pop_front().map_or(0, |o| o.count);
        }
        let mean = self.sum as f64 / self.ongoing.len() as f64;
        let desired = ((mean / config.target_ongoing - 1e-9).ceil().max(1.0) as u32).min(config.replicas_max);
        if desired == self.target {
            self.wanted = None;
            return None;
        }
        let (direction, delay) = match desired > self.target {
            true => (Direction::Up, config.upscale_delay),
            false => (Direction::Down, config.downscale_delay),
        };
        let since = self.wanted.filter(|w| w.direction == direction).map_or(now, |w| w.since);
        self.wanted = Some(WantedChange { direction, since });
        if now.since(since) < delay {
            return None;
        }
        self.wanted = None;
        self.target = desired;
        Some(desired)
    }
}

impl Controller for RayServe {
    fn period(&self) -> TimeSpan {
        self.config.period
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        if self.deployments.is_empty() {
            let target =
                |g: &crate::scenario::GroupObservation| Deployment { target: g.ready + g.loading, ..Deployment::default() };
            self.deployments = seen.groups.iter().map(target).collect();
        }
        let mut commands = Vec::new();
        for (deployment, group) in self.deployments.iter_mut().zip(&seen.groups) {
            if let Some(replicas) = deployment.decide(&self.config, seen.at, group.queued + group.running) {
                commands.push((TimeSpan::ZERO, group.to_have(replicas)));
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::seen;

    /// Seconds and replicas of all changes under this many ongoing queries by second.
    fn changes(start: u32, ongoing: impl Fn(u64) -> u64, seconds: u64) -> Vec<(u64, u32)> {
        let mut ray = RayServe::new(RayServeConfig::default());
        let mut changes = Vec::new();
        for second in 1..=seconds {
            let at = Moment::from_millis(second as f64 * 1e3);
            for (_, event) in ray.observe(&seen(at, start, 0, ongoing(second), 0.0)) {
                if let ScenarioEvent::Replicas { replicas, .. } = event {
                    changes.push((second, replicas));
                }
            }
        }
        changes
    }

    #[test]
    fn scale_up_follows_the_mean_of_thirty_seconds() {
        // 4 ongoing on 2 replicas is the target. From second 41 on there are 10, so the mean is above 4. It is 10 at second
        // 70, and the decision falls at second 71.
        let ongoing = |second| if second <= 40 { 4 } else { 10 };
        assert_eq!(changes(2, ongoing, 200), [(71, 5)]);
    }

    #[test]
    fn scale_down_needs_ten_minutes_without_interruption() {
        assert_eq!(changes(5, |_| 2, 700), [(601, 1)]);
        // One burst that wants as many as there are starts the ten minutes again.
        assert_eq!(changes(2, |second| if second == 300 { 200 } else { 2 }, 700), []);
    }
}
