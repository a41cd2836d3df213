//! Which labels does a validation set have?

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Why labels cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LabelsError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is no list of labels for each example.
    #[error(
        "{0}; expected for each example a number or text, or a list of {{\"value\": number or text, \"at\": [numbers]}}"
    )]
    Json(#[from] serde_json::Error),
    /// The table is no CSV.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// The table has another header.
    #[error("line 1: the columns {0}: expected example,value, then one column for each number of a position")]
    Header(String),
    /// A cell of the table is refused.
    #[error("line {line}, column {column}: {found:?}: expected {expected}")]
    Cell {
        /// The line, counted from 1.
        line: u64,
        /// The name of the column.
        column: String,
        /// The cell.
        found: String,
        /// The right form.
        expected: &'static str,
    },
    /// The file has no label.
    #[error("there is no label in it")]
    Empty,
    /// Positions have different dimensions.
    #[error("some labels are at {first} numbers and some at {other}")]
    Dimensions {
        /// The dimension of the first label.
        first: usize,
        /// Another dimension.
        other: usize,
    },
}

/// The class or value of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number or a text")]
pub enum LabelValue {
    /// A number, for example the position of a class.
    Number(f64),
    /// A text, for example the name of a class, or what is written there.
    Text(String),
}

impl LabelValue {
    /// Whether both are the same. Two texts are the same if all their characters are; a text is the number that it writes.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => one == other,
            (Self::Text(text), Self::Number(number)) | (Self::Number(number), Self::Text(text)) => {
                text.trim().parse::<f64>().is_ok_and(|written| written == *number)
            }
        }
    }
}

/// An object that the pipeline should find in an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Its class or value.
    pub value: LabelValue,
    /// Its position, or the corners of its box: left, top, right, bottom. Empty if the value alone decides.
    #[serde(default, alias = "box")]
    pub at: Vec<f64>,
}

impl From<LabelValue> for Label {
    /// A label without a position.
    fn from(value: LabelValue) -> Self {
        Self { value, at: Vec::new() }
    }
}

/// A label as a file has it: an object, or its value alone.
struct WrittenLabel(Label);

/// The labels of an example as a file has them: a list, or one value alone.
struct WrittenExample(Vec<Label>);

impl From<LabelValue> for WrittenLabel {
    fn from(value: LabelValue) -> Self {
        Self(value.into())
    }
}

impl From<LabelValue> for WrittenExample {
    fn from(value: LabelValue) -> Self {
        Self(vec![value.into()])
    }
}

/// Implements the visits of a value alone.
macro_rules! value_alone {
    () => {
        fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
            Ok(LabelValue::Number(number as f64).into())
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
            Ok(LabelValue::Number(number as f64).into())
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
            Ok(LabelValue::Number(number).into())
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(LabelValue::Text(text.to_owned()).into())
        }
    };
}

struct LabelVisitor;

impl<'de> Visitor<'de> for LabelVisitor {
    type Value = WrittenLabel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a label")
    }

    value_alone!();

    fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<WrittenLabel, A::Error> {
        Label::deserialize(MapAccessDeserializer::new(keys)).map(WrittenLabel)
    }
}

struct ExampleVisitor;

impl<'de> Visitor<'de> for ExampleVisitor {
    type Value = WrittenExample;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the labels of an example")
    }

    value_alone!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<WrittenExample, A::Error> {
        let mut labels = Vec::new();
        while let Some(WrittenLabel(label)) = members.next_element()? {
            labels.push(label);
        }
        Ok(WrittenExample(labels))
    }
}

impl<'de> Deserialize<'de> for WrittenLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelVisitor)
    }
}

impl<'de> Deserialize<'de> for WrittenExample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExampleVisitor)
    }
}

/// Most examples of a table. An example is named by its number, so a large one would take much memory.
pub const TABLE_EXAMPLES_MAX: usize = 1_000_000;

/// Reads the labels: a JSON list with, for each example, the list of its labels. A label without a position may be its
/// value alone, and one such label needs no list: `[7, "rust", [3, 5], [{"value": 7, "at": [1.5, 2]}]]`. A file `.csv` has
/// a line for each label instead: `example,value,left,top,right,bottom`, or fewer columns of the position. It ends with the
/// last example that has a label ([`is_table`]).
///
/// # Errors
/// As [`LabelsError`] lists; errors of the text have their line.
pub fn read_labels(file: &Path) -> Result<Vec<Vec<Label>>, LabelsError> {
    let text = std::fs::read_to_string(file)?;
    let labels = if is_table(file) { read_table(&text)? } else { read_list(&text)? };
    let first = labels.iter().flatten().next().ok_or(LabelsError::Empty)?.at.len();
    match labels.iter().flatten().find(|l| l.at.len() != first) {
        Some(odd) => Err(LabelsError::Dimensions { first, other: odd.at.len() }),
        None => Ok(labels),
    }
}

/// Whether a file of labels is a table, which says nothing of examples after the last label.
#[must_use]
pub fn is_table(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}

fn read_list(text: &str) -> Result<Vec<Vec<Label>>, LabelsError> {
    let labels: Vec<WrittenExample> = serde_json::from_str(text)?;
    Ok(labels.into_iter().map(|WrittenExample(labels)| labels).collect())
}

