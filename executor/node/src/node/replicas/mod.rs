//! Which replicas does an agent have, and where is each of them in its life?
//!
//! Example: replica 7 of the task `read` is blocked until its device has room. Then it loads, is ready and takes queries,
//! drains when a new target does not have it, and is unloaded when its queue is empty.

mod meter;
mod queue;
pub mod replica;
mod set;
mod single_run;

pub use meter::BatchKind;
pub use queue::{BatchPlace, EndedMember, QueueOrder, QueuedQuery};
pub use replica::{LocalReplica, ReplicaPhase};
pub use set::LocalReplicas;
pub use single_run::{QueuedMember, SingleRun};
