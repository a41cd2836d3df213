//! Which requests does a validation set hold, and how correct is an answer?

use anyhow::{Context, Result, bail, ensure};
use apportion_profiler::labels::{Label, LabelValue, read_labels};
use apportion_profiler::matching::{AnswerRow, count_matches};
use apportion_profiler::npy::read_npy;
use apportion_profiler::{Datatype, Tensor};
use apportion_wire::{MatchSpec, PipelineSpec, ValidationSpec, read_pipeline_spec};
use bytes::Bytes;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A pipeline with its validation set.
pub struct ValidationSet {
    /// Its name.
    pub name: String,
    /// End-to-end latency objective.
    pub slo_ms: f64,
    validation: ValidationSpec,
    folder: PathBuf,
}

/// One request with its labels.
pub struct LabelledRequest {
    /// The request's body.
    pub body: Bytes,
    /// The objects that a correct answer finds.
    pub labels: Vec<Label>,
    matching: MatchSpec,
}

/// The answer of an ingress: outputs by name.
pub struct InferenceResponse(Value);

impl ValidationSet {
    /// Reads the pipeline file.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let spec: PipelineSpec = read_pipeline_spec(&file.display().to_string(), &text)?;
        let validation = spec.validation.with_context(|| format!("{} names no validation set", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Self { name: spec.name, slo_ms: spec.slo_ms, validation, folder })
    }

    /// One request for each example of the validation set.
    pub fn requests(&self) -> Result<Vec<LabelledRequest>> {
        let path = |file: &str| self.folder.join(file);
        let labels = read_labels(&path(&self.validation.labels)).map_err(anyhow::Error::msg)?;
        let mut inputs = Vec::new();
        for (name, file) in &self.validation.inputs {
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
            Ok(LabelledRequest { body, labels, matching: self.validation.matching.clone() })
        };
        labels.into_iter().enumerate().map(request).collect()
    }
}

fn tensor_json(tensor: &Tensor) -> Result<Value> {
    let bytes = &tensor.data;
    let data: Value = match tensor.datatype {
        Datatype::Uint8 => bytes.to_vec().into(),
        Datatype::Fp32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>().into()
        }
        Datatype::Int32 => bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect::<Vec<_>>().into(),
        Datatype::Int64 => bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect::<Vec<_>>().into(),
        other => bail!("examples of datatype {} cannot be sent by the demo", other.name()),
    };
    Ok(json!({"name": tensor.name, "datatype": tensor.datatype.name(), "shape": tensor.shape, "data": data}))
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

    /// The elements of an output.
    fn elements<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'n Value> {
        let outputs = self.0["outputs"].as_array().into_iter().flatten();
        outputs.filter(move |o| o["name"] == name).flat_map(|o| o["data"].as_array()).flatten()
    }

    fn rows(&self, matching: &MatchSpec) -> Vec<AnswerRow> {
        let text = |value: &Value| value.as_str().map(|text| LabelValue::Text(text.to_owned()));
        let read = |value: &Value| value.as_f64().map(LabelValue::Number).or_else(|| text(value));
        let values: Vec<LabelValue> = self.elements(&matching.value).filter_map(read).collect();
        let numbers = |name: &String| self.elements(name).filter_map(Value::as_f64).collect::<Vec<_>>();
        let at = matching.at.as_ref().map(numbers).unwrap_or_default();
        let width = at.len() / values.len().max(1);
        let row = |(i, value): (usize, LabelValue)| AnswerRow { value, at: at[i * width..(i + 1) * width].to_vec() };
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
        let matching = MatchSpec { value: "type".to_owned(), at: None, within: None };
        let request = LabelledRequest { body: Bytes::new(), labels, matching };
        assert_eq!(request.correct(&answer), 3);
    }
}
