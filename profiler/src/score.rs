//! How accurate are the answers of one combination of variants?

use crate::average_precision::{FoundBox, mean_average_precision};
use crate::cosine::{ExampleRows, likeness};
use crate::files::{BoxRule, CommandRule, MatchRule, ValueRule};
use crate::judge::{JudgeError, judged};
use crate::labels::{Label, LabelValue};
use crate::matching::{AnswerRow, count_matches, top_classes};
use crate::rows::{json_elements, numbers, values};
use apportion_executor::tensor::{Datatype, Tensor};
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// The outputs of a sink at the end of one combination of variants.
pub(crate) struct SinkAnswers<'a> {
    /// The task.
    pub sink: usize,
    /// The combination, as problem files write it.
    pub path: &'a str,
    /// The outputs that the rule reads, by name, with equally many rows.
    pub outputs: &'a BTreeMap<String, Tensor>,
    /// The example of each row.
    pub examples: &'a [usize],
}

/// Why answers cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScoreError {
    #[error(
        "output {output} has {found} elements a row where labels have one: expected one, or scores of classes, which are \
         floats of the shape [rows, classes]"
    )]
    Elements { output: String, found: usize },
    #[error("output {output} has {found} numbers a row, the labels are at {expected}")]
    Dimensions { output: String, found: usize, expected: usize },
    #[error(
        "top is {top}, and output {output} has the shape {shape:?}: expected numbers of the shape [rows, classes] with \
             more classes than that"
    )]
    Top { output: String, top: u32, shape: Vec<usize> },
    #[error("output {output} has texts: expected numbers")]
    Texts { output: String },
    #[error("output {output} has {found} elements a row: expected {expected}, for {boxes} boxes")]
    Boxes { output: String, found: usize, expected: usize, boxes: usize },
    #[error(transparent)]
    Judge(#[from] JudgeError),
}

/// Judges answers by one rule.
pub(crate) struct Scorer<'a> {
    rule: &'a MatchRule,
    labels: &'a [Vec<Label>],
    /// By sink: the rows of the combination that was judged first, by example.
    references: BTreeMap<usize, Vec<ExampleRows>>,
}

impl<'a> Scorer<'a> {
    /// The labels are by example. They are empty where the rule needs none.
    pub(crate) fn new(rule: &'a MatchRule, labels: &'a [Vec<Label>]) -> Self {
        Self { rule, labels, references: BTreeMap::new() }
    }

    pub(crate) fn rule(&self) -> &'a MatchRule {
        self.rule
    }

    /// The number of examples.
    pub(crate) fn examples(&self) -> usize {
        self.labels.len()
    }

    /// The accuracy of the answers, from 0 to 1. A cosine is that with the answers which were judged first for this sink.
    pub(crate) fn score(&mut self, answers: &SinkAnswers<'_>) -> Result<f64, ScoreError> {
        match self.rule {
            MatchRule::Value(rule) => share_found(rule, self.labels, answers),
            MatchRule::Boxes(rule) => {
                let found = found_boxes(rule, answers)?;
                Ok(mean_average_precision(self.labels, &found, rule.iou))
            }
            MatchRule::Cosine(output) => {
                let rows = rows_by_example(&answers.outputs[output], answers.examples, self.labels.len())?;
                let reference = self.references.entry(answers.sink).or_insert_with(|| rows.clone());
                Ok(likeness(&rows, reference))
            }
            MatchRule::Command(rule) => Ok(judged(rule, json_lines(rule, self.labels, answers))?),
        }
    }
}

/// The number of elements of a row.
fn per_row(tensor: &Tensor) -> usize {
    tensor.shape.iter().skip(1).product()
}

