//! Which built-in transforms change tensors between two tasks, and what do they take and make?
//!
//! Example: a detector finds boxes on a photo, and a reader takes pictures of 48 x 320 pixels. The edge between them has
//! the transforms `crop` (a row for each box) and `normalise`. [`TaskGlue`] holds the transforms of one task. It tells
//! which tensors the task takes and makes with them. Agents carry them out (crate `node`).

mod glue;
mod settings;
mod steps;
mod types;
mod vocabulary;

pub use glue::{CHILD, EdgeGlue, GlueError, PARENT, TaskGlue};
pub use settings::{LENGTH_MAX, LENGTHS_MAX, NMS_KEPT_MAX, SIDE_MAX, STEPS_MAX};
pub use steps::{
    BoxForm, CastStep, CropStep, DecodeTextStep, KeepStep, LetterCase, NmsStep, NormaliseStep, PadStep, PictureFit,
    PictureSize, PixelLayout, ResizeStep, SliceStep, TextDecoding, TokeniseStep, Transform, TransposeStep, WordSplit,
};
pub use types::{RowType, RowTypes, TransformError, picture_axes};
pub use vocabulary::{VOCABULARY_BYTES_MAX, VOCABULARY_MAX, Vocabulary};
