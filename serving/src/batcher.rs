//! When a free server starts, and with how many queries.

/// A batching discipline with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batcher {
    /// A free server starts at once with what waits, up to `batch_max` (InferLine, and the simulator published with Loki).
    AtStart {
        /// Largest batch, at least 1.
        batch_max: u32,
    },
}

impl Batcher {
    /// How many of `waiting` queries a server that is free now should take; 0 is none yet.
    #[inline]
    #[must_use]
    pub fn size(self, waiting: usize) -> usize {
        match self {
            Self::AtStart { batch_max } => waiting.min(batch_max as usize),
        }
    }

    /// Largest batch that it ever forms.
    #[must_use]
    pub fn batch_max(self) -> u32 {
        match self {
            Self::AtStart { batch_max } => batch_max,
        }
    }
}
