//! Do the inputs and outputs of a batch fit its variant? Every backend makes the same check.

use apportion_node::tensor::{Tensor, TensorSpec, holds};
use std::collections::BTreeSet;

/// Whether a batch fits: every input once, of its datatype and shape, with as many rows as the others.
///
/// # Errors
/// What does not fit, and what was expected, in words.
pub(super) fn check_inputs(specs: &[TensorSpec], inputs: &[Tensor]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for tensor in inputs {
        let name = &tensor.name;
        let Some(spec) = specs.iter().find(|s| s.name == *name) else {
            let known: Vec<_> = specs.iter().map(|s| s.name.as_str()).collect();
            return Err(format!("there is no input {name}; the inputs are {}", known.join(", ")));
        };
        if !seen.insert(name) {
            return Err(format!("input {name} comes twice"));
        }
        check_tensor(spec, tensor).map_err(|e| format!("input {name} {e}"))?;
    }
    if let Some(missing) = specs.iter().find(|s| !seen.contains(&s.name)) {
        return Err(format!("input {} is missing", missing.name));
    }
    let rows = inputs.first().map_or(0, Tensor::rows);
    match inputs.iter().find(|t| t.rows() != rows) {
        Some(t) => Err(format!("input {} has {} rows, {} has {rows}", t.name, t.rows(), inputs[0].name)),
        None => Ok(()),
    }
}

/// Whether a tensor is what `spec` says, its name apart.
///
/// # Errors
/// What it is and what it should be, as the end of a sentence that begins with the tensor's name.
pub(super) fn check_tensor(spec: &TensorSpec, tensor: &Tensor) -> Result<(), String> {
    let shape = &tensor.shape;
    if spec.datatype != tensor.datatype {
        return Err(format!("is {}, not {}", spec.datatype.name(), tensor.datatype.name()));
    }
    let fits = |(&want, &have): (&i64, &usize)| want == -1 || usize::try_from(want) == Ok(have);
    if spec.shape.len() != shape.len() || !spec.shape.iter().zip(shape).all(fits) {
        return Err(format!("has the shape {:?} (-1 is any), not {shape:?}", spec.shape));
    }
    holds(&tensor.data, shape, tensor.datatype).map_err(|e| format!("does not hold its elements: {e}"))
}
