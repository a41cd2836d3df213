//! `apportion bench agent`: the agent's own program measures itself, so that what is measured is what runs.

use crate::agent::{self, AgentArgs};
use crate::exit::Outcome;
use std::ffi::OsString;
use std::path::Path;

/// Becomes `apportion-agent bench`.
///
/// # Errors
/// If the program is not beside this one, or cannot be started.
pub fn run(seconds: f64, save_power: bool, digits: Option<&Path>) -> Outcome {
    let mut flags: Vec<OsString> = vec!["bench".into(), "--seconds".into(), seconds.to_string().into()];
    flags.extend(save_power.then(|| "--save-power".into()));
    flags.extend(digits.into_iter().flat_map(|folder| ["--digits".into(), folder.into()]));
    agent::run(&AgentArgs::new(flags))
}
