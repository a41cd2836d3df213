//! How is a report of Triton's Perf Analyzer read (`perf_analyzer -f FILE`)?
//!
//! The columns are those of "Visualizing Latency vs. Throughput" in Perf Analyzer's `docs/measurements_metrics.md`. Times
//! are microseconds. The report has no column for the batch size (`-b`), the model and the device.
//!
//! The latency of a batch is the server's computation: input, inference and output. It has no waiting and no network in
//! it; the planner adds both. Without these columns, it is the median latency that the client saw. Of several rows the one
//! with the lowest concurrency or request rate counts, because the others wait for each other.

use crate::gathered::{FilePlace, GatheredProfile, GivenNames, LatencyRow};
use crate::table::{Table, TableColumn, TableRow};
use apportion_domain::pipeline::BATCH_MAX;
use apportion_wire::{BadInput, MeasuredRow};
use std::collections::BTreeMap;

/// Microseconds of a millisecond.
const MICROS: f64 = 1e3;
/// The computation of a batch in the server.
const SERVER: [&str; 3] = ["Server Compute Input", "Server Compute Infer", "Server Compute Output"];
/// The computation as one column, as older versions write it.
const SERVER_OLD: &str = "Server Compute";
/// The load of a row.
const LOAD: [&str; 2] = ["Concurrency", "Request Rate"];

struct Columns {
    load: TableColumn,
    batch: Option<TableColumn>,
    server: Vec<TableColumn>,
    median: Option<TableColumn>,
    p99: Option<TableColumn>,
}

/// A batch as one row of the report has it.
struct Batch {
    load: f64,
    place: String,
    latency_ms: f64,
    p99_ms: Option<f64>,
}

/// Adds the batches of a report.
pub(super) fn add(profile: &mut GatheredProfile, file: &str, text: &str, names: &GivenNames) -> Result<(), BadInput> {
    let table = Table::open(file, text, "a report of perf_analyzer -f, with the column \"Concurrency\"")?;
    let columns = Columns::of(&table)?;
    let variant = required(file, names.variant.as_deref(), "the report names no model", "--variant NAME")?;
    let hardware = required(file, names.hardware.as_deref(), "the report names no device", "--hardware NAME")?;
    let mut batches: BTreeMap<u32, Batch> = BTreeMap::new();
    table.each_row(|row| {
        let size = columns.batch.map_or(Ok(names.batch.unwrap_or(1)), |c| row.count(c, BATCH_MAX, "a batch"))?;
        let found = columns.batch_of(row)?;
        if batches.get(&size).is_none_or(|known| found.load < known.load) {
            batches.insert(size, found);
        }
        Ok(())
    })?;
    if columns.server.is_empty() {
        profile.note(format!("{file}: no column {:?}: latencies have the network and the client in them", SERVER[1]));
    }
    for (batch, found) in batches.into_iter().filter(|(batch, _)| names.batch_max.is_none_or(|most| *batch <= most)) {
        if columns.server.is_empty() && found.load > 1.0 {
            profile.note(format!("{file}: the lowest load is {}: latencies have waiting in them", found.load));
        }
        let (variant, hardware) = (variant.clone(), hardware.clone());
        let (latency_ms, p99_ms) = (found.latency_ms, found.p99_ms);
        let measured = MeasuredRow {
            task: names.task.clone(),
            variant,
            hardware,
            share: 1.0,
            batch,
            latency_ms,
            p99_ms,
            measured: None,
        };
        let row = LatencyRow { measured, accuracy: None, load_ms: None, memory_mib: None };
        profile.add(FilePlace { file, at: &found.place }, row)?;
    }
    Ok(())
}

fn required(file: &str, name: Option<&str>, found: &str, expected: &str) -> Result<String, BadInput> {
    name.map(str::to_owned).ok_or_else(|| BadInput::one(file, "", found, expected))
}

impl Columns {
    fn of(table: &Table<'_>) -> Result<Self, BadInput> {
        let server: Vec<TableColumn> = SERVER.iter().filter_map(|name| table.one_of(&[name])).collect();
        let server = if server.len() == SERVER.len() { server } else { table.one_of(&[SERVER_OLD]).into_iter().collect() };
        let median = table.one_of(&["p50 latency", "Avg latency"]);
        if server.is_empty() && median.is_none() {
            let expected = format!("the columns {}, or \"p50 latency\"", SERVER.map(|name| format!("{name:?}")).join(", "));
            return Err(table.header_refused(&expected));
        }
        Ok(Self {
            load: table.required(&LOAD)?,
            batch: table.one_of(&["Batch", "Batch Size"]),
            server,
            median,
            p99: table.one_of(&["p99 latency"]),
        })
    }

    fn batch_of(&self, row: &TableRow<'_>) -> Result<Batch, BadInput> {
        let load = row.number(self.load, |n| n > 0.0, "a load above 0")?;
        let place = row.place();
        let mut server_us = 0.0;
        for column in &self.server {
            server_us += row.number(*column, |n| n >= 0.0, "microseconds of at least 0")?;
        }
        if server_us > 0.0 {
            return Ok(Batch { load, place, latency_ms: server_us / MICROS, p99_ms: None });
        }
        let Some(median) = self.median else {
            return Err(row.refused(self.server[0], "microseconds; all computation of this row is 0"));
        };
        let median_us = row.number(median, |n| n > 0.0, "microseconds above 0")?;
        let expected = format!("microseconds of at least the median, {median_us}");
        let p99 = self.p99.map(|c| row.number(c, |n| n >= median_us, &expected)).transpose()?;
        Ok(Batch { load, place, latency_ms: median_us / MICROS, p99_ms: p99.map(|us| us / MICROS) })
    }
}
