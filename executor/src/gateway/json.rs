//! How are inference bodies over HTTP read and written?
//!
//! A body is JSON. With the binary tensor extension, tensors follow the JSON as raw bytes. The header
//! `Inference-Header-Content-Length` says where the JSON ends, and `binary_data_size` says how long each tensor is.

use super::error::{BodyError, ElementsError, ParameterError, RequestedOutputError, SourceError};
use super::inference::{
    AnswerOutput, ElementForm, Elements, ID_BYTES_MAX, Parameter, RequestParameters, RequestedOutput, TENSORS_MAX,
    UncheckedInput,
};
use super::numbers;
use super::parameters::{BoundedList, Parameters};
use crate::open_inference::error::WriteError;
use apportion_node::chooser::ChosenVariants;
use apportion_node::tensor::{Datatype, TensorSignature, texts};
use apportion_node::wire::RANK_MAX;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{json, value::RawValue};

/// The header, of requests and answers, that says how long the JSON is.
pub const HEADER_LENGTH: &str = "Inference-Header-Content-Length";

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow)]
    inputs: BoundedList<Input<'a>, TENSORS_MAX>,
    #[serde(default)]
    outputs: Option<BoundedList<Output, TENSORS_MAX>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    name: String,
    datatype: String,
    shape: BoundedList<i64, RANK_MAX>,
    #[serde(default)]
    parameters: Option<Parameters>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Option<Parameters>,
}

/// The elements of an input, as they came.
pub enum JsonElements<'a> {
    /// In the JSON.
    Json(&'a RawValue),
    /// After it.
    Raw(Bytes),
}

impl Elements for JsonElements<'_> {
    fn bytes(self, datatype: Datatype, max: usize) -> Result<Bytes, ElementsError> {
        match self {
            JsonElements::Json(value) => {
                let bytes = numbers::read(value.get(), datatype, max)?;
                let found = if datatype == Datatype::Bytes { texts(&bytes).count() } else { bytes.len() / datatype.size() };
                if found == max { Ok(bytes.into()) } else { Err(ElementsError::Count { found, expected: max }) }
            }
            JsonElements::Raw(bytes) => Ok(bytes),
        }
    }
}

/// A request before its tensors are checked.
pub struct JsonRequest<'a> {
    /// Echoed in the answer.
    pub id: Option<String>,
    /// Its parameters.
    pub settings: RequestParameters,
    /// Its inputs.
    pub inputs: Vec<UncheckedInput<JsonElements<'a>>>,
    /// The outputs that it asks for; none are all.
    pub outputs: Vec<RequestedOutput>,
}

/// Reads a request; `header` is the value of [`HEADER_LENGTH`].
///
/// # Errors
/// [`BodyError`] by cause.
pub fn read<'a>(body: &'a Bytes, header: Option<&str>) -> Result<JsonRequest<'a>, BodyError> {
    let split = match header {
        None => body.len(),
        Some(text) => length(text, body.len())?,
    };
    let parsed: Body<'_> = parse(&body[..split])?;
    if let Some(id) = parsed.id.as_ref().filter(|id| id.len() > ID_BYTES_MAX) {
        return Err(BodyError::Id { found: id.len(), bytes_max: ID_BYTES_MAX });
    }
    let mut settings = RequestParameters::default();
    each(parsed.parameters, |name, value| settings.set(name, value))?;
    let (mut inputs, mut tail) = (Vec::with_capacity(parsed.inputs.0.len()), body.slice(split..));
    for input in parsed.inputs.0 {
        let Input { name, datatype, shape, parameters, data } = input;
        let refuse = |source: SourceError| BodyError::Input { name: name.clone(), source };
        let mut size = None;
        each(parameters, |parameter, value| match parameter {
            "binary_data_size" => {
                let bytes = if let Parameter::Whole(v) = value { usize::try_from(*v).ok() } else { None };
                size = Some(bytes.ok_or_else(|| value.refused(parameter, "bytes"))?);
                Ok(())
            }
            _ if parameter.starts_with("shared_memory") => Err(ParameterError::Unsupported(parameter.into())),
            _ => Ok(()),
        })
        .map_err(|e| refuse(e.into()))?;
        let elements = match (size, data) {
            (Some(size), None) if header.is_some() => JsonElements::Raw(take(&mut tail, size).map_err(refuse)?),
            (Some(_), None) => return Err(refuse(SourceError::NoHeader(HEADER_LENGTH))),
            (Some(_), Some(_)) => return Err(refuse(SourceError::Both)),
            (None, Some(data)) => JsonElements::Json(data),
            (None, None) => return Err(refuse(SourceError::Neither)),
        };
        inputs.push(UncheckedInput { name, datatype, shape: shape.0, elements });
    }
    if !tail.is_empty() {
        return Err(BodyError::Rest(tail.len()));
    }
    Ok(JsonRequest { id: parsed.id, settings, inputs, outputs: wanted(parsed.outputs.map_or_else(Vec::new, |few| few.0))? })
}