fn read_table(text: &str) -> Result<Vec<Vec<Label>>, LabelsError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers()?.iter().map(|name| name.trim().to_owned()).collect();
    if !header.starts_with(&["example".to_owned(), "value".to_owned()]) {
        return Err(LabelsError::Header(header.join(",")));
    }
    let mut labels: Vec<Vec<Label>> = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let refused = |column: usize, expected: &'static str| LabelsError::Cell {
            line,
            column: header[column].clone(),
            found: record[column].to_owned(),
            expected,
        };
        let number = |column: usize| record[column].trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let example = record[0].trim().parse::<usize>().ok().filter(|example| *example < TABLE_EXAMPLES_MAX);
        let example = example.ok_or_else(|| refused(0, "the number of an example from 0 to 999999"))?;
        let value = number(1).map_or_else(|| LabelValue::Text(record[1].trim().to_owned()), LabelValue::Number);
        let place = |column: usize| number(column).ok_or_else(|| refused(column, "a number"));
        let at = (2..header.len()).map(place).collect::<Result<_, _>>()?;
        if labels.len() <= example {
            labels.resize_with(example + 1, Vec::new);
        }
        labels[example].push(Label { value, at });
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Vec<Label>>, LabelsError> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        read_labels(file.path())
    }

    #[test]
    fn an_example_may_have_no_labels() {
        let labels = read(r#"[[], [{"value": 7, "at": [1.5, 2]}]]"#).expect("labels");
        assert_eq!(labels, [vec![], vec![Label { value: LabelValue::Number(7.0), at: vec![1.5, 2.0] }]]);
        assert_eq!(read(r#"[[{"value": 7}]]"#).expect("labels")[0][0].at, [0.0; 0]);
    }

    #[test]
    fn values_alone_are_labels() {
        let short = read(r#"[7, "rust", [3, "c"], [], -2.5]"#).expect("labels");
        let long = r#"[[{"value": 7}], [{"value": "rust"}], [{"value": 3}, {"value": "c"}], [], [{"value": -2.5}]]"#;
        assert_eq!(short, read(long).expect("labels"));
        let boxes = read(r#"[[{"value": 1, "box": [0, 0, 2, 2]}]]"#).expect("labels");
        assert_eq!(boxes[0][0].at, [0.0, 0.0, 2.0, 2.0]);
    }

    #[test]
    fn a_table_has_a_line_for_each_label() {
        let folder = tempfile::tempdir().expect("a folder");
        let read_csv = |text: &str| {
            let file = folder.path().join("labels.csv");
            std::fs::write(&file, text).expect("written");
            read_labels(&file)
        };
        let boxes = read_csv("example,value,left,top,right,bottom\n2,7,0,0,2,2.5\n0,cat,1,1,3,3\n2,cat,4,4,5,5\n");
        let list = r#"[[{"value": "cat", "at": [1, 1, 3, 3]}], [],
            [{"value": 7, "at": [0, 0, 2, 2.5]}, {"value": "cat", "at": [4, 4, 5, 5]}]]"#;
        assert_eq!(boxes.expect("boxes"), read(list).expect("labels"));
        assert_eq!(read_csv("example, value\n0, 3\n1, rust\n").expect("values"), read(r#"[3, "rust"]"#).expect("labels"));
        let cases = [
            ("value,example\n1,1\n", "line 1: the columns value,example: expected example,value"),
            ("example,value\n-1,7\n", "line 2, column example: \"-1\": expected the number of an example"),
            ("example,value\n1000000,7\n", "expected the number of an example from 0 to 999999"),
            ("example,value,x\n0,7,1\n0,7,left\n", "line 3, column x: \"left\": expected a number"),
            ("example,value\n0,7,1\n", "line: 2"),
            ("example,value\n", "no label"),
        ];
        for (text, said) in cases {
            let error = read_csv(text).expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }

    #[test]
    fn texts_and_numbers_are_compared() {
        let labels = read(r#"[[{"value": "rust"}, {"value": " 7"}, {"value": 7}, {"value": "8"}]]"#).expect("labels");
        let [rust, seven_text, seven, eight] = [0, 1, 2, 3].map(|at| &labels[0][at].value);
        assert_eq!(*rust, LabelValue::Text("rust".to_owned()));
        assert!(rust.is_same(rust) && seven.is_same(seven), "each is the same as itself");
        assert!(seven.is_same(seven_text) && seven_text.is_same(seven), "a text is the number that it writes");
        let others = [(rust, seven), (seven, eight), (seven_text, eight), (rust, eight)];
        assert!(others.iter().all(|(one, other)| !one.is_same(other) && !other.is_same(one)), "{others:?}");
        assert!(!seven_text.is_same(&LabelValue::Text("7".to_owned())), "a space is a character");
    }

    #[test]
    fn broken_labels_are_refused() {
        let cases = [
            ("[[], []]", "no label"),
            (r#"[[{"value": 1, "at": [1]}, {"value": 1}]]"#, "at 1 numbers and some at 0"),
            (r#"[[{"value": [7]}]]"#, "expected a number or a text at line 1"),
            (r#"[[{"value": null}]]"#, "number or text"),
            (r#"[[{"value": 7, "att": []}]]"#, "att"),
            (r#"{"value": 7}"#, "for each example"),
            ("[7, null]", "the labels of an example at line 1"),
            ("[7, [true]]", "a label at line 1"),
            (r#"[{"value": 7}]"#, "the labels of an example"),
            (r#"[7, [{"value": 7, "at": [1]}]]"#, "at 0 numbers and some at 1"),
        ];
        for (text, said) in cases {
            let error = read(text).expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }
}
