//! Requests and answers of the Open Inference Protocol, version 2, as JSON.

use crate::layout::Pipeline;
use crate::node::request::Piece;
use crate::node::split::PARENT;
use crate::slot::{concatenate, no_rows};
use crate::tensor::{Datatype, Tensor, TensorSpec};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

/// An inference request's body.
#[derive(Debug, Deserialize)]
pub struct Body<'a> {
    /// Echoed in the answer.
    #[serde(default)]
    pub id: Option<String>,
    /// The tensors.
    #[serde(borrow)]
    pub inputs: Vec<Input<'a>>,
}

/// One input.
#[derive(Debug, Deserialize)]
pub struct Input<'a> {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The inputs as tensors in the order of `specs`, checked against them.
///
/// # Errors
/// What is wrong and what is expected, in words.
pub fn inputs(body: &Body<'_>, specs: &[TensorSpec]) -> Result<Vec<Tensor>, String> {
    if let Some(unknown) = body.inputs.iter().find(|i| specs.iter().all(|s| s.name != i.name)) {
        let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        return Err(format!("input {}: there is no such input: expected {}", unknown.name, names.join(", ")));
    }
    let mut tensors = Vec::with_capacity(specs.len());
    for spec in specs {
        let mut given = body.inputs.iter().filter(|i| i.name == spec.name);
        let input = given.next().ok_or_else(|| format!("input {} is missing: expected {}", spec.name, kind(spec)))?;
        if given.next().is_some() {
            return Err(format!("input {} is given twice", spec.name));
        }
        tensors.push(tensor(input, spec)?);
    }
    let rows = tensors.first().map_or(0, Tensor::rows);
    match tensors.iter().find(|t| t.rows() != rows) {
        _ if rows == 0 => Err("the request has no rows: expected at least one".into()),
        Some(other) => Err(format!("input {} has {} rows: expected {rows} as the first input", other.name, other.rows())),
        None => Ok(tensors),
    }
}

fn kind(spec: &TensorSpec) -> String {
    format!("{} of shape {:?}", spec.datatype.name(), spec.shape)
}

fn tensor(input: &Input<'_>, spec: &TensorSpec) -> Result<Tensor, String> {
    let name = &input.name;
    if input.datatype != spec.datatype.name() {
        return Err(format!("input {name} is {}: expected {}", input.datatype, kind(spec)));
    }
    let fits = |(given, expected): (&usize, &i64)| *expected < 0 || i64::try_from(*given) == Ok(*expected);
    if input.shape.len() != spec.shape.len() || !input.shape.iter().zip(&spec.shape).all(fits) {
        return Err(format!("input {name} has shape {:?}: expected {}", input.shape, kind(spec)));
    }
    let count = input.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    let count = count.ok_or_else(|| format!("input {name} has shape {:?}: this is too large", input.shape))?;
    let data = numbers(input.data.get(), spec.datatype).map_err(|e| format!("input {name}: data: {e}"))?;
    if data.len() != count * spec.datatype.size() {
        let given = data.len() / spec.datatype.size();
        return Err(format!("input {name} has {given} elements: expected {count} for shape {:?}", input.shape));
    }
    Ok(Tensor { name: name.clone(), datatype: spec.datatype, shape: input.shape.clone(), data: data.into() })
}

/// The little-endian bytes of a flat or nested array.
fn numbers(json: &str, datatype: Datatype) -> Result<Vec<u8>, String> {
    macro_rules! read {
        ($type:ty, $bytes:expr) => {{
            // Most clients send flat arrays, and those are read without a tree.
            let flat: Result<Vec<$type>, _> = serde_json::from_str(json);
            let flat = match flat {
                Ok(flat) => flat,
                Err(_) => {
                    let mut flat: Vec<$type> = Vec::new();
                    let tree: Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
                    flatten(&tree, &mut |leaf| {
                        flat.push(serde_json::from_value(leaf.clone()).map_err(|e| format!("{leaf}: {e}"))?);
                        Ok(())
                    })?;
                    flat
                }
            };
            Ok(flat.into_iter().flat_map($bytes).collect())
        }};
    }
    match datatype {
        Datatype::Bool => read!(bool, |v| [u8::from(v)]),
        Datatype::Uint8 => read!(u8, u8::to_le_bytes),
        Datatype::Uint16 => read!(u16, u16::to_le_bytes),
        Datatype::Uint32 => read!(u32, u32::to_le_bytes),
        Datatype::Uint64 => read!(u64, u64::to_le_bytes),
        Datatype::Int8 => read!(i8, i8::to_le_bytes),
        Datatype::Int16 => read!(i16, i16::to_le_bytes),
        Datatype::Int32 => read!(i32, i32::to_le_bytes),
        Datatype::Int64 => read!(i64, i64::to_le_bytes),
        Datatype::Fp16 => read!(f32, |v| half::f16::from_f32(v).to_le_bytes()),
        Datatype::Fp32 => read!(f32, f32::to_le_bytes),
        Datatype::Fp64 => read!(f64, f64::to_le_bytes),
    }
}

