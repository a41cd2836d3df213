//! The control plane: sessions with agents, the target they are sent, and the loop that changes it.
//!
//! What belongs here: [`reconcile`] and [`compose`] (pure: plans and fleet in, placement and message out), [`apply`] (the one
//! way to a new target), sessions, and the leader's loop. What never does: calls of a solver (those are `jobs`), HTTP.

pub mod apply;
mod choices;
pub mod compose;
pub mod demand;
pub mod failures;
pub mod fleet;
pub mod guests;
pub mod hand_out;
pub mod heard;
pub mod keep;
pub mod leader;
pub mod liveness;
pub mod push;
pub mod reconcile;
pub mod records;
pub mod removal;
pub mod replan;
mod seconds;
pub mod sessions;
pub mod shares;
pub mod uptime;
