//! How long do hops and loads take, as agents measured them, and what does the pipeline's file say?
//!
//! Example: the file has no `network_ms`, and the median over six links between agents is 0.4 ms. Plans use 0.4 ms and say
//! so. If the file says 5 ms, plans use 5 ms, and a warning names both values.

use apportion_wire::{PipelineSpec, VariantSpec};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use utoipa::ToSchema;

/// Most other agents of which one agent's hops are kept.
pub const HOPS_MAX: usize = 256;
/// Most loads that are kept of one agent, its newest.
pub const LOAD_TIMES_MAX: usize = 64;
/// Longest time that counts as a measurement, in milliseconds: a day.
pub const TIME_MS_MAX: f64 = 86_400_000.0;
/// A given time agrees with a measured one if neither is more than this factor above the other.
pub const DIFFERENCE_FACTOR_MAX: f64 = 3.0;
/// Times that are no further apart agree, in milliseconds.
pub const DIFFERENCE_MS_MAX: f64 = 1.0;
/// A difference that is known is over when the factor has fallen to this part of [`DIFFERENCE_FACTOR_MAX`]. So a value at
/// the limit makes one event.
const SETTLED_PART: f64 = 2.0 / 3.0;

/// How long a message takes from an agent to another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentHop {
    /// The number of the other agent.
    pub to: u64,
    /// Median of half the times there and back, in milliseconds.
    pub hop_ms: f64,
    /// How many times that are, at most 64.
    pub samples: u32,
    /// When the agent reported it.
    pub at: DateTime<Utc>,
}

/// How long a replica took to become ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaLoadTime {
    /// Its pipeline.
    pub pipeline: String,
    /// Its task.
    pub task: String,
    /// Its variant.
    pub variant: String,
    /// The hardware type of its device.
    pub hardware: String,
    /// Until its model file was there and checked, in milliseconds.
    pub download_ms: f64,
    /// From then until it was ready, in milliseconds.
    pub start_ms: f64,
    /// When the agent reported it.
    pub at: DateTime<Utc>,
}

impl ReplicaLoadTime {
    /// The whole time, in milliseconds.
    #[must_use]
    pub fn total_ms(&self) -> f64 {
        self.download_ms + self.start_ms
    }
}

/// The last loads of an agent with later ones.
#[must_use]
pub fn with_loads(mut known: Vec<ReplicaLoadTime>, new: &[ReplicaLoadTime]) -> Vec<ReplicaLoadTime> {
    known.extend_from_slice(new);
    let surplus = known.len().saturating_sub(LOAD_TIMES_MAX);
    known.split_off(surplus)
}

/// The measurements of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentTimes {
    /// Its number.
    pub number: u64,
    /// Whether it is live.
    pub is_live: bool,
    /// Its hops.
    pub hops: Vec<AgentHop>,
    /// Its last loads.
    pub loads: Vec<ReplicaLoadTime>,
}

/// A time that agents measured.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeasuredTime {
    /// The median, in milliseconds.
    pub median_ms: f64,
    /// How many measurements: links between agents for a hop, loaded replicas for a load.
    pub count: usize,
    /// When the newest of them was reported.
    pub measured_at: DateTime<Utc>,
}

impl MeasuredTime {
    fn of(times: impl Iterator<Item = (f64, DateTime<Utc>)>) -> Option<Self> {
        let (mut times_ms, moments): (Vec<f64>, Vec<DateTime<Utc>>) = times.unzip();
        Some(Self { measured_at: moments.into_iter().max()?, count: times_ms.len(), median_ms: median(&mut times_ms)? })
    }

    /// The value for a plan: two digits, so that a small change of the measurement changes no problem.
    #[must_use]
    pub fn rounded_ms(&self) -> f64 {
        format!("{:.1e}", self.median_ms).parse().unwrap_or(self.median_ms)
    }
}

/// The lower median.
fn median(times_ms: &mut [f64]) -> Option<f64> {
    times_ms.sort_by(f64::total_cmp);
    times_ms.get(times_ms.len().checked_sub(1)? / 2).copied()
}

