//! Which keys does a transform have in a file?
//!
//! Example: `{normalise: {of: patch, mean: [0.5], std: [0.5]}}`. The only key of the object names the transform.

use crate::record::record;
use apportion_domain::transform::{BoxForm, LetterCase, PictureFit, PixelLayout, TextDecoding, WordSplit};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Datatypes that `cast` makes.
pub(crate) const NUMBER_DATATYPES: &[&str] =
    &["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16"];

record! {
    /// A built-in transform: exactly one of its keys.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TransformSpec {
        /// Cuts a picture out for each box, and makes a row of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub crop: Option<CropSpec> => optional,
        /// Gives pictures another size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resize: Option<ResizeSpec> => optional,
        /// Makes an axis longer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pad: Option<PadSpec> => optional,
        /// Makes FP32: `(x * scale - mean) / std`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub normalise: Option<NormaliseSpec> => optional,
        /// Keeps the best of boxes that overlap, and makes a row of each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub nms: Option<NmsSpec> => optional,
        /// Makes a text from the classes of its characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub decode_text: Option<DecodeTextSpec> => optional,
        /// Makes the numbers of tokens from a text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tokenise: Option<TokeniseSpec> => optional,
        /// Changes the order of the axes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub transpose: Option<TransposeSpec> => optional,
        /// Makes numbers of another datatype.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cast: Option<CastSpec> => optional,
        /// Takes a part of an axis.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub slice: Option<SliceSpec> => optional,
        /// Forgets all other tensors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub keep: Option<KeepSpec> => optional,
    }
}

record! {
    /// Cuts a picture out of another one for each box. A box without area on the picture, or with a number that is not
    /// finite, makes no row.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct CropSpec {
        /// The boxes, FP32 `[rows, 4]` or `[rows, boxes, 4]`: left, top, right, bottom. Each new row has its box there.
        pub boxes: String => required,
        /// The pictures, UINT8 or FP32.
        pub of: String => required,
        /// The cut pictures; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// Their height and width.
        pub size: Vec<u32> => required,
        /// Height and width of the picture in which the boxes are, `[1, 1]` for parts of it; default: that of `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub boxes_in: Option<Vec<u32>> => optional.or_null(),
        /// How a box gets the size: `stretch` (default), or `contain`, which keeps its proportions at the top left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fit: Option<String> => optional.words(PictureFit::NAMES),
        /// Value of the pixels beside the box under `contain`; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fill: Option<f64> => optional,
        /// Order of the axes of `of` after the rows: `chw` (default) or `hwc`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub layout: Option<String> => optional.words(PixelLayout::NAMES),
    }
}

record! {
    /// Gives pictures another size, bilinear.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ResizeSpec {
        /// The pictures, UINT8 or FP32.
        pub of: String => required,
        /// The resized pictures; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// Their height and width.
        pub size: Vec<u32> => required,
        /// How they get it: `stretch` (default), or `contain`, which keeps their proportions at the top left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fit: Option<String> => optional.words(PictureFit::NAMES),
        /// Value of the pixels beside the picture under `contain`; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fill: Option<f64> => optional,
        /// Order of the axes after the rows: `chw` (default) or `hwc`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub layout: Option<String> => optional.words(PixelLayout::NAMES),
    }
}

record! {
    /// Makes an axis longer: to the first of some lengths that is long enough.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PadSpec {
        /// The tensor.
        pub of: String => required,
        /// The longer one; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// The axis; the rows are axis 0.
        pub axis: u32 => required,
        /// One length, or several rising ones. A longer row fails.
        pub lengths: Vec<u32> => required,
        /// Value of the new elements; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub value: Option<f64> => optional,
    }
}

record! {
    /// Makes FP32: `(x * scale - mean) / std`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct NormaliseSpec {
        /// The numbers.
        pub of: String => required,
        /// The normalised numbers; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// Factor on each number; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scale: Option<f64> => optional,
        /// One number, or one for each channel; default `[0]`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub mean: Vec<f64> => optional,
        /// One number, or one for each channel; default `[1]`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub std: Vec<f64> => optional,
        /// The axis of the channels, where there are several numbers; the rows are axis 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub axis: Option<u32> => optional.or_null(),
    }
}

