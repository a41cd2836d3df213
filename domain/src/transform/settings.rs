//! Which settings of a transform are refused, whatever tensors it gets?

use super::steps::{
    DecodeTextStep, NmsStep, NormaliseStep, PadStep, PictureSize, SliceStep, TextDecoding, TokeniseStep, Transform,
    TransposeStep,
};
use super::types::TransformError;
use super::vocabulary::{VOCABULARY_BYTES_MAX, VOCABULARY_MAX, Vocabulary};
use crate::tensor::Datatype;

/// Most transforms in one list.
pub const STEPS_MAX: usize = 16;
/// Longest side of a picture that a transform makes.
pub const SIDE_MAX: u32 = 4_096;
/// Longest axis that a transform makes, and most tokens of a row.
pub const LENGTH_MAX: u32 = 65_536;
/// Most lengths to which an axis is padded.
pub const LENGTHS_MAX: usize = 64;
/// Most boxes of one row that `nms` keeps.
pub const NMS_KEPT_MAX: u32 = 1_024;

impl Transform {
    /// Checks everything that does not depend on tensors.
    ///
    /// # Errors
    /// [`TransformError::Setting`], the first refused setting.
    pub fn check_settings(&self) -> Result<(), TransformError> {
        match self {
            Self::Crop(step) => {
                check_size("size", step.size)?;
                step.boxes_in.map_or(Ok(()), |size| check_size("boxes_in", size))?;
                check_finite("fill", step.fill)
            }
            Self::Resize(step) => {
                check_size("size", step.size)?;
                check_finite("fill", step.fill)
            }
            Self::Pad(step) => check_pad(step),
            Self::Normalise(step) => check_normalise(step),
            Self::Nms(step) => check_nms(step),
            Self::DecodeText(step) => check_decode_text(step),
            Self::Tokenise(step) => check_tokenise(step),
            Self::Transpose(step) => check_transpose(step),
            Self::Cast(step) if step.datatype == Datatype::Bytes => {
                Err(refusal("datatype", step.datatype.name(), "a datatype of numbers"))
            }
            Self::Slice(step) => check_slice(step),
            Self::Keep(step) if step.tensors.is_empty() => Err(refusal("tensors", "none", "names of tensors")),
            Self::Cast(_) | Self::Keep(_) => Ok(()),
        }
    }
}

fn refusal(setting: &'static str, found: impl Into<String>, expected: impl Into<String>) -> TransformError {
    TransformError::Setting { setting, found: found.into(), expected: expected.into() }
}

fn check_size(setting: &'static str, size: PictureSize) -> Result<(), TransformError> {
    let sides = 1..=SIDE_MAX;
    if sides.contains(&size.height) && sides.contains(&size.width) {
        return Ok(());
    }
    let found = format!("[{}, {}]", size.height, size.width);
    Err(refusal(setting, found, format!("[height, width], each from 1 to {SIDE_MAX}")))
}

fn check_finite(setting: &'static str, value: f64) -> Result<(), TransformError> {
    if (value as f32).is_finite() {
        return Ok(());
    }
    Err(refusal(setting, value.to_string(), "a finite number of single precision"))
}

fn check_axis(axis: u32) -> Result<(), TransformError> {
    if axis > 0 {
        return Ok(());
    }
    Err(refusal("axis", "0, which are the rows", "an axis from 1 on"))
}

fn check_transpose(step: &TransposeStep) -> Result<(), TransformError> {
    let mut sorted = step.axes.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(1..=step.axes.len() as u32) {
        return Ok(());
    }
    Err(refusal("axes", format!("{:?}", step.axes), "each axis from 1 on once; axis 0 stays the rows"))
}

fn check_slice(step: &SliceStep) -> Result<(), TransformError> {
    check_axis(step.axis)?;
    if step.from < step.until {
        return Ok(());
    }
    Err(refusal("until", format!("{} after from {}", step.until, step.from), "a position above `from`"))
}

