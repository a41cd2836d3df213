//! How are the elements of a tensor read, changed and put in another order?

use super::fault::{TransformFault, bytes_of};
use crate::tensor::{Datatype, Tensor};
use apportion_domain::transform::{CastStep, NormaliseStep, PadStep, SliceStep, TransposeStep};
use half::{bf16, f16};

/// An element: exact for each datatype of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i128),
    Real(f64),
}

/// The bytes of an element.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("an element of this size")
}

fn number(datatype: Datatype, bytes: &[u8]) -> Number {
    match datatype {
        Datatype::Bool | Datatype::Uint8 => Number::Whole(bytes[0].into()),
        Datatype::Uint16 => Number::Whole(u16::from_le_bytes(fixed(bytes)).into()),
        Datatype::Uint32 => Number::Whole(u32::from_le_bytes(fixed(bytes)).into()),
        Datatype::Uint64 => Number::Whole(u64::from_le_bytes(fixed(bytes)).into()),
        Datatype::Int8 => Number::Whole(i8::from_le_bytes(fixed(bytes)).into()),
        Datatype::Int16 => Number::Whole(i16::from_le_bytes(fixed(bytes)).into()),
        Datatype::Int32 => Number::Whole(i32::from_le_bytes(fixed(bytes)).into()),
        Datatype::Int64 => Number::Whole(i64::from_le_bytes(fixed(bytes)).into()),
        Datatype::Fp16 => Number::Real(f16::from_le_bytes(fixed(bytes)).into()),
        Datatype::Bf16 => Number::Real(bf16::from_le_bytes(fixed(bytes)).into()),
        Datatype::Fp32 => Number::Real(f32::from_le_bytes(fixed(bytes)).into()),
        Datatype::Fp64 => Number::Real(f64::from_le_bytes(fixed(bytes))),
        Datatype::Bytes => Number::Real(f64::NAN),
    }
}

impl Number {
    /// The nearest whole number of a range; 0 for NaN.
    fn whole(self, least: impl Into<i128>, most: impl Into<i128>) -> i128 {
        let value = match self {
            Self::Whole(value) => value,
            Self::Real(value) => value as i128,
        };
        value.clamp(least.into(), most.into())
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    fn is_true(self) -> bool {
        match self {
            Self::Whole(value) => value != 0,
            Self::Real(value) => value != 0.0 && !value.is_nan(),
        }
    }

    fn write(self, datatype: Datatype, out: &mut Vec<u8>) {
        match datatype {
            Datatype::Bool => out.push(self.is_true().into()),
            Datatype::Uint8 => out.push(self.whole(u8::MIN, u8::MAX) as u8),
            Datatype::Uint16 => out.extend((self.whole(u16::MIN, u16::MAX) as u16).to_le_bytes()),
            Datatype::Uint32 => out.extend((self.whole(u32::MIN, u32::MAX) as u32).to_le_bytes()),
            Datatype::Uint64 => out.extend((self.whole(u64::MIN, u64::MAX) as u64).to_le_bytes()),
            Datatype::Int8 => out.extend((self.whole(i8::MIN, i8::MAX) as i8).to_le_bytes()),
            Datatype::Int16 => out.extend((self.whole(i16::MIN, i16::MAX) as i16).to_le_bytes()),
            Datatype::Int32 => out.extend((self.whole(i32::MIN, i32::MAX) as i32).to_le_bytes()),
            Datatype::Int64 => out.extend((self.whole(i64::MIN, i64::MAX) as i64).to_le_bytes()),
            Datatype::Fp16 => out.extend(f16::from_f64(self.real()).to_le_bytes()),
            Datatype::Bf16 => out.extend(bf16::from_f64(self.real()).to_le_bytes()),
            Datatype::Fp32 => out.extend((self.real() as f32).to_le_bytes()),
            Datatype::Fp64 => out.extend(self.real().to_le_bytes()),
            // Texts are no numbers, and the types of transforms refuse them.
            Datatype::Bytes => out.extend(0_u32.to_le_bytes()),
        }
    }
}

/// All elements of a tensor of numbers, in double precision.
#[must_use]
pub fn reals(tensor: &Tensor) -> Vec<f64> {
    let of = tensor.datatype;
    tensor.data.chunks_exact(of.size()).map(|bytes| number(of, bytes).real()).collect()
}

/// All elements in single precision.
pub(super) fn floats(tensor: &Tensor) -> Vec<f32> {
    let data = &tensor.data;
    match tensor.datatype {
        Datatype::Uint8 => data.iter().map(|byte| f32::from(*byte)).collect(),
        Datatype::Fp32 => data.chunks_exact(4).map(|bytes| f32::from_le_bytes(fixed(bytes))).collect(),
        other => data.chunks_exact(other.size()).map(|bytes| number(other, bytes).real() as f32).collect(),
    }
}

/// A tensor of single precision.
pub(super) fn of_floats(name: &str, shape: Vec<usize>, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), datatype: Datatype::Fp32, shape, data: data.into() }
}

/// A tensor of whole numbers.
pub(super) fn of_int64s(name: &str, shape: Vec<usize>, values: &[i64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), datatype: Datatype::Int64, shape, data: data.into() }
}

