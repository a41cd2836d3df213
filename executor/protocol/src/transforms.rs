//! How do transforms travel from the control plane to an agent?

use crate::v1;
use crate::v1::transform::Step;
use apportion_domain::tensor::Datatype;
use apportion_domain::transform::{
    CastStep, CropStep, DecodeTextStep, KeepStep, NmsStep, NormaliseStep, PadStep, PictureSize, ResizeStep, SliceStep,
    TokeniseStep, Transform, TransposeStep, Vocabulary,
};

/// Why a transform of a target cannot be carried out: this agent does not know it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTransform {
    /// It is none of those that this agent knows.
    #[error("a transform that this agent does not know: expected a newer agent")]
    Step,
    /// It lacks the size of its pictures.
    #[error("{0}: no size: expected height and width")]
    Size(&'static str),
    /// A setting has a word that this agent does not know.
    #[error("{setting} {found}: expected a newer agent, or a word that this agent knows")]
    Word {
        /// Name of the setting.
        setting: &'static str,
        /// The unknown word.
        found: String,
    },
}

impl From<PictureSize> for v1::PictureSize {
    fn from(size: PictureSize) -> Self {
        Self { height: size.height, width: size.width }
    }
}

impl From<v1::PictureSize> for PictureSize {
    fn from(size: v1::PictureSize) -> Self {
        Self { height: size.height, width: size.width }
    }
}

impl From<&Transform> for v1::Transform {
    fn from(transform: &Transform) -> Self {
        let step = match transform.clone() {
            Transform::Crop(step) => Step::Crop(v1::CropTransform::from(step)),
            Transform::Resize(step) => Step::Resize(v1::ResizeTransform::from(step)),
            Transform::Pad(PadStep { of, to, axis, lengths, value }) => {
                Step::Pad(v1::PadTransform { of, to, axis, lengths, value })
            }
            Transform::Normalise(NormaliseStep { of, to, scale, mean, std, axis }) => {
                Step::Normalise(v1::NormaliseTransform { of, to, scale, mean, std, axis })
            }
            Transform::Nms(step) => Step::Nms(v1::NmsTransform::from(step)),
            Transform::DecodeText(DecodeTextStep { of, to, alphabet, decoding, blank }) => {
                let (alphabet, decoding) = (alphabet.texts().to_vec(), decoding.name().to_owned());
                Step::DecodeText(v1::DecodeTextTransform { of, to, alphabet, decoding, blank })
            }
            Transform::Tokenise(step) => Step::Tokenise(v1::TokeniseTransform::from(step)),
            Transform::Transpose(TransposeStep { of, to, axes }) => {
                Step::Transpose(v1::TransposeTransform { of, to, axes })
            }
            Transform::Cast(CastStep { of, to, datatype }) => {
                Step::Cast(v1::CastTransform { of, to, datatype: datatype.name().to_owned() })
            }
            Transform::Slice(SliceStep { of, to, axis, from, until }) => {
                Step::Slice(v1::SliceTransform { of, to, axis, from, until })
            }
            Transform::Keep(KeepStep { tensors }) => Step::Keep(v1::KeepTransform { tensors }),
        };
        Self { step: Some(step) }
    }
}

impl From<CropStep> for v1::CropTransform {
    fn from(step: CropStep) -> Self {
        Self {
            boxes: step.boxes,
            of: step.of,
            to: step.to,
            size: Some(step.size.into()),
            boxes_in: step.boxes_in.map(v1::PictureSize::from),
            fit: step.fit.name().to_owned(),
            fill: step.fill,
            layout: step.layout.name().to_owned(),
        }
    }
}

impl From<ResizeStep> for v1::ResizeTransform {
    fn from(step: ResizeStep) -> Self {
        let (fit, layout) = (step.fit.name().to_owned(), step.layout.name().to_owned());
        Self { of: step.of, to: step.to, size: Some(step.size.into()), fit, fill: step.fill, layout }
    }
}

impl From<NmsStep> for v1::NmsTransform {
    fn from(step: NmsStep) -> Self {
        let NmsStep { boxes, scores, classes, form, iou, score_min, keep_max } = step;
        Self { boxes, scores, classes, form: form.name().to_owned(), iou, score_min, keep_max }
    }
}

