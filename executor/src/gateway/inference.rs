//! Is a request of the Open Inference Protocol (version 2) valid for its pipeline, and what is its answer?
//!
//! HTTP and gRPC share this: parameters, and tensors that are checked against the inputs and outputs of the pipeline.

use super::BODY_BYTES_MAX;
use super::error::{ElementsError, InputError, ParameterError, PiecesError, RequestedOutputError};
use super::refusal::GatewayRefusal;
use crate::backend::BackendKind;
use apportion_node::chooser::RequestNeeds;
use apportion_node::layout::LayoutPipeline;
use apportion_node::node::request::{Piece, RequestTerms};
use apportion_node::node::split::PARENT;
use apportion_node::policies::{LEVEL_DEFAULT, LEVEL_OFFLINE};
use apportion_node::tensor::{Datatype, Tensor, TensorSignature, concatenate, elements, holds, no_rows, texts};
use bytes::Bytes;

/// Most rows of one request: each becomes a query of its own.
pub const ROWS_MAX: usize = 65_536;
/// Most inputs of one request, and most outputs that it may ask for.
pub const TENSORS_MAX: usize = 1_024;
/// Most bytes of a request's `id`, which is echoed.
pub const ID_BYTES_MAX: usize = 1_024;

/// Most variants that a request may name, and most bytes of their names together.
pub const VARIANT_NAMES_MAX: usize = 64;
const VARIANT_BYTES_MAX: usize = 8 * 1_024;

/// How the elements of a tensor travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementForm {
    /// One by one: in JSON, or in a typed field of a gRPC message.
    #[default]
    Typed,
    /// As little-endian bytes: after the JSON, or beside the tensors of a gRPC message.
    Raw,
}

impl ElementForm {
    /// The form that a flag of the protocol for binary data asks for.
    fn of_flag(is_binary: bool) -> Self {
        if is_binary { Self::Raw } else { Self::Typed }
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Whole(i128),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(v) => v.fmt(f),
            Self::Whole(v) => v.fmt(f),
            Self::Real(v) => v.fmt(f),
            Self::Text(v) => write!(f, "{v:?}"),
        }
    }
}

impl Parameter {
    /// The error that the parameter with this name has this value.
    pub(super) fn refused(&self, name: &str, expected: &'static str) -> ParameterError {
        ParameterError::Value { name: name.to_owned(), found: self.to_string(), expected }
    }

    fn whole(&self, name: &str, expected: &'static str) -> Result<u64, ParameterError> {
        let number = if let Self::Whole(v) = self { u64::try_from(*v).ok() } else { None };
        number.ok_or_else(|| self.refused(name, expected))
    }

    /// A part of the whole, in millionths, rounded up.
    fn part_ppm(&self, name: &str) -> Result<u32, ParameterError> {
        let part = match self {
            Self::Real(v) => Some(*v),
            Self::Whole(v @ 0..=1) => Some(*v as f64),
            // A client of the protocol can send no other numbers than whole ones over gRPC.
            Self::Text(text) => text.parse().ok(),
            _ => None,
        };
        let part = part.filter(|p| (0.0..=1.0).contains(p));
        let part = part.ok_or_else(|| self.refused(name, "a part from 0 to 1"))?;
        Ok((part * 1e6 - 1e-6).ceil() as u32)
    }

    /// A price, which is a number of at least 0.
    fn price(&self, name: &str) -> Result<f64, ParameterError> {
        let price = match self {
            Self::Real(v) => Some(*v),
            Self::Whole(v) => Some(*v as f64),
            Self::Text(text) => text.parse().ok(),
            Self::Bool(_) => None,
        };
        let price = price.filter(|price: &f64| price.is_finite() && *price >= 0.0);
        price.ok_or_else(|| self.refused(name, "the price of 1,000 queries, a number of at least 0"))
    }

    /// Names, separated by commas.
    fn names(&self, name: &str) -> Result<Vec<String>, ParameterError> {
        let text = if let Self::Text(text) = self { text.as_str() } else { "" };
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let is_bounded = names.len() <= VARIANT_NAMES_MAX && text.len() <= VARIANT_BYTES_MAX;
        if !is_bounded || names.iter().any(String::is_empty) {
            return Err(self.refused(name, "1 to 64 names like variant or task:variant, separated by commas"));
        }
        Ok(names)
    }

