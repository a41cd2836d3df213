//! Kubernetes' horizontal pod autoscaler, one for each group of a plan.
//!
//! Sources: kubernetes.io, "Horizontal Pod Autoscaling", sections "Algorithm details" and "Configurable scaling behavior",
//! and the controller's code (`pkg/controller/podautoscaler`). At each sync the formula gives a recommendation. The
//! stabilisation windows hold it between the lowest recommendation of the window for scaling up and the highest one of the
//! window for scaling down. The policies then bound the change, and `minReplicas` and `maxReplicas` the result. At the
//! first sync the present replicas count as a recommendation.

use super::hpa_rules::{HpaRules, ReplicaChange, ScalingHistory};
use crate::scenario::{Controller, GroupObservation, Observation, ScenarioEvent};
use apportion_domain::{Moment, TimeSpan};

/// The metric that an autoscaler keeps at its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HpaMetric {
    /// Busy time of the ready replicas: a metric of type `Resource` with `averageUtilization`, in whole percent.
    #[default]
    Utilisation,
    /// Queries that arrive per second, for each replica: a metric of type `External` with `averageValue`, as KEDA makes it.
    Rate,
    /// Queries that wait or run, for each replica: of the same type. It is the mean over the time since the last sync.
    Concurrency,
}

/// Settings; the defaults are the documented ones, and a target of 0.7 of the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct HpaConfig {
    /// What it measures.
    pub metric: HpaMetric,
    /// Value of the metric to keep to: a share of the time, queries per second, or queries.
    pub target: f64,
    /// How often it decides.
    pub sync: TimeSpan,
    /// Ratios this close to 1 change nothing.
    pub tolerance: f64,
    /// How it scales up.
    pub up: HpaRules,
    /// How it scales down.
    pub down: HpaRules,
    /// The fewest replicas of a group, at least one.
    pub replicas_min: u32,
    /// The most replicas of a group.
    pub replicas_max: u32,
}

impl Default for HpaConfig {
    fn default() -> Self {
        Self {
            metric: HpaMetric::Utilisation,
            target: 0.7,
            sync: TimeSpan::from_nanos(15_000_000_000),
            tolerance: 0.1,
            up: HpaRules::up(),
            down: HpaRules::down(),
            replicas_min: 1,
            replicas_max: 1 << 16,
        }
    }
}

/// How often the metrics are sampled between two syncs, at most.
const SAMPLE: TimeSpan = TimeSpan::from_nanos(1_000_000_000);

/// Metrics are compared in thousandths, as Kubernetes' quantities are.
const MILLI: f64 = 1e3;

/// Sums of the metrics since the last sync.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    /// Busy time over the period, summed over ready replicas and samples.
    busy: f64,
    /// Ready replicas, summed over the samples.
    ready: f64,
    arrived: u64,
    ongoing: u64,
    count: u32,
}

impl Samples {
    fn add(&mut self, group: &GroupObservation) {
        self.busy += group.utilisation * f64::from(group.ready);
        self.ready += f64::from(group.ready);
        self.arrived += group.arrived;
        self.ongoing += group.queued + group.running;
        self.count += 1;
    }
}

/// The autoscaler of one group.
#[derive(Clone, Debug)]
struct GroupAutoscaler {
    config: HpaConfig,
    samples: Samples,
    history: ScalingHistory,
}

/// One autoscaler for each group of a plan.
#[derive(Clone, Debug)]
pub struct Hpa {
    configs: Vec<HpaConfig>,
    groups: Vec<GroupAutoscaler>,
    last_sync: Moment,
}

impl Hpa {
    /// With the same settings for every group.
    #[must_use]
    pub fn new(config: HpaConfig) -> Self {
        Self::for_groups(vec![config])
    }

    /// With settings of their own for the groups, in the order of the reports. Further groups have the last ones.
    ///
    /// # Panics
    /// Without settings.
    #[must_use]
    pub fn for_groups(configs: Vec<HpaConfig>) -> Self {
        assert!(!configs.is_empty(), "an autoscaler needs settings");
        Self { configs, groups: Vec::new(), last_sync: Moment::ZERO }
    }

