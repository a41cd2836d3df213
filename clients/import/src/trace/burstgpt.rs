//! How is a trace of BurstGPT read?
//!
//! The format is that of the README of `HPMLL/BurstGPT`: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log
//! Type`, in newer files with `Session ID` and `Elapsed time`. The timestamp is in seconds from the first day on.

use super::moments::{TimeUnit, arrivals, time_in};
use crate::table::Table;
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

/// Reads a trace.
pub(super) fn read(file: &str, text: &str) -> Result<ArrivalTrace, BadInput> {
    let table = Table::open(file, text, "the header Timestamp,Model,Request tokens,...")?;
    let column = table.required(&["Timestamp"])?;
    table.required(&["Model"])?;
    let mut times = Vec::new();
    table.each_row(|row| {
        times.push(time_in(row, column, TimeUnit::Seconds)?);
        Ok(())
    })?;
    arrivals(file, times)
}
