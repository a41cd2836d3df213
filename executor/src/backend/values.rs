//! How do our tensors become ONNX Runtime's values, and back?
//!
//! Inputs are borrowed if their bytes are aligned. Outputs are copied once, so that no row of an answer keeps the
//! runtime's arena alive.

use super::error::{BatchError, OnnxOutputError, OutletError};
use apportion_node::tensor::{Datatype, Tensor, TensorSignature, texts};
use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef, ValueType};
use std::borrow::Cow;
use std::fmt::Debug;

#[cfg(target_endian = "big")]
compile_error!("tensors are little-endian bytes that are handed to the runtime as they are");

/// The datatype of an element type; `None` for those the protocol has no name for.
pub(super) fn datatype(element: TensorElementType) -> Option<Datatype> {
    Some(match element {
        TensorElementType::Bool => Datatype::Bool,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Float16 => Datatype::Fp16,
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        TensorElementType::Bfloat16 => Datatype::Bf16,
        TensorElementType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// Name, datatype and shape of an input or output as the file declares it.
///
/// # Errors
/// [`OutletError`] if it is no tensor of a known datatype with at least one dimension.
pub(super) fn spec(name: &str, value: &ValueType) -> Result<TensorSignature, OutletError> {
    let name = name.to_owned();
    let ValueType::Tensor { ty, shape, .. } = value else {
        return Err(OutletError::NotATensor { name, found: value.to_string() });
    };
    let Some(datatype) = datatype(*ty) else {
        return Err(OutletError::Elements { name, found: ty.to_string() });
    };
    if shape.is_empty() {
        return Err(OutletError::Scalar(name));
    }
    Ok(TensorSignature { name, datatype, shape: shape.iter().copied().collect() })
}

/// A tensor whose byte length was checked, as the runtime takes it.
///
/// # Errors
/// [`BatchError`] if the runtime refuses it, a BOOL is neither 0 nor 1, or a text is malformed.
pub(super) fn input(tensor: &Tensor) -> Result<SessionInputValue<'_>, BatchError> {
    match tensor.datatype {
        Datatype::Bool => bools(tensor),
        Datatype::Uint8 => plain::<u8>(tensor),
        Datatype::Uint16 => plain::<u16>(tensor),
        Datatype::Uint32 => plain::<u32>(tensor),
        Datatype::Uint64 => plain::<u64>(tensor),
        Datatype::Int8 => plain::<i8>(tensor),
        Datatype::Int16 => plain::<i16>(tensor),
        Datatype::Int32 => plain::<i32>(tensor),
        Datatype::Int64 => plain::<i64>(tensor),
        Datatype::Fp16 => plain::<f16>(tensor),
        Datatype::Fp32 => plain::<f32>(tensor),
        Datatype::Fp64 => plain::<f64>(tensor),
        Datatype::Bf16 => plain::<bf16>(tensor),
        Datatype::Bytes => strings(tensor),
    }
}

/// The runtime's refusal of a tensor.
fn refused(tensor: &Tensor) -> impl Fn(ort::Error) -> BatchError {
    move |error| BatchError::Runtime { name: tensor.name.clone(), error }
}

fn plain<T: Pod + PrimitiveTensorElementType + Debug>(tensor: &Tensor) -> Result<SessionInputValue<'_>, BatchError> {
    let elements = match bytemuck::try_cast_slice(&tensor.data) {
        Ok(slice) => Cow::Borrowed(slice),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec::<u8, T>(&tensor.data)), // a message's bytes may lie anywhere
    };
    let shape = tensor.shape.as_slice();
    let value = match elements {
        Cow::Borrowed(slice) => TensorRef::from_array_view((shape, slice)).map(SessionInputValue::from),
        Cow::Owned(vec) => ort::value::Tensor::from_array((shape.to_vec(), vec)).map(SessionInputValue::from),
    };
    value.map_err(refused(tensor))
}

