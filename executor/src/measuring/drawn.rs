//! Which inputs is a variant timed with if nobody gives any? They are made from the shapes.

use apportion_node::tensor::{Datatype, Tensor, TensorSignature, elements};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// Largest input of all rows, in bytes.
pub const DRAWN_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Why no inputs can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// A dimension other than the rows has any size.
    #[error(
        "its input {name} has the shape {shape:?}: an inner size is open, axis {axis}, so give all with --shape \
         {name}=SIZExSIZE.., once for each shape of the queries; the examples of a validation set have sizes too",
        axis = open_axis(.shape)
    )]
    OpenSize {
        /// Name of the input.
        name: String,
        /// Its shape, the rows first.
        shape: Vec<i64>,
    },
    /// The given sizes do not fit the shape.
    #[error(
        "its input {name} has the shape {shape:?}, and --shape gives {given:?}: expected one for each axis but the first"
    )]
    Sizes {
        /// Name of the input.
        name: String,
        /// Its shape, the rows first.
        shape: Vec<i64>,
        /// The sizes that were given for it.
        given: Vec<usize>,
    },
    /// The input would be too large.
    #[error("its input {name} would have more than {DRAWN_BYTES_MAX} bytes for {rows} rows: choose a smaller --batch-max")]
    TooLarge {
        /// Name of the input.
        name: String,
        /// Rows of the largest batch.
        rows: usize,
    },
}

/// The first axis after the rows that may have any size.
fn open_axis(shape: &[i64]) -> usize {
    shape.iter().skip(1).position(|size| *size < 0).map_or(1, |position| position + 1)
}

/// Bytes of a text, its length included.
const TEXT_BYTES_MAX: usize = 16;
/// Whole numbers are below this one: they may be tokens, of which a model has a hundred at least.
const NUMBERS: u64 = 100;
/// Whole numbers of inputs with these words in their names are 0 and 1: masks, and the types of tokens. A model looks the
/// types up in a table of two rows.
const FLAG_WORDS: [&str; 3] = ["mask", "token_type", "segment"];

/// Inputs of `rows` rows, by a fixed pattern. Fractions are from 0 to 1, bytes from 0 to 255, and texts are short. Other
/// whole numbers are from 0 to 99, or 0 and 1 for masks and types of tokens. `sizes` has, by the name of an input, the
/// sizes of all its axes but the first; it is needed where an inner size is open.
///
/// # Errors
/// [`DrawError`] if a size is open or does not fit, or if an input would be larger than [`DRAWN_BYTES_MAX`].
pub fn drawn_inputs(
    inputs: &[TensorSignature],
    sizes: &BTreeMap<String, Vec<usize>>,
    rows: usize,
) -> Result<Vec<Tensor>, DrawError> {
    inputs.iter().map(|input| drawn(input, sizes.get(&input.name), rows)).collect()
}

fn drawn(input: &TensorSignature, given: Option<&Vec<usize>>, rows: usize) -> Result<Tensor, DrawError> {
    let TensorSignature { name, datatype, shape: declared } = input;
    let open = || DrawError::OpenSize { name: name.clone(), shape: declared.clone() };
    let inner: Vec<usize> = match given {
        Some(sizes) if fits(declared, sizes) => sizes.clone(),
        Some(sizes) => {
            return Err(DrawError::Sizes { name: name.clone(), shape: declared.clone(), given: sizes.clone() });
        }
        None => {
            let fixed = declared.iter().skip(1).map(|&size| usize::try_from(size).map_err(|_| open()));
            fixed.collect::<Result<_, _>>()?
        }
    };
    let shape: Vec<usize> = std::iter::once(rows).chain(inner).collect();
    let each = if *datatype == Datatype::Bytes { TEXT_BYTES_MAX } else { datatype.size() };
    let count = elements(&shape, *datatype).filter(|count| count.saturating_mul(each) <= DRAWN_BYTES_MAX);
    let count = count.ok_or_else(|| DrawError::TooLarge { name: name.clone(), rows })?;
    let mut data = Vec::with_capacity(count * each);
    let lower = name.to_lowercase();
    let below = if FLAG_WORDS.iter().any(|word| lower.contains(word)) { 2 } else { NUMBERS };
    (0..count as u64).for_each(|number| push_element(*datatype, number, below, &mut data));
    Ok(Tensor { name: name.clone(), datatype: *datatype, shape, data: data.into() })
}

/// Whether these are sizes of all axes but the first.
fn fits(declared: &[i64], sizes: &[usize]) -> bool {
    let is_one_of = |(&declared, &size): (&i64, &usize)| declared == -1 || usize::try_from(declared) == Ok(size);
    declared.len() == sizes.len() + 1 && declared.iter().skip(1).zip(sizes).all(is_one_of)
}