pub(super) fn cast(step: &CastStep, of: &Tensor) -> Result<Tensor, TransformFault> {
    let mut data = Vec::with_capacity(bytes_of(&step.to, step.datatype, of.rows(), &of.shape[1..])?);
    let elements = of.data.chunks_exact(of.datatype.size());
    elements.for_each(|bytes| number(of.datatype, bytes).write(step.datatype, &mut data));
    Ok(Tensor { name: step.to.clone(), datatype: step.datatype, shape: of.shape.clone(), data: data.into() })
}

pub(super) fn normalise(step: &NormaliseStep, of: &Tensor) -> Result<Tensor, TransformFault> {
    let mut data = Vec::with_capacity(bytes_of(&step.to, Datatype::Fp32, of.rows(), &of.shape[1..])?);
    let channels = step.axis.map_or(1, |axis| of.shape[axis as usize]);
    // Elements of one channel that lie side by side.
    let run = step.axis.map_or(usize::MAX, |axis| of.shape[axis as usize + 1..].iter().product::<usize>());
    let at = |list: &[f64], channel: usize| list[if list.len() > 1 { channel } else { 0 }] as f32;
    let scale = step.scale as f32;
    for (number, values) in floats(of).chunks(run.max(1)).enumerate() {
        let channel = number % channels.max(1);
        let (mean, std) = (at(&step.mean, channel), at(&step.std, channel));
        values.iter().for_each(|value| data.extend_from_slice(&((value * scale - mean) / std).to_le_bytes()));
    }
    Ok(Tensor { name: step.to.clone(), datatype: Datatype::Fp32, shape: of.shape.clone(), data: data.into() })
}

/// The bytes that follow each other at one position of an axis.
fn bytes_at(of: &Tensor, axis: usize) -> usize {
    of.shape[axis + 1..].iter().product::<usize>() * of.datatype.size()
}

pub(super) fn pad(step: &PadStep, of: &Tensor) -> Result<Tensor, TransformFault> {
    let axis = step.axis as usize;
    let had = of.shape[axis];
    let length = step.lengths.iter().map(|length| *length as usize).find(|length| *length >= had).unwrap_or(had);
    let mut shape = of.shape.clone();
    shape[axis] = length;
    let bytes = bytes_of(&step.to, of.datatype, shape[0], &shape[1..])?;
    let each = bytes_at(of, axis);
    let mut element = Vec::new();
    Number::Real(step.value).write(of.datatype, &mut element);
    // Without bytes the sizes may be any, and nothing is filled.
    let outers: usize = if bytes == 0 { 0 } else { shape[..axis].iter().product() };
    let missing = if outers == 0 { 0 } else { (length - had) * each / of.datatype.size() };
    let filling = element.repeat(missing);
    let mut data = Vec::with_capacity(bytes);
    for outer in 0..outers {
        data.extend_from_slice(&of.data[outer * had * each..(outer + 1) * had * each]);
        data.extend_from_slice(&filling);
    }
    Ok(Tensor { name: step.to.clone(), datatype: of.datatype, shape, data: data.into() })
}

pub(super) fn slice(step: &SliceStep, of: &Tensor) -> Tensor {
    let axis = step.axis as usize;
    let (had, from, until) = (of.shape[axis], step.from as usize, step.until as usize);
    let each = bytes_at(of, axis);
    let mut shape = of.shape.clone();
    shape[axis] = until - from;
    let mut data = Vec::new();
    // Without bytes the sizes may be any, and there is nothing to copy.
    let outers = if of.data.is_empty() { 0 } else { shape[..axis].iter().product::<usize>() };
    for outer in 0..outers {
        let start = outer * had;
        data.extend_from_slice(&of.data[(start + from) * each..(start + until) * each]);
    }
    Tensor { name: step.to.clone(), datatype: of.datatype, shape, data: data.into() }
}

pub(super) fn transpose(step: &TransposeStep, of: &Tensor) -> Tensor {
    let (size, inner) = (of.datatype.size(), &of.shape[1..]);
    let stride = |axis: usize| inner[axis + 1..].iter().product::<usize>();
    let axes: Vec<usize> = step.axes.iter().map(|axis| *axis as usize - 1).collect();
    let sizes: Vec<usize> = axes.iter().map(|axis| inner[*axis]).collect();
    let strides: Vec<usize> = axes.iter().map(|axis| stride(*axis)).collect();
    let each: usize = inner.iter().product();
    let mut data = Vec::with_capacity(of.data.len());
    for row in 0..of.rows() {
        let mut place = vec![0; sizes.len()];
        for _ in 0..each {
            let offset: usize = place.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
            let start = (row * each + offset) * size;
            data.extend_from_slice(&of.data[start..start + size]);
            advance(&mut place, &sizes);
        }
    }
    let shape = std::iter::once(of.rows()).chain(sizes).collect();
    Tensor { name: step.to.clone(), datatype: of.datatype, shape, data: data.into() }
}

/// The next place, the last axis first.
fn advance(place: &mut [usize], sizes: &[usize]) {
    for (at, size) in place.iter_mut().zip(sizes).rev() {
        *at += 1;
        if *at < *size {
            return;
        }
        *at = 0;
    }
}
