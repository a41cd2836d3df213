//! Which labels does a validation set have?

use serde::Deserialize;
use std::path::Path;

/// Why labels cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LabelsError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is no list of labels for each example.
    #[error("{0}; expected for each example a list of {{\"value\": number or text, \"at\": [numbers]}}")]
    Json(#[from] serde_json::Error),
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Its class or value.
    pub value: LabelValue,
    /// Its position; empty if the value alone decides.
    #[serde(default)]
    pub at: Vec<f64>,
}

/// Reads the labels: a JSON list with, for each example, the list of its labels.
///
/// # Errors
/// As [`LabelsError`] lists; JSON errors have line and column.
pub fn read_labels(file: &Path) -> Result<Vec<Vec<Label>>, LabelsError> {
    let text = std::fs::read_to_string(file)?;
    let labels: Vec<Vec<Label>> = serde_json::from_str(&text)?;
    let first = labels.iter().flatten().next().ok_or(LabelsError::Empty)?.at.len();
    match labels.iter().flatten().find(|l| l.at.len() != first) {
        Some(odd) => Err(LabelsError::Dimensions { first, other: odd.at.len() }),
        None => Ok(labels),
    }
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
        ];
        for (text, said) in cases {
            let error = read(text).expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }
}