/// What all agents measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetTimes {
    hop: Option<MeasuredTime>,
    loads: Vec<ReplicaLoadTime>,
}

impl FleetTimes {
    /// The measurements of these agents. Only links between two live agents count.
    #[must_use]
    pub fn of(agents: Vec<AgentTimes>) -> Self {
        let live: BTreeSet<u64> = agents.iter().filter(|agent| agent.is_live).map(|agent| agent.number).collect();
        let links = agents.iter().filter(|agent| agent.is_live).flat_map(|agent| &agent.hops);
        let links = links.filter(|hop| live.contains(&hop.to));
        let hop = MeasuredTime::of(links.map(|hop| (hop.hop_ms, hop.at)));
        Self { hop, loads: agents.into_iter().flat_map(|agent| agent.loads).collect() }
    }

    /// The time of a hop: the median over all links.
    #[must_use]
    pub fn hop(&self) -> Option<&MeasuredTime> {
        self.hop.as_ref()
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hop.is_none() && self.loads.is_empty()
    }

    /// All loads.
    #[must_use]
    pub fn loads(&self) -> &[ReplicaLoadTime] {
        &self.loads
    }

    /// The loads of a variant.
    pub fn loads_of<'a>(
        &'a self,
        pipeline: &'a str,
        task: &'a str,
        variant: &'a str,
    ) -> impl Iterator<Item = &'a ReplicaLoadTime> {
        let is_wanted = move |load: &&ReplicaLoadTime| load.task == task && load.variant == variant;
        self.loads.iter().filter(move |load| load.pipeline == pipeline).filter(is_wanted)
    }
}

/// The median time of some loads, with its parts.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeasuredLoad {
    /// Median of the whole time, in milliseconds.
    pub median_ms: f64,
    /// Median of the time until the model file was there, in milliseconds.
    pub download_ms: f64,
    /// Median of the time from then until the replica was ready, in milliseconds.
    pub start_ms: f64,
    /// How many replicas.
    pub count: usize,
    /// When the newest of them was reported.
    pub measured_at: DateTime<Utc>,
}

impl MeasuredLoad {
    /// The median of these loads; none without a load.
    #[must_use]
    pub fn of<'a>(loads: impl Iterator<Item = &'a ReplicaLoadTime>) -> Option<Self> {
        let loads: Vec<&ReplicaLoadTime> = loads.collect();
        let part = |time: fn(&ReplicaLoadTime) -> f64| median(&mut loads.iter().map(|load| time(load)).collect::<Vec<_>>());
        let MeasuredTime { median_ms, count, measured_at } =
            MeasuredTime::of(loads.iter().map(|load| (load.total_ms(), load.at)))?;
        Some(Self {
            median_ms,
            download_ms: part(|load| load.download_ms)?,
            start_ms: part(|load| load.start_ms)?,
            count,
            measured_at,
        })
    }
}

/// A time in a pipeline's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileTime {
    /// `network_ms`.
    Network,
    /// `load_ms` of a variant.
    Load {
        /// The variant's task.
        task: String,
        /// The variant.
        variant: String,
    },
}

impl fmt::Display for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => write!(f, "network_ms"),
            Self::Load { task, variant } => write!(f, "load_ms of {task}/{variant}"),
        }
    }
}

/// A time of the file beside its measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedTime {
    /// Which one.
    pub of: FileTime,
    /// The file's value or the profile's, in milliseconds; 0 is none.
    pub given_ms: Option<f64>,
    /// The agents' value.
    pub measured: Option<MeasuredTime>,
}

impl ComparedTime {
    fn new(of: FileTime, given_ms: Option<f64>, measured: Option<MeasuredTime>) -> Self {
        Self { of, given_ms: given_ms.filter(|ms| *ms > 0.0), measured }
    }

    /// The value that plans use, in milliseconds: the given one, else the measured one, else 0.
    #[must_use]
    pub fn used_ms(&self) -> f64 {
        self.given_ms.or(self.measured.as_ref().map(MeasuredTime::rounded_ms)).unwrap_or(0.0)
    }

