//! Which target should the fleet have, and when is it time for another one?
//!
//! Example: agent 3 is silent for three seconds. [`heartbeat`] says that it is lost, [`membership`] that the next target
//! leaves it out, [`placement`] on which devices its replicas stand now, and [`target`] composes the message for all
//! agents.
//!
//! What belongs here: decisions as pure functions and machines. Facts and moments are arguments. What never does: clocks,
//! the database, tokio. `act` reads the facts, asks this module, and carries the answers out.

pub mod authorities;
pub mod batch_choice;
pub mod broken_variants;
pub mod budget;
pub mod change;
mod child_counts;
mod combinations;
pub mod correction;
pub mod default_dropping;
pub mod demand;
pub mod deployed;
pub mod device_pool;
#[cfg(test)]
mod draws;
pub mod drift;
pub mod drift_watch;
pub mod fleet;
pub mod heartbeat;
pub mod lease;
pub mod link_keys;
pub mod load_failures;
pub mod machines;
pub mod measured;
pub mod measurement;
pub mod membership;
pub mod offers;
pub mod on_demand;
pub mod placement;
pub mod profile_job;
pub mod project_storage;
pub mod projects;
pub mod replacement;
pub mod replan;
pub mod report_delay;
pub mod rescaling;
pub mod retention;
pub mod schedule;
pub mod seconds;
pub mod shares;
pub mod slot_backends;
pub mod switching;
pub mod target;
mod target_hops;
mod target_ladder;
mod target_tables;
pub mod tensors;
pub mod webhooks;
pub mod workloads;
pub mod zone_promise;
