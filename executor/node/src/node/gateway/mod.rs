//! Which requests of clients does this agent hold, and when does each of them get its one answer?
//!
//! Example: a request with two rows becomes two queries, each with half of the request's credit. When both halves have
//! come back, the gateway puts their pieces together and answers the client. When one of them does not come back in time,
//! the gateway gives the request up.

mod accept;
mod answers;
mod arrival;
mod choosers;
mod pending;
mod requests;
mod resume;
mod state;
mod suspects;
mod waiting;

pub use accept::DueRun;
pub use arrival::Arrival;
pub use state::GatewayState;
pub use suspects::SUSPECTS_MAX;
pub use waiting::WAITING_MAX;

#[cfg(test)]
pub use suspects::APART_NS;
