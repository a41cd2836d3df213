//! How fast may Kubernetes' horizontal pod autoscaler change? Stabilisation windows and policies (`spec.behavior`).

use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// Pods or percent of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyAmount {
    Pods(u32),
    Percent(u32),
}

/// One policy: the change that a period may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpaPolicy {
    amount: PolicyAmount,
    period: TimeSpan,
}

impl HpaPolicy {
    /// At most this many pods in a period.
    #[must_use]
    pub const fn pods(pods: u32, period: TimeSpan) -> Self {
        Self { amount: PolicyAmount::Pods(pods), period }
    }

    /// At most this share of the pods in a period.
    #[must_use]
    pub const fn percent(percent: u32, period: TimeSpan) -> Self {
        Self { amount: PolicyAmount::Percent(percent), period }
    }

    /// The most replicas at the end of a period that began with `start`. Percentages are rounded up.
    fn most(self, start: i64) -> i64 {
        match self.amount {
            PolicyAmount::Pods(pods) => start + i64::from(pods),
            PolicyAmount::Percent(percent) => (start as f64 * (1.0 + f64::from(percent) / 100.0)).ceil() as i64,
        }
    }

    /// The fewest replicas at the end of a period that began with `start`. What is left is rounded down.
    fn fewest(self, start: i64) -> i64 {
        match self.amount {
            PolicyAmount::Pods(pods) => start - i64::from(pods),
            PolicyAmount::Percent(percent) => (start as f64 * (1.0 - f64::from(percent) / 100.0)) as i64,
        }
    }
}

/// The rules of one direction. The policy that permits the largest change counts (`selectPolicy: Max`).
#[derive(Clone, Debug, PartialEq)]
pub struct HpaRules {
    /// `stabilizationWindowSeconds`.
    pub stabilisation: TimeSpan,
    /// The policies.
    pub policies: Vec<HpaPolicy>,
}

impl HpaRules {
    /// The documented default for scaling up: no window, and 4 pods or 100 % in 15 s.
    #[must_use]
    pub fn up() -> Self {
        Self {
            stabilisation: TimeSpan::ZERO,
            policies: vec![HpaPolicy::percent(100, QUARTER), HpaPolicy::pods(4, QUARTER)],
        }
    }

    /// The documented default for scaling down: a window of 300 s, and 100 % in 15 s.
    #[must_use]
    pub fn down() -> Self {
        let stabilisation = TimeSpan::from_nanos(300_000_000_000);
        Self { stabilisation, policies: vec![HpaPolicy::percent(100, QUARTER)] }
    }
}

/// The period of the default policies.
const QUARTER: TimeSpan = TimeSpan::from_nanos(15_000_000_000);

/// Replicas now, and replicas that something asks for.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaChange {
    /// Now.
    pub current: u32,
    /// Asked for.
    pub wanted: u32,
}

/// Replicas at one moment.
#[derive(Clone, Copy, Debug)]
struct At {
    moment: Moment,
    replicas: u32,
}

/// What one autoscaler recommended and changed so far.
#[derive(Clone, Debug, Default)]
pub struct ScalingHistory {
    recommended: VecDeque<At>,
    added: VecDeque<At>,
    removed: VecDeque<At>,
}

/// History is kept this long: the longest window and the longest period that Kubernetes permits.
const KEPT_MAX: TimeSpan = TimeSpan::from_nanos(3_600_000_000_000);

/// Entries that are younger than `window`. One that is exactly so old does not count.
fn within(entries: &VecDeque<At>, now: Moment, window: TimeSpan) -> impl Iterator<Item = u32> {
    entries.iter().filter(move |e| now.since(e.moment) < window).map(|e| e.replicas)
}

impl ScalingHistory {
    /// The first sync: the present replicas count as a recommendation (`recordInitialRecommendation`).
    pub fn begin(&mut self, now: Moment, current: u32) {
        if self.recommended.is_empty() {
            self.recommended.push_back(At { moment: now, replicas: current });
        }
        for entries in [&mut self.recommended, &mut self.added, &mut self.removed] {
            // The newest recommendation stays: the list is empty at the first sync only.
            while entries.len() > 1 && entries.front().is_some_and(|e| now.since(e.moment) >= KEPT_MAX) {
                entries.pop_front();
            }
        }
    }

    /// The recommendation after both windows (`stabilizeRecommendationWithBehaviors`), which is then kept.
    pub fn stabilise(&mut self, now: Moment, count: ReplicaChange, up: &HpaRules, down: &HpaRules) -> u32 {
        let lowest = within(&self.recommended, now, up.stabilisation).fold(count.wanted, u32::min);
        let highest = within(&self.recommended, now, down.stabilisation).fold(count.wanted, u32::max);
        self.recommended.push_back(At { moment: now, replicas: count.wanted });
        count.current.max(lowest).min(highest)
    }

    /// What the policies permit (`convertDesiredReplicasWithBehaviorRate`).
    pub fn bound(&self, now: Moment, count: ReplicaChange, up: &HpaRules, down: &HpaRules) -> u32 {
        let current = i64::from(count.current);
        let start = |policy: &HpaPolicy| {
            let sum = |entries| within(entries, now, policy.period).map(i64::from).sum::<i64>();
            current - sum(&self.added) + sum(&self.removed)
        };
        let wanted = i64::from(count.wanted);
        let bounded = if wanted > current {
            let most = up.policies.iter().map(|p| p.most(start(p))).max();
            wanted.min(most.unwrap_or(current).max(current))
        } else if wanted < current {
            let fewest = down.policies.iter().map(|p| p.fewest(start(p))).min();
            wanted.max(fewest.unwrap_or(current).min(current))
        } else {
            wanted
        };
        bounded.max(0) as u32
    }

    /// A change was asked for.
    pub fn note_change(&mut self, moment: Moment, ReplicaChange { current, wanted }: ReplicaChange) {
        let entries = if wanted > current { &mut self.added } else { &mut self.removed };
        if wanted != current {
            entries.push_back(At { moment, replicas: wanted.abs_diff(current) });
        }
    }
}
