//! How do the times of a log become the arrivals of a trace?

use crate::table::{TableColumn, TableRow};
use apportion_domain::{ArrivalTrace, Moment};
use apportion_wire::BadInput;
use chrono::{DateTime, NaiveDateTime};

/// Longest time from the first to the last arrival: as long as the clock of a trace runs, about 285 years.
const NANOS_MAX: i128 = 9_000_000_000_000_000_000;
/// Latest time, in nanoseconds from the origin of a file: some 30,000 years.
const TIME_MAX: i128 = 1_000_000_000_000_000_000_000;

/// The unit of a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// Dates with a time of the day: `2024-05-10 00:00:00.009930`, with `T` or a space, with or without an offset.
    Date,
}

impl TimeUnit {
    /// The names of the units on a command line.
    pub const NAMES: [&'static str; 5] = ["s", "ms", "us", "ns", "date"];

    /// The unit with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let units = [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos, Self::Date];
        Self::NAMES.iter().position(|known| *known == name).map(|at| units[at])
    }

    fn nanos(self) -> Option<u32> {
        match self {
            Self::Seconds => Some(1_000_000_000),
            Self::Millis => Some(1_000_000),
            Self::Micros => Some(1_000),
            Self::Nanos => Some(1),
            Self::Date => None,
        }
    }
}

/// Nanoseconds of a number in a unit of so many nanoseconds, if it is a time of at least 0.
pub(super) fn nanos_of(number: f64, unit: u32) -> Option<i128> {
    let nanos = number * f64::from(unit);
    (0.0..=TIME_MAX as f64).contains(&nanos).then(|| nanos.round_ties_even() as i128)
}

/// As [`nanos_of`], of a number in text. Whole numbers keep all their digits.
pub(super) fn nanos_in(text: &str, unit: u32) -> Option<i128> {
    match text.parse::<i128>() {
        Ok(whole) => whole.checked_mul(i128::from(unit)).filter(|nanos| (0..=TIME_MAX).contains(nanos)),
        Err(_) => nanos_of(text.parse().ok()?, unit),
    }
}

/// The time in a cell, in nanoseconds from any origin.
pub(super) fn time_in(row: &TableRow<'_>, column: TableColumn, unit: TimeUnit) -> Result<i128, BadInput> {
    let text = row.text(column);
    match unit.nanos() {
        Some(nanos) => nanos_in(text, nanos).ok_or_else(|| row.refused(column, "a time of at least 0")),
        None => date(text).ok_or_else(|| row.refused(column, "a date such as 2024-05-10 00:00:00.009930")),
    }
}

fn date(text: &str) -> Option<i128> {
    let text = text.replacen('T', " ", 1);
    let text = text.strip_suffix('Z').unwrap_or(&text);
    let utc = match NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f") {
        Ok(time) => time.and_utc(),
        Err(_) => DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%:z").ok()?.to_utc(),
    };
    Some(i128::from(utc.timestamp()) * 1_000_000_000 + i128::from(utc.timestamp_subsec_nanos()))
}

/// The arrivals at these times, in order, from the first one on.
pub(super) fn arrivals(file: &str, mut times: Vec<i128>) -> Result<ArrivalTrace, BadInput> {
    times.sort_unstable();
    let first = times.first().copied().unwrap_or_default();
    let last = times.last().copied().unwrap_or_default() - first;
    if last > NANOS_MAX {
        return Err(BadInput::one(file, "", format!("{} years", last / 31_557_600_000_000_000), "at most 285 years"));
    }
    let moments = times.into_iter().map(|time| Moment::from_nanos((time - first) as u64)).collect();
    ArrivalTrace::arrivals(moments).map_err(|e| BadInput::one(file, "", e.value, e.expected))
}
