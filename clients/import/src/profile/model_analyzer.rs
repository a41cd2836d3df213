//! How is a report of Triton's Model Analyzer read (`metrics-model-inference.csv`)?
//!
//! The columns are the headers of `model_analyzer/record/types`; which of them are there, the user of Model Analyzer
//! chooses. Latencies are milliseconds.
//!
//! A variant is the `Model`. Of several configurations with the same batch, the one with the fewest copies on the device
//! and then the lowest concurrency counts: a profile is about one replica, and the planner adds waiting and further
//! replicas. The latency is the server's computation if its three columns are there, else the mean of the client, else its
//! p99.

use crate::gathered::{FilePlace, GatheredProfile, GivenNames, LatencyRow};
use crate::table::{Table, TableColumn, TableRow};
use apportion_domain::pipeline::BATCH_MAX;
use apportion_wire::{BadInput, MeasuredRow};
use std::collections::BTreeMap;

/// The computation of a batch in the server.
const SERVER: [&str; 3] =
    ["Server Compute Input time (ms)", "Server Compute Infer time (ms)", "Server Compute Output time (ms)"];
const MEAN: &str = "Avg Latency (ms)";
const P99: &str = "p99 Latency (ms)";

/// The columns that make a latency.
enum Source {
    Server([TableColumn; 3]),
    Mean(TableColumn, Option<TableColumn>),
    P99(TableColumn),
}

struct Columns {
    model: TableColumn,
    batch: TableColumn,
    load: TableColumn,
    copies: Option<TableColumn>,
    source: Source,
}

/// A batch as one row of the report has it. The first fields order the rows.
struct Batch {
    copies: u32,
    load: f64,
    place: String,
    latency_ms: f64,
    p99_ms: Option<f64>,
}

/// Adds the batches of a report.
pub(super) fn add(profile: &mut GatheredProfile, file: &str, text: &str, names: &GivenNames) -> Result<(), BadInput> {
    let table = Table::open(file, text, "metrics-model-inference.csv of Model Analyzer, with the column \"Model\"")?;
    let columns = Columns::of(&table)?;
    let Some(hardware) = &names.hardware else {
        return Err(BadInput::one(file, "", "the report names no device", "--hardware NAME"));
    };
    let mut batches: BTreeMap<(String, u32), Batch> = BTreeMap::new();
    table.each_row(|row| {
        let model = row.text(columns.model).to_owned();
        if model.is_empty() {
            return Err(row.refused(columns.model, "the name of a model"));
        }
        let key = (model, row.count(columns.batch, BATCH_MAX, "a batch")?);
        let found = columns.batch_of(row)?;
        let is_better = |known: &Batch| (found.copies, found.load) < (known.copies, known.load);
        if batches.get(&key).is_none_or(is_better) {
            batches.insert(key, found);
        }
        Ok(())
    })?;
    if matches!(columns.source, Source::P99(_)) {
        profile.note(format!("{file}: no column {MEAN:?}: latencies are the p99, and plans are larger than they must be"));
    }
    for ((variant, batch), found) in batches {
        if names.batch_max.is_some_and(|most| batch > most) {
            continue;
        }
        if found.copies > 1 {
            let count = found.copies;
            profile.note(format!("{file}: {}: {count} copies of {variant} shared the device", found.place));
        }
        let (task, hardware) = (names.task.clone(), hardware.clone());
        let (latency_ms, p99_ms) = (found.latency_ms, found.p99_ms);
        let measured = MeasuredRow { task, variant, hardware, share: 1.0, batch, latency_ms, p99_ms, measured: None };
        let row = LatencyRow { measured, accuracy: None, load_ms: None, memory_mib: None };
        profile.add(FilePlace { file, at: &found.place }, row)?;
    }
    Ok(())
}

impl Columns {
    fn of(table: &Table<'_>) -> Result<Self, BadInput> {
        let server = SERVER.map(|name| table.one_of(&[name]));
        let source = match (server, table.one_of(&[MEAN]), table.one_of(&[P99])) {
            ([Some(input), Some(infer), Some(output)], _, _) => Source::Server([input, infer, output]),
            (_, Some(mean), p99) => Source::Mean(mean, p99),
            (_, None, Some(p99)) => Source::P99(p99),
            _ => return Err(table.header_refused(&format!("the column {MEAN:?} or {P99:?}"))),
        };
        Ok(Self {
            model: table.required(&["Model"])?,
            batch: table.required(&["Batch"])?,
            load: table.required(&["Concurrency", "Request Rate"])?,
            copies: table.one_of(&["Instance Group"]),
            source,
        })
    }

    fn batch_of(&self, row: &TableRow<'_>) -> Result<Batch, BadInput> {
        let above_0 = |column: TableColumn| row.number(column, |n| n > 0.0, "milliseconds above 0");
        let (latency_ms, p99_ms) = match &self.source {
            Source::P99(column) => (above_0(*column)?, None),
            Source::Mean(mean, p99) => {
                let mean = above_0(*mean)?;
                // Of a short run, the mean can be above the p99. The mean alone is then the profile.
                (mean, p99.map(above_0).transpose()?.filter(|p99| *p99 >= mean))
            }
            Source::Server(parts) => {
                let mut sum = 0.0;
                for part in parts {
                    sum += row.number(*part, |n| n >= 0.0, "milliseconds of at least 0")?;
                }
                if sum <= 0.0 {
                    return Err(row.refused(parts[1], "milliseconds; all computation of this row is 0"));
                }
                (sum, None)
            }
        };
        let load = row.number(self.load, |n| n > 0.0, "a load above 0")?;
        let copies = self.copies.map_or(1, |column| leading_number(row.text(column)));
        Ok(Batch { copies, load, place: row.place(), latency_ms, p99_ms })
    }
}

/// The number of copies in `2:GPU` or `1/GPU`; 1 if there is none.
fn leading_number(text: &str) -> u32 {
    let digits: String = text.trim_start_matches('[').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(1)
}
