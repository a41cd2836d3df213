//! How is a log of requests read, a table with one row for each request and a column of times?

use super::moments::{TimeUnit, arrivals, time_in};
use crate::table::Table;
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

/// Columns of times with their units in their names.
const KNOWN: [(&str, TimeUnit); 8] = [
    ("arrival_ms", TimeUnit::Millis),
    ("arrival_s", TimeUnit::Seconds),
    ("arrival_us", TimeUnit::Micros),
    ("timestamp_ms", TimeUnit::Millis),
    ("timestamp_s", TimeUnit::Seconds),
    ("timestamp_us", TimeUnit::Micros),
    ("time_ms", TimeUnit::Millis),
    ("time_s", TimeUnit::Seconds),
];

/// Reads a table. Tables of rates are Apportion's own form, and are read as such.
pub(super) fn read(file: &str, text: &str, column: Option<&str>, unit: Option<TimeUnit>) -> Result<ArrivalTrace, BadInput> {
    const EXPECTED: &str =
        "a column \"arrival_ms\" or \"arrival_s\", the columns \"second,qps\", or --column NAME --unit UNIT";
    let table = Table::open(file, text, EXPECTED)?;
    if table.header().first().is_some_and(|name| name == "second") && unit.is_none() {
        return apportion_wire::read_trace(file, text, column);
    }
    let named = |name: &str| table.one_of(&[name]);
    let by_flag = column.map(|name| named(name).ok_or_else(|| table.header_refused(&format!("the column {name:?}"))));
    let known = || KNOWN.iter().find_map(|(name, unit)| Some((named(name)?, *unit)));
    let unit_of = |name: &str| KNOWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, unit)| *unit);
    let (at, unit) = match (by_flag.transpose()?, unit) {
        (Some(at), Some(unit)) => (at, unit),
        (Some(at), None) => match column.and_then(unit_of) {
            Some(unit) => (at, unit),
            None => {
                let found = format!("column {:?}", column.unwrap_or_default());
                let expected = format!("its --unit, one of {}", TimeUnit::NAMES.join(", "));
                return Err(BadInput::one(file, "line 1", found, expected));
            }
        },
        (None, given) => match known() {
            Some((at, unit)) => (at, given.unwrap_or(unit)),
            None => return Err(table.header_refused(EXPECTED)),
        },
    };
    let mut times = Vec::new();
    table.each_row(|row| {
        times.push(time_in(row, at, unit)?);
        Ok(())
    })?;
    arrivals(file, times)
}
