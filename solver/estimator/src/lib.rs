//! Replays a workload through a plan and estimates latency, drops, accuracy and cost: a seeded simulation of discrete
//! events.
//!
//! What belongs here: the agenda, arrivals, devices that take their profiled time, the network that takes its delay, and
//! the statistics. The crate never contains a serving policy. The machines of the crate `serving` decide about queues,
//! batches, drops and routes. The agents run the same machines, so a plan is checked against the code that will serve it.
//!
//! The rooms are `input` (which requests come, and when?), `compile` (problem and plan as numbers) and `state` (everything
//! that a run holds at one moment). Then follow `run` (which event is next?), `change` (which replicas and plans change
//! during a run?) and [`controllers`] (policies that scale replicas between plans, as baselines). [`Samples`] are several
//! independent runs, and [`interval`] says what they show. A second thread may keep the accounts of a run (`accounts`).
//! `docs/glossary.md` says each noun in one line.
//!
//! The commonest addition is a policy: write it in `serving`, and construct it in `compile`.

mod accounts;
pub mod analytic;
mod change;
mod compile;
pub mod controllers;
mod error;
mod input;
pub mod interval;
mod random;
mod result;
mod run;
mod samples;
pub mod scenario;
mod simulate;
mod state;

pub use accounts::keeps_accounts_apart;
pub use apportion_serving::modules::StatePlannerSettings;
pub use apportion_serving::monitor::{BatchEntry, QueryRecords};
pub use apportion_serving::{DropReason, LateQueries, RequestOutcome};
pub use compile::size::{expected_requests, expected_visits};
pub use error::SimulateError;
pub use input::fresh::FreshLoad;
pub use input::ingresses::{INGRESSES_MAX, IngressChoice, IngressSettings, STICKY_CLIENTS};
pub use input::options::{Accounting, SimulateOptions};
pub use input::workload::{ArrivalProcess, Arrivals, DEFAULT_SECONDS, DEFAULT_SEED, Workload, draw};
pub use result::{ModulePeriod, Replay, RequestClasses, RequestRecord, Simulation, Window};
pub use samples::{Sample, Samples, first_seed, run_sample};
pub use scenario::{BinCount, Controller, GroupObservation, Observation, OnFailure, Scenario, ScenarioEvent};
pub use simulate::{replay, simulate};
pub use state::bounds::{CutReason, Stop};
pub use state::durations::ServiceTimes;

/// The bounds of a run.
pub mod bounds {
    pub use crate::compile::size::{PLACES_MAX, check_places, expected_requests, expected_visits};
    pub use crate::state::bounds::{BYTES_MAX, CutReason, LOOK_EVERY, Stop};
}