    fn sync(&self) -> TimeSpan {
        self.configs[0].sync
    }
}

impl GroupAutoscaler {
    /// Whether a ratio to the target is so close to 1 that nothing changes.
    fn tolerates(&self, ratio: f64) -> bool {
        (ratio - 1.0).abs() <= self.config.tolerance + 1e-9
    }

    /// The replicas that the formula gives, before stabilisation. `GetResourceReplicas` and
    /// `GetExternalPerPodMetricReplicas` in the controller's code.
    fn recommend(&self, group: &GroupObservation, elapsed: TimeSpan) -> u32 {
        let current = group.ready + group.loading;
        let total = match self.config.metric {
            HpaMetric::Utilisation => return self.recommend_by_utilisation(group),
            HpaMetric::Rate => self.samples.arrived as f64 * 1e3 / elapsed.as_millis().max(1e-6),
            HpaMetric::Concurrency => self.samples.ongoing as f64 / f64::from(self.samples.count.max(1)),
        };
        let (total, target) = ((MILLI * total).round(), (MILLI * self.config.target).round().max(1.0));
        if self.tolerates(total / (target * f64::from(current.max(1)))) { current } else { (total / target).ceil() as u32 }
    }

    /// Replicas that load count as unused on the way up, unless this would turn the direction.
    fn recommend_by_utilisation(&self, group: &GroupObservation) -> u32 {
        let current = group.ready + group.loading;
        let used = self.samples.busy / self.samples.ready.max(1.0);
        let target = (100.0 * self.config.target).round().max(1.0);
        // Kubernetes cuts the percentage to a whole number.
        let ratio_at = |used: f64| (100.0 * used + 1e-9).floor() / target;
        let ratio = ratio_at(used);
        if ratio > 1.0 && group.loading > 0 {
            let with_loading = ratio_at(used * f64::from(group.ready) / f64::from(current));
            let is_turned = with_loading < 1.0 || self.tolerates(with_loading);
            let wanted = ceil(with_loading * f64::from(current));
            return if is_turned { current } else { wanted.max(current) };
        }
        if self.tolerates(ratio) { current } else { ceil(ratio * f64::from(group.ready)) }
    }

    /// The replicas that the group should have, after stabilisation and the limits.
    fn decide(&mut self, now: Moment, group: &GroupObservation, elapsed: TimeSpan) -> u32 {
        let current = group.ready + group.loading;
        let HpaConfig { replicas_min, replicas_max, .. } = self.config;
        self.history.begin(now, current);
        let wanted = if current > replicas_max {
            replicas_max
        } else if current < replicas_min {
            replicas_min
        } else {
            let newest = self.recommend(group, elapsed);
            let HpaConfig { up, down, .. } = &self.config;
            let stable = self.history.stabilise(now, ReplicaChange { current, wanted: newest }, up, down);
            let bounded = self.history.bound(now, ReplicaChange { current, wanted: stable }, up, down);
            bounded.clamp(replicas_min.max(1), replicas_max)
        };
        self.history.note_change(now, ReplicaChange { current, wanted });
        wanted
    }
}

/// Rounds up; a product that misses a whole number by the last digits is that number.
fn ceil(replicas: f64) -> u32 {
    (replicas - 1e-9).ceil().max(0.0) as u32
}

