//! How is a result written? To stdout, to a file, as JSON, or as a table for people.

use crate::exit::Failure;
use anyhow::Context;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For people and programs; `apply` reads it back.
    Yaml,
}

impl OutputFormat {
    /// Prints a result: its document, or the table that people read.
    ///
    /// # Errors
    /// If the value has no such form, or if stdout cannot be written.
    pub fn print(self, value: &impl serde::Serialize, table: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Table => print(&table()),
            Self::Json => print(&json(value)?),
            Self::Yaml => print(&yaml(value)?),
        }
    }

    /// As [`Self::print`], for a result whose JSON text is made already.
    ///
    /// # Errors
    /// If the text is not JSON, or if stdout cannot be written.
    pub fn print_text(self, json: &str, table: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Table => print(&table()),
            Self::Json => print(json),
            Self::Yaml => {
                let tree: serde_json::Value = serde_json::from_str(json).context("reading our own JSON")?;
                print(&yaml(&tree)?)
            }
        }
    }
}

/// Whether somebody still reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutReader {
    /// It can be written.
    There,
    /// The reader closed the pipe: `apportion event watch | head -1`.
    Gone,
}

/// Writes a result to stdout, which holds results only. A reader that closed the pipe is no error: `apportion plan | head`
/// works.
///
/// # Errors
/// If stdout cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    print_part(text).map(drop)
}

/// As [`print()`], for one part of a result that goes on.
///
/// # Errors
/// If stdout cannot be written.
pub fn print_part(text: &str) -> Result<StdoutReader, Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| match text.ends_with('\n') || text.is_empty() {
        true => Ok(()),
        false => out.write_all(b"\n"),
    });
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(StdoutReader::There),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(StdoutReader::Gone),
        Err(e) => Err(anyhow::Error::new(e).context("writing to stdout").into()),
    }
}

/// Writes a file.
///
/// # Errors
/// If the file cannot be created or written.
pub fn write_file(
    file: &str,
    write: impl FnOnce(&mut io::BufWriter<std::fs::File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let place = || format!("writing {file}");
    let mut out = io::BufWriter::new(std::fs::File::create(file).with_context(place)?);
    write(&mut out).and_then(|()| out.flush()).with_context(place)?;
    Ok(())
}

/// An indented JSON document.
///
/// # Errors
/// If the value has no JSON form.
pub fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).context("writing JSON")?)
}

/// A YAML document.
///
/// # Errors
/// If the value has no YAML form.
pub fn yaml(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_saphyr::to_string(value).context("writing YAML")?)
}

/// A number for people: four significant digits, or all digits of a whole number.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 8) as usize;
    format!("{value:.digits$}")
}

/// A number for people, or `-` where there is none.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// A share as a percentage with two decimals.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Rows under a header. A column whose cells are all numbers is aligned right.
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with a header and no rows.
    pub fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|h| (*h).to_owned()).collect()] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the row has not one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has one cell for each column");
        self.rows.push(cells);
    }

    /// The header and then the rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as text. Each line begins with `indent`.
    pub fn text(&self, indent: &str) -> String {
        let columns = 0..self.rows[0].len();
        let width = |c: usize| self.rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let is_number = |cell: &String| cell == "-" || cell.parse::<f64>().is_ok();
        let right = |c: usize| self.rows.iter().skip(1).all(|r| is_number(&r[c]));
        let layout: Vec<_> = columns.map(|c| (width(c), right(c))).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (cell, &(width, right)) in row.iter().zip(&layout) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if right { (padding.as_str(), "") } else { ("", padding.as_str()) };
                write!(line, "{before}{cell}{after}  ").expect("text does not fail");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_its_columns() {
        let mut table = TextTable::new(&["name", "n"]);
        table.row(vec!["a".into(), "10".into()]);
        table.row(vec!["bbbbb".into(), "7".into()]);
        assert_eq!(table.text(" "), " name    n\n a      10\n bbbbb   7\n");
    }

    #[test]
    fn yaml_is_read_back_as_the_same_value() {
        let value = serde_json::json!({"name": "yes", "slo_ms": 250.0, "tasks": [], "cron": "50 8 * * 1-5", "next": null});
        let text = yaml(&value).expect("YAML");
        assert_eq!(apportion_wire::parse_tree("file.yaml", &text), Ok(value), "{text}");
    }

    #[test]
    fn a_number_keeps_four_significant_digits() {
        let shown = [0.95, 15.78, 214.234, 129_800.0, 0.000_412_34].map(number);
        assert_eq!(shown, ["0.9500", "15.78", "214.2", "129800", "0.0004123"]);
    }
}
