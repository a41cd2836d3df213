//! `apportion bench agent`: the agent's own program measures itself, so that what is measured is what runs.

use crate::agent::{self, AgentArgs};
use crate::exit::Outcome;

/// Becomes `apportion-agent bench`.
///
/// # Errors
/// If the program is not beside this one, or cannot be started.
pub fn run(seconds: f64) -> Outcome {
    agent::run(&AgentArgs::new(["bench".into(), "--seconds".into(), seconds.to_string().into()]))
}
