//! How does an agent come from one target to the next without a gap?
//!
//! Example: a new target replaces replica 1 by replica 2 on the same device. Replica 2 loads beside replica 1 if there is
//! room for both. When replica 2 is ready, replica 1 takes no new queries, finishes its queue and is unloaded.

mod lives;
mod renumber;
mod room;
mod state;

pub use lives::{drain_all_replicas, follow_layout, handle_replica_event, unload_failed_replicas, unload_retired_replicas};
pub use state::PlanSwap;
