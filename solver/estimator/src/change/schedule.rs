//! What will change during the run, and when?

use super::replicas::ReplicaLocation;
use crate::scenario::{BinCount, Observation, ScenarioEvent};
use apportion_domain::Moment;
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::{Monitor, Steering};
use std::collections::BTreeMap;

/// A change that will happen.
#[derive(Debug)]
pub enum ChangeEvent {
    /// An event of the scenario, or a command that has arrived.
    Event(ScenarioEvent),
    /// A controller's period ends.
    ControllerPeriod(usize),
    /// A report reaches its controller.
    ControllerReport(usize, Observation),
    /// Senders notice that a replica is dead.
    FailureNoticed {
        /// Its group.
        group: usize,
        /// The replica.
        replica: ReplicaLocation,
    },
    /// The stewards' period ends.
    StewardPeriod,
    /// A report reaches its steward.
    StewardReport(Box<StewardReport>),
    /// A steward's command reaches the agents.
    Steering(Box<SteeringCommand>),
    /// No query is in transit any more to a replica that leaves.
    InTransitArrived,
    /// A window of the time series ends.
    WindowEnd,
}

/// The measurements of one group, for its steward.
#[derive(Debug)]
pub struct GroupReport {
    /// The group.
    pub group: usize,
    /// Queries that ended.
    pub ended: u64,
    /// Queries that they made, for each child task.
    pub made: Vec<u64>,
    /// Replicas that serve, as far as senders know.
    pub replicas: u32,
}

/// The measurements of one station.
#[derive(Debug)]
pub struct TaskMonitor {
    /// The station's task.
    pub task: usize,
    /// The counts.
    pub monitor: Monitor,
}

/// The measurements of one pipeline, for its steward.
#[derive(Debug)]
pub struct StewardReport {
    /// The pipeline.
    pub pipeline: usize,
    /// Requests that were offered, by bin.
    pub offered: Vec<BinCount>,
    /// Requests that ended since the last report.
    pub ended: OutcomeCount,
    /// By group.
    pub groups: Vec<GroupReport>,
    /// Monitors of stations.
    pub monitors: Vec<TaskMonitor>,
}

/// A steward's decision on its way to the agents.
#[derive(Debug)]
pub struct SteeringCommand {
    /// The pipeline.
    pub pipeline: usize,
    /// The plan that the steward serves: a decision about a former plan has no effect.
    pub generation: u64,
    /// The decision.
    pub steering: Steering,
}

/// The place of a change among the changes to come. The order is by moment, then by sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Moment,
    sequence: u64,
}

/// The changes to come, by moment; changes of one moment in the order in which they were added.
#[derive(Debug, Default)]
pub struct Schedule {
    events: BTreeMap<Place, ChangeEvent>,
    sequence: u64,
}

impl Schedule {
    /// Adds a change.
    pub fn push(&mut self, at: Moment, event: ChangeEvent) {
        self.sequence += 1;
        self.events.insert(Place { at, sequence: self.sequence }, event);
    }

    /// When the next change happens; `NEVER` if there is none.
    pub fn next(&self) -> Moment {
        self.events.first_key_value().map_or(Moment::NEVER, |(place, _)| place.at)
    }

    /// Takes the next change, if it is due by `now`.
    pub fn pop(&mut self, now: Moment) -> Option<ChangeEvent> {
        let first = self.events.first_entry()?;
        (first.key().at <= now).then(|| first.remove())
    }
}