fn flatten(value: &Value, leaf: &mut impl FnMut(&Value) -> Result<(), String>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| flatten(item, leaf)),
        other => leaf(other),
    }
}

/// A tensor as an output of an answer.
#[must_use]
pub fn output(tensor: &Tensor, name: &str) -> Value {
    macro_rules! write {
        ($type:ty) => {{
            let number = |b: &[u8]| <$type>::from_le_bytes(b.try_into().expect("chunks of its size"));
            tensor.data.chunks_exact(size_of::<$type>()).map(number).map(Value::from).collect::<Vec<_>>()
        }};
    }
    let data = match tensor.datatype {
        Datatype::Bool => tensor.data.iter().map(|b| Value::from(*b != 0)).collect(),
        Datatype::Uint8 => write!(u8),
        Datatype::Uint16 => write!(u16),
        Datatype::Uint32 => write!(u32),
        Datatype::Uint64 => write!(u64),
        Datatype::Int8 => write!(i8),
        Datatype::Int16 => write!(i16),
        Datatype::Int32 => write!(i32),
        Datatype::Int64 => write!(i64),
        Datatype::Fp16 => {
            let number = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
            tensor.data.chunks_exact(2).map(number).map(Value::from).collect()
        }
        Datatype::Fp32 => write!(f32),
        Datatype::Fp64 => write!(f64),
    };
    json!({"name": name, "datatype": tensor.datatype.name(), "shape": tensor.shape, "data": data})
}

/// What the outputs of a pipeline are called, by sink and output: with several sinks, after their task.
#[must_use]
pub fn output_specs(pipeline: &Pipeline) -> Vec<(String, TensorSpec)> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.children.is_empty()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut specs = Vec::new();
    for sink in &sinks {
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            specs.push((name(&sink.name, &spec.name), spec.clone()));
        }
        let parent = TensorSpec { name: PARENT.into(), datatype: Datatype::Int64, shape: vec![-1] };
        specs.push((name(&sink.name, PARENT), parent));
    }
    specs
}

/// The outputs of an answer: for each sink, the rows in the requests' order and, as `parent`, which row they are of.
///
/// # Errors
/// If the pieces of a sink do not fit together.
pub fn outputs(pieces: &[Piece], pipeline: &Pipeline) -> Result<Vec<Tensor>, String> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.children.is_empty()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut all = Vec::new();
    for sink in &sinks {
        let mine: Vec<&Piece> = pieces.iter().filter(|p| p.task == sink.name).collect();
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            let parts: Vec<&Tensor> = mine.iter().filter_map(|p| p.outputs.iter().find(|t| t.name == spec.name)).collect();
            let filled: Vec<&Tensor> = parts.into_iter().filter(|t| t.rows() > 0).collect();
            let rows = if filled.is_empty() { Some(no_rows(spec)) } else { concatenate(&filled) };
            let rows =
                rows.ok_or_else(|| format!("task {}: rows of its output {} differ in shape", sink.name, spec.name))?;
            all.push(Tensor { name: name(&sink.name, &spec.name), ..rows });
        }
        let rows = |p: &&Piece| std::iter::repeat_n(i64::from(p.row), p.outputs.first().map_or(0, Tensor::rows));
        let parents: Vec<i64> = mine.iter().flat_map(rows).collect();
        let data: Vec<u8> = parents.iter().flat_map(|p| p.to_le_bytes()).collect();
        let (datatype, shape) = (Datatype::Int64, vec![parents.len()]);
        all.push(Tensor { name: name(&sink.name, PARENT), datatype, shape, data: data.into() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Tensor>, String> {
        let spec = TensorSpec { name: "x".into(), datatype: Datatype::Fp32, shape: vec![-1, 2] };
        inputs(&serde_json::from_str(json).expect("a body"), &[spec])
    }

    fn with(inner: &str) -> String {
        format!(r#"{{"inputs": [{inner}]}}"#)
    }

    #[test]
    fn flat_and_nested_data_are_the_same() {
        let flat = read(&with(r#"{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4.5]}"#));
        let nested = read(&with(r#"{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4.5]]}"#));
        assert_eq!(flat, nested);
        assert_eq!(output(&flat.expect("valid")[0], "x")["data"], json!([1.0, 2.0, 3.0, 4.5]));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_expected() {
        let cases = [
            (r#"{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}"#, "expected x"),
            (r#"{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}"#, "expected FP32"),
            (r#"{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}"#, "shape [-1, 2]"),
            (r#"{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1]}"#, "expected 2"),
            (r#"{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, "a"]}"#, "data"),
            (r#"{"name": "x", "datatype": "FP32", "shape": [0, 2], "data": []}"#, "no rows"),
            ("", "missing"),
        ];
        for (inner, expected) in cases {
            let error = read(&with(inner)).expect_err(inner);
            assert!(error.contains(expected), "{inner}: {error}");
        }
    }
}