fn bools(tensor: &Tensor) -> Result<SessionInputValue<'_>, BatchError> {
    let Ok(elements) = bytemuck::checked::try_cast_slice::<u8, bool>(&tensor.data) else {
        return Err(BatchError::NotBool(tensor.name.clone()));
    };
    let value = TensorRef::from_array_view((tensor.shape.as_slice(), elements));
    value.map(SessionInputValue::from).map_err(refused(tensor))
}

fn strings(tensor: &Tensor) -> Result<SessionInputValue<'_>, BatchError> {
    // The runtime takes texts that end with a zero.
    let text = |element: Option<&[u8]>| std::str::from_utf8(element?).ok().filter(|t| !t.contains('\0')).map(str::to_owned);
    let elements: Option<Vec<String>> = texts(&tensor.data).map(text).collect();
    let elements = elements.ok_or_else(|| BatchError::NotText(tensor.name.clone()))?;
    let value = ort::value::Tensor::from_string_array((tensor.shape.as_slice(), elements.as_slice()));
    value.map(SessionInputValue::from).map_err(refused(tensor))
}

fn bytes_of_strings(value: &DynValue) -> Result<Bytes, ort::Error> {
    let (_, elements) = value.try_extract_strings()?;
    let mut data = Vec::new();
    for text in elements {
        data.extend_from_slice(&u32::try_from(text.len()).expect("the runtime's texts are shorter").to_le_bytes());
        data.extend_from_slice(text.as_bytes());
    }
    Ok(data.into())
}

/// An output of the runtime as a tensor of ours.
///
/// # Errors
/// [`OnnxOutputError`] if it is not of the type that the file declared.
pub(super) fn output(spec: &TensorSignature, value: &DynValue) -> Result<Tensor, OnnxOutputError> {
    let ValueType::Tensor { shape, .. } = value.dtype() else {
        return Err(OnnxOutputError::NotATensor { name: spec.name.clone(), found: value.dtype().to_string() });
    };
    let data = match spec.datatype {
        Datatype::Bool => bytes_of::<bool>(value),
        Datatype::Uint8 => bytes_of::<u8>(value),
        Datatype::Uint16 => bytes_of::<u16>(value),
        Datatype::Uint32 => bytes_of::<u32>(value),
        Datatype::Uint64 => bytes_of::<u64>(value),
        Datatype::Int8 => bytes_of::<i8>(value),
        Datatype::Int16 => bytes_of::<i16>(value),
        Datatype::Int32 => bytes_of::<i32>(value),
        Datatype::Int64 => bytes_of::<i64>(value),
        Datatype::Fp16 => bytes_of::<f16>(value),
        Datatype::Fp32 => bytes_of::<f32>(value),
        Datatype::Fp64 => bytes_of::<f64>(value),
        Datatype::Bf16 => bytes_of::<bf16>(value),
        Datatype::Bytes => bytes_of_strings(value),
    };
    let data = data.map_err(|error| OnnxOutputError::Runtime { name: spec.name.clone(), error })?;
    let shape = shape.iter().map(|&d| usize::try_from(d).expect("a value's dimensions are known")).collect();
    Ok(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
}

fn bytes_of<T: bytemuck::NoUninit + PrimitiveTensorElementType>(value: &DynValue) -> Result<Bytes, ort::Error> {
    let (_, elements) = value.try_extract_tensor::<T>()?;
    Ok(Bytes::copy_from_slice(bytemuck::cast_slice(elements)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datatype_has_exactly_one_element_type() {
        use TensorElementType as E;
        let elements = [
            E::Bool,
            E::Uint8,
            E::Uint16,
            E::Uint32,
            E::Uint64,
            E::Int8,
            E::Int16,
            E::Int32,
            E::Int64,
            E::Float16,
            E::Float32,
            E::Float64,
            E::Bfloat16,
            E::String,
        ];
        assert_eq!(elements.map(|e| datatype(e).expect("known")), Datatype::ALL);
        for (element, ours) in elements.into_iter().zip(Datatype::ALL) {
            let size = (ours != Datatype::Bytes).then(|| ours.size());
            assert_eq!(element.byte_size(1), size, "{element}");
        }
        assert_eq!(datatype(E::Complex64), None);
    }
}
