//! How is a table of latencies read, with names of columns as people write them?
//!
//! Case, spaces and punctuation in a header do not count: `Latency (ms)` is `latency_ms`. The unit is a part of the name.
//! The first names are those of Apportion's own profile files; `accelerator` and the `_pct_runtime` names are those of the
//! profiles published with Loki.

use crate::gathered::{FilePlace, GatheredProfile, GivenNames, LatencyRow};
use crate::table::{Table, TableColumn, TableRow};
use apportion_domain::pipeline::BATCH_MAX;
use apportion_wire::{BadInput, MeasuredRow};

/// A name of a column of numbers, with the factor and the divisor that lead to the unit of a profile.
type NumberName = (&'static str, f64, f64);

const PIPELINE: &[&str] = &["pipeline"];
const TASK: &[&str] = &["task", "stage"];
const VARIANT: &[&str] = &["variant", "model", "model_name"];
const HARDWARE: &[&str] = &["hardware", "accelerator", "device", "gpu", "instance_type"];
const BATCH: &[&str] = &["batch_size", "batch"];
const LATENCY: &[NumberName] = &[
    ("latency_ms", 1.0, 1.0),
    ("p50_ms", 1.0, 1.0),
    ("p50_latency_ms", 1.0, 1.0),
    ("median_ms", 1.0, 1.0),
    ("mean_ms", 1.0, 1.0),
    ("avg_latency_ms", 1.0, 1.0),
    ("latency_us", 1.0, 1e3),
    ("p50_us", 1.0, 1e3),
    ("mean_us", 1.0, 1e3),
    ("latency_s", 1e3, 1.0),
    ("p50_s", 1e3, 1.0),
    ("mean_s", 1e3, 1.0),
    ("50th_pct_runtime", 1e3, 1.0),
];
const P99: &[NumberName] = &[
    ("p99_ms", 1.0, 1.0),
    ("p99_latency_ms", 1.0, 1.0),
    ("latency_p99_ms", 1.0, 1.0),
    ("p99_us", 1.0, 1e3),
    ("p99_s", 1e3, 1.0),
];
const ACCURACY: &[NumberName] = &[("accuracy", 1.0, 1.0), ("accuracy_percent", 1.0, 100.0)];
const LOAD: &[NumberName] = &[("load_ms", 1.0, 1.0), ("load_s", 1e3, 1.0)];
const MEMORY: &[NumberName] = &[("memory_mib", 1.0, 1.0), ("memory_mb", 1e6, 1_048_576.0), ("memory_b", 1.0, 1_048_576.0)];
const SHARE: &[&str] = &["share"];

/// A column of numbers with its factor and divisor.
#[derive(Clone, Copy)]
struct Scaled {
    column: TableColumn,
    times: f64,
    over: f64,
}

impl Scaled {
    /// The number of a row in the unit of a profile.
    fn read(self, row: &TableRow<'_>, is_right: impl Fn(f64) -> bool, expected: &str) -> Result<f64, BadInput> {
        let scaled = |n: f64| n * self.times / self.over;
        row.number(self.column, |n| is_right(scaled(n)), expected).map(scaled)
    }
}

struct Columns {
    pipeline: Option<TableColumn>,
    task: Option<TableColumn>,
    variant: Option<TableColumn>,
    hardware: Option<TableColumn>,
    batch: Option<TableColumn>,
    latency: Scaled,
    p99: Option<Scaled>,
    accuracy: Option<Scaled>,
    load: Option<Scaled>,
    memory: Option<Scaled>,
    share: Option<TableColumn>,
}

/// Adds the rows of a table.
pub(super) fn add(profile: &mut GatheredProfile, file: &str, text: &str, names: &GivenNames) -> Result<(), BadInput> {
    let table = Table::open(file, text, "a header such as variant,hardware,batch_size,latency_ms")?;
    let columns = Columns::of(&table, names)?;
    if let Some(ignored) = ignored(&table) {
        profile.note(format!("{file}: ignored {ignored}"));
    }
    let mut pipeline: Option<String> = None;
    table.each_row(|row| {
        if let Some(column) = columns.pipeline {
            let name = pipeline.get_or_insert_with(|| row.text(column).to_owned());
            if name != row.text(column) {
                return Err(row.refused(column, &format!("{name:?}, as in the rows before: one pipeline in a file")));
            }
        }
        let read = columns.row(row, names)?;
        match names.batch_max.is_some_and(|most| read.measured.batch > most) {
            true => Ok(()),
            false => profile.add(FilePlace { file, at: &row.place() }, read),
        }
    })
}

impl Columns {
    fn of(table: &Table<'_>, names: &GivenNames) -> Result<Self, BadInput> {
        let plain = |known: &[&str]| known.iter().find_map(|name| table.find(|n| canonical(n) == *name));
        let scaled = |known: &[NumberName]| {
            known.iter().find_map(|&(name, times, over)| {
                Some(Scaled { column: table.find(|n| canonical(n) == name)?, times, over })
            })
        };
        let need = |known: &[&str], flag: &str, is_given: bool| match plain(known) {
            None if !is_given => Err(table.header_refused(&format!("the column {:?}, or {flag}", known[0]))),
            found => Ok(found),
        };
        let latency = scaled(LATENCY).ok_or_else(|| {
            table.header_refused("a latency with its unit in the name: \"latency_ms\", \"latency_us\" or \"latency_s\"")
        })?;
        Ok(Self {
            pipeline: plain(PIPELINE),
            task: plain(TASK),
            variant: need(VARIANT, "--variant NAME", names.variant.is_some())?,
            hardware: need(HARDWARE, "the name of a hardware type", names.hardware.is_some())?,
            batch: need(BATCH, "--batch N", names.batch.is_some())?,
            latency,
            p99: scaled(P99),
            accuracy: scaled(ACCURACY),
            load: scaled(LOAD),
            memory: scaled(MEMORY),
            share: plain(SHARE),
        })
    }

    fn row(&self, row: &TableRow<'_>, names: &GivenNames) -> Result<LatencyRow, BadInput> {
        let name = |column: Option<TableColumn>, given: Option<&str>| match (column, given) {
            (Some(column), _) if row.text(column).is_empty() => Err(row.refused(column, "a name")),
            (Some(column), _) => Ok(row.text(column).to_owned()),
            (None, given) => Ok(given.unwrap_or_default().to_owned()),
        };
        let above_0 = |column: Scaled, expected: &str| column.read(row, |n| n > 0.0, expected);
        let there = |column: Option<Scaled>| column.filter(|c| !row.text(c.column).is_empty());
        let latency_ms = above_0(self.latency, "a latency above 0")?;
        let p99_ms = there(self.p99).map(|p99| {
            let expected = format!("a p99 of at least the latency of this row, {latency_ms} ms");
            p99.read(row, |n| n >= latency_ms, &expected)
        });
        let accuracy = there(self.accuracy)
            .map(|a| a.read(row, |n| (0.0..=1.0).contains(&n), &format!("an accuracy from 0 to {}", a.over)));
        let measured = MeasuredRow {
            task: name(self.task, Some(&names.task))?,
            variant: name(self.variant, names.variant.as_deref())?,
            hardware: name(self.hardware, names.hardware.as_deref())?,
            share: self.share.map_or(Ok(1.0), |c| row.number(c, is_share, "1, 0.5, 0.25 or 0.125"))?,
            batch: self.batch.map_or(Ok(names.batch.unwrap_or(1)), |c| row.count(c, BATCH_MAX, "a batch"))?,
            latency_ms,
            p99_ms: p99_ms.transpose()?,
            measured: None,
        };
        let load_ms = there(self.load).map(|c| above_0(c, "a time above 0")).transpose()?;
        let memory_mib = there(self.memory).map(|c| above_0(c, "an amount above 0")).transpose()?;
        Ok(LatencyRow { measured, accuracy: accuracy.transpose()?, load_ms, memory_mib })
    }
}

fn is_share(value: f64) -> bool {
    apportion_domain::Share::new(value).is_some()
}

/// A name in lower case, with one `_` for all that stands between letters and digits.
fn canonical(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

/// The columns that no reader uses, in words.
fn ignored(table: &Table<'_>) -> Option<String> {
    let plain = [PIPELINE, TASK, VARIANT, HARDWARE, BATCH, SHARE].concat();
    let scaled = [LATENCY, P99, ACCURACY, LOAD, MEMORY].concat();
    let is_known = |name: &str| plain.contains(&name) || scaled.iter().any(|(known, ..)| *known == name);
    let unknown: Vec<String> =
        table.header().iter().filter(|n| !is_known(&canonical(n))).map(|n| format!("{n:?}")).collect();
    match unknown.as_slice() {
        [] => None,
        [one] => Some(format!("the column {one}")),
        many => Some(format!("the columns {}", many.join(", "))),
    }
}
