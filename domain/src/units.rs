//! How does the event clock count? In whole nanoseconds, so events have a total order and runs repeat.

use std::fmt;
use std::ops::{Add, Sub};

/// A point in time: nanoseconds since the driver's own origin (the start of a run, or of a process).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

/// Nanoseconds in a millisecond.
pub const NANOS_PER_MILLI: f64 = 1e6;

impl Moment {
    /// The origin.
    pub const ZERO: Moment = Moment(0);
    /// Later than every other moment: "never".
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Rounds half to even; negative and NaN become the origin.
    #[must_use]
    pub fn from_millis(millis: f64) -> Self {
        Self(TimeSpan::from_millis(millis).0)
    }

    /// Nanoseconds since the origin.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin.
    #[must_use]
    pub fn as_millis(self) -> f64 {
        self.0 as f64 / NANOS_PER_MILLI
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Moment) -> TimeSpan {
        TimeSpan(self.0.saturating_sub(earlier.0))
    }
}

impl TimeSpan {
    /// No time at all.
    pub const ZERO: TimeSpan = TimeSpan(0);

    /// `nanos` nanoseconds.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Rounds half to even; negative and NaN become zero, too large becomes the largest.
    #[must_use]
    pub fn from_millis(millis: f64) -> Self {
        Self((millis * NANOS_PER_MILLI).round_ties_even() as u64)
    }

    /// In nanoseconds.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In milliseconds.
    #[must_use]
    pub fn as_millis(self) -> f64 {
        self.0 as f64 / NANOS_PER_MILLI
    }
}

impl Add<TimeSpan> for Moment {
    type Output = Moment;
    #[inline]
    fn add(self, span: TimeSpan) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl Sub<TimeSpan> for Moment {
    type Output = Moment;
    #[inline]
    fn sub(self, span: TimeSpan) -> Moment {
        Moment(self.0.saturating_sub(span.0))
    }
}

impl Add for TimeSpan {
    type Output = TimeSpan;
    #[inline]
    fn add(self, other: TimeSpan) -> TimeSpan {
        TimeSpan(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} ms", self.as_millis())
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} ms", self.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_nanosecond_rounds_to_the_even_one() {
        assert_eq!(TimeSpan::from_millis(0.000_000_5).as_nanos(), 0);
        assert_eq!(TimeSpan::from_millis(0.000_001_5).as_nanos(), 2);
        assert_eq!(TimeSpan::from_millis(35.1).as_nanos(), 35_100_000);
        assert_eq!(TimeSpan::from_millis(-1.0), TimeSpan::ZERO);
        assert_eq!(TimeSpan::from_millis(f64::NAN), TimeSpan::ZERO);
    }

    #[test]
    fn time_saturates_instead_of_wrapping() {
        assert_eq!(Moment::NEVER + TimeSpan::from_nanos(1), Moment::NEVER);
        assert_eq!(Moment::ZERO - TimeSpan::from_nanos(1), Moment::ZERO);
        assert_eq!(Moment::ZERO.since(Moment::NEVER), TimeSpan::ZERO);
    }
}
