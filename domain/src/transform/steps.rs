//! Which transforms are there, and which settings does each have?
//!
//! `of` names the tensor that a transform reads, and `to` the tensor that it makes. They may be the same.

use super::vocabulary::Vocabulary;
use crate::serving::named;
use crate::tensor::Datatype;

named! {
    /// How a picture gets another size.
    PictureFit default Stretch {
        /// Both sides are scaled to the size.
        Stretch = "stretch",
        /// The picture keeps its proportions. It lies at the top left, and the rest is filled.
        Contain = "contain",
    }
}

named! {
    /// In which order the axes of a picture with channels are.
    PixelLayout default ChannelsFirst {
        /// Channels, height, width.
        ChannelsFirst = "chw",
        /// Height, width, channels.
        ChannelsLast = "hwc",
    }
}

named! {
    /// What the four numbers of a box are.
    BoxForm default Corners {
        /// Left, top, right, bottom.
        Corners = "corners",
        /// The middle's x and y, width, height.
        Centre = "centre",
    }
}

named! {
    /// How the classes of a text become its characters.
    TextDecoding default Ctc {
        /// Equal neighbours count once, then blanks are left out (connectionist temporal classification, greedy).
        Ctc = "ctc",
        /// Each class is a character.
        Argmax = "argmax",
    }
}

named! {
    /// How a text becomes tokens.
    WordSplit default Whitespace {
        /// Each word between white space is a token.
        Whitespace = "whitespace",
        /// Words and ASCII punctuation, cut into the longest pieces of the vocabulary; inner pieces begin with `##`.
        Wordpiece = "wordpiece",
    }
}

named! {
    /// What happens to letters before words are looked up.
    LetterCase default Keep {
        /// They stay.
        Keep = "keep",
        /// They become lower case.
        Lower = "lower",
    }
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
}

/// Cuts a picture out of another one for each box. It makes rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CropStep {
    /// The boxes, FP32 `[rows, 4]` or `[rows, boxes, 4]`, as corners. Each new row gets its box here.
    pub boxes: String,
    /// The pictures.
    pub of: String,
    /// The cut pictures.
    pub to: String,
    /// Size of each.
    pub size: PictureSize,
    /// Size of the picture in which the boxes are; none: that of the pictures.
    pub boxes_in: Option<PictureSize>,
    /// How a box gets the size.
    pub fit: PictureFit,
    /// Value of pixels beside the box under `contain`.
    pub fill: f64,
    /// Order of the axes.
    pub layout: PixelLayout,
}

/// Gives a picture another size, bilinear.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeStep {
    /// The pictures.
    pub of: String,
    /// The resized pictures.
    pub to: String,
    /// Their size.
    pub size: PictureSize,
    /// How they get it.
    pub fit: PictureFit,
    /// Value of pixels beside the picture under `contain`.
    pub fill: f64,
    /// Order of the axes.
    pub layout: PixelLayout,
}

/// Makes an axis longer: to the first of some lengths that is long enough.
#[derive(Clone, Debug, PartialEq)]
pub struct PadStep {
    /// The tensor.
    pub of: String,
    /// The longer one.
    pub to: String,
    /// The axis; the rows are axis 0.
    pub axis: u32,
    /// The lengths, rising.
    pub lengths: Vec<u32>,
    /// Value of the new elements.
    pub value: f64,
}

/// Makes FP32: `(x * scale - mean) / std`.
#[derive(Clone, Debug, PartialEq)]
pub struct NormaliseStep {
    /// The numbers.
    pub of: String,
    /// The normalised numbers.
    pub to: String,
    /// Factor on each number.
    pub scale: f64,
    /// One for all, or one for each position of the axis.
    pub mean: Vec<f64>,
    /// One for all, or one for each position of the axis.
    pub std: Vec<f64>,
    /// The axis of the channels; the rows are axis 0.
    pub axis: Option<u32>,
}

/// Keeps the best of boxes that overlap. It makes rows: one for each kept box, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct NmsStep {
    /// The boxes, FP32 `[rows, boxes, 4]`; afterwards `[rows, 4]`, as corners.
    pub boxes: String,
    /// Their scores, FP32 `[rows, boxes]` or `[rows, boxes, classes]`; afterwards `[rows]`.
    pub scores: String,
    /// Where the class of each kept box goes, INT64 `[rows]`, if the scores have classes.
    pub classes: String,
    /// What the numbers of a box are.
    pub form: BoxForm,
    /// Boxes of one class whose intersection is a larger part of their union do not both stay.
    pub iou: f64,
    /// Boxes with a lower score do not stay.
    pub score_min: f64,
    /// Most boxes of one row that stay.
    pub keep_max: u32,
}