    /// As true or false.
    ///
    /// # Errors
    /// [`ParameterError::Value`] if it is anything else.
    pub fn boolean(&self, name: &str) -> Result<bool, ParameterError> {
        match self {
            Self::Bool(v) => Ok(*v),
            other => Err(other.refused(name, "true or false")),
        }
    }
}

/// The parameters of a request. Unknown parameters are ignored, as the protocol asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestParameters {
    /// `timeout`: the answer is worth nothing after so long, in nanoseconds (the protocol's unit is the microsecond).
    pub timeout_ns: Option<u64>,
    /// `priority`: 0 is the default, 1 the highest.
    pub priority: u64,
    /// `accuracy_min`, in millionths: variants at least so accurate serve it.
    pub accuracy_ppm_min: Option<u32>,
    /// `latency_max_us`, in nanoseconds: variants that are so fast serve it, and later it is late.
    pub latency_ns_max: Option<u64>,
    /// `cost_max`, the price of 1,000 queries, as that of one query in billionths of the currency: variants that cost no
    /// more at full use serve it.
    pub price_nano_max: Option<u64>,
    /// `variants`: these serve it, each as `variant` or `task:variant`.
    pub variants: Vec<String>,
    /// `offline`: it runs where nothing else waits, whatever its priority.
    pub offline: bool,
    /// `binary_data_output`: the form of the outputs that have no `binary_data`.
    pub form: ElementForm,
}

impl RequestParameters {
    /// Takes a parameter.
    ///
    /// # Errors
    /// [`ParameterError::Value`].
    pub fn set(&mut self, name: &str, value: &Parameter) -> Result<(), ParameterError> {
        match name {
            "timeout" => {
                let micros = value.whole(name, "microseconds, a whole number; 0 is no timeout")?;
                self.timeout_ns = (micros > 0).then(|| micros.saturating_mul(1_000));
            }
            "priority" => self.priority = value.whole(name, "0 (the default), 1 (the highest) or more")?,
            "offline" => self.offline = value.boolean(name)?,
            "binary_data_output" => self.form = ElementForm::of_flag(value.boolean(name)?),
            "cost_max" => self.price_nano_max = Some((value.price(name)? * 1e6).ceil() as u64),
            "variants" => self.variants = value.names(name)?,
            "accuracy_min" => self.accuracy_ppm_min = Some(value.part_ppm(name)?),
            "latency_max_us" => {
                let expected = "microseconds, a whole number above 0";
                let micros = value.whole(name, expected)?;
                if micros == 0 {
                    return Err(value.refused(name, expected));
                }
                self.latency_ns_max = Some(micros.saturating_mul(1_000));
            }
            _ => {}
        }
        Ok(())
    }
}

impl RequestParameters {
    /// The same as the agent's terms. `call_ns` is the time that the call itself gives the request.
    #[must_use]
    pub fn terms(&self, call_ns: Option<u64>) -> RequestTerms {
        let has_numbers = self.accuracy_ppm_min.is_some() || self.latency_ns_max.is_some() || self.price_nano_max.is_some();
        let has_needs = has_numbers || !self.variants.is_empty();
        let needs = RequestNeeds {
            accuracy_ppm_min: self.accuracy_ppm_min.unwrap_or(0),
            latency_ns_max: self.latency_ns_max.unwrap_or(u64::MAX),
            price_nano_max: self.price_nano_max.unwrap_or(u64::MAX),
        };
        let variants = self.variants.clone();
        let level = match self.priority {
            _ if self.offline => LEVEL_OFFLINE,
            0 => LEVEL_DEFAULT,
            n => u32::try_from(n).unwrap_or(u32::MAX).min(LEVEL_OFFLINE - 1),
        };
        let timeout_ns = [self.timeout_ns, call_ns].into_iter().flatten().min();
        RequestTerms { timeout_ns, level, needs: has_needs.then_some(needs), variants, trace: None, sender: 0 }
    }
}

/// An output that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedOutput {
    /// Its name.
    pub name: String,
    /// `binary_data`: its form; none for that of the request.
    pub form: Option<ElementForm>,
}

