//! Do the inputs and outputs of a batch fit its variant? Every backend makes the same check.

use super::error::{BatchError, SignatureError, TensorMismatch};
use apportion_node::frames::MESSAGE_BYTES_MAX;
use apportion_node::tensor::{Tensor, TensorSignature, elements, holds};
use std::collections::BTreeSet;

/// Whether a message can carry a row of each tensor; an open size counts as 1. A row of zeros then has its memory.
///
/// # Errors
/// [`SignatureError::LargeRow`] with the first tensor whose row is too large.
pub(super) fn check_rows<'s>(specs: impl IntoIterator<Item = &'s TensorSignature>) -> Result<(), SignatureError> {
    let is_large = |spec: &&TensorSignature| {
        let sizes: Vec<usize> = spec.shape.iter().map(|size| usize::try_from(*size).unwrap_or(1)).collect();
        elements(&sizes, spec.datatype).is_none_or(|count| count * spec.datatype.size() > MESSAGE_BYTES_MAX)
    };
    match specs.into_iter().find(is_large) {
        Some(spec) => Err(SignatureError::LargeRow { name: spec.name.clone(), shape: spec.shape.clone() }),
        None => Ok(()),
    }
}

/// Whether a batch fits: every input once, of its datatype and shape, with as many rows as the others.
///
/// # Errors
/// [`BatchError`] by cause.
pub(super) fn check_inputs(specs: &[TensorSignature], inputs: &[Tensor]) -> Result<(), BatchError> {
    let mut seen = BTreeSet::new();
    for tensor in inputs {
        let name = &tensor.name;
        let Some(spec) = specs.iter().find(|s| s.name == *name) else {
            let known = specs.iter().map(|s| s.name.clone()).collect();
            return Err(BatchError::Unknown { name: name.clone(), known });
        };
        if !seen.insert(name) {
            return Err(BatchError::Twice(name.clone()));
        }
        check_tensor(spec, tensor).map_err(|mismatch| BatchError::Mismatch { name: name.clone(), mismatch })?;
    }
    if let Some(missing) = specs.iter().find(|s| !seen.contains(&s.name)) {
        return Err(BatchError::Missing(missing.name.clone()));
    }
    let expected = inputs.first().map_or(0, Tensor::rows);
    match inputs.iter().find(|t| t.rows() != expected) {
        Some(t) => {
            let (name, first) = (t.name.clone(), inputs[0].name.clone());
            Err(BatchError::Rows { name, found: t.rows(), first, expected })
        }
        None => Ok(()),
    }
}

/// Whether a tensor is what `spec` says, its name apart.
///
/// # Errors
/// [`TensorMismatch`], the first difference.
pub(super) fn check_tensor(spec: &TensorSignature, tensor: &Tensor) -> Result<(), TensorMismatch> {
    let shape = &tensor.shape;
    if spec.datatype != tensor.datatype {
        return Err(TensorMismatch::Datatype { expected: spec.datatype.name(), found: tensor.datatype.name() });
    }
    let fits = |(&want, &have): (&i64, &usize)| want == -1 || usize::try_from(want) == Ok(have);
    if spec.shape.len() != shape.len() || !spec.shape.iter().zip(shape).all(fits) {
        return Err(TensorMismatch::Shape { expected: spec.shape.clone(), found: shape.clone() });
    }
    holds(&tensor.data, shape, tensor.datatype).map_err(TensorMismatch::Data)
}
