//! Which requests of clients does this agent hold, and when does each of them get its one answer?
//!
//! Example: a request with two rows becomes two queries, each with half of the request's credit. When both halves have
//! come back, the gateway puts their pieces together and answers the client. When one of them does not come back in time,
//! the gateway gives the request up.

mod accept;
mod answers;
mod choosers;
mod pending;
mod requests;
mod state;
mod suspects;

pub use accept::{Arrival, DueRun};
pub use state::GatewayState;
pub use suspects::SUSPECTS_MAX;

#[cfg(test)]
pub use suspects::APART_NS;
