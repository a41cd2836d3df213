//! How long what runs takes: the profile's time, or a draw around it from a stream of the group's own.

use crate::random::Stream;
use apportion_domain::Span;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

/// What the time of a batch is taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Always the profile's median.
    #[default]
    Median,
    /// Drawn for each batch, so that median and 99th percentile are the profile's: lognormal, as times that are products of many small
    /// causes are. Sizes without a 99th percentile take their median.
    P99Matched,
}

/// How times spread around the profile's.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Lognormal, with this standard deviation of the logarithm for a batch of `i + 1` queries.
    Lognormal(Vec<f64>),
    /// Exponential, the profile's time being the mean.
    Exponential,
}

/// The standard deviation of the logarithm that gives this 99th percentile with this median.
#[must_use]
pub fn sigma(median: Span, p99: Span) -> f64 {
    let ratio = p99.as_nanos() as f64 / median.as_nanos().max(1) as f64;
    ratio.max(1.0).ln() / NORMAL_P99
}

/// A law and the number of the stream that it draws from.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The law.
    pub law: Law,
    /// The stream.
    pub stream: u32,
}

impl Spread {
    /// The time of a batch of this size, whose profile says `time`; at least a nanosecond.
    #[cold]
    pub fn draw(&self, streams: &mut [Stream], size: u32, time: Span) -> Span {
        let stream = &mut streams[self.stream as usize];
        let factor = match &self.law {
            Law::Lognormal(sigmas) => match sigmas.get(size as usize - 1).copied().unwrap_or(0.0) {
                0.0 => return time,
                sigma => (sigma * stream.normal()).exp(),
            },
            Law::Exponential => stream.exponential(),
        };
        Span::from_nanos(((time.as_nanos() as f64 * factor).round_ties_even() as u64).max(1))
    }
}
