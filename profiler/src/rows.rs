//! How are rows of tensors read as numbers and texts?

use crate::labels::LabelValue;
use apportion_executor::tensor::{Datatype, Tensor, int64s, texts};
use apportion_executor::transforms::reals;
use serde_json::Value;

/// The number of a text; NaN, which equals nothing, for other texts.
fn text_number(text: &[u8]) -> f64 {
    std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(f64::NAN)
}

/// The elements as numbers, in order.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.datatype {
        Datatype::Bytes => texts(&tensor.data).map(|text| text_number(text.unwrap_or_default())).collect(),
        _ => reals(tensor),
    }
}

/// The elements as labels have them, in order: texts, or numbers.
pub(crate) fn values(tensor: &Tensor) -> Vec<LabelValue> {
    let text = |bytes: &[u8]| LabelValue::Text(String::from_utf8_lossy(bytes).into_owned());
    match tensor.datatype {
        Datatype::Bytes => texts(&tensor.data).map(|bytes| text(bytes.unwrap_or_default())).collect(),
        _ => numbers(tensor).into_iter().map(LabelValue::Number).collect(),
    }
}

/// The elements as JSON has them, in order: texts, whole numbers, or numbers. A number that is not finite is null.
#[must_use]
pub fn json_elements(tensor: &Tensor) -> Vec<Value> {
    use Datatype::{Bf16, Bool, Bytes, Fp16, Fp32, Fp64, Int64};
    let whole = |number: f64| Value::from(number as i64);
    match tensor.datatype {
        Bytes => texts(&tensor.data).map(|text| String::from_utf8_lossy(text.unwrap_or_default()).into()).collect(),
        Int64 => int64s(tensor).unwrap_or_default().into_iter().map(Value::from).collect(),
        Fp16 | Bf16 | Fp32 | Fp64 => numbers(tensor).into_iter().map(Value::from).collect(),
        Bool => numbers(tensor).into_iter().map(|number| Value::from(number != 0.0)).collect(),
        _ => numbers(tensor).into_iter().map(whole).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use half::{bf16, f16};

    fn tensor(datatype: Datatype, shape: &[usize], data: Vec<u8>) -> Tensor {
        Tensor { name: "x".to_owned(), datatype, shape: shape.to_vec(), data: Bytes::from(data) }
    }

    #[test]
    fn numbers_of_every_datatype_are_read() {
        for datatype in Datatype::ALL {
            let one: Vec<u8> = match datatype {
                Datatype::Fp16 => f16::ONE.to_le_bytes().to_vec(),
                Datatype::Fp32 => 1.0_f32.to_le_bytes().to_vec(),
                Datatype::Fp64 => 1.0_f64.to_le_bytes().to_vec(),
                Datatype::Bf16 => bf16::ONE.to_le_bytes().to_vec(),
                Datatype::Bytes => vec![1, 0, 0, 0, b'1'],
                whole => std::iter::once(1).chain(std::iter::repeat(0)).take(whole.size()).collect(),
            };
            let zero = match datatype {
                Datatype::Bytes => vec![1, 0, 0, 0, b'0'],
                _ => vec![0; datatype.size()],
            };
            let t = tensor(datatype, &[3], [one.clone(), zero, one].concat());
            assert_eq!(numbers(&t), [1.0, 0.0, 1.0], "{datatype:?}");
        }
        assert!(numbers(&tensor(Datatype::Bytes, &[1], vec![1, 0, 0, 0, b'x']))[0].is_nan());
        let minus_three = tensor(Datatype::Int16, &[1], (-3_i16).to_le_bytes().to_vec());
        assert_eq!(numbers(&minus_three), [-3.0]);
        assert_eq!(values(&minus_three), [LabelValue::Number(-3.0)]);
        let named = LabelValue::Text("x".to_owned());
        assert_eq!(values(&tensor(Datatype::Bytes, &[1], vec![1, 0, 0, 0, b'x'])), [named]);
    }

    #[test]
    fn elements_keep_their_kind_in_json() {
        let json = |tensor: &Tensor| Value::from(json_elements(tensor)).to_string();
        let exact = i64::MAX - 1;
        assert_eq!(json(&tensor(Datatype::Int64, &[1], exact.to_le_bytes().to_vec())), "[9223372036854775806]");
        assert_eq!(json(&tensor(Datatype::Uint8, &[2], vec![0, 255])), "[0,255]");
        assert_eq!(json(&tensor(Datatype::Bool, &[2], vec![0, 1])), "[false,true]");
        let floats = [0.5_f32, f32::NAN].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(json(&tensor(Datatype::Fp32, &[2], floats)), "[0.5,null]");
        assert_eq!(json(&tensor(Datatype::Bytes, &[1], vec![1, 0, 0, 0, b'x'])), r#"["x"]"#);
    }
}
