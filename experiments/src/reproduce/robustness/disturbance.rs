//! What can be other than the profile says?

use crate::reproduce::lab::with_pipeline;
use apportion_domain::{Assignment, FanoutCounts, Moment, Plan, Problem, Profile, ProfileRow, Variant};
use apportion_estimator::ScenarioEvent;
use apportion_support::exit::Failure;

/// Devices of the lost agent.
pub const AGENT_DEVICES: u32 = 2;

/// When a replica slows down or an agent is lost.
const STRUCK_AT: Moment = Moment::from_nanos(10_000_000_000);

/// A difference between the profile and the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MachineDisturbance {
    /// None: the machine is as the profile says.
    Nothing,
    /// Every batch takes this many times as long.
    Latencies(f64),
    /// Every query makes this many times as many queries.
    FanOut(f64),
    /// One replica of the busiest group takes this many times as long.
    OneReplica(f64),
    /// An agent is lost.
    LostAgent,
}

impl MachineDisturbance {
    /// One replica at half speed.
    pub const SLOW_REPLICA: Self = Self::OneReplica(2.0);

    /// All that are tried, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Latencies(1.1),
        Self::Latencies(1.25),
        Self::Latencies(1.5),
        Self::FanOut(1.3),
        Self::SLOW_REPLICA,
        Self::LostAgent,
    ];

    /// The words in tables.
    pub fn name(self) -> String {
        match self {
            Self::Nothing => "as profiled".into(),
            Self::Latencies(factor) => format!("latencies x{factor}"),
            Self::FanOut(factor) => format!("fan-out x{factor}"),
            Self::OneReplica(factor) => format!("a replica x{factor}"),
            Self::LostAgent => "an agent lost".into(),
        }
    }

    /// The factor on all latencies, if nothing else is disturbed.
    pub const fn latency_factor(self) -> Option<f64> {
        match self {
            Self::Nothing => Some(1.0),
            Self::Latencies(factor) => Some(factor),
            Self::FanOut(_) | Self::OneReplica(_) | Self::LostAgent => None,
        }
    }

    /// The problem of the disturbed machine.
    ///
    /// # Errors
    /// If the changed pipeline is invalid.
    pub fn disturbed(self, problem: &Problem) -> Result<Problem, Failure> {
        with_pipeline(problem, 0, |d| {
            for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
                match self {
                    Self::Latencies(factor) => slow_down(variant, factor),
                    Self::FanOut(factor) => multiply_fan_out(variant, factor),
                    Self::Nothing | Self::OneReplica(_) | Self::LostAgent => {}
                }
            }
        })
    }

    /// The events of a run of `seconds` that begins with this plan.
    pub fn events(self, plan: &Plan, seconds: usize) -> Vec<(Moment, ScenarioEvent)> {
        let part = &plan.pipelines[0];
        let mut busiest: Vec<&Assignment> = part.assignments.iter().filter(|a| a.replicas > 0).collect();
        busiest.sort_by(|a, b| b.utilisation.total_cmp(&a.utilisation));
        let (pipeline, until) = (part.name.clone(), Moment::from_nanos(1_000_000_000 * seconds as u64));
        match (self, busiest.first()) {
            (Self::OneReplica(factor), Some(a)) => {
                let group = a.group.clone();
                vec![(STRUCK_AT, ScenarioEvent::Slow { pipeline, group, replica: 0, factor, until })]
            }
            (Self::LostAgent, Some(_)) => lost_replicas(&pipeline, &busiest),
            _ => Vec::new(),
        }
    }
}

/// Replicas of the busiest groups die, one of each in turn, and no device is left to replace them.
fn lost_replicas(pipeline: &str, busiest: &[&Assignment]) -> Vec<(Moment, ScenarioEvent)> {
    let mut left: Vec<u32> = busiest.iter().map(|a| a.replicas).collect();
    let mut events = Vec::new();
    for lost in 0..AGENT_DEVICES as usize {
        let at = lost % busiest.len();
        // A group keeps one replica: the estimator has no group without replicas.
        if left[at] < 2 {
            continue;
        }
        left[at] -= 1;
        let (pipeline, group) = (pipeline.to_owned(), busiest[at].group.clone());
        let fewer = ScenarioEvent::Replicas { pipeline: pipeline.clone(), group: group.clone(), replicas: left[at] };
        events.push((STRUCK_AT, ScenarioEvent::Fail { pipeline, group, replica: 0 }));
        events.push((STRUCK_AT, fewer));
    }
    events
}

fn slow_down(variant: &mut Variant, factor: f64) {
    let row = |row: &ProfileRow| ProfileRow {
        latency_ms: factor * row.latency_ms,
        p99_ms: row.p99_ms.map(|ms| factor * ms),
        ..row.clone()
    };
    variant.profile = Profile::new(variant.profile.rows().iter().map(row).collect());
}

fn multiply_fan_out(variant: &mut Variant, factor: f64) {
    variant.fanout *= factor;
    variant.fanout_to.values_mut().for_each(|mean| *mean *= factor);
    variant.fanout_counts.values_mut().for_each(|counts| *counts = multiplied(counts, factor));
}

/// Counts whose mean is `factor` times as large: each is multiplied, and rounded up as often as its fraction says.
fn multiplied(counts: &FanoutCounts, factor: f64) -> FanoutCounts {
    let mut made: std::collections::BTreeMap<u32, f64> = std::collections::BTreeMap::new();
    for &(count, probability) in &counts.0 {
        let wanted = factor * f64::from(count);
        let part = wanted.fract();
        *made.entry(wanted as u32).or_default() += (1.0 - part) * probability;
        *made.entry(wanted as u32 + 1).or_default() += part * probability;
    }
    made.retain(|_, probability| *probability > 0.0);
    FanoutCounts(made.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::lab::TRAFFIC;

    #[test]
    fn multiplied_counts_have_the_multiplied_mean() {
        let counts = FanoutCounts(vec![(0, 0.25), (1, 0.5), (7, 0.25)]);
        for factor in [1.0, 1.3, 2.0] {
            let made = multiplied(&counts, factor);
            assert!((made.mean() - factor * counts.mean()).abs() < 1e-12, "{factor}: {made:?}");
            assert!((made.0.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn slowed_profiles_take_the_factor_longer() {
        let problem = TRAFFIC.problem().expect("a problem");
        let slowed = MachineDisturbance::Latencies(1.5).disturbed(&problem).expect("valid");
        let rows = |p: &Problem| -> Vec<f64> {
            let variants = p.pipelines[0].tasks.iter().flat_map(|t| &t.variants);
            variants.flat_map(|v| v.profile.rows()).map(|r| r.latency_ms).collect()
        };
        let pairs: Vec<_> = rows(&problem).into_iter().zip(rows(&slowed)).collect();
        assert!(!pairs.is_empty() && pairs.iter().all(|(a, b)| (b / a - 1.5).abs() < 1e-9));
    }
}
