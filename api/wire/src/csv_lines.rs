//! On which line of a CSV text does a record begin?

use csv::StringRecord;

/// Line numbers of records. The reader's own lag behind where lines end in CRLF or are blank.
pub struct CsvLines<'a> {
    text: &'a str,
    byte: usize,
    line: usize,
}

impl<'a> CsvLines<'a> {
    /// The lines of the text that the reader has from its first byte on.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, byte: 0, line: 1 }
    }

    /// The line on which a record begins. Records come in the order of the text.
    pub fn line_of(&mut self, record: &StringRecord) -> usize {
        let from = record.position().map_or(self.byte, |p| p.byte() as usize);
        let ends = self.text.as_bytes()[from..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let passed = &self.text.as_bytes()[self.byte..from + ends];
        self.line += passed.iter().filter(|b| **b == b'\n').count();
        self.byte = from + ends;
        self.line
    }
}
