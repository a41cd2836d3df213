//! Why does a stage in Python not run?

use crate::backend::error::TensorMismatch;
use std::time::Duration;

/// Why a stage in Python does not run. Each message is whole, with its cause.
#[derive(Debug, thiserror::Error)]
pub(super) enum StageError {
    /// Its process cannot be started.
    #[error("{program} cannot be started: {error}: expected a Python 3 with NumPy (--python)")]
    Start {
        /// The Python.
        program: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The shared memory cannot be used.
    #[error("the shared memory of the stage: {0}")]
    Memory(std::io::Error),
    /// Its process has ended.
    #[error("its process has ended: {0}")]
    Ended(String),
    /// Its process did not answer in time.
    #[error("no answer in {:.1} s, so its process is ended", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It answered with something else.
    #[error("its process answered with {0}")]
    Answer(String),
    /// It has raised an error, or made something else than it declares.
    #[error("{0}")]
    Raised(String),
    /// A batch is too large for the shared memory or for a message.
    #[error("{found} bytes of {what}: expected at most {most}")]
    Size {
        /// Inputs, outputs or a message.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// A tensor that it declares cannot be one.
    #[error("{name} is {found}: expected {expected}")]
    Declared {
        /// Name of the tensor.
        name: String,
        /// Its datatype and shape.
        found: String,
        /// The right form.
        expected: &'static str,
    },
    /// An output is not what the stage declares.
    #[error("output {name} {mismatch}")]
    Output {
        /// Name of the output.
        name: String,
        /// The difference.
        mismatch: TensorMismatch,
    },
    /// After another start it declares other tensors.
    #[error("it declares other tensors than at its first start")]
    OtherTensors,
}

impl StageError {
    /// Whether its process is of no more use.
    #[must_use]
    pub(super) const fn is_fatal(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::TimedOut(_) | Self::Answer(_) | Self::Memory(_))
    }
}
