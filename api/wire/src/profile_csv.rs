//! How is a profile read from CSV and written to it? The columns are
//! `pipeline,task,variant,hardware,batch_size,latency_ms[,p99_ms][,accuracy]`.

use crate::bad_input::{BadInput, clipped, near_named};
use crate::csv_lines::CsvLines;
use apportion_domain::Invalid;
use apportion_domain::pipeline::BATCH_MAX;
use csv::{ReaderBuilder, StringRecord};
use serde_json::{Value, json};
use std::io::{self, Write};

const REQUIRED: [&str; 6] = ["pipeline", "task", "variant", "hardware", "batch_size", "latency_ms"];
const P99: &str = "p99_ms";
const ACCURACY: &str = "accuracy";

/// The columns as a Table Schema.
pub(crate) fn table_schema() -> Value {
    let [pipeline, task, variant, hardware, batch_size, latency_ms] = REQUIRED;
    let bounded = |least: f64| json!({"required": false, "minimum": least});
    let fields = [
        field(pipeline, "string", "Pipeline.", json!({"required": true})),
        field(task, "string", "Task.", json!({"required": true})),
        field(variant, "string", "Variant.", json!({"required": true})),
        field(hardware, "string", "Hardware type.", json!({"required": true})),
        field(
            batch_size,
            "integer",
            "Queries in the batch.",
            json!({"required": true, "minimum": 1, "maximum": BATCH_MAX}),
        ),
        field(latency_ms, "number", "Median time of the batch, above 0.", json!({"required": true, "minimum": 0})),
        field(P99, "number", "99th percentile of the time; at least the median.", bounded(0.0)),
        field(ACCURACY, "number", "Accuracy from 0 to 1, or from 0 to 100 if the reader is told so.", bounded(0.0)),
    ];
    json!({"title": "Profile as CSV", "fields": fields})
}

/// One column of a Table Schema.
pub(crate) fn field(name: &str, kind: &str, about: &str, constraints: Value) -> Value {
    json!({"name": name, "type": kind, "description": about, "constraints": constraints})
}

/// The unit of the accuracies in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccuracyUnit {
    /// 0 to 1.
    #[default]
    Fraction,
    /// 0 to 100.
    Percent,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileCsvRow {
    /// Pipeline.
    pub pipeline: String,
    /// Task.
    pub task: String,
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Queries in the batch.
    pub batch: u32,
    /// Median time of the batch.
    pub latency_ms: f64,
    /// 99th percentile of that time.
    pub p99_ms: Option<f64>,
    /// 0 to 1.
    pub accuracy: Option<f64>,
}

/// Reads a profile.
///
/// # Errors
/// Every refused row with its line, and an empty profile.
pub fn read_profile_csv(file: &str, text: &str, unit: AccuracyUnit) -> Result<Vec<ProfileCsvRow>, BadInput> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = CsvLines::new(text);
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.records().filter_map(|record| {
        let record = record.expect("the text is valid UTF-8 in memory, and rows may differ in length");
        let line = lines.line_of(&record);
        let is_blank = record.len() == 1 && record[0].trim().is_empty();
        (!is_blank).then_some((line, record))
    });
    let Some((_, header)) = records.next() else {
        return Err(BadInput::one(file, "line 1", "an empty file", format!("the header {}", REQUIRED.join(","))));
    };
    let columns = Columns::new(&header).map_err(|problems| BadInput { file: file.to_owned(), problems })?;
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for (line, record) in records {
        match columns.row(&record, unit) {
            Ok(row) => rows.push(row),
            Err((value, expected)) => problems.push(Invalid::new(format!("line {line}"), value, expected)),
        }
    }
    if problems.is_empty() && rows.is_empty() {
        problems.push(Invalid::new("line 1", "0 rows", "at least one row"));
    }
    if problems.is_empty() { Ok(rows) } else { Err(BadInput { file: file.to_owned(), problems }) }
}

struct Columns {
    count: usize,
    required: [usize; REQUIRED.len()],
    p99: Option<usize>,
    accuracy: Option<usize>,
}

