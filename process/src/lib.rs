//! How does a binary of this repository set up its log, which message does a panic carry, and what keeps processors awake?
//!
//! What belongs here: helpers of a process that both the agent and the command line need. What never does: anything of
//! planning or serving. The commonest addition is an option of the log.

mod awake;
mod log;
mod panics;

pub use awake::AwakeProcessors;
pub use log::start_log;
pub use panics::panic_message;
