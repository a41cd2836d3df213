//! How long does a batch run? The profile's time, or a draw around it from the group's own stream.

use crate::random::RandomStream;
use apportion_domain::{ShapeTimes, TimeDistribution, TimeSpan};

/// Where the time of a batch comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Always the profile's median.
    Median,
    /// Drawn for each batch, so that median and 99th percentile are the profile's: lognormal, as times that are products of
    /// many small causes are. Sizes without a 99th percentile take their median. A batch of a variant that was measured by
    /// shape first draws its shape.
    #[default]
    P99Matched,
}

/// The times that are drawn around the profile's.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawnTimes {
    /// One distribution.
    Around(TimeDistribution),
    /// One for each shape, by size: those of a batch of `i + 1` queries, or of a query in a slot. A batch has rows of one
    /// shape, as in the agents.
    ByShape(Vec<Vec<ShapeTimes>>),
}

/// A distribution, and the stream that its draws come from.
#[derive(Clone, Debug)]
pub struct TimeVariation {
    /// The distribution.
    pub distribution: DrawnTimes,
    /// The number of the stream.
    pub stream: u32,
}

impl TimeVariation {
    /// The time of a batch of this size, whose profile says `time`; at least a nanosecond.
    #[cold]
    pub fn draw(&self, streams: &mut [RandomStream], size: u32, time: TimeSpan) -> TimeSpan {
        let stream = &mut streams[self.stream as usize];
        let factor = match &self.distribution {
            DrawnTimes::Around(TimeDistribution::Lognormal(sigmas)) => {
                match sigmas.get(size as usize - 1).copied().unwrap_or(0.0) {
                    0.0 => return time,
                    sigma => (sigma * stream.normal()).exp(),
                }
            }
            DrawnTimes::Around(TimeDistribution::Exponential) => stream.exponential(),
            DrawnTimes::ByShape(sizes) => match sizes.get(size as usize - 1).and_then(|shapes| drawn_shape(shapes, stream))
            {
                None => return time,
                Some(shape) => match shape.sigma() {
                    0.0 => shape.median,
                    sigma => shape.median * (sigma * stream.normal()).exp(),
                },
            },
        };
        TimeSpan::from_nanos(((time.as_nanos() as f64 * factor).round_ties_even() as u64).max(1))
    }
}

/// One of these shapes, by their shares; `None` only if there are none.
fn drawn_shape<'s>(shapes: &'s [ShapeTimes], stream: &mut RandomStream) -> Option<&'s ShapeTimes> {
    let (drawn, mut until) = (stream.positive(), 0.0);
    let mut reached = shapes.iter().filter(|shape| {
        until += shape.share;
        drawn <= until
    });
    reached.next().or(shapes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: TimeSpan = TimeSpan::from_nanos(6_000_000);

    fn draws(distribution: DrawnTimes, count: usize) -> Vec<TimeSpan> {
        let mut streams = [RandomStream::new(7, "service")];
        let variation = TimeVariation { distribution, stream: 0 };
        (0..count).map(|_| variation.draw(&mut streams, 1, TIME)).collect()
    }

    #[test]
    fn times_without_shapes_take_one_normal_number_each() {
        let mut stream = RandomStream::new(7, "service");
        let nanos = |factor: f64| TimeSpan::from_nanos((6e6 * factor).round_ties_even() as u64);
        let expected: Vec<TimeSpan> = (0..1_000).map(|_| nanos((0.25 * stream.normal()).exp())).collect();
        assert_eq!(draws(DrawnTimes::Around(TimeDistribution::Lognormal(vec![0.25])), 1_000), expected);
        let mut stream = RandomStream::new(7, "service");
        let expected: Vec<TimeSpan> =
            (0..1_000).map(|_| nanos(stream.exponential()).max(TimeSpan::from_nanos(1))).collect();
        assert_eq!(draws(DrawnTimes::Around(TimeDistribution::Exponential), 1_000), expected);
    }

    #[test]
    fn shapes_are_drawn_by_their_shares() {
        let shape = |share, median| ShapeTimes { share, median, p99: median };
        let times = draws(DrawnTimes::ByShape(vec![vec![shape(0.7, 0.5), shape(0.2, 1.0), shape(0.1, 4.0)]]), 100_000);
        for (nanos, share) in [(3_000_000, 0.7), (6_000_000, 0.2), (24_000_000, 0.1)] {
            let of_shape = times.iter().filter(|time| time.as_nanos() == nanos).count() as f64 / 1e5;
            assert!((of_shape - share).abs() < 0.01, "{nanos} ns: {of_shape}");
        }
        assert_eq!(draws(DrawnTimes::ByShape(vec![vec![]]), 1), [TIME], "nothing to draw from");
        // Shares that sum to a little less than 1 have a last shape.
        let short = draws(DrawnTimes::ByShape(vec![vec![shape(1e-9, 2.0)]]), 10);
        assert!(short.iter().all(|time| time.as_nanos() == 12_000_000), "{short:?}");
    }
}
