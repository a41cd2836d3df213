//! Which replicas and plans change during a run, and which controllers cause the changes?

pub use crate::result::WINDOWS_MAX;
use apportion_domain::{GroupName, Moment, Plan, TimeSpan};
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::ladder::Headroom;
use apportion_serving::steward::{PERIOD, TUNE};

/// A change of replicas or plans.
#[derive(Clone, Debug, PartialEq)]
pub enum ScenarioEvent {
    /// A group is to have this many replicas, at least one. More replicas serve after their variant's `load_ms`, as soon as
    /// there are devices for them. Of fewer replicas, those that load are given up first; others finish their queries.
    Replicas {
        /// The pipeline.
        pipeline: String,
        /// One of its groups in the plan.
        group: GroupName,
        /// How many.
        replicas: u32,
    },
    /// A replica dies with the batch that it runs. Senders notice [`Scenario::detection`] later. Then its queries are sent
    /// again or lost, its device is free, and a replacement starts to load.
    Fail {
        /// The pipeline.
        pipeline: String,
        /// One of its groups in the plan.
        group: GroupName,
        /// Which of the replicas that serve at that moment, modulo their number.
        replica: u32,
    },
    /// Batches that one replica starts take longer for a while.
    Slow {
        /// The pipeline.
        pipeline: String,
        /// One of its groups in the plan.
        group: GroupName,
        /// Which of the replicas that serve at that moment, modulo their number.
        replica: u32,
        /// By this factor.
        factor: f64,
        /// Until then.
        until: Moment,
    },
    /// Another plan comes into force, for the pipelines that it names. New replicas load beside the present ones, as far as
    /// there are devices. Groups in both plans keep their replicas, and a change of their batch size takes effect at once.
    /// The plan's tables take effect as its replicas become ready. Replicas that the plan does not have finish their
    /// queries and leave.
    Plan {
        /// The plan, with its own policies. Its `queueing` must be that of the former plan.
        plan: Plan,
    },
}

impl ScenarioEvent {
    /// Its pipeline and its group, if it is about one group.
    #[must_use]
    pub fn group(&self) -> Option<(&str, &GroupName)> {
        match self {
            Self::Replicas { pipeline, group, .. }
            | Self::Fail { pipeline, group, .. }
            | Self::Slow { pipeline, group, .. } => Some((pipeline, group)),
            Self::Plan { .. } => None,
        }
    }
}

/// The rule for queries that a dead replica held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Their senders send them to another replica once they have noticed.
    #[default]
    SendAgain,
    /// Their requests fail.
    Lose,
}

/// One group as it was at the end of a reporting period.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupObservation {
    /// Its pipeline.
    pub pipeline: String,
    /// Which.
    pub group: GroupName,
    /// Replicas that serve.
    pub ready: u32,
    /// Replicas that load.
    pub loading: u32,
    /// Queries that wait.
    pub queued: u64,
    /// Queries that run.
    pub running: u64,
    /// Queries that joined its queues during the period, refused and dropped ones included.
    pub arrived: u64,
    /// Busy time of the replicas that serve, over their number and the period; a batch counts when it starts.
    pub utilisation: f64,
}

/// Requests of one bin of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinCount {
    /// The start of the bin.
    pub bin: Moment,
    /// How many requests were offered in it.
    pub count: u32,
}

impl BinCount {
    /// Counts one request of `bin`, which is not before the last bin of `bins`.
    pub(crate) fn add_one(bins: &mut Vec<Self>, bin: Moment) {
        match bins.last_mut() {
            Some(last) if last.bin == bin => last.count += 1,
            _ => bins.push(Self { bin, count: 1 }),
        }
    }
}

/// The report of one period to one controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The end of the period; the report arrives [`Scenario::report_delay`] later.
    pub at: Moment,
    /// By pipeline in the problem's order: the offered requests by bin, in order, without empty bins.
    pub arrivals: Vec<Vec<BinCount>>,
    /// By pipeline: the present headroom of its steward's ladder; 1 without a ladder.
    pub headrooms: Vec<f64>,
    /// By pipeline: all requests that have an outcome so far.
    pub outcomes: Vec<OutcomeCount>,
    /// All groups of the first plan, then those that later plans brought; positions stay.
    pub groups: Vec<GroupObservation>,
}

/// A policy that watches a run and changes it.
pub trait Controller {
    /// How often it gets a report.
    fn period(&self) -> TimeSpan;

    /// Its commands after a report. Each has its own delay (for planning, say), on top of [`Scenario::command_delay`].
    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)>;
}

