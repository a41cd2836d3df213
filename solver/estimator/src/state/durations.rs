//! How long does a batch run? The profile's time, or a draw around it from the group's own stream.

use crate::random::RandomStream;
use apportion_domain::TimeSpan;

/// The 99th percentile of the standard normal distribution.
const NORMAL_P99: f64 = 2.326_347_874_040_841;

/// Where the time of a batch comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Always the profile's median.
    #[default]
    Median,
    /// Drawn for each batch, so that median and 99th percentile are the profile's: lognormal, as times that are products of
    /// many small causes are. Sizes without a 99th percentile take their median.
    P99Matched,
}

/// The distribution of times around the profile's.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeDistribution {
    /// Lognormal, with this standard deviation of the logarithm for a batch of `i + 1` queries.
    Lognormal(Vec<f64>),
    /// Exponential, the profile's time being the mean.
    Exponential,
}

/// The standard deviation of the logarithm that gives this 99th percentile with this median.
#[must_use]
pub fn sigma(median: TimeSpan, p99: TimeSpan) -> f64 {
    let ratio = p99.as_nanos() as f64 / median.as_nanos().max(1) as f64;
    ratio.max(1.0).ln() / NORMAL_P99
}

/// A distribution, and the stream that its draws come from.
#[derive(Clone, Debug)]
pub struct TimeVariation {
    /// The distribution.
    pub distribution: TimeDistribution,
    /// The number of the stream.
    pub stream: u32,
}

impl TimeVariation {
    /// The time of a batch of this size, whose profile says `time`; at least a nanosecond.
    #[cold]
    pub fn draw(&self, streams: &mut [RandomStream], size: u32, time: TimeSpan) -> TimeSpan {
        let stream = &mut streams[self.stream as usize];
        let factor = match &self.distribution {
            TimeDistribution::Lognormal(sigmas) => match sigmas.get(size as usize - 1).copied().unwrap_or(0.0) {
                0.0 => return time,
                sigma => (sigma * stream.normal()).exp(),
            },
            TimeDistribution::Exponential => stream.exponential(),
        };
        TimeSpan::from_nanos(((time.as_nanos() as f64 * factor).round_ties_even() as u64).max(1))
    }
}
