//! The labels of a validation set.

use serde::Deserialize;
use std::path::Path;

/// Something that the pipeline should find in an example.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// What it is.
    pub value: f64,
    /// Where it is; empty if the value alone decides.
    #[serde(default)]
    pub at: Vec<f64>,
}

/// Reads the labels: a JSON list with, for each example, the list of its labels.
///
/// # Errors
/// What is wrong, with line and column.
pub fn read_labels(file: &Path) -> Result<Vec<Vec<Label>>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let labels: Vec<Vec<Label>> = serde_json::from_str(&text)
        .map_err(|e| format!("{e}; expected is, for each example, a list of {{\"value\": number, \"at\": [numbers]}}"))?;
    let first = labels.iter().flatten().next().ok_or("there is no label in it")?;
    match labels.iter().flatten().find(|l| l.at.len() != first.at.len()) {
        Some(odd) => Err(format!("some labels are at {} numbers and some at {}", first.at.len(), odd.at.len())),
        None => Ok(labels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Vec<Label>>, String> {
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
            let error = read(text).expect_err(said);
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }
}
