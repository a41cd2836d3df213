//! Knative's pod autoscaler (KPA), one for each group of a plan.
//!
//! Sources: knative.dev, "Additional autoscaling configuration for Knative Pod Autoscaler", and the decider's code
//! (`pkg/autoscaler/scaling/autoscaler.go`). Every two seconds it divides the mean of the stable window, and that of the
//! panic window, by the target of one replica. Where the panic window asks for at least twice the ready replicas, it
//! panics: the higher of both counts, and nothing is removed until a stable window has passed without another reason.
//!
//! Replicas report their mean concurrency once a second. Here it is the mean of four samples. The activator, which holds
//! requests back while there is no replica, has no counterpart, because every group keeps a replica.

use crate::scenario::{Controller, GroupObservation, Observation, ScenarioEvent};
use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// The metric that is kept at its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KpaMetric {
    /// Queries that wait or run.
    #[default]
    Concurrency,
    /// Queries that arrive per second.
    Rate,
}

/// Settings; the defaults are those of the config map `config-autoscaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KpaConfig {
    /// What it measures.
    pub metric: KpaMetric,
    /// `container-concurrency-target-default` or `requests-per-second-target-default`, for one replica.
    pub target: f64,
    /// `container-concurrency-target-percentage`, as a share: this part of the target is aimed at.
    pub target_share: f64,
    /// `stable-window`, in whole seconds.
    pub stable_window: TimeSpan,
    /// `panic-window-percentage`, as a share of the stable window; the panic window is in whole seconds.
    pub panic_window_share: f64,
    /// `panic-threshold-percentage`, as a share of the ready replicas.
    pub panic_threshold: f64,
    /// `max-scale-up-rate`.
    pub up_rate_max: f64,
    /// `max-scale-down-rate`.
    pub down_rate_max: f64,
    /// `scale-down-delay`.
    pub down_delay: TimeSpan,
    /// `tick-interval`.
    pub tick: TimeSpan,
    /// `min-scale`, at least one.
    pub replicas_min: u32,
    /// `max-scale`.
    pub replicas_max: u32,
}

impl Default for KpaConfig {
    fn default() -> Self {
        Self {
            metric: KpaMetric::Concurrency,
            target: 100.0,
            target_share: 0.7,
            stable_window: TimeSpan::from_nanos(60 * SECOND.as_nanos()),
            panic_window_share: 0.1,
            panic_threshold: 2.0,
            up_rate_max: 1_000.0,
            down_rate_max: 2.0,
            down_delay: TimeSpan::ZERO,
            tick: TimeSpan::from_nanos(2 * SECOND.as_nanos()),
            replicas_min: 1,
            replicas_max: 1 << 16,
        }
    }
}

const SECOND: TimeSpan = TimeSpan::from_nanos(1_000_000_000);

/// How often it samples.
const SAMPLE: TimeSpan = TimeSpan::from_nanos(SECOND.as_nanos() / 4);

impl KpaConfig {
    /// The panic window in seconds.
    fn panic_seconds(&self) -> usize {
        let seconds = self.stable_window.as_millis() / 1e3 * self.panic_window_share;
        (seconds.round() as usize).max(1)
    }

    fn stable_seconds(&self) -> usize {
        ((self.stable_window.as_millis() / 1e3).round() as usize).max(1)
    }
}

/// A time of panic.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Panic {
    /// When the panic window last asked for it.
    since: Moment,
    /// The most replicas that were asked for meanwhile.
    replicas: u32,
}

/// The replicas that one tick asked for.
#[derive(Clone, Copy, Debug)]
struct TickDecision {
    tick: u64,
    replicas: u32,
}

/// The decider of one group.
#[derive(Clone, Debug)]
struct Decider {
    config: KpaConfig,
    /// The metric of the last seconds, oldest first.
    seconds: VecDeque<f64>,
    /// The sum of the samples of the present second, and their number.
    sum: f64,
    samples: u32,
    panic: Option<Panic>,
    /// Decisions within the delay of scaling down, the highest first.
    delayed: VecDeque<TickDecision>,
}

impl Decider {
    /// It begins in panic if there is more than one replica, so that it keeps them until it knows better.
    fn new(config: KpaConfig, now: Moment, ready: u32) -> Self {
        let panic = (ready > 1).then_some(Panic { since: now, replicas: ready });
        Self { config, seconds: VecDeque::new(), sum: 0.0, samples: 0, panic, delayed: VecDeque::new() }
    }