impl From<TokeniseStep> for v1::TokeniseTransform {
    fn from(step: TokeniseStep) -> Self {
        Self {
            of: step.of,
            to: step.to,
            mask: step.mask,
            types: step.types,
            vocabulary: step.vocabulary.texts().to_vec(),
            split: step.split.name().to_owned(),
            letters: step.letters.name().to_owned(),
            unknown: step.unknown,
            start: step.start,
            end: step.end,
            padding: step.padding,
            length: step.length,
        }
    }
}

/// A word of a setting. An empty one is the default.
fn word<T: Default>(setting: &'static str, found: String, from_name: fn(&str) -> Option<T>) -> Result<T, UnknownTransform> {
    match found.is_empty() {
        true => Ok(T::default()),
        false => from_name(&found).ok_or(UnknownTransform::Word { setting, found }),
    }
}

impl TryFrom<v1::Transform> for Transform {
    type Error = UnknownTransform;

    fn try_from(transform: v1::Transform) -> Result<Self, UnknownTransform> {
        Ok(match transform.step.ok_or(UnknownTransform::Step)? {
            Step::Crop(step) => Self::Crop(step.try_into()?),
            Step::Resize(step) => Self::Resize(step.try_into()?),
            Step::Pad(v1::PadTransform { of, to, axis, lengths, value }) => {
                Self::Pad(PadStep { of, to, axis, lengths, value })
            }
            Step::Normalise(v1::NormaliseTransform { of, to, scale, mean, std, axis }) => {
                Self::Normalise(NormaliseStep { of, to, scale, mean, std, axis })
            }
            Step::Nms(step) => Self::Nms(step.try_into()?),
            Step::DecodeText(v1::DecodeTextTransform { of, to, alphabet, decoding, blank }) => {
                let decoding = word("decoding", decoding, apportion_domain::transform::TextDecoding::from_name)?;
                Self::DecodeText(DecodeTextStep { of, to, alphabet: Vocabulary::new(alphabet), decoding, blank })
            }
            Step::Tokenise(step) => Self::Tokenise(step.try_into()?),
            Step::Transpose(v1::TransposeTransform { of, to, axes }) => Self::Transpose(TransposeStep { of, to, axes }),
            Step::Cast(v1::CastTransform { of, to, datatype }) => {
                let unknown = UnknownTransform::Word { setting: "datatype", found: datatype.clone() };
                Self::Cast(CastStep { of, to, datatype: Datatype::from_name(&datatype).ok_or(unknown)? })
            }
            Step::Slice(v1::SliceTransform { of, to, axis, from, until }) => {
                Self::Slice(SliceStep { of, to, axis, from, until })
            }
            Step::Keep(v1::KeepTransform { tensors }) => Self::Keep(KeepStep { tensors }),
        })
    }
}

impl TryFrom<v1::CropTransform> for CropStep {
    type Error = UnknownTransform;

    fn try_from(step: v1::CropTransform) -> Result<Self, UnknownTransform> {
        use apportion_domain::transform::{PictureFit, PixelLayout};
        Ok(Self {
            boxes: step.boxes,
            of: step.of,
            to: step.to,
            size: step.size.ok_or(UnknownTransform::Size("crop"))?.into(),
            boxes_in: step.boxes_in.map(PictureSize::from),
            fit: word("fit", step.fit, PictureFit::from_name)?,
            fill: step.fill,
            layout: word("layout", step.layout, PixelLayout::from_name)?,
        })
    }
}

impl TryFrom<v1::ResizeTransform> for ResizeStep {
    type Error = UnknownTransform;

    fn try_from(step: v1::ResizeTransform) -> Result<Self, UnknownTransform> {
        use apportion_domain::transform::{PictureFit, PixelLayout};
        let size = step.size.ok_or(UnknownTransform::Size("resize"))?.into();
        let fit = word("fit", step.fit, PictureFit::from_name)?;
        let layout = word("layout", step.layout, PixelLayout::from_name)?;
        Ok(Self { of: step.of, to: step.to, size, fit, fill: step.fill, layout })
    }
}

impl TryFrom<v1::NmsTransform> for NmsStep {
    type Error = UnknownTransform;

    fn try_from(step: v1::NmsTransform) -> Result<Self, UnknownTransform> {
        let v1::NmsTransform { boxes, scores, classes, form, iou, score_min, keep_max } = step;
        let form = word("form", form, apportion_domain::transform::BoxForm::from_name)?;
        Ok(Self { boxes, scores, classes, form, iou, score_min, keep_max })
    }
}

