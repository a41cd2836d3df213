//! What is a tensor? A name, a datatype, a shape and raw little-endian bytes, as in the Open Inference Protocol.

pub use apportion_domain::tensor::{Datatype, TensorSignature};

use bytes::Bytes;

/// A tensor whose first dimension is rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// As the variant names it.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Row-major shape, rows first.
    pub shape: Vec<usize>,
    /// As many little-endian elements as the shape asks for (see [`holds`]), shared and never copied to be sliced.
    pub data: Bytes,
}

/// The elements of BYTES data; the last is none if the data end within it.
pub fn texts(mut data: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let element = data.split_first_chunk::<4>().and_then(|(length, rest)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            rest.split_at_checked(length)
        });
        data = element.map_or(&[], |(_, rest)| rest);
        Some(element.map(|(text, _)| text))
    })
}

/// How many elements a shape asks for; none if they, or the sizes that a zero hides, are too many to count in bytes.
#[must_use]
pub fn elements(shape: &[usize], datatype: Datatype) -> Option<usize> {
    let sizes = || shape.iter().filter(|d| **d > 0);
    sizes().try_fold(datatype.size(), |n, d| n.checked_mul(*d))?;
    Some(if sizes().count() == shape.len() { shape.iter().product() } else { 0 })
}

/// Why data are not the elements of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The size of the tensor in bytes overflows.
    #[error("shape {0:?} is too large")]
    TooLarge(Vec<usize>),
    /// Texts have another count than the shape.
    #[error("it has {found} elements: expected {expected} for shape {shape:?}")]
    Elements {
        /// Elements of the data.
        found: usize,
        /// Elements of the shape.
        expected: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The data end within a text.
    #[error("it ends within an element: expected each as a length of four bytes and as many bytes")]
    Truncated,
    /// The data have another size than the shape.
    #[error("it has {found} bytes: expected {bytes}, which are {expected} elements of {datatype} for shape {shape:?}")]
    Bytes {
        /// Bytes of the data.
        found: usize,
        /// Bytes of the shape.
        bytes: usize,
        /// Elements of the shape.
        expected: usize,
        /// Name of the datatype.
        datatype: &'static str,
        /// The shape.
        shape: Vec<usize>,
    },
}

/// Checks that `data` are exactly the elements that the shape asks for.
///
/// # Errors
/// [`DataError`], which says how many elements or bytes there are, and how many were expected.
pub fn holds(data: &[u8], shape: &[usize], datatype: Datatype) -> Result<(), DataError> {
    let expected = elements(shape, datatype).ok_or_else(|| DataError::TooLarge(shape.to_vec()))?;
    if datatype == Datatype::Bytes {
        let given = texts(data).try_fold(0usize, |n, text| text.map(|_| n + 1));
        return match given {
            Some(given) if given == expected => Ok(()),
            Some(found) => Err(DataError::Elements { found, expected, shape: shape.to_vec() }),
            None => Err(DataError::Truncated),
        };
    }
    let bytes = expected * datatype.size();
    if data.len() == bytes {
        return Ok(());
    }
    let (found, datatype) = (data.len(), datatype.name());
    Err(DataError::Bytes { found, bytes, expected, datatype, shape: shape.to_vec() })
}

impl Tensor {
    /// Size of the first dimension; 0 for a scalar.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Where each row begins, and where the last one ends.
    fn bounds(&self) -> Vec<usize> {
        let each: usize = self.shape.iter().skip(1).product();
        if self.datatype != Datatype::Bytes {
            return (0..=self.rows()).map(|row| row * each * self.datatype.size()).collect();
        }
        let mut lengths = texts(&self.data).map(|text| 4 + text.expect("the tensor was checked").len());
        let mut end = 0;
        let mut bounds = vec![0];
        for _ in 0..self.rows() {
            end += lengths.by_ref().take(each).sum::<usize>();
            bounds.push(end);
        }
        bounds
    }

    /// All rows as tensors of one row that share the bytes.
    #[must_use]
    pub fn each_row(&self) -> Vec<Tensor> {
        self.bounds().windows(2).map(|ends| self.cut(ends[0]..ends[1], 1)).collect()
    }

    /// Row `row` as a tensor of one row that shares the bytes.
    #[must_use]
    pub fn row(&self, row: usize) -> Tensor {
        self.slice(row, 1)
    }

    /// Rows `start .. start + count`, sharing the bytes. Panics if they are not there.
    #[must_use]
    pub fn slice(&self, start: usize, count: usize) -> Tensor {
        assert!(start + count <= self.rows(), "rows {start}+{count} of {}", self.rows());
        if self.datatype == Datatype::Bytes {
            let bounds = self.bounds();
            return self.cut(bounds[start]..bounds[start + count], count);
        }
        let bytes = self.shape.iter().skip(1).product::<usize>() * self.datatype.size();
        self.cut(start * bytes..(start + count) * bytes, count)
    }

