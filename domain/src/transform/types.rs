//! Which tensors does a transform take, and which does it make?
//!
//! The same check runs when a pipeline is registered, where sizes may be open, and before each batch, where they are known.

use super::steps::{
    CropStep, DecodeTextStep, NmsStep, NormaliseStep, PadStep, PixelLayout, ResizeStep, SliceStep, TextDecoding,
    TokeniseStep, Transform, TransposeStep,
};
use crate::tensor::{Datatype, TensorSignature};
use std::collections::BTreeMap;
use std::fmt;

/// Size of an axis that may have any.
const ANY: i64 = -1;

/// Type of one row of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowType {
    /// Element type.
    pub datatype: Datatype,
    /// Sizes of all axes but the rows; -1 is any.
    pub inner: Vec<i64>,
}

impl RowType {
    /// Whether a tensor of this type can be one of the other: equal, where neither size is open.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        let pairs = || self.inner.iter().zip(&other.inner);
        self.datatype == other.datatype
            && self.inner.len() == other.inner.len()
            && pairs().all(|(one, other)| is_same(*one, *other))
    }

    /// The signature of a tensor of this type.
    #[must_use]
    pub fn named(&self, name: &str) -> TensorSignature {
        let shape = std::iter::once(ANY).chain(self.inner.iter().copied()).collect();
        TensorSignature { name: name.to_owned(), datatype: self.datatype, shape }
    }
}

impl From<&TensorSignature> for RowType {
    fn from(tensor: &TensorSignature) -> Self {
        Self { datatype: tensor.datatype, inner: tensor.shape.iter().skip(1).copied().collect() }
    }
}

impl fmt::Display for RowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [rows", self.datatype.name())?;
        for size in &self.inner {
            match *size {
                ANY => write!(f, ", any")?,
                size => write!(f, ", {size}")?,
            }
        }
        write!(f, "]")
    }
}

/// Types of tensors, by name.
pub type RowTypes = BTreeMap<String, RowType>;

/// Why a transform is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// It reads a tensor that is not there.
    #[error("there is no tensor {name}: expected one of {}", known.join(", "))]
    Unknown {
        /// Name of the tensor.
        name: String,
        /// Names of those that are there.
        known: Vec<String>,
    },
    /// A tensor has another type.
    #[error("{tensor} is {found}: expected {expected}")]
    Type {
        /// Name of the tensor.
        tensor: String,
        /// Its type.
        found: RowType,
        /// The right types.
        expected: String,
    },
    /// A setting is refused.
    #[error("{setting} is {found}: expected {expected}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The right values.
        expected: String,
    },
}

fn is_same(one: i64, other: i64) -> bool {
    one == other || one == ANY || other == ANY
}

/// Positions of height and width among the inner axes of a picture, which has two or three; none for another count.
#[must_use]
pub fn picture_axes(axes: usize, layout: PixelLayout) -> Option<(usize, usize)> {
    match (axes, layout) {
        (2, _) | (3, PixelLayout::ChannelsLast) => Some((0, 1)),
        (3, PixelLayout::ChannelsFirst) => Some((1, 2)),
        _ => None,
    }
}

impl Transform {
    /// Replaces the types of tensors by those after the transform.
    ///
    /// # Errors
    /// [`TransformError`], the first reason why it cannot be carried out.
    pub fn check_types(&self, types: &mut RowTypes) -> Result<(), TransformError> {
        match self {
            Self::Crop(step) => check_crop(step, types),
            Self::Resize(step) => check_resize(step, types),
            Self::Pad(step) => check_pad(step, types),
            Self::Normalise(step) => check_normalise(step, types),
            Self::Nms(step) => check_nms(step, types),
            Self::DecodeText(step) => check_decode_text(step, types),
            Self::Tokenise(step) => check_tokenise(step, types),
            Self::Transpose(step) => check_transpose(step, types),
            Self::Cast(step) => {
                let of = numbers(types, &step.of)?;
                types.insert(step.to.clone(), RowType { datatype: step.datatype, inner: of.inner });
                Ok(())
            }
            Self::Slice(step) => check_slice(step, types),
            Self::Keep(step) => {
                step.tensors.iter().try_for_each(|name| read(types, name).map(drop))?;
                types.retain(|name, _| step.tensors.contains(name));
                Ok(())
            }
        }
    }
}

