//! What does this agent know of the whole fleet: the target, the other agents and their replicas?
//!
//! Example: agent 2 announces that replica 7 takes queries. From then on the routes of this agent lead to replica 7, until
//! agent 2 says otherwise, is silent for too long, or leaves the target.

mod crew;
pub mod peers;
mod state;

pub use peers::Announcement;
pub use state::{FleetState, GIVE_UP_NS_MIN};

#[cfg(test)]
pub use state::REPAIR_NS;
