//! Why can a transform not be carried out for a batch?

use crate::tensor::DataError;
use apportion_domain::tensor::Datatype;
use apportion_domain::transform::TransformError;

/// Most rows of a batch after a transform.
pub const GLUE_ROWS_MAX: usize = 65_536;
/// Most bytes of one tensor that a transform makes.
pub const GLUE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a transform cannot be carried out for a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformFault {
    /// A tensor has a type that it does not take.
    #[error(transparent)]
    Type(#[from] TransformError),
    /// A tensor does not hold the elements of its shape.
    #[error("{name} does not hold its elements: {cause}")]
    Data {
        /// Name of the tensor.
        name: String,
        /// Why not.
        cause: DataError,
    },
    /// A tensor has another number of rows than the others.
    #[error("{name} has {found} rows: expected {expected}")]
    RowCount {
        /// Name of the tensor.
        name: String,
        /// Its rows.
        found: usize,
        /// Rows of the others.
        expected: usize,
    },
    /// The output `parent` of the variant is not INT64, or names a row that the batch does not have.
    #[error("the output `parent` is not the number of a row of the batch: expected INT64 [rows] from 0 to below {0}")]
    Parent(usize),
    /// Too many rows are made.
    #[error("it makes more than {GLUE_ROWS_MAX} rows of one batch: expected fewer boxes, or smaller batches")]
    Rows,
    /// A tensor would be too large.
    #[error("{0} would have more than {GLUE_BYTES_MAX} bytes: expected smaller batches or pictures")]
    Bytes(String),
    /// A picture has no pixels.
    #[error("{0} has no pixels: expected a height and a width of at least 1")]
    NoPixels(String),
    /// A number is no class of the alphabet.
    #[error("{name} has class {found}: expected 0 to {last}")]
    Class {
        /// Name of the tensor.
        name: String,
        /// The number.
        found: i64,
        /// The last class.
        last: usize,
    },
}

/// Why the transforms of a task fail for a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlueFault {
    /// One of them cannot be carried out.
    #[error("{place}: transform {number} ({transform}): {cause}")]
    Step {
        /// `before`, `after`, or the edge.
        place: String,
        /// Its number in the list, counted from 1.
        number: usize,
        /// Its name.
        transform: &'static str,
        /// Why not.
        cause: Box<TransformFault>,
    },
    /// The tensors of the batch do not fit each other.
    #[error("{0}")]
    Batch(TransformFault),
    /// A tensor that is needed is not there.
    #[error("{place} makes no {name}")]
    Missing {
        /// `before`, or the edge.
        place: String,
        /// Name of the tensor.
        name: String,
    },
}

/// Bytes of `rows` rows of this shape, if they are few enough.
///
/// # Errors
/// [`TransformFault::Bytes`].
pub(super) fn bytes_of(name: &str, datatype: Datatype, rows: usize, inner: &[usize]) -> Result<usize, TransformFault> {
    let mut sizes = std::iter::once(rows).chain(inner.iter().copied());
    let bytes = sizes.try_fold(datatype.size(), usize::checked_mul);
    bytes.filter(|bytes| *bytes <= GLUE_BYTES_MAX).ok_or_else(|| TransformFault::Bytes(name.to_owned()))
}
