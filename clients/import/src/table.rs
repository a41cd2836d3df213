//! How is a CSV table with a header read, so that each refused cell has its line and its column?

use apportion_wire::{BadInput, CsvLines};
use csv::{Reader, ReaderBuilder, StringRecord};

/// Longest value that is quoted in an error, in characters.
const QUOTED_MAX: usize = 80;

/// A column of a table, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableColumn(usize);

/// A table that is read row by row.
pub struct Table<'a> {
    file: &'a str,
    header: Vec<String>,
    reader: Reader<&'a [u8]>,
    lines: CsvLines<'a>,
}

impl<'a> Table<'a> {
    /// Reads the header. `expected` describes it, for a file that has none.
    pub fn open(file: &'a str, text: &'a str, expected: &str) -> Result<Self, BadInput> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut lines = CsvLines::new(text);
        let mut first = StringRecord::new();
        while next_record(file, &mut reader, &mut first)? {
            lines.line_of(&first);
            if !is_blank(&first) {
                let header: Vec<String> = first.iter().map(|name| name.trim().to_owned()).collect();
                if header.len() == 1 && header[0].contains([';', '\t']) {
                    let expected = "commas between the columns, and points in the numbers";
                    return Err(BadInput::one(file, "line 1", quoted(&header[0]), expected));
                }
                return Ok(Self { file, header, reader, lines });
            }
        }
        Err(BadInput::one(file, "line 1", "an empty file", expected))
    }

    /// The names of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The first column that `is_it` accepts.
    pub fn find(&self, is_it: impl Fn(&str) -> bool) -> Option<TableColumn> {
        self.header.iter().position(|name| is_it(name)).map(TableColumn)
    }

    /// The column with one of these names, in any case. The first name that is there wins.
    pub fn one_of(&self, names: &[&str]) -> Option<TableColumn> {
        names.iter().find_map(|name| self.find(|n| n.eq_ignore_ascii_case(name)))
    }

    /// As [`Table::one_of`], and an error if there is none.
    pub fn required(&self, names: &[&str]) -> Result<TableColumn, BadInput> {
        self.one_of(names).ok_or_else(|| {
            let wanted: Vec<String> = names.iter().map(|n| format!("{n:?}")).collect();
            self.header_refused(&format!("the column {}", wanted.join(" or ")))
        })
    }

    /// The refusal of the header.
    pub fn header_refused(&self, expected: &str) -> BadInput {
        BadInput::one(self.file, "line 1", format!("the columns {}", quoted(&self.header.join(","))), expected)
    }

    /// Hands over every row that is not blank. A table without rows is refused.
    pub fn each_row(mut self, mut take: impl FnMut(&TableRow<'_>) -> Result<(), BadInput>) -> Result<(), BadInput> {
        let mut cells = StringRecord::new();
        let mut count = 0_usize;
        while next_record(self.file, &mut self.reader, &mut cells)? {
            let line = self.lines.line_of(&cells);
            if is_blank(&cells) {
                continue;
            }
            let row = TableRow { file: self.file, header: &self.header, line, cells: &cells };
            if cells.len() != self.header.len() {
                let (found, expected) = (format!("{} cells", cells.len()), format!("{} cells", self.header.len()));
                return Err(BadInput::one(self.file, row.place(), found, expected));
            }
            take(&row)?;
            count += 1;
        }
        if count == 0 { Err(BadInput::one(self.file, "line 1", "0 rows", "at least one row")) } else { Ok(()) }
    }
}

fn next_record(file: &str, reader: &mut Reader<&[u8]>, cells: &mut StringRecord) -> Result<bool, BadInput> {
    reader.read_record(cells).map_err(|e| BadInput::one(file, "", e, "CSV"))
}

fn is_blank(cells: &StringRecord) -> bool {
    cells.len() == 1 && cells[0].trim().is_empty()
}

/// One row of a table.
pub struct TableRow<'a> {
    file: &'a str,
    header: &'a [String],
    line: usize,
    cells: &'a StringRecord,
}

impl TableRow<'_> {
    /// The text of a cell without the spaces around it.
    pub fn text(&self, column: TableColumn) -> &str {
        self.cells[column.0].trim()
    }

    /// The place of the row.
    pub fn place(&self) -> String {
        format!("line {}", self.line)
    }

    /// The refusal of a cell.
    pub fn refused(&self, column: TableColumn, expected: &str) -> BadInput {
        let at = format!("line {}, column {:?}", self.line, self.header[column.0]);
        BadInput::one(self.file, at, quoted(self.text(column)), expected)
    }

    /// A number in a range that `is_right` knows.
    pub fn number(&self, column: TableColumn, is_right: impl Fn(f64) -> bool, expected: &str) -> Result<f64, BadInput> {
        let number = self.text(column).parse::<f64>().ok().filter(|n| n.is_finite() && is_right(*n));
        number.ok_or_else(|| self.refused(column, expected))
    }

    /// A whole number from 1 to `most`.
    pub fn count(&self, column: TableColumn, most: u32, what: &str) -> Result<u32, BadInput> {
        let count = self.text(column).parse::<u32>().ok().filter(|n| (1..=most).contains(n));
        count.ok_or_else(|| self.refused(column, &format!("{what} from 1 to {most}")))
    }
}

/// A value as an error quotes it.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
