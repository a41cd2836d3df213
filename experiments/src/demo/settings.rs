//! Which settings does a demo have?

use crate::live::fleet::FleetSettings;
use apportion_support::output::OutputFormat;

/// The settings of a demo.
#[derive(Clone, Debug)]
pub struct DemoSettings {
    /// How the summary is printed.
    pub format: OutputFormat,
    /// Whether everything stays up after the summary, and one JSON line with the addresses is printed.
    pub hold: bool,
    /// Length of the load in seconds: a third at the base rate, a third at twice that, a third at the base rate.
    pub seconds: u64,
    /// The service, the agents and the pipeline.
    pub fleet: FleetSettings,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Second of the load at which the last agent is killed; clients then use the ingresses of the other agents.
    pub kill_at: Option<f64>,
}