impl RequestedOutput {
    /// Takes a parameter of the output.
    ///
    /// # Errors
    /// [`ParameterError`] by cause.
    pub fn set(&mut self, name: &str, value: &Parameter) -> Result<(), ParameterError> {
        match name {
            "binary_data" => self.form = Some(ElementForm::of_flag(value.boolean(name)?)),
            "classification" if *value != Parameter::Whole(0) => return Err(ParameterError::Unsupported(name.into())),
            _ if name.starts_with("shared_memory") => return Err(ParameterError::Unsupported(name.into())),
            _ => {}
        }
        Ok(())
    }
}

/// The elements of an input before they are checked.
pub trait Elements {
    /// Their little-endian bytes, of at most `max` elements.
    ///
    /// # Errors
    /// [`ElementsError`] by cause.
    fn bytes(self, datatype: Datatype, max: usize) -> Result<Bytes, ElementsError>;
}

/// One input before it is checked.
pub struct UncheckedInput<E> {
    /// Its name.
    pub name: String,
    /// The protocol's name of its datatype.
    pub datatype: String,
    /// Row-major shape.
    pub shape: Vec<i64>,
    /// Its elements.
    pub elements: E,
}

/// The inputs as tensors in the order of `specs`, checked against them.
///
/// # Errors
/// [`InputError`] by cause.
pub fn inputs<E: Elements>(given: Vec<UncheckedInput<E>>, specs: &[TensorSignature]) -> Result<Vec<Tensor>, InputError> {
    let mut slots: Vec<Option<UncheckedInput<E>>> = specs.iter().map(|_| None).collect();
    for input in given {
        let Some(at) = specs.iter().position(|s| s.name == input.name) else {
            let known = specs.iter().map(|s| s.name.clone()).collect();
            return Err(InputError::Unknown { name: input.name, known });
        };
        if slots[at].is_some() {
            return Err(InputError::Twice(input.name));
        }
        slots[at] = Some(input);
    }
    let mut tensors: Vec<Tensor> = Vec::with_capacity(specs.len());
    for (spec, input) in specs.iter().zip(slots) {
        let input = input.ok_or_else(|| InputError::Missing(spec.clone()))?;
        let tensor = tensor(input, spec)?;
        let (found, expected) = (tensor.rows(), tensors.first().map_or(tensor.rows(), Tensor::rows));
        if found != expected {
            return Err(InputError::Rows { name: tensor.name, found, expected });
        }
        tensors.push(tensor);
    }
    match tensors.first().map_or(0, Tensor::rows) {
        0 => Err(InputError::NoRows),
        found if found > ROWS_MAX => Err(InputError::ManyRows { found, rows_max: ROWS_MAX }),
        _ => Ok(tensors),
    }
}

fn tensor<E: Elements>(input: UncheckedInput<E>, spec: &TensorSignature) -> Result<Tensor, InputError> {
    let UncheckedInput { name, datatype: found, shape: given, elements: data } = input;
    let datatype = spec.datatype.name();
    if found != datatype {
        return Err(InputError::Datatype { name, found, expected: spec.clone() });
    }
    let fits = |(given, expected): (&i64, &i64)| *given >= 0 && (*expected < 0 || given == expected);
    if given.len() != spec.shape.len() || !given.iter().zip(&spec.shape).all(fits) {
        return Err(InputError::Shape { name, found: given, expected: spec.clone() });
    }
    let sizes: Option<Vec<usize>> = given.iter().map(|d| usize::try_from(*d).ok()).collect();
    let counted = sizes.and_then(|shape| Some((elements(&shape, spec.datatype)?, shape)));
    let Some((count, shape)) = counted else { return Err(InputError::Overflow { name, shape: given }) };
    if count.saturating_mul(spec.datatype.size()) > BODY_BYTES_MAX {
        return Err(InputError::Bytes { name, shape: given, bytes_max: BODY_BYTES_MAX, datatype });
    }
    let refuse = |source: ElementsError| InputError::Data { name: name.clone(), source };
    let data = data.bytes(spec.datatype, count).map_err(refuse)?;
    holds(&data, &shape, spec.datatype).map_err(|e| refuse(e.into()))?;
    if spec.datatype == Datatype::Bool && data.iter().any(|b| *b > 1) {
        return Err(refuse(ElementsError::NotBool));
    }
    Ok(Tensor { name, datatype: spec.datatype, shape, data })
}

