//! How much time and throughput an agent costs: two agents in this process, with sockets between them and variants that take
//! no time, beside the plainest thing that does the same work in the same run.
//!
//! What belongs here: measuring. Figures depend on the machine and on what else runs there, so ratios are what to compare.

mod digits;
mod echo;
mod hop;
mod ingress;
mod pair;
mod plain;
mod tensors;

use apportion_domain::nearest_rank;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long each figure is measured.
    pub each: Duration,
    /// Processors may sleep between requests, as in [`crate::agent::Options`].
    pub may_sleep: bool,
    /// The folder of the example `digits`, if its hop is to be measured too: that needs ONNX Runtime.
    pub digits: Option<PathBuf>,
    /// Requests per second at which the hop is measured, and nothing else; none: at the rates that the agents carry.
    pub rate: Option<f64>,
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

/// Measures everything; `done` hears of each part before it begins.
///
/// # Errors
/// [`BenchError`] by cause.
pub fn run(options: &Options, mut begins: impl FnMut(&str)) -> Result<Vec<Figure>, BenchError> {
    begins("starting two agents");
    let pair = pair::Pair::start(options.may_sleep)?;
    begins("the time of a hop");
    if let Some(rate) = options.rate {
        return hop::added(&pair, "as asked", rate, ("-", hop::TWICE_PLAIN), options.each);
    }
    let mut figures = hop::measure(&pair, options.each)?;
    begins("large tensors");
    figures.push(tensors::measure(&pair, options.each)?);
    begins("requests at the ingress");
    figures.extend(ingress::measure(&pair, options.each)?);
    drop(pair);
    if let Some(folder) = &options.digits {
        begins("the hop of the digits pipeline");
        figures.extend(digits::measure(folder, options)?);
    }
    Ok(figures)
}

/// The value at this part of the sorted ones, in microseconds.
fn micros(sorted_ns: &[u64], part: f64) -> f64 {
    nearest_rank(sorted_ns, part).expect("there is something to rank") as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there_and_are_figures() {
        let figures = run(&Options { each: Duration::from_millis(100), may_sleep: true, digits: None, rate: None }, |_| {})
            .expect("figures");
        assert_eq!(figures.len(), 15, "{figures:?}");
        for figure in &figures {
            // The difference of two ranks may be anything on a busy machine; all others are of something that happened.
            let positive = figure.what.contains("added") || figure.agents > 0.0;
            assert!(positive && figure.agents.is_finite() && figure.plain.is_none_or(|p| p > 0.0), "{figure:?}");
        }
    }
}