    /// Takes a sample; the fourth closes a second.
    fn sample(&mut self, group: &GroupObservation) {
        self.sum += match self.config.metric {
            KpaMetric::Concurrency => (group.queued + group.running) as f64,
            KpaMetric::Rate => group.arrived as f64 * SECOND.as_millis() / SAMPLE.as_millis(),
        };
        self.samples += 1;
        if SAMPLE.as_nanos() * u64::from(self.samples) >= SECOND.as_nanos() {
            self.seconds.push_back(self.sum / f64::from(self.samples));
            (self.sum, self.samples) = (0.0, 0);
        }
        while self.seconds.len() > self.config.stable_seconds() {
            self.seconds.pop_front();
        }
    }

    /// The mean of the last seconds, to six digits as in Knative's windows.
    fn mean(&self, seconds: usize) -> f64 {
        let taken = seconds.min(self.seconds.len());
        let mean = self.seconds.iter().rev().take(taken).sum::<f64>() / taken.max(1) as f64;
        (mean * 1e6).round() / 1e6
    }

    /// The replicas that it asks for at a tick; `None` before the first second.
    fn decide(&mut self, now: Moment, ready: u32) -> Option<u32> {
        if self.seconds.is_empty() {
            return None;
        }
        let config = self.config;
        let ready = f64::from(ready.max(1));
        let (most, fewest) = ((config.up_rate_max * ready).ceil(), (ready / config.down_rate_max).floor());
        let target = config.target * config.target_share;
        let wanted = |mean: f64| (mean / target).ceil();
        let (stable, panicking) = (wanted(self.mean(config.stable_seconds())), wanted(self.mean(config.panic_seconds())));
        let within = |replicas: f64| replicas.max(fewest).min(most) as u32;
        if panicking / ready >= config.panic_threshold {
            let replicas = self.panic.map_or(0, |p| p.replicas);
            self.panic = Some(Panic { since: now, replicas });
        } else if self.panic.is_some_and(|p| now.since(p.since) > config.stable_window) {
            self.panic = None;
        }
        let mut replicas = within(stable);
        if let Some(panic) = &mut self.panic {
            panic.replicas = panic.replicas.max(replicas).max(within(panicking));
            replicas = panic.replicas;
        }
        Some(self.delay(now, replicas).clamp(config.replicas_min.max(1), config.replicas_max))
    }

    /// The highest decision within the delay of scaling down.
    fn delay(&mut self, now: Moment, replicas: u32) -> u32 {
        let tick = self.config.tick.as_nanos().max(1);
        let window = self.config.down_delay.as_nanos().div_ceil(tick);
        if window == 0 {
            return replicas;
        }
        let present = now.as_nanos() / tick;
        self.delayed.retain(|d| present - d.tick < window && d.replicas > replicas);
        self.delayed.push_back(TickDecision { tick: present, replicas });
        self.delayed[0].replicas
    }
}

/// One autoscaler for each group of a plan.
#[derive(Clone, Debug)]
pub struct Kpa {
    configs: Vec<KpaConfig>,
    deciders: Vec<Decider>,
    last_tick: Moment,
}

impl Kpa {
    /// With settings for the groups, in the order of the reports. Further groups have the last ones.
    ///
    /// # Panics
    /// Without settings.
    #[must_use]
    pub fn for_groups(configs: Vec<KpaConfig>) -> Self {
        assert!(!configs.is_empty(), "an autoscaler needs settings");
        Self { configs, deciders: Vec::new(), last_tick: Moment::ZERO }
    }
}

