//! How do the raw or typed contents of gRPC messages become tensors, and back?

use super::error::{ElementsError, MessageError, ParameterError, RequestedOutputError};
use super::inference::{
    ElementForm, Elements, ID_BYTES_MAX, Parameter, RequestParameters, RequestedOutput, UncheckedInput,
};
use super::proto::model_infer_request::InferInputTensor;
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::{InferParameter, InferTensorContents, ModelInferRequest, infer_parameter::ParameterChoice};
use apportion_node::tensor::{Datatype, Tensor, texts};
use bytes::Bytes;
use std::collections::HashMap;

/// The elements of an input, as they came.
pub enum GrpcElements {
    /// Beside the tensors.
    Raw(Bytes),
    /// In the tensor.
    Typed(InferTensorContents),
}

/// The names of those fields of the contents that hold something, and how many.
fn filled(contents: &InferTensorContents) -> Vec<(&'static str, usize)> {
    let all = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// The field that holds elements of a datatype; none for a datatype that comes raw only.
fn field(datatype: Datatype) -> Option<&'static str> {
    Some(match datatype {
        Datatype::Bool => "bool_contents",
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => "int_contents",
        Datatype::Int64 => "int64_contents",
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => "uint_contents",
        Datatype::Uint64 => "uint64_contents",
        Datatype::Fp32 => "fp32_contents",
        Datatype::Fp64 => "fp64_contents",
        Datatype::Bytes => "bytes_contents",
        Datatype::Fp16 | Datatype::Bf16 => return None,
    })
}

/// Numbers of a wider type as those of a narrower one.
fn narrow<W: Copy + std::fmt::Display, const N: usize>(
    all: &[W],
    datatype: Datatype,
    narrow: impl Fn(W) -> Option<[u8; N]>,
) -> Result<Vec<u8>, ElementsError> {
    let mut out = Vec::with_capacity(all.len() * N);
    for number in all {
        let range = || ElementsError::Range { number: number.to_string(), datatype: datatype.name() };
        let bytes = narrow(*number).ok_or_else(range)?;
        out.extend_from_slice(&bytes);
    }
    Ok(out)
}

/// BYTES elements as they lie in a tensor.
fn join<'a>(all: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for text in all {
        out.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        out.extend_from_slice(text);
    }
    Some(out)
}

impl Elements for GrpcElements {
    fn bytes(self, datatype: Datatype, max: usize) -> Result<Bytes, ElementsError> {
        let contents = match self {
            GrpcElements::Raw(bytes) => return Ok(bytes),
            GrpcElements::Typed(contents) => contents,
        };
        let field = field(datatype).ok_or_else(|| ElementsError::RawOnly(datatype.name()))?;
        if let Some((found, _)) = filled(&contents).into_iter().find(|(name, _)| *name != field) {
            return Err(ElementsError::Field { found, expected: field, datatype: datatype.name() });
        }
        let found = filled(&contents).first().map_or(0, |(_, count)| *count);
        if found != max {
            return Err(ElementsError::FieldCount { field, found, expected: max });
        }
        let c = &contents;
        let bytes = match datatype {
            Datatype::Bool => c.bool_contents.iter().map(|b| u8::from(*b)).collect(),
            Datatype::Int8 => narrow(&c.int_contents, datatype, |v| i8::try_from(v).ok().map(i8::to_le_bytes))?,
            Datatype::Int16 => narrow(&c.int_contents, datatype, |v| i16::try_from(v).ok().map(i16::to_le_bytes))?,
            Datatype::Int32 => c.int_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Int64 => c.int64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Uint8 => narrow(&c.uint_contents, datatype, |v| u8::try_from(v).ok().map(u8::to_le_bytes))?,
            Datatype::Uint16 => narrow(&c.uint_contents, datatype, |v| u16::try_from(v).ok().map(u16::to_le_bytes))?,
            Datatype::Uint32 => c.uint_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Uint64 => c.uint64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Fp32 => c.fp32_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Fp64 => c.fp64_contents.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Datatype::Bytes => {
                let texts = c.bytes_contents.iter().map(Vec::as_slice);
                join(texts).ok_or(ElementsError::LongText)?
            }
            Datatype::Fp16 | Datatype::Bf16 => Vec::new(),
        };
        Ok(bytes.into())
    }
}

/// A tensor's elements as the typed field; none for a datatype that goes raw only.
#[must_use]
pub fn typed(tensor: &Tensor) -> Option<InferTensorContents> {
    macro_rules! read {
        ($type:ty) => {
            tensor
                .data
                .chunks_exact(size_of::<$type>())
                .map(|b| <$type>::from_le_bytes(b.try_into().expect("chunks of its size")).into())
                .collect()
        };
    }
    let mut contents = InferTensorContents::default();
    match tensor.datatype {
        Datatype::Bool => contents.bool_contents = tensor.data.iter().map(|b| *b != 0).collect(),
        Datatype::Int8 => contents.int_contents = read!(i8),
        Datatype::Int16 => contents.int_contents = read!(i16),
        Datatype::Int32 => contents.int_contents = read!(i32),
        Datatype::Int64 => contents.int64_contents = read!(i64),
        Datatype::Uint8 => contents.uint_contents = read!(u8),
        Datatype::Uint16 => contents.uint_contents = read!(u16),
        Datatype::Uint32 => contents.uint_contents = read!(u32),
        Datatype::Uint64 => contents.uint64_contents = read!(u64),
        Datatype::Fp32 => contents.fp32_contents = read!(f32),
        Datatype::Fp64 => contents.fp64_contents = read!(f64),
        Datatype::Bytes => contents.bytes_contents = texts(&tensor.data).map(|t| t.unwrap_or_default().to_vec()).collect(),
        Datatype::Fp16 | Datatype::Bf16 => return None,
    }
    Some(contents)
}