fn check_pad(step: &PadStep) -> Result<(), TransformError> {
    check_axis(step.axis)?;
    check_finite("value", step.value)?;
    let rises = step.lengths.windows(2).all(|pair| pair[0] < pair[1]);
    let is_bounded = step.lengths.iter().all(|length| (1..=LENGTH_MAX).contains(length));
    if rises && is_bounded && (1..=LENGTHS_MAX).contains(&step.lengths.len()) {
        return Ok(());
    }
    let expected = format!("1 to {LENGTHS_MAX} rising lengths from 1 to {LENGTH_MAX}");
    Err(refusal("lengths", format!("{:?}", step.lengths), expected))
}

fn check_normalise(step: &NormaliseStep) -> Result<(), TransformError> {
    check_finite("scale", step.scale)?;
    step.axis.map_or(Ok(()), check_axis)?;
    for (setting, list) in [("mean", &step.mean), ("std", &step.std)] {
        let found = format!("{list:?}");
        if list.is_empty() || !list.iter().all(|value| (*value as f32).is_finite()) {
            return Err(refusal(setting, found, "finite numbers, at least one"));
        }
        if list.len() > 1 && step.axis.is_none() {
            return Err(refusal(setting, found, "`axis` beside several numbers"));
        }
    }
    if step.std.iter().any(|value| *value as f32 == 0.0) {
        return Err(refusal("std", format!("{:?}", step.std), "numbers other than 0"));
    }
    Ok(())
}

fn check_nms(step: &NmsStep) -> Result<(), TransformError> {
    if !(0.0..=1.0).contains(&step.iou) {
        return Err(refusal("iou", step.iou.to_string(), "a number from 0 to 1"));
    }
    check_finite("score_min", step.score_min)?;
    if !(1..=NMS_KEPT_MAX).contains(&step.keep_max) {
        return Err(refusal("keep_max", step.keep_max.to_string(), format!("1 to {NMS_KEPT_MAX}")));
    }
    Ok(())
}

fn check_vocabulary(setting: &'static str, vocabulary: &Vocabulary) -> Result<(), TransformError> {
    let count = vocabulary.texts().len();
    let bytes: usize = vocabulary.texts().iter().map(String::len).sum();
    if (1..=VOCABULARY_MAX).contains(&count) && bytes <= VOCABULARY_BYTES_MAX {
        return Ok(());
    }
    let expected = format!("1 to {VOCABULARY_MAX} texts of at most {VOCABULARY_BYTES_MAX} bytes in all");
    Err(refusal(setting, format!("{count} texts of {bytes} bytes"), expected))
}

fn check_decode_text(step: &DecodeTextStep) -> Result<(), TransformError> {
    check_vocabulary("alphabet", &step.alphabet)?;
    let last = step.alphabet.texts().len();
    if step.decoding == TextDecoding::Ctc && step.blank as usize > last {
        return Err(refusal("blank", step.blank.to_string(), format!("a class from 0 to {last}")));
    }
    Ok(())
}