impl Controller for Kpa {
    fn period(&self) -> TimeSpan {
        SAMPLE
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        for at in self.deciders.len()..seen.groups.len() {
            let config = self.configs[at.min(self.configs.len() - 1)];
            self.deciders.push(Decider::new(config, seen.at, seen.groups[at].ready));
        }
        self.deciders.iter_mut().zip(&seen.groups).for_each(|(decider, group)| decider.sample(group));
        if seen.at.since(self.last_tick) < self.configs[0].tick {
            return Vec::new();
        }
        self.last_tick = seen.at;
        let decide = |(decider, group): (&mut Decider, &GroupObservation)| {
            let replicas = decider.decide(seen.at, group.ready)?;
            (replicas != group.ready + group.loading).then(|| (TimeSpan::ZERO, group.to_have(replicas)))
        };
        self.deciders.iter_mut().zip(&seen.groups).filter_map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::seen;

    /// Seconds `from..to` with this metric. Returns the replicas that are asked for at the last tick; replicas follow at
    /// once.
    struct Play {
        kpa: Kpa,
        ready: u32,
        samples: u64,
    }

    impl Play {
        fn new(config: KpaConfig, ready: u32) -> Self {
            Self { kpa: Kpa::for_groups(vec![config]), ready, samples: 0 }
        }

        /// Plays seconds with `value` queries at a time, or in a second.
        fn seconds(&mut self, seconds: u64, value: u64) -> u32 {
            for _ in 0..4 * seconds {
                self.samples += 1;
                let at = Moment::from_nanos(self.samples * SAMPLE.as_nanos());
                let mut report = seen(at, self.ready, 0, value, 0.0);
                report.groups[0].arrived = value / 4;
                for (_, event) in self.kpa.observe(&report) {
                    if let ScenarioEvent::Replicas { replicas, .. } = event {
                        self.ready = replicas;
                    }
                }
            }
            self.ready
        }
    }

    fn config(target: f64) -> KpaConfig {
        KpaConfig { target, ..KpaConfig::default() }
    }

    #[test]
    fn replicas_are_the_metric_over_the_target() {
        // "If a Revision specifies ContainerConcurrency of 10, then the Autoscaler will try to maintain 7 concurrent
        // connections per pod on average" (config-autoscaler): 100 / 7 and 50 / 7, rounded up.
        assert_eq!((Play::new(config(10.0), 1).seconds(2, 100), Play::new(config(10.0), 1).seconds(2, 50)), (15, 8));
        // Requests per second, with the default of 200 for each replica, of which 70 % are aimed at.
        let rate = KpaConfig { metric: KpaMetric::Rate, ..config(200.0) };
        assert_eq!(Play::new(rate, 1).seconds(2, 560), 4);
    }

    #[test]
    fn the_stable_mean_decides_without_panic() {
        // 14 queries on 2 replicas for a minute; the panic of the start has ended after 62 s.
        let mut play = Play::new(config(10.0), 2);
        assert_eq!(play.seconds(70, 14), 2);
        // Two seconds of 21 make a mean of 14.2 in the stable window: three replicas. The panic window asks for three as
        // well, which is less than twice those ready.
        assert_eq!((play.seconds(2, 21), play.seconds(4, 21)), (3, 3));
    }

    #[test]
    fn panic_follows_its_own_window_and_removes_nothing() {
        let mut play = Play::new(config(10.0), 1);
        assert_eq!(play.seconds(60, 7), 1);
        // The mean of six seconds is (4 * 7 + 2 * 70) / 6 = 28 after two of them: four replicas, at least twice as many.
        assert_eq!(play.seconds(2, 70), 4);
        // (2 * 7 + 4 * 70) / 6 = 49, and 70 after six seconds.
        assert_eq!((play.seconds(2, 70), play.seconds(2, 70)), (7, 10));
        // The load is gone at second 66. Only at second 62 was it twice what the ready replicas should have, so panic ends
        // after second 122.
        assert_eq!(play.seconds(56, 0), 10);
        // Then the fewest that are permitted: half at each tick.
        assert_eq!((play.seconds(2, 0), play.seconds(2, 0)), (5, 2));
        assert_eq!((play.seconds(2, 0), play.seconds(20, 0)), (1, 1));
    }

    #[test]
    fn several_replicas_begin_in_panic() {
        // No load: 4 replicas stay for the stable window of 60 s, then half of them leave at each tick.
        let mut play = Play::new(config(10.0), 4);
        assert_eq!((play.seconds(60, 0), play.seconds(2, 0), play.seconds(2, 0)), (4, 2, 1));
    }

    #[test]
    fn the_delay_keeps_the_highest_decision() {
        // Ticks of 2 s and a delay of 6 s: three decisions. The stable window of 6 s empties meanwhile.
        let delayed = KpaConfig {
            stable_window: TimeSpan::from_nanos(6 * SECOND.as_nanos()),
            down_delay: TimeSpan::from_nanos(6 * SECOND.as_nanos()),
            panic_threshold: 1e9,
            down_rate_max: 1e9,
            ..config(10.0)
        };
        let mut play = Play::new(delayed, 1);
        assert_eq!(play.seconds(6, 21), 3);
        // Means of 14, 7 and 0 would ask for 2, 1 and 1.
        assert_eq!((play.seconds(2, 0), play.seconds(2, 0), play.seconds(2, 0), play.seconds(2, 0)), (3, 3, 2, 1));
    }

    #[test]
    fn bounds_hold() {
        let bounded = KpaConfig { replicas_min: 2, replicas_max: 3, ..config(10.0) };
        let mut play = Play::new(bounded, 1);
        assert_eq!((play.seconds(2, 0), play.seconds(10, 700)), (2, 3));
    }
}