/// The type of the tensor of this name.
fn read(types: &RowTypes, name: &str) -> Result<RowType, TransformError> {
    let unknown = || TransformError::Unknown { name: name.to_owned(), known: types.keys().cloned().collect() };
    types.get(name).cloned().ok_or_else(unknown)
}

fn refusal(tensor: &str, found: RowType, expected: impl Into<String>) -> TransformError {
    TransformError::Type { tensor: tensor.to_owned(), found, expected: expected.into() }
}

/// The type of a tensor of numbers.
fn numbers(types: &RowTypes, name: &str) -> Result<RowType, TransformError> {
    let found = read(types, name)?;
    if found.datatype == Datatype::Bytes {
        return Err(refusal(name, found, "a datatype of numbers"));
    }
    Ok(found)
}

/// The type of pictures with another height and width.
fn picture(types: &RowTypes, name: &str, layout: PixelLayout) -> Result<(RowType, usize, usize), TransformError> {
    let found = read(types, name)?;
    let is_of_pixels = matches!(found.datatype, Datatype::Uint8 | Datatype::Fp32);
    match picture_axes(found.inner.len(), layout).filter(|_| is_of_pixels) {
        Some((height, width)) => Ok((found, height, width)),
        None => {
            let form = match layout {
                PixelLayout::ChannelsFirst => "[rows, channels, height, width]",
                PixelLayout::ChannelsLast => "[rows, height, width, channels]",
            };
            Err(refusal(name, found, format!("UINT8 or FP32 {form} or [rows, height, width]")))
        }
    }
}

fn check_crop(step: &CropStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let boxes = read(types, &step.boxes)?;
    let is_right = boxes.datatype == Datatype::Fp32
        && (1..=2).contains(&boxes.inner.len())
        && boxes.inner.last().is_some_and(|size| is_same(*size, 4));
    if !is_right {
        return Err(refusal(&step.boxes, boxes, "FP32 [rows, 4] or [rows, boxes, 4]"));
    }
    let (mut of, height, width) = picture(types, &step.of, step.layout)?;
    (of.inner[height], of.inner[width]) = (step.size.height.into(), step.size.width.into());
    types.insert(step.boxes.clone(), RowType { datatype: Datatype::Fp32, inner: vec![4] });
    types.insert(step.to.clone(), of);
    Ok(())
}

fn check_resize(step: &ResizeStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let (mut of, height, width) = picture(types, &step.of, step.layout)?;
    (of.inner[height], of.inner[width]) = (step.size.height.into(), step.size.width.into());
    types.insert(step.to.clone(), of);
    Ok(())
}

/// The size of an axis, where the rows are axis 0.
fn axis<'t>(of: &'t mut RowType, tensor: &str, axis: u32) -> Result<&'t mut i64, TransformError> {
    let at = (axis as usize).checked_sub(1).filter(|at| *at < of.inner.len());
    match at {
        Some(at) => Ok(&mut of.inner[at]),
        None => Err(refusal(tensor, of.clone(), format!("an axis {axis} after the rows, which are axis 0"))),
    }
}

fn check_pad(step: &PadStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let mut of = numbers(types, &step.of)?;
    let found = of.clone();
    let size = axis(&mut of, &step.of, step.axis)?;
    let mut lengths = step.lengths.iter().map(|length| i64::from(*length));
    *size = match (*size, step.lengths.as_slice()) {
        (ANY, [length]) => i64::from(*length),
        (ANY, _) => ANY,
        (size, _) => lengths.find(|length| *length >= size).ok_or_else(|| {
            let longest = step.lengths.last().copied().unwrap_or(0);
            refusal(&step.of, found, format!("at most {longest} at axis {}", step.axis))
        })?,
    };
    types.insert(step.to.clone(), of);
    Ok(())
}

