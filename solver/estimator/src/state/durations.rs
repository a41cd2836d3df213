//! How long does a batch run? The profile's time, or a draw around it from the group's own stream.

use crate::random::RandomStream;
use apportion_domain::{TimeDistribution, TimeSpan};

/// Where the time of a batch comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Always the profile's median.
    Median,
    /// Drawn for each batch, so that median and 99th percentile are the profile's: lognormal, as times that are products of
    /// many small causes are. Sizes without a 99th percentile take their median.
    #[default]
    P99Matched,
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