fn share_found(rule: &ValueRule, labels: &[Vec<Label>], answers: &SinkAnswers<'_>) -> Result<f64, ScoreError> {
    let found = row_values(rule, &answers.outputs[&rule.value])?;
    let dimensions = labels.iter().flatten().next().map_or(0, |label| label.at.len());
    let places = rule.at.as_ref().map(|name| &answers.outputs[name]);
    if let Some(odd) = places.filter(|tensor| per_row(tensor) != dimensions) {
        let (output, found) = (odd.name.clone(), per_row(odd));
        return Err(ScoreError::Dimensions { output, found, expected: dimensions });
    }
    let places = places.map(numbers).unwrap_or_default();
    let mut rows: Vec<Vec<AnswerRow>> = vec![Vec::new(); labels.len()];
    for (r, (values, &example)) in found.into_iter().zip(answers.examples).enumerate() {
        let at = if rule.at.is_some() { places[r * dimensions..(r + 1) * dimensions].to_vec() } else { Vec::new() };
        rows[example].push(AnswerRow { values, at });
    }
    let matched: usize = labels.iter().zip(&rows).map(|(l, r)| count_matches(l, r, rule.within)).sum();
    let total: usize = labels.iter().map(Vec::len).sum();
    Ok(matched as f64 / total as f64)
}

/// The values of each row: its element, or the classes with the highest scores.
fn row_values(rule: &ValueRule, output: &Tensor) -> Result<Vec<Vec<LabelValue>>, ScoreError> {
    use Datatype::{Bf16, Bytes, Fp16, Fp32, Fp64};
    let classes = per_row(output);
    let has_scores = output.shape.len() == 2 && classes > 1 && output.datatype != Bytes;
    let has_floats = matches!(output.datatype, Fp16 | Bf16 | Fp32 | Fp64);
    let top = match rule.top {
        None if classes == 1 => return Ok(values(output).into_iter().map(|value| vec![value]).collect()),
        None if has_scores && has_floats => 1,
        None => return Err(ScoreError::Elements { output: output.name.clone(), found: classes }),
        Some(top) if has_scores && (top as usize) < classes => top as usize,
        Some(top) => return Err(ScoreError::Top { output: output.name.clone(), top, shape: output.shape.clone() }),
    };
    Ok(numbers(output).chunks(classes).map(|scores| top_classes(scores, top)).collect())
}

/// The numbers of an output, if it has no texts.
fn checked_numbers(output: &Tensor) -> Result<Vec<f64>, ScoreError> {
    match output.datatype {
        Datatype::Bytes => Err(ScoreError::Texts { output: output.name.clone() }),
        _ => Ok(numbers(output)),
    }
}

fn rows_by_example(output: &Tensor, examples: &[usize], count: usize) -> Result<Vec<ExampleRows>, ScoreError> {
    let (numbers, width) = (checked_numbers(output)?, per_row(output));
    let mut rows = vec![ExampleRows::new(); count];
    for (r, &example) in examples.iter().enumerate() {
        rows[example].push(numbers[r * width..(r + 1) * width].to_vec());
    }
    Ok(rows)
}

/// The boxes of all rows. A row has one box, or a fixed number of them.
fn found_boxes(rule: &BoxRule, answers: &SinkAnswers<'_>) -> Result<Vec<FoundBox>, ScoreError> {
    let of = |name: &String| &answers.outputs[name];
    let (boxes, scores) = (of(&rule.boxes), of(&rule.scores));
    let count = (per_row(boxes) / 4).max(1);
    let expect = |output: &Tensor, expected: usize| {
        let (found, output) = (per_row(output), output.name.clone());
        if found == expected { Ok(()) } else { Err(ScoreError::Boxes { output, found, expected, boxes: count }) }
    };
    expect(boxes, 4 * count)?;
    expect(scores, count)?;
    let classes = rule.classes.as_ref().map(of);
    classes.map_or(Ok(()), |classes| expect(classes, count))?;
    let (corners, scores, classes) = (checked_numbers(boxes)?, checked_numbers(scores)?, classes.map(values));
    let (corners, _) = corners.as_chunks::<4>();
    let found = corners.iter().zip(scores).enumerate().map(|(b, (corners, score))| FoundBox {
        example: answers.examples[b / count],
        class: classes.as_ref().map(|classes| classes[b].clone()),
        score,
        corners: *corners,
    });
    Ok(found.collect())
}

