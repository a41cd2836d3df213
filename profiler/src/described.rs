//! How is a tensor described in a sentence?

use apportion_executor::tensor::TensorSignature;

/// Name, kind and sizes: `crops (FP32 [rows, 3, 48, any])`.
pub(crate) fn described(tensor: &TensorSignature) -> String {
    let size = |(axis, size): (usize, &i64)| match (axis, size) {
        (0, -1) => "rows".to_owned(),
        (_, -1) => "any".to_owned(),
        (_, size) => size.to_string(),
    };
    let sizes: Vec<String> = tensor.shape.iter().enumerate().map(size).collect();
    format!("{} ({} [{}])", tensor.name, tensor.datatype.name(), sizes.join(", "))
}

/// All tensors of a list.
pub(crate) fn described_all(tensors: &[TensorSignature]) -> String {
    tensors.iter().map(described).collect::<Vec<_>>().join(", ")
}

/// Why an output cannot be an input; `None` if it can.
pub(crate) fn misfit(output: &TensorSignature, input: &TensorSignature) -> Option<String> {
    if output.datatype != input.datatype {
        return Some(format!("its elements are {}, and must be {}", output.datatype.name(), input.datatype.name()));
    }
    if output.shape.len() != input.shape.len() {
        return Some(format!("it has {} axes, and must have {}", output.shape.len(), input.shape.len()));
    }
    let pairs = output.shape.iter().zip(&input.shape).enumerate().skip(1);
    let mut apart = pairs.filter(|(_, (from, to))| from != to && **from != -1 && **to != -1);
    apart.next().map(|(axis, (from, to))| format!("axis {axis} is {from}, and must be {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_executor::tensor::Datatype;

    fn tensor(datatype: Datatype, shape: &[i64]) -> TensorSignature {
        TensorSignature { name: "x".into(), datatype, shape: shape.to_vec() }
    }

    #[test]
    fn a_misfit_is_a_sentence() {
        let input = tensor(Datatype::Fp32, &[-1, 3, -1, 320]);
        assert_eq!(described(&input), "x (FP32 [rows, 3, any, 320])");
        let why = |datatype, shape: &[i64]| misfit(&tensor(datatype, shape), &input);
        assert_eq!(why(Datatype::Fp32, &[-1, 3, 48, -1]), None);
        assert_eq!(why(Datatype::Fp32, &[-1, 1, 48, 320]).as_deref(), Some("axis 1 is 1, and must be 3"));
        assert_eq!(why(Datatype::Fp32, &[-1, 3]).as_deref(), Some("it has 2 axes, and must have 4"));
        let elements = "its elements are UINT8, and must be FP32";
        assert_eq!(why(Datatype::Uint8, &[-1, 3, 48, 320]).as_deref(), Some(elements));
    }
}
