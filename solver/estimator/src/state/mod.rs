//! What does a run hold at one moment?
//!
//! [`RunState`] has it all: the compiled pipelines and groups, the stations and routers ([`serving`]), requests in flight
//! ([`requests`]), queries held at joins ([`joins`]), random streams and statistics. A run whose accounts a second
//! thread keeps has a [`journal`] instead of open requests. Nothing here knows which event comes next.

pub mod bounds;
mod classes;
pub mod drops;
pub mod durations;
pub mod fanout;
mod faults;
pub mod group;
mod histogram;
pub mod joins;
pub mod journal;
pub mod module_states;
pub mod network;
pub mod paths;
pub mod pipeline;
pub mod query;
pub mod requests;
mod run_state;
pub mod serving;
pub mod settlement;
pub mod statistics;
mod timers;

pub use faults::{ServerId, SlowReplica, SlowReplicas, StaleServers};
pub use run_state::RunState;