impl Columns {
    fn new(header: &StringRecord) -> Result<Self, Vec<Invalid>> {
        let names: Vec<&str> = header.iter().map(str::trim).collect();
        let known = || REQUIRED.into_iter().chain([P99, ACCURACY]);
        let mut problems = Vec::new();
        for (i, name) in names.iter().enumerate() {
            if !known().any(|k| k == *name) {
                let expected = near_named("column", name, known());
                problems.push(Invalid::new("line 1", format!("unknown column {name:?}"), expected));
            } else if names[..i].contains(name) {
                problems.push(Invalid::new("line 1", format!("the column {name:?} twice"), "each column once"));
            }
        }
        let find = |name: &str| names.iter().position(|n| *n == name);
        for name in REQUIRED.iter().filter(|n| find(n).is_none()) {
            problems.push(Invalid::new("line 1", "missing", format!("the column {name:?}")));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let required = REQUIRED.map(|name| find(name).expect("every required column is there"));
        Ok(Self { count: names.len(), required, p99: find(P99), accuracy: find(ACCURACY) })
    }

    fn row(&self, record: &StringRecord, unit: AccuracyUnit) -> Result<ProfileCsvRow, (String, String)> {
        let cells: Vec<&str> = record.iter().map(str::trim).collect();
        if cells.len() != self.count {
            return Err((format!("{} cells", cells.len()), format!("{} cells", self.count)));
        }
        if let Some(cell) = record.iter().find(|c| c.starts_with(' ') && c.trim_start().starts_with('"')) {
            return Err((format!("the cell {:?}", clipped(cell)), "no space before a quote".to_owned()));
        }
        let [pipeline, task, variant, hardware, batch, latency] = self.required.map(|i| cells[i]);
        let refuse =
            |name: &str, found: &str, expected: &str| Err((format!("{name} {:?}", clipped(found)), expected.to_owned()));
        let batch_size = match batch.parse::<u32>() {
            Ok(n) if (1..=BATCH_MAX).contains(&n) => n,
            _ => return refuse("batch_size", batch, &format!("a batch from 1 to {BATCH_MAX}")),
        };
        let above_zero = |text: &str| text.parse::<f64>().ok().filter(|x| *x > 0.0 && x.is_finite());
        let Some(latency_ms) = above_zero(latency) else {
            return refuse("latency_ms", latency, "a latency above 0");
        };
        let optional = |column: Option<usize>| column.map(|i| cells[i]).filter(|c| !c.is_empty());
        let p99_ms = match optional(self.p99).map(|c| (c, above_zero(c))) {
            Some((_, Some(p99))) if p99 >= latency_ms => Some(p99),
            Some((cell, _)) => return refuse(P99, cell, "a p99 of at least the median latency"),
            None => None,
        };
        let most = if unit == AccuracyUnit::Percent { 100.0 } else { 1.0 };
        let accuracy = match optional(self.accuracy).map(|c| (c, c.parse::<f64>())) {
            Some((_, Ok(a))) if (0.0..=most).contains(&a) => Some(a / most),
            Some((cell, _)) => return refuse(ACCURACY, cell, &format!("an accuracy from 0 to {most}")),
            None => None,
        };
        let owned = |s: &str| s.to_owned();
        Ok(ProfileCsvRow {
            pipeline: owned(pipeline),
            task: owned(task),
            variant: owned(variant),
            hardware: owned(hardware),
            batch: batch_size,
            latency_ms,
            p99_ms,
            accuracy,
        })
    }
}

/// Writes a profile with all columns. Accuracies are 0 to 1, and missing values are empty.
///
/// # Errors
/// The writer's.
pub fn write_profile_csv(rows: &[ProfileCsvRow], out: &mut impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(REQUIRED.into_iter().chain([P99, ACCURACY]))?;
    let number = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
    for r in rows {
        let names = [&r.pipeline, &r.task, &r.variant, &r.hardware];
        let figures = [r.batch.to_string(), r.latency_ms.to_string(), number(r.p99_ms), number(r.accuracy)];
        writer.write_record(names.into_iter().chain(&figures))?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "pipeline,task,variant,hardware,batch_size,latency_ms";

    #[test]
    fn what_is_written_is_read_again() {
        let row = |batch, p99_ms, accuracy| ProfileCsvRow {
            pipeline: "p".into(),
            task: "a, \"b\"\nc".into(),
            variant: "v".into(),
            hardware: "h".into(),
            batch,
            latency_ms: 1.25,
            p99_ms,
            accuracy,
        };
        let rows = vec![row(1, None, Some(0.5)), row(2, Some(1.5), None)];
        let mut text = Vec::new();
        write_profile_csv(&rows, &mut text).expect("memory does not fail");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(read_profile_csv("f", &text, AccuracyUnit::Fraction), Ok(rows));
    }

    #[test]
    fn percent_is_refused_where_a_fraction_is_expected() {
        let text = format!("{HEADER},accuracy\np,t,v,h,1,9.5,55.5\n");
        let rows = read_profile_csv("f", &text, AccuracyUnit::Percent).expect("percent");
        assert_eq!(rows[0].accuracy, Some(0.555));
        let refused = read_profile_csv("f", &text, AccuracyUnit::Fraction).expect_err("not a fraction").to_string();
        assert_eq!(refused, "f: line 2: accuracy \"55.5\": expected an accuracy from 0 to 1");
    }

    #[test]
    fn a_bad_row_is_refused_at_its_line() {
        let cases = [
            ("p,t,v,h,0,1", "f: line 2: batch_size \"0\": expected a batch from 1"),
            ("p,t,v,h,1,NaN", "f: line 2: latency_ms \"NaN\": expected a latency above 0"),
            ("p,t,v,h,1", "f: line 2: 5 cells: expected 6 cells"),
        ];
        for (row, expected) in cases {
            let text = format!("{HEADER}\n{row}\n");
            let found = read_profile_csv("f", &text, AccuracyUnit::Fraction).expect_err(row).to_string();
            assert!(found.starts_with(expected), "{found}");
        }
        let blank_lines = format!("{HEADER}\r\n\r\n  \r\np,t,v,h,1,1\r\n\r\np,\"t\nt\",v,h,1,1\r\np,t,v,h,1,0\r\n");
        let found = read_profile_csv("f", &blank_lines, AccuracyUnit::Fraction).expect_err("row").to_string();
        assert!(found.starts_with("f: line 8: latency_ms \"0\""), "{found}");
        let found = read_profile_csv("f", &format!("{HEADER}\np, \"t\",v,h,1,1\n"), AccuracyUnit::Fraction);
        let found = found.expect_err("space").to_string();
        assert_eq!(found, "f: line 2: the cell \" \\\"t\\\"\": expected no space before a quote");
        let found = read_profile_csv("f", "pipeline,task,varant\n", AccuracyUnit::Fraction).expect_err("header");
        assert!(found.to_string().contains("unknown column \"varant\": expected the column \"variant\""), "{found}");
    }
}