/// Checks that the outputs that go in JSON have a form there. `default` is the form of an output that names none.
///
/// # Errors
/// [`RequestedOutputError::NoForm`] with the first output that has none.
pub fn check_forms(
    wanted: &[RequestedOutput],
    default: ElementForm,
    specs: &[(String, TensorSignature)],
) -> Result<(), RequestedOutputError> {
    for (name, spec) in specs.iter().filter(|(_, spec)| !numbers::in_json(spec.datatype)) {
        let is_typed = match wanted.iter().find(|w| w.name == *name) {
            Some(output) => output.form.unwrap_or(default) == ElementForm::Typed,
            // It is sent only if the request names no outputs.
            None => wanted.is_empty() && default == ElementForm::Typed,
        };
        if is_typed {
            return Err(RequestedOutputError::NoForm { name: name.clone(), datatype: spec.datatype.name() });
        }
    }
    Ok(())
}

fn length(text: &str, body_bytes: usize) -> Result<usize, BodyError> {
    let length = text.trim().parse().ok().filter(|length| *length <= body_bytes);
    length.ok_or_else(|| BodyError::Length { header: HEADER_LENGTH, found: text.to_owned(), body_bytes })
}

fn take(tail: &mut Bytes, size: usize) -> Result<Bytes, SourceError> {
    if size > tail.len() {
        return Err(SourceError::Short { size, left: tail.len() });
    }
    Ok(tail.split_to(size))
}

fn wanted(outputs: Vec<Output>) -> Result<Vec<RequestedOutput>, RequestedOutputError> {
    let want = |output: Output| {
        let mut wanted = RequestedOutput { name: output.name, form: None };
        match each(output.parameters, |name, value| wanted.set(name, value)) {
            Ok(()) => Ok(wanted),
            Err(source) => Err(RequestedOutputError::Parameter { name: wanted.name, source }),
        }
    };
    outputs.into_iter().map(want).collect()
}

/// Parses, and only for a body that is wrong asks where.
fn parse(json: &[u8]) -> Result<Body<'_>, BodyError> {
    let source = match serde_json::from_slice(json) {
        Ok(body) => return Ok(body),
        Err(error) => error,
    };
    let mut from = serde_json::Deserializer::from_slice(json);
    let place = match serde_path_to_error::deserialize::<_, Body<'_>>(&mut from) {
        Err(e) => pointer(e.path()),
        Ok(_) => String::new(),
    };
    Err(BodyError::Json { place, source })
}

/// A colon and the JSON pointer of a path; empty for the whole body.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Enum { .. } | Segment::Unknown => break,
        }
    }
    if pointer.is_empty() { pointer } else { format!(": {pointer}") }
}

fn each(
    parameters: Option<Parameters>,
    mut set: impl FnMut(&str, &Parameter) -> Result<(), ParameterError>,
) -> Result<(), ParameterError> {
    parameters.into_iter().flat_map(|all| all.0).try_for_each(|(name, value)| set(&name, &value))
}

/// What an answer says besides its tensors.
pub struct AnswerHead<'a> {
    /// The pipeline.
    pub name: &'a str,
    /// The generation that served.
    pub version: &'a str,
    /// The request's.
    pub id: Option<&'a str>,
    /// `ok` or `late`.
    pub outcome: &'a str,
    /// From arrival to answer, in microseconds.
    pub latency_us: u64,
    /// Parts that were dropped and are left out.
    pub dropped: u32,
    /// The variants that served it, if it said what it needs.
    pub chosen: Option<&'a ChosenVariants>,
}

/// The body of an answer, and how long its JSON is if tensors follow it.
///
/// # Errors
/// [`WriteError`] if an output has no form in JSON and is not asked for as bytes.
pub fn write(head: &AnswerHead<'_>, outputs: &[AnswerOutput]) -> Result<(Vec<u8>, Option<usize>), WriteError> {
    let mut parameters = json!({"outcome": head.outcome, "latency_us": head.latency_us});
    if head.dropped > 0 {
        parameters["dropped"] = head.dropped.into();
    }
    if let Some(chosen) = head.chosen {
        parameters["variants"] = chosen.variants.as_str().into();
        parameters["accuracy"] = chosen.accuracy.into();
    }
    let mut start = json!({"model_name": head.name, "model_version": head.version, "parameters": parameters});
    if let Some(id) = head.id {
        start["id"] = id.into();
    }
    let mut body = start.to_string().into_bytes();
    body.pop(); // its last brace: the outputs go before it
    body.extend_from_slice(b",\"outputs\":[");
    for (i, AnswerOutput { tensor, form }) in outputs.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        let mut about = json!({"name": tensor.name, "datatype": tensor.datatype.name(), "shape": tensor.shape});
        if *form == ElementForm::Raw {
            about["parameters"] = json!({"binary_data_size": tensor.data.len()});
            body.extend_from_slice(about.to_string().as_bytes());
        } else {
            let about = about.to_string();
            body.extend_from_slice(&about.as_bytes()[..about.len() - 1]);
            body.extend_from_slice(b",\"data\":");
            numbers::write(tensor, &mut body)?;
            body.push(b'}');
        }
    }
    body.extend_from_slice(b"]}");
    let length = body.len();
    let raw = outputs.iter().filter(|output| output.form == ElementForm::Raw);
    raw.clone().for_each(|output| body.extend_from_slice(&output.tensor.data));
    Ok((body, raw.peekable().peek().map(|_| length)))
}

#[cfg(test)]
mod tests;