    fn cut(&self, bytes: std::ops::Range<usize>, rows: usize) -> Tensor {
        let mut shape = self.shape.clone();
        shape[0] = rows;
        Tensor { name: self.name.clone(), datatype: self.datatype, shape, data: self.data.slice(bytes) }
    }
}

/// One row of zeros of an input or output; open dimensions are 1.
#[must_use]
pub fn zero_row(spec: &TensorSignature) -> Tensor {
    let shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(1)).collect();
    zeros(spec, shape)
}

fn zeros(spec: &TensorSignature, shape: Vec<usize>) -> Tensor {
    let data = Bytes::from(vec![0; shape.iter().product::<usize>() * spec.datatype.size()]);
    Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }
}

/// No rows of an input or output.
#[must_use]
pub fn no_rows(spec: &TensorSignature) -> Tensor {
    let mut shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = 0;
    }
    zeros(spec, shape)
}

/// The rows of all parts under each other; none if their names, types or row shapes differ.
#[must_use]
pub fn concatenate(parts: &[&Tensor]) -> Option<Tensor> {
    let first = *parts.first()?;
    if parts.len() == 1 {
        return Some(first.clone());
    }
    let same = |t: &&Tensor| {
        t.name == first.name
            && t.datatype == first.datatype
            && t.shape.get(1..) == first.shape.get(1..)
            && !t.shape.is_empty()
    };
    if !parts.iter().all(same) {
        return None;
    }
    let mut data = Vec::with_capacity(parts.iter().map(|t| t.data.len()).sum());
    parts.iter().for_each(|t| data.extend_from_slice(&t.data));
    let mut shape = first.shape.clone();
    shape[0] = parts.iter().map(|t| t.rows()).sum();
    Some(Tensor { name: first.name.clone(), datatype: first.datatype, shape, data: data.into() })
}

/// The whole numbers of an int64 tensor; none if it is another.
#[must_use]
pub fn int64s(tensor: &Tensor) -> Option<Vec<i64>> {
    let number = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("chunks of 8"));
    (tensor.datatype == Datatype::Int64).then(|| tensor.data.chunks_exact(8).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(all: &[&[u8]]) -> Bytes {
        all.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes(), *text].concat()).collect()
    }

    #[test]
    fn rows_of_texts_are_cut_where_they_end() {
        let data = bytes(&[b"a", b"", b"ccc", b"dd"]);
        let tensor = Tensor { name: "t".into(), datatype: Datatype::Bytes, shape: vec![2, 2], data };
        assert_eq!(holds(&tensor.data, &tensor.shape, tensor.datatype), Ok(()));
        assert_eq!(tensor.row(0).data, bytes(&[b"a", b""]));
        assert_eq!(tensor.row(1).data, bytes(&[b"ccc", b"dd"]));
        assert_eq!(tensor.each_row(), [tensor.row(0), tensor.row(1)]);
        assert!(tensor.slice(1, 0).data.is_empty());
        let parts = [tensor.row(0), tensor.row(1)];
        assert_eq!(crate::tensor::concatenate(&parts.iter().collect::<Vec<_>>()), Some(tensor));
    }

    #[test]
    fn shapes_whose_sizes_overflow_are_refused_even_behind_a_zero() {
        let huge = usize::MAX / 2 + 1;
        assert_eq!(elements(&[huge, 3], Datatype::Uint8), None);
        assert_eq!(elements(&[0, huge, 3], Datatype::Uint8), None);
        assert_eq!(elements(&[0, huge], Datatype::Uint8), Some(0));
        assert_eq!(elements(&[huge], Datatype::Uint16), None);
        assert_eq!(elements(&[2, 3], Datatype::Fp32), Some(6));
        assert!(holds(&[0; 7], &[2], Datatype::Fp32).expect_err("short").to_string().contains("expected 8"));
    }

    proptest! {
        #[test]
        fn valid_tensors_can_be_cut_and_invalid_bytes_never_panic(data in proptest::collection::vec(0u8..4, 0..64),
                                                          shape in proptest::collection::vec(0usize..4, 1..4)) {
            for datatype in Datatype::ALL {
                if holds(&data, &shape, datatype).is_ok() {
                    let all = Tensor { name: "t".into(), datatype, shape: shape.clone(), data: data.clone().into() };
                    let rows = all.each_row();
                    prop_assert_eq!(rows.len(), all.rows());
                    for (i, row) in rows.iter().enumerate() {
                        prop_assert_eq!(row, &all.row(i));
                        prop_assert_eq!(holds(&row.data, &row.shape, datatype), Ok(()));
                    }
                    let joined: Vec<u8> = rows.iter().flat_map(|r| r.data.to_vec()).collect();
                    prop_assert_eq!(&joined, &data);
                }
            }
        }
    }
}