record! {
    /// Keeps the best of boxes that overlap, and makes a row of each, the best first. Afterwards `boxes` is `[rows, 4]` and
    /// `scores` is `[rows]`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct NmsSpec {
        /// The boxes, FP32 `[rows, boxes, 4]`; default `boxes`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub boxes: Option<String> => optional,
        /// Their scores, FP32 `[rows, boxes]` or `[rows, boxes, classes]`; default `scores`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub scores: Option<String> => optional,
        /// Where the class of each kept box goes, INT64 `[rows]`, if the scores have classes; default `classes`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub classes: Option<String> => optional,
        /// What the four numbers of a box are: `corners` (default; left, top, right, bottom) or `centre` (x, y, width,
        /// height).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub form: Option<String> => optional.words(BoxForm::NAMES),
        /// Boxes of one class whose intersection is a larger part of their union do not both stay; default 0.45.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub iou: Option<f64> => optional,
        /// Boxes with a lower score do not stay; default 0.25.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub score_min: Option<f64> => optional,
        /// Most boxes of one row that stay; default 100.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub keep_max: Option<u32> => optional,
    }
}

record! {
    /// Makes a text from the classes of its characters. One of `alphabet`, `classes` and `alphabet_file` says them.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DecodeTextSpec {
        /// Scores, FP32 `[rows, places, classes]` or `[rows, classes]`, or numbers of classes, INT64 `[rows, places]` or
        /// `[rows]`.
        pub of: String => required,
        /// The texts, BYTES `[rows]`; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// The character of each class, in their order, without the blank.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub alphabet: Option<String> => optional,
        /// The same as a list of texts, for classes of several characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub classes: Option<Vec<String>> => optional,
        /// The same as a file with a class on each line, relative to the file that names it. `FILE.json#KEY` is a list in
        /// an object, or texts with their numbers, and `FILE.onnx#KEY` the lines of a text in the model's metadata.
        /// `classes` follow those of the file. Only in pipeline files on disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub alphabet_file: Option<String> => optional,
        /// `ctc` (default): equal neighbours count once, then blanks are left out. `argmax`: each class is a character.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub decoding: Option<String> => optional.words(TextDecoding::NAMES),
        /// The class that is no character under `ctc`; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub blank: Option<u32> => optional,
    }
}

record! {
    /// Makes the numbers of tokens from a text, all of one length. One of `vocabulary` and `vocabulary_file` says the
    /// tokens.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TokeniseSpec {
        /// The texts, BYTES `[rows]` or `[rows, 1]`.
        pub of: String => required,
        /// The numbers of their tokens, INT64 `[rows, length]`; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// Where a 1 for each token and a 0 for padding goes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mask: Option<String> => optional.or_null(),
        /// Where zeros of the same shape go, for variants that ask for the types of tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub types: Option<String> => optional.or_null(),
        /// The tokens, in the order of their numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vocabulary: Option<Vec<String>> => optional,
        /// The same as a file with a token on each line, relative to the file that names it; or `FILE.json#KEY`, for
        /// example `tokenizer.json#model.vocab`. Only in pipeline files on disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vocabulary_file: Option<String> => optional,
        /// `whitespace` (default): each word is a token. `wordpiece`: the longest pieces of words and punctuation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub split: Option<String> => optional.words(WordSplit::NAMES),
        /// What happens to letters first: `keep` (default) or `lower`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub letters: Option<String> => optional.words(LetterCase::NAMES),
        /// Token for words that are not in the vocabulary; default `[UNK]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unknown: Option<String> => optional,
        /// Token before all others, for example `[CLS]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start: Option<String> => optional.or_null(),
        /// Token after all others, for example `[SEP]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end: Option<String> => optional.or_null(),
        /// Token for the places that stay free; default `[PAD]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub padding: Option<String> => optional,
        /// Tokens of each row. Longer texts are cut.
        pub length: u32 => required,
    }
}

record! {
    /// Changes the order of the axes.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct TransposeSpec {
        /// The tensor.
        pub of: String => required,
        /// The transposed one; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// The old axis at each new place after the rows: `[3, 1, 2]` makes `[rows, c, h, w]` of `[rows, h, w, c]`.
        pub axes: Vec<u32> => required,
    }
}

record! {
    /// Makes numbers of another datatype. Numbers out of its range become the nearest one, and NaN becomes 0.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct CastSpec {
        /// The numbers.
        pub of: String => required,
        /// The same as another datatype; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// The datatype.
        pub datatype: String => required.words(NUMBER_DATATYPES),
    }
}

record! {
    /// Takes a part of an axis.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct SliceSpec {
        /// The tensor.
        pub of: String => required,
        /// The part; default `of`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<String> => optional,
        /// The axis; the rows are axis 0.
        pub axis: u32 => required,
        /// The first position that is taken; default 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub from: Option<u32> => optional,
        /// The first position after that is not.
        pub until: u32 => required,
    }
}

record! {
    /// Forgets all other tensors.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct KeepSpec {
        /// Those that stay.
        pub tensors: Vec<String> => required,
    }
}