/// Makes a text from the classes of its characters.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeTextStep {
    /// Scores, FP32 `[rows, places, classes]` or `[rows, classes]`, or numbers of classes, INT64 `[rows, places]` or
    /// `[rows]`.
    pub of: String,
    /// The texts, BYTES `[rows]`.
    pub to: String,
    /// The text of each class, without the blank.
    pub alphabet: Vocabulary,
    /// How classes become characters.
    pub decoding: TextDecoding,
    /// The class that is no character under `ctc`.
    pub blank: u32,
}

/// Makes the numbers of tokens from a text, all of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct TokeniseStep {
    /// The texts, BYTES `[rows]` or `[rows, 1]`.
    pub of: String,
    /// The numbers of their tokens, INT64 `[rows, length]`.
    pub to: String,
    /// Where a 1 for each token and a 0 for padding goes.
    pub mask: Option<String>,
    /// Where zeros of the same shape go, for variants that ask for the types of tokens.
    pub types: Option<String>,
    /// The tokens.
    pub vocabulary: Vocabulary,
    /// How a text becomes tokens.
    pub split: WordSplit,
    /// What happens to letters first.
    pub letters: LetterCase,
    /// Token for the words that are not in the vocabulary.
    pub unknown: String,
    /// Token before all others.
    pub start: Option<String>,
    /// Token after all others.
    pub end: Option<String>,
    /// Token for the places that stay free.
    pub padding: String,
    /// Tokens of each row. Longer texts are cut.
    pub length: u32,
}

/// Changes the order of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct TransposeStep {
    /// The tensor.
    pub of: String,
    /// The transposed one.
    pub to: String,
    /// The old axis at each new place but the first, which stays the rows.
    pub axes: Vec<u32>,
}

/// Makes numbers of another datatype. Numbers out of its range become the nearest one, and NaN becomes 0.
#[derive(Clone, Debug, PartialEq)]
pub struct CastStep {
    /// The numbers.
    pub of: String,
    /// The same as another datatype.
    pub to: String,
    /// The datatype.
    pub datatype: Datatype,
}

/// Takes a part of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceStep {
    /// The tensor.
    pub of: String,
    /// The part.
    pub to: String,
    /// The axis; the rows are axis 0.
    pub axis: u32,
    /// The first position that is taken.
    pub from: u32,
    /// The first position after that is not.
    pub until: u32,
}

/// Forgets all other tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepStep {
    /// Those that stay.
    pub tensors: Vec<String>,
}

/// A built-in transform.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Cuts pictures out.
    Crop(CropStep),
    /// Gives pictures another size.
    Resize(ResizeStep),
    /// Makes an axis longer.
    Pad(PadStep),
    /// Shifts and scales numbers.
    Normalise(NormaliseStep),
    /// Keeps the best boxes.
    Nms(NmsStep),
    /// Makes texts from classes.
    DecodeText(DecodeTextStep),
    /// Makes numbers from texts.
    Tokenise(TokeniseStep),
    /// Changes the order of axes.
    Transpose(TransposeStep),
    /// Changes the datatype.
    Cast(CastStep),
    /// Takes a part of an axis.
    Slice(SliceStep),
    /// Forgets tensors.
    Keep(KeepStep),
}

impl Transform {
    /// Its name in files.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Crop(_) => "crop",
            Self::Resize(_) => "resize",
            Self::Pad(_) => "pad",
            Self::Normalise(_) => "normalise",
            Self::Nms(_) => "nms",
            Self::DecodeText(_) => "decode_text",
            Self::Tokenise(_) => "tokenise",
            Self::Transpose(_) => "transpose",
            Self::Cast(_) => "cast",
            Self::Slice(_) => "slice",
            Self::Keep(_) => "keep",
        }
    }

    /// Whether the rows after it are other rows.
    #[must_use]
    pub const fn makes_rows(&self) -> bool {
        matches!(self, Self::Crop(_) | Self::Nms(_))
    }

    /// Names of the tensors that it makes or replaces.
    #[must_use]
    pub fn writes(&self) -> Vec<&str> {
        match self {
            Self::Crop(step) => vec![&step.to, &step.boxes],
            Self::Nms(step) => vec![&step.boxes, &step.scores, &step.classes],
            Self::Tokenise(step) => [Some(&step.to), step.mask.as_ref(), step.types.as_ref()]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect(),
            Self::Resize(step) => vec![&step.to],
            Self::Pad(step) => vec![&step.to],
            Self::Normalise(step) => vec![&step.to],
            Self::DecodeText(step) => vec![&step.to],
            Self::Transpose(step) => vec![&step.to],
            Self::Cast(step) => vec![&step.to],
            Self::Slice(step) => vec![&step.to],
            Self::Keep(_) => Vec::new(),
        }
    }
}