/// A request before its tensors are checked.
pub struct GrpcRequest {
    /// Its parameters.
    pub settings: RequestParameters,
    /// Its inputs.
    pub inputs: Vec<UncheckedInput<GrpcElements>>,
    /// The outputs that it asks for; none are all.
    pub outputs: Vec<RequestedOutput>,
    /// The form of its tensors, and of the answer's.
    pub form: ElementForm,
}

/// Reads a request.
///
/// # Errors
/// [`MessageError`] by cause.
pub fn read(message: ModelInferRequest) -> Result<GrpcRequest, MessageError> {
    if message.id.len() > ID_BYTES_MAX {
        return Err(MessageError::Id { found: message.id.len(), bytes_max: ID_BYTES_MAX });
    }
    let mut settings = RequestParameters::default();
    each(&message.parameters, |name, value| settings.set(name, value))?;
    let form = if message.raw_input_contents.is_empty() { ElementForm::Typed } else { ElementForm::Raw };
    if form == ElementForm::Raw && message.raw_input_contents.len() != message.inputs.len() {
        let (found, inputs) = (message.raw_input_contents.len(), message.inputs.len());
        return Err(MessageError::RawCount { found, inputs });
    }
    let mut raws = message.raw_input_contents.into_iter();
    let mut inputs = Vec::with_capacity(message.inputs.len());
    for InferInputTensor { name, datatype, shape, parameters, contents } in message.inputs {
        if let Some(shared) = parameters.keys().find(|p| p.starts_with("shared_memory")) {
            let source = ParameterError::Unsupported(shared.clone());
            return Err(MessageError::InputParameter { name, source });
        }
        let elements = match (raws.next(), contents) {
            (Some(_), Some(contents)) if !filled(&contents).is_empty() => return Err(MessageError::Both(name)),
            (Some(raw), _) => GrpcElements::Raw(raw),
            (None, contents) => GrpcElements::Typed(contents.unwrap_or_default()),
        };
        inputs.push(UncheckedInput { name, datatype, shape, elements });
    }
    let mut outputs = Vec::with_capacity(message.outputs.len());
    for output in message.outputs {
        let mut wanted = RequestedOutput { name: output.name, form: None };
        let set = each(&output.parameters, |name, value| wanted.set(name, value));
        set.map_err(|source| RequestedOutputError::Parameter { name: wanted.name.clone(), source })?;
        outputs.push(wanted);
    }
    Ok(GrpcRequest { settings, inputs, outputs, form })
}

fn each(
    parameters: &HashMap<String, InferParameter>,
    mut set: impl FnMut(&str, &Parameter) -> Result<(), ParameterError>,
) -> Result<(), ParameterError> {
    for (name, value) in parameters {
        let value = match &value.parameter_choice {
            Some(ParameterChoice::BoolParam(v)) => Parameter::Bool(*v),
            Some(ParameterChoice::Int64Param(v)) => Parameter::Whole((*v).into()),
            Some(ParameterChoice::Uint64Param(v)) => Parameter::Whole((*v).into()),
            Some(ParameterChoice::DoubleParam(v)) => Parameter::Real(*v),
            Some(ParameterChoice::StringParam(v)) => Parameter::Text(v.clone()),
            None => return Err(ParameterError::Empty(name.clone())),
        };
        set(name, &value)?;
    }
    Ok(())
}

/// The outputs of an answer and, if they are sent raw, their bytes: raw if `form` says so, or if one has no other form.
#[must_use]
pub fn write(outputs: Vec<Tensor>, form: ElementForm) -> (Vec<InferOutputTensor>, Vec<Bytes>) {
    let contents: Option<Vec<_>> = match form {
        ElementForm::Typed => outputs.iter().map(typed).collect(),
        ElementForm::Raw => None,
    };
    let (mut typed, mut raws) = (contents.map(Vec::into_iter), Vec::new());
    let mut written = Vec::with_capacity(outputs.len());
    for tensor in outputs {
        let contents = typed.as_mut().and_then(Iterator::next);
        if contents.is_none() {
            raws.push(tensor.data);
        }
        let shape = tensor.shape.iter().map(|d| *d as i64).collect();
        let (name, datatype) = (tensor.name, tensor.datatype.name().to_string());
        written.push(InferOutputTensor { name, datatype, shape, parameters: HashMap::new(), contents });
    }
    (written, raws)
}

#[cfg(test)]
mod tests;
