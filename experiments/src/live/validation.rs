//! Which requests does a validation set hold, and how correct is an answer?

use anyhow::{Context, Result, bail, ensure};
use apportion_profiler::labels::{Label, LabelValue, read_labels};
use apportion_profiler::matching::{AnswerRow, count_matches, top_classes};
use apportion_profiler::npy::read_npy;
use apportion_profiler::{Datatype, Tensor, json_elements};
use apportion_wire::{MatchSpec, PipelineSpec, ValidationSpec, read_pipeline_spec};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A pipeline with its validation set.
pub struct ValidationSet {
    /// Its name.
    pub name: String,
    /// End-to-end latency objective.
    pub slo_ms: f64,
    inputs: BTreeMap<String, String>,
    labels: String,
    matching: ValueMatch,
    folder: PathBuf,
}

/// The output that is compared with the labels.
#[derive(Clone)]
struct ValueMatch {
    value: String,
    at: Option<String>,
    within: Option<f64>,
    /// How many of the classes with the highest scores count, if the output has scores.
    top: usize,
}

/// One request with its labels.
pub struct LabelledRequest {
    /// The request's body.
    pub body: Bytes,
    /// The objects that a correct answer finds.
    pub labels: Vec<Label>,
    matching: ValueMatch,
}

/// The answer of an ingress: outputs by name.
pub struct InferenceResponse(Value);

impl ValidationSet {
    /// Reads the pipeline file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let spec: PipelineSpec = read_pipeline_spec(&file.display().to_string(), &text)?;
        let validation = spec.validation.with_context(|| format!("{} names no validation set", file.display()))?;
        let ValidationSpec { inputs, labels, matching: MatchSpec { value, at, within, top, .. } } = validation;
        let by_value = || format!("{}: answers are compared with labels here: expected the rule `value`", file.display());
        let (labels, value) = (labels.with_context(by_value)?, value.with_context(by_value)?);
        let matching = ValueMatch { value, at, within, top: top.unwrap_or(1) as usize };
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Self { name: spec.name, slo_ms: spec.slo_ms, inputs, labels, matching, folder })
    }

    /// One request for each example of the validation set.
    pub fn requests(&self) -> Result<Vec<LabelledRequest>> {
        let path = |file: &str| self.folder.join(file);
        let labels = read_labels(&path(&self.labels)).map_err(anyhow::Error::msg)?;
        let mut inputs = Vec::new();
        for (name, file) in &self.inputs {
            let tensor = read_npy(name, &path(file)).with_context(|| path(file).display().to_string())?;
            ensure!(
                tensor.rows() >= labels.len(),
                "{file} has {} examples, there are {} labels",
                tensor.rows(),
                labels.len()
            );
            inputs.push(tensor);
        }
        let request = |(i, labels): (usize, Vec<Label>)| {
            let inputs = inputs.iter().map(|t| tensor_json(&t.row(i))).collect::<Result<Vec<_>>>()?;
            let body = Bytes::from(serde_json::to_vec(&json!({"id": i.to_string(), "inputs": inputs}))?);
            Ok(LabelledRequest { body, labels, matching: self.matching.clone() })
        };
        labels.into_iter().enumerate().map(request).collect()
    }
}

fn tensor_json(tensor: &Tensor) -> Result<Value> {
    let Tensor { name, datatype, shape, .. } = tensor;
    if let Datatype::Fp16 | Datatype::Bf16 = datatype {
        bail!("examples of datatype {} have no form in JSON", datatype.name());
    }
    Ok(json!({"name": name, "datatype": datatype.name(), "shape": shape, "data": json_elements(tensor)}))
}

impl LabelledRequest {
    /// The number of labels that an answer has correct.
    pub fn correct(&self, answer: &InferenceResponse) -> u32 {
        let rows = answer.rows(&self.matching);
        count_matches(&self.labels, &rows, self.matching.within) as u32
    }
}