/// A line for each example, with its rows of the outputs and its labels.
fn json_lines(rule: &CommandRule, labels: &[Vec<Label>], answers: &SinkAnswers<'_>) -> Vec<u8> {
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); labels.len()];
    for (r, &example) in answers.examples.iter().enumerate() {
        rows[example].push(r);
    }
    let outputs: Vec<(&Tensor, Vec<_>)> =
        rule.outputs.iter().map(|name| &answers.outputs[name]).map(|output| (output, json_elements(output))).collect();
    let mut lines = Vec::new();
    for (example, (rows, labels)) in rows.iter().zip(labels).enumerate() {
        let mut written = Map::new();
        for (output, elements) in &outputs {
            let width = per_row(output);
            let data: Vec<_> = rows.iter().flat_map(|r| &elements[r * width..(r + 1) * width]).collect();
            let shape: Vec<usize> = std::iter::once(rows.len()).chain(output.shape.iter().skip(1).copied()).collect();
            let datatype = output.datatype.name();
            written.insert(output.name.clone(), json!({"datatype": datatype, "shape": shape, "data": data}));
        }
        let line = json!({"example": example, "path": answers.path, "outputs": written, "labels": labels});
        lines.extend(line.to_string().into_bytes());
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::Duration;

    fn floats(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { name: name.to_owned(), datatype: Datatype::Fp32, shape: shape.to_vec(), data: data.into() }
    }

    fn integers(name: &str, shape: &[usize], values: &[i64]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { name: name.to_owned(), datatype: Datatype::Int64, shape: shape.to_vec(), data: data.into() }
    }

    /// Labels that are numbers, one for each example.
    fn classes(labels: &[f64]) -> Vec<Vec<Label>> {
        labels.iter().map(|label| vec![LabelValue::Number(*label).into()]).collect()
    }

    fn score(rule: &MatchRule, labels: &[Vec<Label>], tensors: &[Tensor], examples: &[usize]) -> Result<f64, ScoreError> {
        let outputs = tensors.iter().map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
        Scorer::new(rule, labels).score(&SinkAnswers { sink: 0, path: "t:v", outputs: &outputs, examples })
    }

    fn by_value(top: Option<u32>) -> MatchRule {
        MatchRule::Value(ValueRule { value: "y".to_owned(), top, ..ValueRule::default() })
    }

    #[test]
    fn the_highest_score_is_the_class() {
        let logits = floats("y", &[3, 3], &[0.1, 0.2, 0.9, 5.0, -1.0, 4.0, -3.0, -2.0, -1.0]);
        let found = |top, labels: &[f64]| {
            score(&by_value(top), &classes(labels), std::slice::from_ref(&logits), &[0, 1, 2]).expect("scores")
        };
        assert_eq!(found(None, &[2.0, 0.0, 2.0]), 1.0);
        assert_eq!(found(Some(1), &[2.0, 2.0, 0.0]), 1.0 / 3.0);
        assert_eq!(found(Some(2), &[2.0, 2.0, 0.0]), 2.0 / 3.0);
    }

    #[test]
    fn outputs_that_are_no_scores_are_refused() {
        let labels = classes(&[1.0]);
        let refused =
            |top, tensor: Tensor| score(&by_value(top), &labels, &[tensor], &[0]).expect_err("refused").to_string();
        let whole = refused(None, integers("y", &[1, 3], &[0, 9, 1]));
        assert!(whole.contains("output y has 3 elements a row where labels have one"), "{whole}");
        let deep = refused(None, floats("y", &[1, 2, 2], &[0.0; 4]));
        assert!(deep.contains("4 elements a row"), "{deep}");
        let all = refused(Some(3), floats("y", &[1, 3], &[0.0; 3]));
        assert!(all.contains("top is 3, and output y has the shape [1, 3]"), "{all}");
        let one = refused(Some(1), floats("y", &[1], &[0.0]));
        assert!(one.contains("with more classes than that"), "{one}");
        assert_eq!(score(&by_value(Some(2)), &labels, &[integers("y", &[1, 3], &[0, 9, 1])], &[0]).expect("scores"), 1.0);
    }

    #[test]
    fn boxes_come_alone_or_in_fixed_numbers() {
        let rule = BoxRule { boxes: "b".into(), scores: "s".into(), classes: Some("c".into()), iou: 0.5 };
        let rule = MatchRule::Boxes(rule);
        let labels: Vec<Vec<Label>> = [[0.0, 0.0, 2.0, 2.0], [4.0, 4.0, 6.0, 6.0]]
            .map(|at| vec![Label { value: LabelValue::Number(7.0), at: at.to_vec() }])
            .to_vec();
        let corners = [0.0, 0.0, 2.0, 2.0, 9.0, 9.0, 9.5, 9.5, 4.0, 4.0, 6.0, 6.0, 0.0, 0.0, 0.0, 0.0];
        let (scores, kinds) = ([0.9, 0.1, 0.8, 0.0], [7, 7, 7, 7]);
        let alone = [floats("b", &[4, 4], &corners), floats("s", &[4], &scores), integers("c", &[4, 1], &kinds)];
        assert_eq!(score(&rule, &labels, &alone, &[0, 0, 1, 1]).expect("boxes"), 1.0);
        assert_eq!(score(&rule, &labels, &alone, &[1, 0, 1, 1]).expect("boxes"), 0.25, "a miss, then one of two");
        let fixed = [floats("b", &[2, 2, 4], &corners), floats("s", &[2, 2], &scores), integers("c", &[2, 2], &kinds)];
        assert_eq!(score(&rule, &labels, &fixed, &[0, 1]).expect("boxes"), 1.0);
        let none = [floats("b", &[0, 4], &[]), floats("s", &[0], &[]), integers("c", &[0], &[])];
        assert_eq!(score(&rule, &labels, &none, &[]).expect("no boxes"), 0.0);
        let odd = [floats("b", &[1, 6], &[0.0; 6]), floats("s", &[1], &[0.0]), integers("c", &[1], &[7])];
        let refused = score(&rule, &labels, &odd, &[0]).expect_err("six numbers").to_string();
        assert_eq!(refused, "output b has 6 elements a row: expected 4, for 1 boxes");
    }

    #[test]
    fn a_cosine_is_that_with_the_first_answers() {
        let (rule, labels) = (MatchRule::Cosine("y".to_owned()), vec![Vec::new(); 2]);
        let mut scorer = Scorer::new(&rule, &labels);
        let mut judge = |sink, values: [f32; 4]| {
            let outputs = BTreeMap::from([("y".to_owned(), floats("y", &[2, 2], &values))]);
            scorer.score(&SinkAnswers { sink, path: "t:v", outputs: &outputs, examples: &[0, 1] }).expect("numbers")
        };
        assert_eq!(judge(0, [1.0, 0.0, 0.0, 2.0]), 1.0);
        assert_eq!(judge(1, [0.0, 1.0, 0.0, 1.0]), 1.0, "another sink has its own reference");
        assert_eq!(judge(0, [3.0, 0.0, 1.0, 0.0]), 0.5);
    }

    #[test]
    fn a_program_gets_a_line_for_each_example() {
        let script = "cat > seen; echo 0.5";
        let folder = tempfile::tempdir().expect("a folder");
        let rule = MatchRule::Command(CommandRule {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            outputs: vec!["y".to_owned(), "t".to_owned()],
            folder: PathBuf::from(folder.path()),
            time_max: Duration::from_secs(600),
        });
        let labels = [classes(&[7.0]), vec![Vec::new()]].concat();
        let data = [[1, 0, 0, 0, b'a'], [1, 0, 0, 0, b'b']].concat();
        let texts = Tensor { name: "t".to_owned(), datatype: Datatype::Bytes, shape: vec![2], data: data.into() };
        let tensors = [integers("y", &[2, 2], &[1, 2, 3, 4]), texts];
        assert_eq!(score(&rule, &labels, &tensors, &[1, 1]).expect("a number"), 0.5);
        let seen = std::fs::read_to_string(folder.path().join("seen")).expect("lines");
        let lines: Vec<serde_json::Value> = seen.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let outputs = |rows: usize, y: &[i64], t: &[&str]| {
            json!({"y": {"datatype": "INT64", "shape": [rows, 2], "data": y},
                "t": {"datatype": "BYTES", "shape": [rows], "data": t}})
        };
        let expected = [
            json!({"example": 0, "path": "t:v", "outputs": outputs(0, &[], &[]), "labels": [{"value": 7.0, "at": []}]}),
            json!({"example": 1, "path": "t:v", "outputs": outputs(2, &[1, 2, 3, 4], &["a", "b"]), "labels": []}),
        ];
        assert_eq!(lines, expected);
    }
}
