//! What is measured, and what does a figure say?

use crate::peers::LinkProtection;
use apportion_domain::nearest_rank;
use std::path::PathBuf;
use std::time::Duration;

/// How the benchmark measures.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// How long each figure is measured.
    pub each: Duration,
    /// Processors may sleep between requests, as in [`crate::agent::AgentOptions`].
    pub may_sleep: bool,
    /// The folder of the example `digits`, if its hop is to be measured too: that needs ONNX Runtime.
    pub digits: Option<PathBuf>,
    /// Requests per second at which the hop is measured, and nothing else; none: at the rates that the agents carry.
    pub rate: Option<f64>,
    /// How the links of the agents are protected.
    pub links: LinkProtection,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system does not give what is needed: sockets, files, threads.
    #[error("the benchmark cannot run here: {0}")]
    System(#[from] std::io::Error),
    /// The agents do not do what they are asked to.
    #[error("the agents under test failed: {0}")]
    Agents(String),
    /// The example of real variants is not as it should be.
    #[error("--digits {0}")]
    Digits(String),
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Through the agents.
    pub agents: f64,
    /// The plainest way to do the same in the same run.
    pub plain: Option<f64>,
    /// What the design aims at.
    pub aim: &'static str,
}

/// The value at this part of the sorted ones, in microseconds.
pub(super) fn micros(sorted_ns: &[u64], part: f64) -> f64 {
    nearest_rank(sorted_ns, part).expect("there is something to rank") as f64 / 1e3
}
