//! Ray Serve's autoscaler, one for each group of a plan, with ongoing requests per replica as its metric.
//!
//! Sources: docs.ray.io, "Advanced Ray Serve Autoscaling", and `ray/serve/autoscaling_policy.py`. The formula is `desired =
//! running * (requests / (target * running))`, times the scaling factors, within the bounds. A change is made when all
//! decisions during the delay agree on its direction. [`RayPolicy`] is that function; `tests/ray_serve` has ten thousand
//! decisions of the original to compare with.
//!
//! Handles sample their requests, average them over the look-back period, and push the mean every ten seconds. Here there
//! is one sample a second.

use crate::scenario::{Controller, GroupObservation, Observation, ScenarioEvent};
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
    /// `upscaling_factor`.
    pub upscaling_factor: f64,
    /// `downscaling_factor`.
    pub downscaling_factor: f64,
    /// `look_back_period_s`.
    pub look_back: TimeSpan,
    /// `metrics_interval_s`: how often the mean is pushed.
    pub push_interval: TimeSpan,
    /// `min_replicas`, at least one.
    pub replicas_min: u32,
    /// `max_replicas`.
    pub replicas_max: u32,
}

impl Default for RayServeConfig {
    fn default() -> Self {
        Self {
            target_ongoing: 2.0,
            upscale_delay: TimeSpan::from_nanos(30_000_000_000),
            downscale_delay: TimeSpan::from_nanos(600_000_000_000),
            upscaling_factor: 1.0,
            downscaling_factor: 1.0,
            look_back: TimeSpan::from_nanos(30_000_000_000),
            push_interval: TimeSpan::from_nanos(10_000_000_000),
            replicas_min: 1,
            replicas_max: 1 << 16,
        }
    }
}

/// How often it samples and decides. Ray decides ten times a second, on what was pushed last.
const PERIOD: TimeSpan = TimeSpan::from_nanos(1_000_000_000);

/// Delays that are shorter by this count as over (`_DELAY_ELAPSED_EPS_S`).
const DELAY_TOLERANCE: TimeSpan = TimeSpan::from_nanos(1_000);

/// The facts of one decision.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RayContext {
    now: Moment,
    /// Replicas that serve: `current_num_replicas`.
    running: u32,
    /// Replicas that were asked for last: `target_num_replicas`.
    target: u32,
    /// Mean of the queries that wait or run, over all replicas: `total_num_requests`.
    requests: f64,
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

/// Ray's policy function with the state that it keeps between two calls.
#[derive(Clone, Copy, Debug, Default)]
struct RayPolicy {
    wanted: Option<WantedChange>,
}

impl RayPolicy {
    /// The number of replicas to have.
    fn decide(&mut self, config: &RayServeConfig, context: RayContext) -> u32 {
        let RayContext { running, target, requests, .. } = context;
        if running == 0 {
            // Without a running replica there is no delay.
            let first = if requests > 0.0 { config.upscaling_factor.ceil() as i64 } else { 0 };
            return bounded(config, first.max(i64::from(target)));
        }
        let current = f64::from(running);
        // In this order, as rounding depends on it.
        let desired = current * (requests / (config.target_ongoing * current));
        let delta = desired - current;
        let factor = if delta > 0.0 { config.upscaling_factor } else { config.downscaling_factor };
        let mut scaled = (current + factor * delta).ceil();
        if desired.ceil() < current && scaled == current {
            scaled -= 1.0;
        }
        self.delay(config, context, bounded(config, scaled as i64))
    }

    /// The desired number, once its direction has been wanted for the whole delay.
    fn delay(&mut self, config: &RayServeConfig, context: RayContext, desired: u32) -> u32 {
        let RayContext { now, target, .. } = context;
        if desired == target {
            self.wanted = None;
            return target;
        }
        let (direction, delay) = match desired > target {
            true => (Direction::Up, config.upscale_delay),
            false => (Direction::Down, config.downscale_delay),
        };
        let since = self.wanted.filter(|w| w.direction == direction).map_or(now, |w| w.since);
        self.wanted = Some(WantedChange { direction, since });
        if now.since(since) + DELAY_TOLERANCE < delay {
            return target;
        }
        self.wanted = None;
        desired
    }
}

fn bounded(config: &RayServeConfig, replicas: i64) -> u32 {
    replicas.clamp(i64::from(config.replicas_min), i64::from(config.replicas_max)) as u32
}

/// The queries that waited or ran at one moment.
#[derive(Clone, Copy, Debug)]
struct OngoingQueries {
    at: Moment,
    count: u64,
}

/// The autoscaler of one group.
#[derive(Clone, Debug)]
struct Deployment {
    config: RayServeConfig,
    policy: RayPolicy,
    /// Samples of the look-back period, oldest first.
    ongoing: VecDeque<OngoingQueries>,
    /// The mean that was pushed last, and when.
    requests: Option<f64>,
    pushed: Moment,
    /// The count that was asked for last. The replicas may not have reached it.
    target: u32,
}

