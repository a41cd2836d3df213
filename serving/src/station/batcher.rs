//! When does a free server start, and with how many queries?

use apportion_domain::{Batching, TimeSpan};

/// A batching discipline with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batcher {
    /// A free server starts at once with the waiting queries, up to `batch_max` (InferLine, and the simulator published
    /// with Loki).
    AtStart {
        /// Largest batch, at least 1.
        batch_max: u32,
    },
    /// While a server runs a batch, its next batch is filled from the queue, up to `batch_max`. The next batch starts when
    /// the running one has ended (PARD section 4.2). A server without a batch starts at once.
    Forming {
        /// Largest batch, at least 1.
        batch_max: u32,
    },
    /// A free server waits for a full batch. It waits at most until the oldest query has waited for `delay`, and at most
    /// until the last moment at which that query is still on time.
    WaitUntil {
        /// Largest batch, at least 1.
        batch_max: u32,
        /// Longest wait; `None` is only bounded by the deadline.
        delay: Option<TimeSpan>,
        /// The time that a query needs after this station. It is on time here if this much is left when its batch ends.
        reserve: TimeSpan,
    },
}

impl Batcher {
    /// The discipline with this name. `reserve` is the time that the plan grants the later tasks of a query, for
    /// `wait_until`.
    #[must_use]
    pub fn of(batching: Batching, batch_max: u32, reserve: TimeSpan) -> Self {
        match batching {
            Batching::AtStart => Self::AtStart { batch_max },
            Batching::Forming => Self::Forming { batch_max },
            Batching::WaitUntil => Self::WaitUntil { batch_max, delay: None, reserve },
        }
    }

    /// Largest batch that it ever forms.
    #[inline]
    #[must_use]
    pub fn batch_max(self) -> u32 {
        match self {
            Self::AtStart { batch_max } | Self::Forming { batch_max } | Self::WaitUntil { batch_max, .. } => batch_max,
        }
    }

    /// Whether a free server may wait although queries do.
    #[inline]
    #[must_use]
    pub fn may_wait(self) -> bool {
        matches!(self, Self::WaitUntil { .. })
    }

    /// Whether the next batch is filled while the one before runs.
    #[inline]
    #[must_use]
    pub fn is_forming(self) -> bool {
        matches!(self, Self::Forming { .. })
    }
}
