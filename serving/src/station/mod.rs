//! When does a replica run which queries, and which does it drop?
//!
//! A [`Station`] is one queue and the servers behind it. Example: a replica with a queue of its own is a station with one
//! server; a group whose ten replicas share a queue is a station with ten. [`batcher`] says when a batch starts,
//! [`dropper`] which queries are not worth serving, [`monitor`] which measurements PARD gets.

pub mod batcher;
pub mod dropper;
mod idle;
mod intake;
mod machine;
mod messages;
pub mod monitor;
pub mod queue;
mod servers;
mod settings;
mod starts;

pub use intake::{KindOf, LOOK_AHEAD_MAX};
pub use machine::Station;
pub use messages::{StationInput, StationOutput, StationWakeup};
pub use settings::QueuePolicy;