impl Deployment {
    fn new(config: RayServeConfig, group: &GroupObservation) -> Self {
        let target = group.ready + group.loading;
        let (policy, ongoing) = (RayPolicy::default(), VecDeque::new());
        Self { config, policy, ongoing, requests: None, pushed: Moment::ZERO, target }
    }

    /// Samples, pushes if it is time, and decides; `None` if nothing changes.
    fn decide(&mut self, now: Moment, group: &GroupObservation) -> Option<u32> {
        self.ongoing.push_back(OngoingQueries { at: now, count: group.queued + group.running });
        while self.ongoing.front().is_some_and(|o| now.since(o.at) >= self.config.look_back) {
            self.ongoing.pop_front();
        }
        if now.since(self.pushed) >= self.config.push_interval {
            let sum: u64 = self.ongoing.iter().map(|o| o.count).sum();
            self.requests = Some(sum as f64 / self.ongoing.len().max(1) as f64);
            self.pushed = now;
        }
        let context = RayContext { now, running: group.ready, target: self.target, requests: self.requests? };
        let replicas = self.policy.decide(&self.config, context);
        (replicas != std::mem::replace(&mut self.target, replicas)).then_some(replicas)
    }
}

/// One autoscaler for each group of a plan.
#[derive(Clone, Debug)]
pub struct RayServe {
    configs: Vec<RayServeConfig>,
    deployments: Vec<Deployment>,
}

impl RayServe {
    /// With the same settings for every group.
    #[must_use]
    pub fn new(config: RayServeConfig) -> Self {
        Self::for_groups(vec![config])
    }

    /// With settings of their own for the groups, in the order of the reports. Further groups have the last ones.
    ///
    /// # Panics
    /// Without settings.
    #[must_use]
    pub fn for_groups(configs: Vec<RayServeConfig>) -> Self {
        assert!(!configs.is_empty(), "an autoscaler needs settings");
        Self { configs, deployments: Vec::new() }
    }
}

impl Controller for RayServe {
    fn period(&self) -> TimeSpan {
        PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        for at in self.deployments.len()..seen.groups.len() {
            let config = self.configs[at.min(self.configs.len() - 1)];
            self.deployments.push(Deployment::new(config, &seen.groups[at]));
        }
        let decide = |(deployment, group): (&mut Deployment, &GroupObservation)| {
            let replicas = deployment.decide(seen.at, group)?;
            Some((TimeSpan::ZERO, group.to_have(replicas)))
        };
        self.deployments.iter_mut().zip(&seen.groups).filter_map(decide).collect()
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
        // 4 ongoing on 2 replicas is the target. From second 41 on there are 10. The mean that is pushed at second 50 is
        // above 4, and 30 s later the mean is 10: five replicas.
        let ongoing = |second| if second <= 40 { 4 } else { 10 };
        assert_eq!(changes(2, ongoing, 200), [(80, 5)]);
    }

    #[test]
    fn scale_down_needs_ten_minutes_without_interruption() {
        // The first mean is pushed at second 10.
        assert_eq!(changes(5, |_| 2, 700), [(610, 1)]);
        // One burst that wants as many as there are starts the ten minutes again.
        assert_eq!(changes(2, |second| if second == 300 { 200 } else { 2 }, 700), []);
    }

    /// The decisions of the original, by `tests/ray_serve/decide.py`.
    const ORIGINAL: &str = include_str!("../../tests/ray_serve/decisions.txt");

    #[test]
    fn decisions_are_those_of_ray() {
        let mut decisions = 0;
        let rows = ORIGINAL.lines().filter(|line| !line.starts_with('#'));
        for (number, row) in rows.enumerate() {
            let (settings, steps) = row.split_once(';').expect("settings and steps");
            let [target_ongoing, up_s, down_s, upscaling_factor, downscaling_factor, least, most] = numbers(settings);
            let config = RayServeConfig {
                target_ongoing,
                upscale_delay: TimeSpan::from_millis(1e3 * up_s),
                downscale_delay: TimeSpan::from_millis(1e3 * down_s),
                upscaling_factor,
                downscaling_factor,
                replicas_min: least as u32,
                replicas_max: most as u32,
                ..RayServeConfig::default()
            };
            let (mut policy, mut target) = (RayPolicy::default(), least as u32);
            for (step, text) in steps.split_whitespace().enumerate() {
                let [requests, running, expected] = numbers(text);
                let now = Moment::from_millis(100.0 * step as f64);
                let context = RayContext { now, running: running as u32, target, requests };
                target = policy.decide(&config, context);
                assert_eq!(target, expected as u32, "sequence {number}, step {step}: {context:?}, {config:?}");
                decisions += 1;
            }
        }
        assert_eq!(decisions, 10_000);
    }

    fn numbers<const N: usize>(text: &str) -> [f64; N] {
        let all: Vec<f64> = text.split(',').map(|number| number.trim().parse().expect("a number")).collect();
        all.try_into().expect("as many numbers as the script writes")
    }
}
