//! Which way does each query take: to a replica, into a batch, on to the next tasks, and back to its gateway?
//!
//! Example: a query of the task `find` runs in a batch at replica 3. Its output has two rows, so it makes two queries of
//! the task `read`. Each of them goes to a ready replica, here or at another agent. When a query has no further task, its
//! part of the request goes back to the gateway.

mod availability;
mod batch_runs;
mod batches;
mod central;
mod deliver;
mod joins;
mod meet;
mod members;
mod offline;
mod parked;
mod parts;
mod requests;
mod sent;
mod singles;
mod slots;
mod state;

pub use joins::MEETINGS_MAX;
pub use offline::OFFLINE_MAX;
pub use parked::PARKED_MAX;
pub use state::TrafficState;