impl InferenceResponse {
    /// Parses an answer of the Open Inference Protocol.
    pub fn parse(body: &str) -> Result<Self> {
        let answer: Value = serde_json::from_str(body).context("the answer is no JSON")?;
        ensure!(answer["outputs"].is_array(), "the answer has no outputs: {body}");
        Ok(Self(answer))
    }

    /// The output with this name; null if there is none.
    fn output(&self, name: &str) -> &Value {
        let mut outputs = self.0["outputs"].as_array().into_iter().flatten();
        outputs.find(|output| output["name"] == name).unwrap_or(&Value::Null)
    }

    /// The numbers of an output.
    fn numbers(&self, name: &str) -> Vec<f64> {
        self.output(name)["data"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// The values of each row: its element, or the classes with the highest scores.
    fn row_values(&self, matching: &ValueMatch) -> Vec<Vec<LabelValue>> {
        let output = self.output(&matching.value);
        let classes = output["shape"].as_array().filter(|shape| shape.len() == 2).and_then(|shape| shape[1].as_u64());
        if let Some(classes) = classes.filter(|classes| *classes > 1) {
            let scores = self.numbers(&matching.value);
            return scores.chunks(classes as usize).map(|row| top_classes(row, matching.top)).collect();
        }
        let text = |value: &Value| value.as_str().map(|text| LabelValue::Text(text.to_owned()));
        let read = |value: &Value| value.as_f64().map(LabelValue::Number).or_else(|| text(value));
        let elements = output["data"].as_array().into_iter().flatten();
        elements.filter_map(read).map(|value| vec![value]).collect()
    }

    fn rows(&self, matching: &ValueMatch) -> Vec<AnswerRow> {
        let values = self.row_values(matching);
        let at = matching.at.as_ref().map(|name| self.numbers(name)).unwrap_or_default();
        let width = at.len() / values.len().max(1);
        let row = |(i, values): (usize, Vec<LabelValue>)| AnswerRow { values, at: at[i * width..(i + 1) * width].to_vec() };
        values.into_iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_of_answers_are_compared() {
        let body = r#"{"outputs": [{"name": "type", "data": ["rust", "7", 8]}, {"name": "other", "data": ["c"]}]}"#;
        let answer = InferenceResponse::parse(body).expect("an answer");
        let label = |value| Label { value, at: Vec::new() };
        let named = |name: &str| label(LabelValue::Text(name.to_owned()));
        let labels = vec![named("rust"), label(LabelValue::Number(7.0)), label(LabelValue::Number(8.0)), named("c")];
        let matching = ValueMatch { value: "type".to_owned(), at: None, within: None, top: 1 };
        let request = LabelledRequest { body: Bytes::new(), labels, matching };
        assert_eq!(request.correct(&answer), 3);
    }

    #[test]
    fn texts_of_examples_are_sent_as_they_are() {
        let data = Bytes::from_static(b"\x02\0\0\0hi\0\0\0\0");
        let texts = Tensor { name: "t".to_owned(), datatype: Datatype::Bytes, shape: vec![2], data };
        let sent = json!({"name": "t", "datatype": "BYTES", "shape": [2], "data": ["hi", ""]});
        assert_eq!(tensor_json(&texts).expect("JSON"), sent);
        let half = Tensor { datatype: Datatype::Fp16, data: Bytes::from_static(&[0; 4]), ..texts };
        assert!(tensor_json(&half).expect_err("no form").to_string().contains("FP16"));
    }

    #[test]
    fn scores_of_answers_are_classes() {
        let body = r#"{"outputs": [{"name": "y", "shape": [1, 3], "data": [0.5, 9, 0.75]}]}"#;
        let answer = InferenceResponse::parse(body).expect("an answer");
        let correct = |top, class| {
            let labels = vec![Label { value: LabelValue::Number(class), at: Vec::new() }];
            let matching = ValueMatch { value: "y".to_owned(), at: None, within: None, top };
            LabelledRequest { body: Bytes::new(), labels, matching }.correct(&answer)
        };
        assert_eq!([correct(1, 1.0), correct(1, 2.0), correct(2, 2.0), correct(2, 0.0)], [1, 0, 1, 0]);
    }
}