    /// Whether the given value and the measured one are further apart than this factor allows.
    fn is_beyond(&self, factor: f64) -> bool {
        let (Some(given_ms), Some(measured)) = (self.given_ms, &self.measured) else { return false };
        let (low, high) = (given_ms.min(measured.median_ms), given_ms.max(measured.median_ms));
        high > factor * low && high - low > DIFFERENCE_MS_MAX
    }

    /// Whether the file's value is far from the measured one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.is_beyond(DIFFERENCE_FACTOR_MAX)
    }

    /// The warning about it, if there is one: the file has none, or another one than the agents measured.
    #[must_use]
    pub fn warning(&self, pipeline: &str) -> Option<String> {
        let of = &self.of;
        match (self.given_ms, &self.measured) {
            (None, None) => Some(format!(
                "pipeline {pipeline}: {of} is 0 in the file and no agent has measured it: plans count it as no time"
            )),
            (None, Some(MeasuredTime { count, .. })) => Some(format!(
                "pipeline {pipeline}: {of} is 0 in the file: plans use {} ms, the median of {count} measurements of agents",
                self.used_ms()
            )),
            (Some(given_ms), Some(measured)) if self.differs() => Some(format!(
                "pipeline {pipeline}: {of} is {given_ms} ms in the file, and agents measured {} ms ({} measurements)",
                measured.rounded_ms(),
                measured.count
            )),
            _ => None,
        }
    }
}

/// The times of a pipeline with its profile, each beside its measurement: that of a hop, and one for each variant.
#[must_use]
pub fn compare_times(spec: &PipelineSpec, times: &FleetTimes) -> Vec<ComparedTime> {
    let network = ComparedTime::new(FileTime::Network, spec.network_ms, times.hop().cloned());
    let loads = spec.tasks.iter().flat_map(|task| task.variants.iter().map(move |variant| (&task.name, variant)));
    let loads = loads.map(|(task, variant): (&String, &VariantSpec)| {
        let loads = times.loads_of(&spec.name, task, &variant.name).map(|load| (load.total_ms(), load.at));
        let of = FileTime::Load { task: task.clone(), variant: variant.name.clone() };
        ComparedTime::new(of, variant.load_ms, MeasuredTime::of(loads))
    });
    std::iter::once(network).chain(loads).collect()
}

/// Puts the measured times where the file has none. Returns the sentences about them and about values that differ. Times
/// that are neither given nor measured stay 0, and the planner warns of them.
pub fn fill_times(spec: &mut PipelineSpec, times: &FleetTimes) -> Vec<String> {
    let compared = compare_times(spec, times);
    for time in compared.iter().filter(|time| time.given_ms.is_none() && time.measured.is_some()) {
        let used_ms = Some(time.used_ms());
        match &time.of {
            FileTime::Network => spec.network_ms = used_ms,
            FileTime::Load { task, variant } => {
                let variants = spec.tasks.iter_mut().filter(|t| t.name == *task).flat_map(|t| &mut t.variants);
                variants.filter(|v| v.name == *variant).for_each(|v| v.load_ms = used_ms);
            }
        }
    }
    let measured = compared.iter().filter(|time| time.measured.is_some());
    measured.filter_map(|time| time.warning(&spec.name)).collect()
}

/// The names of the times whose file and measurement differ. A name of `known`, the differences so far, stays until the two
/// values are clearly nearer.
#[must_use]
pub fn differing_times(compared: &[ComparedTime], known: &BTreeSet<String>) -> BTreeSet<String> {
    let stays = |time: &&ComparedTime| {
        let is_known = known.contains(&time.of.to_string());
        time.is_beyond(if is_known { SETTLED_PART * DIFFERENCE_FACTOR_MAX } else { DIFFERENCE_FACTOR_MAX })
    };
    compared.iter().filter(stays).map(|time| time.of.to_string()).collect()
}

#[cfg(test)]
mod tests;
