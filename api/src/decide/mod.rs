//! Which target should the fleet have, and when is it time for another one?
//!
//! Example: agent 3 is silent for three seconds. [`heartbeat`] says that it is lost, [`membership`] that the next target
//! leaves it out, [`placement`] on which devices its replicas stand now, and [`target`] composes the message for all
//! agents.
//!
//! What belongs here: decisions as pure functions and machines. Facts and moments are arguments. What never does: clocks,
//! the database, tokio. `act` reads the facts, asks this module, and carries the answers out.

pub mod broken_variants;
pub mod budget;
pub mod change;
mod combinations;
pub mod correction;
pub mod demand;
pub mod deployed;
pub mod drift;
pub mod drift_watch;
pub mod fleet;
pub mod heartbeat;
pub mod lease;
pub mod link_keys;
pub mod load_failures;
pub mod machines;
pub mod measured;
pub mod membership;
pub mod placement;
pub mod replacement;
pub mod replan;
pub mod report_delay;
pub mod schedule;
pub mod seconds;
pub mod shares;
pub mod target;
pub mod tensors;
pub mod webhooks;
pub mod workloads;
