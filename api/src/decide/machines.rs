//! How many machines of each hardware type does the fleet need, which are asked for, and which go back?
//!
//! Example: plans want 6 devices of `t4`, one machine has 2, and two machines are alive: [`MachinePool`] asks for one more.
//! The wish is a row with an age. [`reconcile()`] says when its agent has come, and expires it when none comes. After the
//! load has fallen, a machine without replicas is cordoned, and goes back.
//!
//! INFaaS's VM autoscaler (section 4.2.3) adds a worker when a hardware type is used above 80 %. Here plans say how many
//! devices they want of each type, with everything that may be had; so a type is asked for before it is full.
//!
//! Moments are times since the epoch on the database's clock.

mod changes;
mod facts;
mod reach;
mod reconcile;

pub use changes::{CORDON_WAIT, ENDING_MAX, MachinePool, RENEW_MARGIN, renew_before};
pub use facts::{
    AskReason, HardwareFacts, MachineAgent, MachineChange, MachineObstacle, MachineRecord, MachineStage, MachineTurn,
    PoolLimits, PoolMachine, ReturnReason,
};
pub use reach::{
    PipelineDevices, ReachableType, devices_in_reach, devices_needed, placed_in_reach, with_losses, zone_of_next,
};
pub use reconcile::{MachineEvent, MachineNote, SILENT_MAX, UNSEEN_MAX, WishEnd, WishLimits, reconcile};