impl TryFrom<v1::TokeniseTransform> for TokeniseStep {
    type Error = UnknownTransform;

    fn try_from(step: v1::TokeniseTransform) -> Result<Self, UnknownTransform> {
        use apportion_domain::transform::{LetterCase, WordSplit};
        Ok(Self {
            of: step.of,
            to: step.to,
            mask: step.mask,
            types: step.types,
            vocabulary: Vocabulary::new(step.vocabulary),
            split: word("split", step.split, WordSplit::from_name)?,
            letters: word("letters", step.letters, LetterCase::from_name)?,
            unknown: step.unknown,
            start: step.start,
            end: step.end,
            padding: step.padding,
            length: step.length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::transform::{BoxForm, LetterCase, PictureFit, PixelLayout, TextDecoding, WordSplit};

    fn all() -> Vec<Transform> {
        let name = |text: &str| text.to_owned();
        let (of, to) = (|| name("x"), || name("y"));
        let size = PictureSize { height: 3, width: 4 };
        let texts = || Vocabulary::new(["a", "b"].map(name).to_vec());
        let (fit, layout) = (PictureFit::Contain, PixelLayout::ChannelsLast);
        let boxes_in = Some(PictureSize { height: 1, width: 1 });
        let (mean, std) = (vec![0.1, 0.2], vec![0.3]);
        vec![
            Transform::Crop(CropStep { boxes: name("b"), of: of(), to: to(), size, boxes_in, fit, fill: 1.5, layout }),
            Transform::Resize(ResizeStep { of: of(), to: to(), size, fit, fill: 2.0, layout }),
            Transform::Pad(PadStep { of: of(), to: to(), axis: 1, lengths: vec![4, 8], value: -1.0 }),
            Transform::Normalise(NormaliseStep { of: of(), to: to(), scale: 0.5, mean, std, axis: Some(1) }),
            Transform::Nms(NmsStep {
                boxes: name("b"),
                scores: name("s"),
                classes: name("c"),
                form: BoxForm::Centre,
                iou: 0.4,
                score_min: 0.2,
                keep_max: 7,
            }),
            Transform::DecodeText(DecodeTextStep {
                of: of(),
                to: to(),
                alphabet: texts(),
                decoding: TextDecoding::Argmax,
                blank: 1,
            }),
            Transform::Tokenise(TokeniseStep {
                of: of(),
                to: to(),
                mask: Some(name("m")),
                types: None,
                vocabulary: texts(),
                split: WordSplit::Wordpiece,
                letters: LetterCase::Lower,
                unknown: name("a"),
                start: Some(name("b")),
                end: None,
                padding: name("a"),
                length: 9,
            }),
            Transform::Transpose(TransposeStep { of: of(), to: to(), axes: vec![2, 1] }),
            Transform::Cast(CastStep { of: of(), to: to(), datatype: Datatype::Int32 }),
            Transform::Slice(SliceStep { of: of(), to: to(), axis: 1, from: 2, until: 5 }),
            Transform::Keep(KeepStep { tensors: vec![to()] }),
        ]
    }

    #[test]
    fn every_transform_travels_and_comes_back() {
        let all = all();
        assert_eq!(all.len(), 11, "one of each kind");
        for transform in all {
            assert_eq!(Transform::try_from(v1::Transform::from(&transform)), Ok(transform));
        }
    }

    #[test]
    fn what_this_agent_does_not_know_is_refused() {
        assert_eq!(Transform::try_from(v1::Transform { step: None }), Err(UnknownTransform::Step));
        let mut sent = v1::Transform::from(&all()[1]);
        let Some(Step::Resize(resize)) = &mut sent.step else { panic!("a resize") };
        resize.fit = String::new();
        let Ok(Transform::Resize(read)) = Transform::try_from(sent.clone()) else { panic!("empty is the default") };
        assert_eq!(read.fit, PictureFit::Stretch);
        let Some(Step::Resize(resize)) = &mut sent.step else { panic!("a resize") };
        resize.fit = "cover".into();
        let refused = Transform::try_from(sent.clone()).expect_err("no such word").to_string();
        assert!(refused.contains("fit cover"), "{refused}");
        let Some(Step::Resize(resize)) = &mut sent.step else { panic!("a resize") };
        resize.size = None;
        resize.fit = String::new();
        assert_eq!(Transform::try_from(sent), Err(UnknownTransform::Size("resize")));
    }
}
