//! How does a binary of this repository set up its log, and which message does a panic carry?
//!
//! What belongs here: helpers of a process that both the agent and the command line need. What never does: anything of
//! planning or serving. The commonest addition is an option of the log.

mod log;
mod panics;

pub use log::start_log;
pub use panics::panic_message;