/// Adds element `number` of an input. Whole numbers that are no bytes are less than `below`.
fn push_element(datatype: Datatype, number: u64, below: u64, data: &mut Vec<u8>) {
    // Knuth's multiplicative hash: neighbours differ.
    let bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let (fraction, small) = (bits as f32 / (1_u32 << 24) as f32, (bits % below) as u8);
    match datatype {
        Datatype::Bool => data.push(small & 1),
        Datatype::Uint8 => data.push(bits as u8),
        Datatype::Int8 => data.push(small),
        Datatype::Uint16 | Datatype::Int16 => data.extend_from_slice(&u16::from(small).to_le_bytes()),
        Datatype::Uint32 | Datatype::Int32 => data.extend_from_slice(&u32::from(small).to_le_bytes()),
        Datatype::Uint64 | Datatype::Int64 => data.extend_from_slice(&u64::from(small).to_le_bytes()),
        Datatype::Fp16 => data.extend_from_slice(&f16::from_f32(fraction).to_le_bytes()),
        Datatype::Bf16 => data.extend_from_slice(&bf16::from_f32(fraction).to_le_bytes()),
        Datatype::Fp32 => data.extend_from_slice(&fraction.to_le_bytes()),
        Datatype::Fp64 => data.extend_from_slice(&f64::from(fraction).to_le_bytes()),
        Datatype::Bytes => {
            let text = format!("text {small}");
            data.extend_from_slice(&(text.len() as u32).to_le_bytes());
            data.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_node::tensor::holds;

    fn input(datatype: Datatype, shape: &[i64]) -> TensorSignature {
        TensorSignature { name: "x".into(), datatype, shape: shape.to_vec() }
    }

    fn draw(input: &TensorSignature, sizes: Option<&[usize]>, rows: usize) -> Result<Tensor, DrawError> {
        let sizes = sizes.map(|sizes| ("x".to_owned(), sizes.to_vec())).into_iter().collect();
        Ok(drawn_inputs(std::slice::from_ref(input), &sizes, rows)?.remove(0))
    }

    #[test]
    fn every_datatype_fills_its_shape() {
        for datatype in Datatype::ALL {
            let made = draw(&input(datatype, &[-1, 3, 2]), None, 4).expect("inputs");
            assert_eq!(made.shape, [4, 3, 2]);
            assert_eq!(holds(&made.data, &made.shape, datatype), Ok(()), "{datatype:?}");
            let again = draw(&input(datatype, &[-1, 3, 2]), None, 4).expect("inputs");
            assert_eq!(made, again, "the pattern is fixed");
        }
        let fractions = draw(&input(Datatype::Fp32, &[-1]), None, 1_000).expect("inputs");
        let (chunks, _) = fractions.data.as_chunks::<4>();
        let values: Vec<f32> = chunks.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)), "{values:?}");
        assert!(values.iter().any(|value| *value > 0.9) && values[1] != values[2], "{values:?}");
    }

    #[test]
    fn masks_and_types_of_tokens_are_flags() {
        let drawn = |name: &str| {
            let named = TensorSignature { name: name.into(), ..input(Datatype::Int64, &[-1, 50]) };
            let made = drawn_inputs(&[named], &BTreeMap::new(), 2).expect("inputs").remove(0);
            let (chunks, _) = made.data.as_chunks::<8>();
            chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect::<Vec<i64>>()
        };
        for name in ["attention_mask", "token_type_ids", "Segment_IDs"] {
            let values = drawn(name);
            assert!(
                values.iter().all(|value| [0, 1].contains(value)) && values.contains(&0) && values.contains(&1),
                "{name}"
            );
        }
        assert!(drawn("input_ids").iter().any(|value| *value > 1));
    }

    #[test]
    fn open_sizes_must_be_given_and_fit() {
        let open = input(Datatype::Fp32, &[-1, 3, -1]);
        let refused = |sizes: Option<&[usize]>| draw(&open, sizes, 2).expect_err("refused").to_string();
        assert!(
            refused(None).contains("shape [-1, 3, -1]: an inner size is open, axis 2, so give all with --shape x=SIZE")
        );
        assert_eq!(draw(&open, Some(&[3, 48]), 2).expect("inputs").shape, [2, 3, 48]);
        for wrong in [&[48][..], &[4, 48], &[2, 3, 48]] {
            assert!(refused(Some(wrong)).contains("one for each axis but the first"), "{wrong:?}");
        }
    }

    #[test]
    fn large_inputs_are_refused() {
        let row = i64::try_from(DRAWN_BYTES_MAX / 4).expect("a size");
        assert!(draw(&input(Datatype::Fp32, &[-1, row]), None, 1).is_ok());
        for (shape, rows) in [([-1, row], 2), ([-1, i64::MAX], 1)] {
            let error = draw(&input(Datatype::Fp32, &shape), None, rows).expect_err("refused");
            assert!(matches!(error, DrawError::TooLarge { .. }), "{error}");
        }
    }
}