/// Checks that texts are UTF-8 where the variants run here. ONNX Runtime takes no others, and a malformed text would make
/// its whole batch fail. Another server may take any bytes.
///
/// # Errors
/// [`InputError::Data`] with the position of the first malformed text.
pub fn check_texts(inputs: &[Tensor], backend: BackendKind) -> Result<(), InputError> {
    if backend != BackendKind::Local {
        return Ok(());
    }
    for input in inputs.iter().filter(|t| t.datatype == Datatype::Bytes) {
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
        if let Some(at) = texts(&input.data).position(|text| !text.is_some_and(is_text)) {
            return Err(InputError::Data { name: input.name.clone(), source: ElementsError::NotText(at) });
        }
    }
    Ok(())
}

/// Checks the outputs that a request asks for against those that the pipeline makes.
///
/// # Errors
/// [`RequestedOutputError::Unknown`], [`RequestedOutputError::Twice`].
pub fn check_wanted(wanted: &[RequestedOutput], specs: &[(String, TensorSignature)]) -> Result<(), RequestedOutputError> {
    let mut seen = std::collections::BTreeSet::new();
    for output in wanted {
        if specs.iter().all(|(name, _)| *name != output.name) {
            let known = specs.iter().map(|(name, _)| name.clone()).collect();
            return Err(RequestedOutputError::Unknown { name: output.name.clone(), known });
        }
        if !seen.insert(&output.name) {
            return Err(RequestedOutputError::Twice(output.name.clone()));
        }
    }
    Ok(())
}

/// An output of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerOutput {
    /// The output.
    pub tensor: Tensor,
    /// How its elements are sent.
    pub form: ElementForm,
}

/// The outputs that a request asks for, in its order; all of them if it asks for none. `default` is the form of an output
/// that names none.
///
/// # Errors
/// [`GatewayRefusal`] if one of them is not there.
pub fn select(
    outputs: Vec<Tensor>,
    wanted: &[RequestedOutput],
    default: ElementForm,
) -> Result<Vec<AnswerOutput>, GatewayRefusal> {
    if wanted.is_empty() {
        return Ok(outputs.into_iter().map(|tensor| AnswerOutput { tensor, form: default }).collect());
    }
    let pick = |w: &RequestedOutput| {
        let tensor = outputs.iter().find(|t| t.name == w.name).cloned();
        let tensor = tensor.ok_or_else(|| GatewayRefusal::failed(format!("output {} was not made", w.name)))?;
        Ok(AnswerOutput { tensor, form: w.form.unwrap_or(default) })
    };
    wanted.iter().map(pick).collect()
}

/// What the outputs of a pipeline are called, by sink and output: with several sinks, after their task.
#[must_use]
pub fn output_specs(pipeline: &LayoutPipeline) -> Vec<(String, TensorSignature)> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.is_sink()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut specs = Vec::new();
    for sink in &sinks {
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            specs.push((name(&sink.name, &spec.name), spec.clone()));
        }
        let parent = TensorSignature { name: PARENT.into(), datatype: Datatype::Int64, shape: vec![-1] };
        specs.push((name(&sink.name, PARENT), parent));
    }
    specs
}

/// The outputs of an answer: for each sink, the rows in the requests' order and, as `parent`, which row they are of.
///
/// # Errors
/// [`PiecesError`] if the pieces of a sink do not fit together.
pub fn outputs(pieces: &[Piece], pipeline: &LayoutPipeline) -> Result<Vec<Tensor>, PiecesError> {
    let sinks: Vec<_> = pipeline.tasks.iter().filter(|t| t.is_sink()).collect();
    let name = |task: &str, output: &str| if sinks.len() > 1 { format!("{task}.{output}") } else { output.to_string() };
    let mut all = Vec::new();
    for sink in &sinks {
        let mine: Vec<&Piece> = pieces.iter().filter(|p| p.task == sink.name).collect();
        for spec in sink.outputs.iter().filter(|s| s.name != PARENT) {
            let parts: Vec<&Tensor> = mine.iter().filter_map(|p| p.outputs.iter().find(|t| t.name == spec.name)).collect();
            let filled: Vec<&Tensor> = parts.into_iter().filter(|t| t.rows() > 0).collect();
            let rows = if filled.is_empty() { Some(no_rows(spec)) } else { concatenate(&filled) };
            let differ = || PiecesError::Shapes { task: sink.name.clone(), output: spec.name.clone() };
            let rows = rows.ok_or_else(differ)?;
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
mod tests;
