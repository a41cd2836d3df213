//! Which replica does a query go to?
//!
//! [`tables`] computes the shares of all senders from load and capacity (Loki's Algorithm 1). [`most_accurate_first`] does
//! the same in the names of a plan. A [`router::Router`] picks the replica of each query by such a table.

pub mod most_accurate_first;
pub mod router;
mod stride;
pub mod tables;
