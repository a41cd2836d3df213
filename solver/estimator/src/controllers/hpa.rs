//! Kubernetes' horizontal pod autoscaler, with utilisation as its metric.
//!
//! Source: kubernetes.io, "Horizontal Pod Autoscaling", algorithm details. The formula is `desired = ceil(current * metric
//! / target)`, without a change within the tolerance. On the way up, pods that are not ready count as unused; if that
//! reverses the direction, nothing changes. On the way down, the highest recommendation of the stabilisation window counts.
//! By default at most 4 pods or 100 % are added in 15 s, whichever is more, and any number may be removed.

use crate::scenario::{Controller, GroupObservation, Observation, ScenarioEvent};
use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// Settings; the defaults are the documented ones, and a target of 0.7.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HpaConfig {
    /// Utilisation to keep to.
    pub target: f64,
    /// How often it looks.
    pub sync: TimeSpan,
    /// How long the highest recommendation is kept on the way down.
    pub stabilisation_down: TimeSpan,
    /// Ratios this close to 1 change nothing.
    pub tolerance: f64,
    /// Pods that one sync may add at least.
    pub pods_up_max: u32,
    /// The most replicas of a group.
    pub replicas_max: u32,
}

impl Default for HpaConfig {
    fn default() -> Self {
        Self {
            target: 0.7,
            sync: TimeSpan::from_nanos(15_000_000_000),
            stabilisation_down: TimeSpan::from_nanos(300_000_000_000),
            tolerance: 0.1,
            pods_up_max: 4,
            replicas_max: 1 << 16,
        }
    }
}

/// One autoscaler for each group of a plan.
#[derive(Clone, Debug)]
pub struct Hpa {
    config: HpaConfig,
    /// By group: recommendations within the window of stabilisation, oldest first.
    recommended: Vec<VecDeque<Recommendation>>,
}

/// The replicas that the formula gave at one moment.
#[derive(Clone, Copy, Debug)]
struct Recommendation {
    at: Moment,
    replicas: u32,
}

impl Hpa {
    /// With these settings.
    #[must_use]
    pub fn new(config: HpaConfig) -> Self {
        Self { config, recommended: Vec::new() }
    }

    /// The replicas that the formula gives, before stabilisation.
    fn recommend(&self, group: &GroupObservation) -> u32 {
        let current = group.ready + group.loading;
        let ratio = group.utilisation / self.config.target;
        let is_tolerated = |ratio: f64| (ratio - 1.0).abs() <= self.config.tolerance + 1e-9;
        if is_tolerated(ratio) {
            return current;
        }
        let ceil = |replicas: f64| (replicas - 1e-9).ceil().max(1.0) as u32;
        if ratio > 1.0 && group.loading > 0 {
            let with_unready = ratio * f64::from(group.ready) / f64::from(current);
            let is_turned = with_unready < 1.0 || is_tolerated(with_unready);
            return if is_turned { current } else { ceil(with_unready * f64::from(current)) };
        }
        ceil(ratio * f64::from(group.ready))
    }

    /// The replicas that a group should have, after stabilisation and the limits.
    fn desired(&mut self, at: usize, now: Moment, group: &GroupObservation) -> u32 {
        let newest = self.recommend(group);
        let kept = &mut self.recommended[at];
        kept.push_back(Recommendation { at: now, replicas: newest });
        while kept.front().is_some_and(|r| now.since(r.at) > self.config.stabilisation_down) {
            kept.pop_front();
        }
        let current = group.ready + group.loading;
        let highest = kept.iter().map(|r| r.replicas).max().unwrap_or(newest);
        // On the way up the window is 0 s: the last recommendation counts. On the way down the highest one counts. It never
        // turns the way up.
        let wanted = if newest >= current { newest } else { highest.min(current) };
        let up_max = current.saturating_add(self.config.pods_up_max.max(current));
        wanted.min(up_max).clamp(1, self.config.replicas_max)
    }
}

impl Controller for Hpa {
    fn period(&self) -> TimeSpan {
        self.config.sync
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        self.recommended.resize(seen.groups.len(), VecDeque::new());
        let mut commands = Vec::new();
        for (at, group) in seen.groups.iter().enumerate() {
            let replicas = self.desired(at, seen.at, group);
            if replicas != group.ready + group.loading {
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

    /// Syncs with (ready, loading, utilisation), and the replicas asked for.
    fn check(script: &[(u32, u32, f64, u32)]) {
        let mut hpa = Hpa::new(HpaConfig { target: 0.5, ..HpaConfig::default() });
        for (turn, &(ready, loading, utilisation, expected)) in script.iter().enumerate() {
            let at = Moment::from_millis(15_000.0 * (turn + 1) as f64);
            let commands = hpa.observe(&seen(at, ready, loading, 0, utilisation));
            let asked = commands.first().map_or(ready + loading, |(_, event)| match event {
                ScenarioEvent::Replicas { replicas, .. } => *replicas,
                _ => 0,
            });
            assert_eq!(asked, expected, "turn {turn}");
        }
    }

    #[test]
    fn replicas_follow_utilisation_beyond_a_tolerance_of_a_tenth() {
        check(&[(4, 0, 0.5, 4), (4, 0, 0.55, 4), (4, 0, 0.56, 5), (4, 0, 1.0, 8)]);
    }

    #[test]
    fn a_sync_adds_at_most_four_pods_or_doubles() {
        check(&[(2, 0, 2.0, 6), (10, 0, 2.0, 20)]);
    }

    #[test]
    fn replicas_that_load_count_as_unused() {
        // 4 of 8 ready at 90 %: 1.8 * 4 / 8 = 0.9, no longer above the target. At 150 %: 12.
        check(&[(4, 4, 0.9, 8), (4, 4, 1.5, 12)]);
    }

    #[test]
    fn scale_down_follows_the_highest_recommendation_of_five_minutes() {
        // 8 are recommended at 15 s; until 315 s this keeps them, then 4 of the later ones.
        let mut script = vec![(8, 0, 0.5, 8)];
        script.extend([(8, 0, 0.25, 8); 20]);
        script.push((8, 0, 0.25, 4));
        check(&script);
    }
}