fn check_tokenise(step: &TokeniseStep) -> Result<(), TransformError> {
    check_vocabulary("vocabulary", &step.vocabulary)?;
    let specials = step.start.iter().count() + step.end.iter().count();
    if step.length as usize <= specials || step.length > LENGTH_MAX {
        let expected = format!("a length from {} to {LENGTH_MAX}", specials + 1);
        return Err(refusal("length", step.length.to_string(), expected));
    }
    let named = [
        ("unknown", Some(&step.unknown)),
        ("padding", Some(&step.padding)),
        ("start", step.start.as_ref()),
        ("end", step.end.as_ref()),
    ];
    for (setting, token) in named.iter().filter_map(|(setting, token)| Some((*setting, (*token)?))) {
        if step.vocabulary.position(token).is_none() {
            return Err(refusal(setting, format!("{token:?}"), "a token of the vocabulary"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::steps::{CastStep, KeepStep, LetterCase, WordSplit};
    use super::*;

    fn list(texts: &[&str]) -> Vocabulary {
        Vocabulary::new(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    fn tokenise(vocabulary: &[&str], length: u32) -> Transform {
        Transform::Tokenise(TokeniseStep {
            of: "text".into(),
            to: "ids".into(),
            mask: None,
            types: None,
            vocabulary: list(vocabulary),
            split: WordSplit::Wordpiece,
            letters: LetterCase::Lower,
            unknown: "[UNK]".into(),
            start: Some("[CLS]".into()),
            end: Some("[SEP]".into()),
            padding: "[PAD]".into(),
            length,
        })
    }

    #[test]
    fn refused_settings_are_named() {
        let (of, to) = (|| "x".to_owned(), || "y".to_owned());
        let decode = |decoding, blank| {
            Transform::DecodeText(DecodeTextStep { of: of(), to: to(), alphabet: list(&["a", "b"]), decoding, blank })
        };
        let normalise = |mean: &[f64], std: &[f64], axis| {
            let (mean, std) = (mean.to_vec(), std.to_vec());
            Transform::Normalise(NormaliseStep { of: of(), to: to(), scale: 1.0, mean, std, axis })
        };
        let pad = |axis, lengths: &[u32]| {
            Transform::Pad(PadStep { of: of(), to: to(), axis, lengths: lengths.to_vec(), value: 0.0 })
        };
        let slice = |from, until| Transform::Slice(SliceStep { of: of(), to: to(), axis: 1, from, until });
        let specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"];
        let cases = [
            (pad(0, &[4]), "axis"),
            (pad(1, &[]), "lengths"),
            (pad(1, &[8, 4]), "lengths"),
            (pad(1, &[LENGTH_MAX + 1]), "lengths"),
            (normalise(&[], &[1.0], None), "mean"),
            (normalise(&[0.0], &[0.0], None), "std"),
            (normalise(&[0.1, 0.2], &[1.0], None), "mean"),
            (normalise(&[f64::INFINITY], &[1.0], None), "mean"),
            (normalise(&[0.0], &[1.0], Some(0)), "axis"),
            (decode(TextDecoding::Ctc, 3), "blank"),
            (slice(2, 2), "until"),
            (Transform::Cast(CastStep { of: of(), to: to(), datatype: Datatype::Bytes }), "datatype"),
            (Transform::Keep(KeepStep { tensors: Vec::new() }), "tensors"),
            (Transform::Transpose(TransposeStep { of: of(), to: to(), axes: vec![1, 1] }), "axes"),
            (Transform::Transpose(TransposeStep { of: of(), to: to(), axes: vec![0, 1] }), "axes"),
            (tokenise(&specials[..3], 8), "padding"),
            (tokenise(&specials, 2), "length"),
        ];
        for (transform, expected) in cases {
            let refused = transform.check_settings();
            assert!(
                matches!(&refused, Err(TransformError::Setting { setting, .. }) if *setting == expected),
                "{transform:?}: {refused:?}"
            );
        }
        for fine in [tokenise(&specials, 3), decode(TextDecoding::Ctc, 2), decode(TextDecoding::Argmax, 9), slice(0, 1)] {
            assert_eq!(fine.check_settings(), Ok(()), "{fine:?}");
        }
    }

    #[test]
    fn sides_of_pictures_are_bounded() {
        let resize = |height, width| {
            let size = PictureSize { height, width };
            let (of, to) = ("x".to_owned(), "x".to_owned());
            let (fit, layout) = Default::default();
            Transform::Resize(super::super::steps::ResizeStep { of, to, size, fit, fill: 0.0, layout })
        };
        assert_eq!(resize(1, SIDE_MAX).check_settings(), Ok(()));
        for wrong in [resize(0, 8), resize(8, SIDE_MAX + 1)] {
            assert!(wrong.check_settings().is_err(), "{wrong:?}");
        }
    }
}
