//! How are the traces of Azure Functions read?
//!
//! The formats are those of `AzureFunctionsDataset2019.md` and `AzureFunctionsInvocationTrace2021.md` in the repository
//! AzurePublicDataset. A file of 2019, `invocations_per_function_md.anon.dNN.csv`, has a row for each function and a count
//! for each minute of a day. The trace of 2021 has a row for each invocation with its end and its duration in seconds.

use super::moments::{arrivals, nanos_in};
use crate::table::{Table, TableColumn};
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

/// Minutes of a day: the most columns of counts.
const MINUTES_MAX: usize = 1_440;
const SECONDS_OF_MINUTE: u64 = 60;
/// Largest count of a minute.
const COUNT_MAX: f64 = 1e12;

/// Reads either trace. The function is `HashFunction` or `func`.
pub(super) fn read(file: &str, text: &str, function: Option<&str>) -> Result<ArrivalTrace, BadInput> {
    let table = Table::open(file, text, "the header HashOwner,HashApp,HashFunction,Trigger,1,2,...")?;
    match table.one_of(&["end_timestamp"]) {
        Some(end) => invocations(file, table, end, function),
        None => counts(file, table, function),
    }
}

fn counts(file: &str, table: Table<'_>, function: Option<&str>) -> Result<ArrivalTrace, BadInput> {
    let name = table.required(&["HashFunction"])?;
    let minutes: Vec<TableColumn> =
        (1..=MINUTES_MAX).map_while(|minute| table.find(|column| column == minute.to_string())).collect();
    if minutes.is_empty() {
        return Err(table.header_refused("columns 1, 2, ... with the counts of the minutes"));
    }
    let mut sums = vec![0.0; minutes.len()];
    let mut is_there = false;
    table.each_row(|row| {
        let is_meant = function.is_none_or(|wanted| wanted == row.text(name));
        is_there |= is_meant;
        for (column, sum) in minutes.iter().zip(&mut sums).filter(|_| is_meant) {
            *sum += row.number(*column, |n| (0.0..=COUNT_MAX).contains(&n), "a count of at least 0")?;
        }
        Ok(())
    })?;
    if !is_there {
        return Err(unknown(file, function));
    }
    let seconds = |(minute, sum): (usize, f64)| {
        let from = minute as u64 * SECONDS_OF_MINUTE;
        (from..from + SECONDS_OF_MINUTE).map(move |second| (second, sum / SECONDS_OF_MINUTE as f64))
    };
    let rates = sums.into_iter().enumerate().flat_map(seconds).collect();
    ArrivalTrace::rates(rates).map_err(|e| BadInput::one(file, "", e.value, e.expected))
}

fn invocations(file: &str, table: Table<'_>, end: TableColumn, function: Option<&str>) -> Result<ArrivalTrace, BadInput> {
    const SECOND: u32 = 1_000_000_000;
    let (name, duration) = (table.required(&["func"])?, table.required(&["duration"])?);
    let mut starts = Vec::new();
    table.each_row(|row| {
        if function.is_some_and(|wanted| wanted != row.text(name)) {
            return Ok(());
        }
        let seconds = |column: TableColumn| {
            nanos_in(row.text(column), SECOND).ok_or_else(|| row.refused(column, "seconds of at least 0"))
        };
        starts.push(seconds(end)? - seconds(duration)?);
        Ok(())
    })?;
    if starts.is_empty() { Err(unknown(file, function)) } else { arrivals(file, starts) }
}

fn unknown(file: &str, function: Option<&str>) -> BadInput {
    let name = function.unwrap_or_default();
    BadInput::one(file, "", format!("no invocation of {name:?}"), "a function of this file, by its hash")
}
