//! The agent's process: it serves its part of the fleet's target on its devices, and answers clients at its gateway.
//!
//! What belongs here: the loop, loading and running variants, connections between agents, and the clients' protocol. What
//! never does: decisions (crate `node` has them), policies (crate `serving` has them) and planning. The commonest
//! addition is another way to run batches: one file in [`backend`] that implements its trait, and its name in the agent's
//! flags.
pub use apportion_node::{
    chooser, frames, greeting, layout, node, policies, steering, tensor, trace, transforms, unwire, wire,
};

pub mod addresses;
pub mod agent;
mod alarm;
pub mod backend;
pub mod bench;
mod causes;
pub mod certificates;
pub mod connector;
pub mod control;
pub mod devices;
pub mod files;
pub mod gateway;
pub mod measuring;
pub mod open_inference;
pub mod parts;
pub mod peers;
pub mod record;
pub mod refused;
pub mod shares;
pub mod slot;
pub mod status;
pub mod telemetry;
pub mod wake_lock;