/// A run's changes.
pub struct Scenario<'a> {
    /// Events and their moments, in any order.
    pub events: Vec<(Moment, ScenarioEvent)>,
    /// The controllers.
    pub controllers: Vec<Box<dyn Controller + 'a>>,
    /// Whether each pipeline has a steward (the crate `serving`). Once a second it recomputes the tables of
    /// `most_accurate_first` from the offered load and the seen fan-out (Loki section 5.1), and the module states (PARD
    /// section 4.1).
    pub steward: bool,
    /// Keep the measurements of tasks of pipelines that PARD serves, query by query ([`modules`](crate::Replay::modules)).
    /// Only stations of the first plan are measured, and only without a steward. Memory grows with the trace.
    pub modules: bool,
    /// Whether stewards follow the ladders of plans that have one, as agents do. Each pipeline then has a steward, whatever
    /// `steward` says. A later plan's ladder starts with the load that the former one has seen. Replicas that the former
    /// had added to groups of both plans stay until the new ladder decides.
    pub ladders: bool,
    /// The headroom of the stewards' ladders, on top of that of the plans' rates. With feedback each ladder begins with a
    /// new controller, which promises the pipeline's percentile.
    pub headroom: Headroom,
    /// Whether stewards follow the tuner if a plan has no ladder, as agents do. The tuner uses spare devices and never goes
    /// below the plan. Its sample is a steady load of the plan's demand. Each pipeline then has a steward, whatever
    /// `steward` says. Replicas that were added to groups of both plans stay under a later plan, as far as it leaves room.
    pub tuners: bool,
    /// Whether requests are given up that have no answer after ten times their SLO, and two seconds at least, as the
    /// gateways of agents do ([`patience`](apportion_serving::patience)). The reason of such a request is
    /// [`DropReason::Cancelled`](crate::DropReason::Cancelled). Without it requests wait for ever.
    pub gives_up: bool,
    /// From the end of a period to the controller, and to the steward.
    pub report_delay: TimeSpan,
    /// From the controller, and the steward, to the agents.
    pub command_delay: TimeSpan,
    /// From a replica's death to its senders.
    pub detection: TimeSpan,
    /// The rule for a dead replica's queries.
    pub on_failure: OnFailure,
    /// The run ends with [`CutReason::Cost`](crate::CutReason::Cost) at the end of a window once its devices have cost
    /// more than this.
    pub cost_max: Option<f64>,
    /// Length of the windows of the time series; it doubles whenever there would be more than [`WINDOWS_MAX`].
    pub window: TimeSpan,
}

impl Scenario<'_> {
    /// Whether pipelines have stewards.
    pub(crate) const fn is_steered(&self) -> bool {
        self.steward || self.scales()
    }

    /// Whether stewards change the number of replicas.
    pub(crate) const fn scales(&self) -> bool {
        self.ladders || self.tuners
    }

    /// How often stewards get a report of arrivals. Stewards that scale get one each time that they act, others once in a
    /// period.
    pub(crate) const fn report_period(&self) -> TimeSpan {
        if self.scales() { TUNE } else { PERIOD }
    }
}

impl Default for Scenario<'_> {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            controllers: Vec::new(),
            steward: false,
            modules: false,
            ladders: false,
            headroom: Headroom::Constant(1.0),
            tuners: false,
            gives_up: false,
            report_delay: TimeSpan::from_nanos(100_000_000),
            command_delay: TimeSpan::from_nanos(100_000_000),
            detection: TimeSpan::from_nanos(1_000_000_000),
            on_failure: OnFailure::default(),
            cost_max: None,
            window: TimeSpan::from_nanos(1_000_000_000),
        }
    }
}

impl GroupObservation {
    /// The event that gives it this many replicas.
    #[must_use]
    pub fn to_have(&self, replicas: u32) -> ScenarioEvent {
        ScenarioEvent::Replicas { pipeline: self.pipeline.clone(), group: self.group.clone(), replicas }
    }
}

/// A report about a single group, for tests of controllers.
#[cfg(test)]
pub(crate) fn seen(at: Moment, ready: u32, loading: u32, queued: u64, utilisation: f64) -> Observation {
    let share = apportion_domain::Share::WHOLE;
    let group = GroupName { task: "t".into(), variant: "v".into(), hardware: "h".into(), share };
    let group =
        GroupObservation { pipeline: "p".into(), group, ready, loading, queued, running: 0, arrived: 0, utilisation };
    let outcomes = vec![OutcomeCount::default()];
    Observation { at, arrivals: vec![Vec::new()], headrooms: vec![1.0], outcomes, groups: vec![group] }
}
