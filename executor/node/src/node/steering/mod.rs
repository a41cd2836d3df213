//! How does the fleet adapt a pipeline to its load between two plans?
//!
//! Example: twice the planned load comes. The agent that hosts the pipeline's steward sees it in the measurements of all
//! agents. It places an extra replica on a spare device, and every agent loads or uses the replica.

mod carry;
mod decide;
mod extras;
mod hosted;
mod lost;
mod moves;
mod outcomes;
mod receive;
mod release;
mod state;
mod view;

pub use hosted::HostedHeadroom;
pub use state::SteeringState;