fn check_normalise(step: &NormaliseStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let mut of = numbers(types, &step.of)?;
    let found = of.clone();
    if let Some(channels) = step.axis {
        let size = *axis(&mut of, &step.of, channels)?;
        for list in [&step.mean, &step.std] {
            if list.len() > 1 && !is_same(size, list.len() as i64) {
                return Err(refusal(&step.of, found, format!("{} at axis {channels}", list.len())));
            }
        }
    }
    types.insert(step.to.clone(), RowType { datatype: Datatype::Fp32, inner: of.inner });
    Ok(())
}

fn check_nms(step: &NmsStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let (boxes, scores) = (read(types, &step.boxes)?, read(types, &step.scores)?);
    let count = match boxes.inner[..] {
        [count, size] if boxes.datatype == Datatype::Fp32 && is_same(size, 4) => count,
        _ => return Err(refusal(&step.boxes, boxes, "FP32 [rows, boxes, 4]")),
    };
    let has_classes = match scores.inner[..] {
        [of] if scores.datatype == Datatype::Fp32 && is_same(of, count) => false,
        [of, _] if scores.datatype == Datatype::Fp32 && is_same(of, count) => true,
        _ => {
            let expected = format!("FP32 [rows, boxes] or [rows, boxes, classes] with the boxes of {}", step.boxes);
            return Err(refusal(&step.scores, scores, expected));
        }
    };
    types.insert(step.boxes.clone(), RowType { datatype: Datatype::Fp32, inner: vec![4] });
    types.insert(step.scores.clone(), RowType { datatype: Datatype::Fp32, inner: Vec::new() });
    if has_classes {
        types.insert(step.classes.clone(), RowType { datatype: Datatype::Int64, inner: Vec::new() });
    }
    Ok(())
}

fn check_decode_text(step: &DecodeTextStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let found = read(types, &step.of)?;
    let classes = step.alphabet.texts().len() as i64 + i64::from(step.decoding == TextDecoding::Ctc);
    let is_right = match (found.datatype, &found.inner[..]) {
        (Datatype::Fp32, [of] | [_, of]) => is_same(*of, classes),
        (Datatype::Int64, [] | [_]) => true,
        _ => false,
    };
    if !is_right {
        let expected = format!(
            "FP32 [rows, places, {classes}] or [rows, {classes}], for {classes} classes, or INT64 [rows, places] or [rows]"
        );
        return Err(refusal(&step.of, found, expected));
    }
    types.insert(step.to.clone(), RowType { datatype: Datatype::Bytes, inner: Vec::new() });
    Ok(())
}

fn check_tokenise(step: &TokeniseStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let found = read(types, &step.of)?;
    let is_one = match found.inner[..] {
        [] => true,
        [size] => is_same(size, 1),
        _ => false,
    };
    if found.datatype != Datatype::Bytes || !is_one {
        return Err(refusal(&step.of, found, "BYTES [rows] or [rows, 1]"));
    }
    for name in [Some(&step.to), step.mask.as_ref(), step.types.as_ref()].into_iter().flatten() {
        types.insert(name.clone(), RowType { datatype: Datatype::Int64, inner: vec![step.length.into()] });
    }
    Ok(())
}

fn check_transpose(step: &TransposeStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let found = numbers(types, &step.of)?;
    let sizes: Option<Vec<i64>> =
        step.axes.iter().map(|axis| found.inner.get((*axis as usize).checked_sub(1)?).copied()).collect();
    match sizes.filter(|sizes| sizes.len() == found.inner.len()) {
        Some(inner) => {
            types.insert(step.to.clone(), RowType { datatype: found.datatype, inner });
            Ok(())
        }
        None => Err(refusal(&step.of, found, format!("{} axes after the rows", step.axes.len()))),
    }
}

fn check_slice(step: &SliceStep, types: &mut RowTypes) -> Result<(), TransformError> {
    let mut of = numbers(types, &step.of)?;
    let found = of.clone();
    let size = axis(&mut of, &step.of, step.axis)?;
    if *size != ANY && *size < i64::from(step.until) {
        return Err(refusal(&step.of, found, format!("at least {} at axis {}", step.until, step.axis)));
    }
    *size = i64::from(step.until) - i64::from(step.from);
    types.insert(step.to.clone(), of);
    Ok(())
}
