//! What can a replica's thread report to the node?

use crate::tensor::Tensor;
use std::time::Duration;

/// A report from the thread of a replica.
#[derive(Debug)]
pub enum ReplicaEvent {
    /// The replica is loaded and warm.
    Ready,
    /// The replica could not be loaded, or its thread died; the text says why.
    Failed(String),
    /// A batch has ended.
    BatchEnded {
        /// The server of the replica's station that ran it: 0, or a slot of a continuous task.
        server: u32,
        /// Its outputs, or the reason why there are none.
        result: Result<Vec<Tensor>, BatchFault>,
        /// The time that it took.
        took: Duration,
    },
    /// The query of a slot has left before its end, as it was asked to.
    Left {
        /// The slot.
        server: u32,
        /// How long the query was in it.
        took: Duration,
    },
}

/// Why a batch has no outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFault {
    /// The reason, for people.
    pub why: String,
    /// Whether another batch might have succeeded at this moment. If so, one member of the batch may be the cause.
    pub is_of_batch: bool,
}

impl BatchFault {
    /// A fault whose cause may be one member of the batch.
    #[must_use]
    pub fn of_batch(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_batch: true }
    }
}
