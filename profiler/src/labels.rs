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
    #[error("{0}; expected for each example a list of {{\"value\": number, \"at\": [numbers]}}")]
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

/// An object that the pipeline should find in an example.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Its class or value.
    pub value: f64,
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
        assert_eq!(labels, [vec![], vec![Label { value: 7.0, at: vec![1.5, 2.0] }]]);
        assert_eq!(read(r#"[[{"value": 7}]]"#).expect("labels")[0][0].at, [0.0; 0]);
    }

    #[test]
    fn broken_labels_are_refused() {
        let cases = [
            ("[[], []]", "no label"),
            (r#"[[{"value": 1, "at": [1]}, {"value": 1}]]"#, "at 1 numbers and some at 0"),
            (r#"[[{"value": "seven"}]]"#, "line 1"),
            (r#"[[{"value": 7, "att": []}]]"#, "att"),
            (r#"{"value": 7}"#, "for each example"),
        ];
        for (text, said) in cases {
            let error = read(text).expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }
}
