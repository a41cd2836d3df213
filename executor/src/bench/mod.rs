//! How much time and throughput does an agent cost?
//!
//! Two agents run in this process, with sockets between them and variants that take no time. Beside them runs the plainest
//! program that does the same work.
//!
//! What belongs here: measuring. Figures depend on the machine and its load, so compare ratios.

mod digits;
mod echo;
mod figure;
mod hop;
mod ingress;
mod pacing;
mod pair;
mod plain;
mod tensors;

pub use figure::{BenchError, BenchOptions, Figure};

/// Measures everything; `done` hears of each part before it begins.
///
/// # Errors
/// [`BenchError`] by cause.
pub fn run(options: &BenchOptions, mut begins: impl FnMut(&str)) -> Result<Vec<Figure>, BenchError> {
    begins("starting two agents");
    let pair = pair::Pair::start(options)?;
    begins("the time of a hop");
    if let Some(rate) = options.rate {
        return hop::added(&pair, "as asked", rate, hop::AIMS, options.each);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::LinkProtection;
    use std::time::Duration;

    #[test]
    fn all_figures_are_there_and_are_figures() {
        let links = LinkProtection::Plain;
        let options = BenchOptions { each: Duration::from_millis(100), may_sleep: true, digits: None, rate: None, links };
        let figures = run(&options, |_| {}).expect("figures");
        assert_eq!(figures.len(), 15, "{figures:?}");
        for figure in &figures {
            // The difference of two ranks may be anything on a busy machine; all others are of something that happened.
            let positive = figure.what.contains("added") || figure.agents > 0.0;
            assert!(positive && figure.agents.is_finite() && figure.plain.is_none_or(|p| p > 0.0), "{figure:?}");
        }
    }

    #[test]
    fn links_with_tls_are_measured() {
        let (each, links) = (Duration::from_millis(100), LinkProtection::Tls);
        let options = BenchOptions { each, may_sleep: true, digits: None, rate: Some(100.0), links };
        assert_eq!(run(&options, |_| {}).expect("figures").len(), 4);
    }
}
