//! The agent: serves its part of the fleet's target on its devices, and answers clients at its gateway.
//!
//! What belongs here: loading and running variants, moving queries between agents, and the clients' protocol. What never
//! does: policies (crate `serving` has them) and planning. The commonest addition is another way to run batches: one file in
//! [`backend`] that implements its trait, and its name in the agent's flags.
pub mod addresses;
pub mod agent;
mod alarm;
pub mod backend;
pub mod bench;
mod causes;
pub mod chooser;
pub mod control;
pub mod devices;
pub mod files;
pub mod frames;
pub mod gateway;
pub mod layout;
pub mod node;
pub mod parts;
pub mod peers;
pub mod policies;
pub mod record;
pub mod refused;
pub mod shares;
pub mod slot;
pub mod status;
pub mod steering;
pub mod telemetry;
pub mod tensor;
pub mod trace;
pub mod unwire;
pub mod wakeful;
pub mod wire;