impl Controller for Hpa {
    fn period(&self) -> TimeSpan {
        SAMPLE.min(self.sync())
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        for at in self.groups.len()..seen.groups.len() {
            let config = self.configs[at.min(self.configs.len() - 1)].clone();
            self.groups.push(GroupAutoscaler { config, samples: Samples::default(), history: ScalingHistory::default() });
        }
        self.groups.iter_mut().zip(&seen.groups).for_each(|(of_group, group)| of_group.samples.add(group));
        let elapsed = seen.at.since(self.last_sync);
        if elapsed < self.sync() {
            return Vec::new();
        }
        self.last_sync = seen.at;
        let mut commands = Vec::new();
        for (of_group, group) in self.groups.iter_mut().zip(&seen.groups) {
            let replicas = of_group.decide(seen.at, group, elapsed);
            of_group.samples = Samples::default();
            if replicas != group.ready + group.loading {
                commands.push((TimeSpan::ZERO, group.to_have(replicas)));
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::super::hpa_rules::HpaPolicy;
    use super::*;
    use crate::scenario::seen;

    /// One sync: replicas that are ready and that load, the metric in its unit, and the replicas asked for.
    struct Sync {
        ready: u32,
        loading: u32,
        metric: f64,
        asked: u32,
    }

    fn sync(ready: u32, loading: u32, metric: f64, asked: u32) -> Sync {
        Sync { ready, loading, metric, asked }
    }

    /// Plays syncs, 15 s apart. Queries are whole numbers, so rates are multiples of 1/15.
    fn check(config: HpaConfig, script: &[Sync]) {
        let metric = config.metric;
        let mut hpa = Hpa::new(config);
        for (turn, step) in script.iter().enumerate() {
            let at = Moment::from_millis(15_000.0 * (turn + 1) as f64);
            let mut report = seen(at, step.ready, step.loading, 0, 0.0);
            match metric {
                HpaMetric::Utilisation => report.groups[0].utilisation = step.metric,
                HpaMetric::Rate => report.groups[0].arrived = (15.0 * step.metric).round() as u64,
                HpaMetric::Concurrency => report.groups[0].queued = step.metric as u64,
            }
            let commands = hpa.observe(&report);
            let asked = commands.first().map_or(step.ready + step.loading, |(_, event)| match event {
                ScenarioEvent::Replicas { replicas, .. } => *replicas,
                _ => 0,
            });
            assert_eq!(asked, step.asked, "sync {turn}");
        }
    }

    fn at_half() -> HpaConfig {
        HpaConfig { target: 0.5, ..HpaConfig::default() }
    }

    /// No window for scaling down.
    fn eager() -> HpaConfig {
        HpaConfig { down: HpaRules { stabilisation: TimeSpan::ZERO, ..HpaRules::down() }, ..at_half() }
    }

    #[test]
    fn replicas_follow_the_documented_formula() {
        // "If the current metric value is 200m, and the desired value is 100m, the number of replicas will be doubled,
        // since 200.0 / 100.0 == 2.0. If the current value is instead 50m, you will halve the number of replicas"
        // (Algorithm details), here with a target of 50 %.
        check(eager(), &[sync(3, 0, 1.0, 6), sync(6, 0, 0.25, 3)]);
        // "The default tolerance is 0.1": 0.9 to 1.1 of the target change nothing, and percentages are whole numbers.
        check(eager(), &[sync(4, 0, 0.55, 4), sync(4, 0, 0.559, 4), sync(4, 0, 0.56, 5), sync(4, 0, 0.45, 4)]);
        check(eager(), &[sync(4, 0, 0.44, 4), sync(8, 0, 0.44, 8), sync(10, 0, 0.44, 9)]);
    }

    #[test]
    fn external_metrics_divide_by_the_target() {
        // 70 queries/s with 20 for each replica: 3.5 replicas. 2 replicas with 44 are within the tolerance, with 45 not.
        let rate = HpaConfig { metric: HpaMetric::Rate, target: 20.0, ..eager() };
        check(rate, &[sync(2, 0, 70.0, 4), sync(2, 0, 44.0, 2), sync(2, 0, 45.0, 3), sync(4, 0, 0.0, 1)]);
        // Replicas that load count as replicas: 8 of 10 each is the target, whether they are ready or not.
        let ongoing = HpaConfig { metric: HpaMetric::Concurrency, target: 10.0, ..eager() };
        check(ongoing, &[sync(4, 4, 80.0, 8), sync(8, 0, 81.0, 8), sync(4, 4, 89.0, 9)]);
    }

    #[test]
    fn replicas_that_load_count_as_unused() {
        // "not-yet-ready pods are assumed to be consuming 0 % of the desired metric" on the way up. 4 of 8 ready at 90 %:
        // 45 % of a target of 50 %, which would turn the direction, so nothing changes. At 150 %: 75 %, so 12.
        check(at_half(), &[sync(4, 4, 0.9, 8), sync(4, 4, 1.5, 12)]);
    }

    #[test]
    fn a_sync_adds_four_pods_or_doubles() {
        // Default behaviour: 100 % or 4 pods in 15 s, whichever is more.
        check(at_half(), &[sync(2, 0, 2.0, 6), sync(10, 0, 2.0, 20)]);
    }

    #[test]
    fn the_first_replicas_are_a_recommendation() {
        // 8 replicas at the first sync, at 15 s: for 300 s nothing goes below them, and at 315 s the recommendation of 30 s
        // counts.
        let mut script: Vec<Sync> = (0..20).map(|_| sync(8, 0, 0.25, 8)).collect();
        script.push(sync(8, 0, 0.25, 4));
        check(at_half(), &script);
    }

    #[test]
    fn scale_down_follows_the_highest_recommendation_of_its_window() {
        let minute = |seconds: u64| HpaConfig {
            down: HpaRules { stabilisation: TimeSpan::from_nanos(seconds * 1_000_000_000), ..HpaRules::down() },
            ..at_half()
        };
        // Windows of 0 and 15 s keep no earlier sync; those of 30 and 60 s keep one and three.
        for (seconds, kept) in [(0, 0), (15, 0), (30, 1), (60, 3)] {
            let mut script = vec![sync(4, 0, 1.0, 8)];
            script.extend((0..kept).map(|_| sync(8, 0, 0.25, 8)));
            script.push(sync(8, 0, 0.25, 4));
            check(minute(seconds), &script);
        }
    }

    #[test]
    fn scale_up_waits_for_the_lowest_recommendation_of_its_window() {
        // 30 s: the first replicas and the first recommendation keep 4 until both are 30 s old.
        let slow = HpaConfig {
            up: HpaRules { stabilisation: TimeSpan::from_nanos(30_000_000_000), ..HpaRules::up() },
            ..at_half()
        };
        check(slow, &[sync(4, 0, 0.5, 4), sync(4, 0, 1.0, 4), sync(4, 0, 1.0, 8)]);
    }

    #[test]
    fn policies_bound_the_documented_scale_down() {
        // "Configurable scaling behavior": 4 pods or 10 % in a minute. 80 replicas lose 8, then 72 lose 8 (7.2 rounded
        // up), and below 40 replicas 4 at a time.
        let period = TimeSpan::from_nanos(60_000_000_000);
        let policies = vec![HpaPolicy::pods(4, period), HpaPolicy::percent(10, period)];
        let down = HpaRules { stabilisation: TimeSpan::ZERO, policies };
        let mut script = Vec::new();
        let sizes = [80, 72, 64, 57, 51, 45, 40, 36, 32, 28];
        for pair in sizes.windows(2) {
            // The change of one sync uses up the minute: the three after it change nothing.
            script.push(sync(pair[0], 0, 0.0, pair[1]));
            script.extend((0..3).map(|_| sync(pair[1], 0, 0.0, pair[1])));
        }
        check(HpaConfig { down, replicas_min: 10, ..at_half() }, &script);
    }

    #[test]
    fn limits_hold_before_any_metric() {
        let config = HpaConfig { replicas_min: 6, replicas_max: 9, ..eager() };
        // Below the minimum at the first sync, whatever the metric says; then the metric and the maximum.
        check(config, &[sync(2, 0, 0.1, 6), sync(6, 0, 0.1, 6), sync(6, 0, 2.0, 9), sync(12, 0, 0.1, 9)]);
    }
}
