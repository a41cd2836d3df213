//! What is a variant? One way to do a task.

use crate::serving::named;
use crate::{Profile, TaskIndex};
use std::collections::BTreeMap;

named! {
    /// What runs the file of a variant.
    VariantRuntime default Onnx {
        /// ONNX Runtime.
        Onnx = "onnx",
        /// Python, in a process of its own.
        Python = "python",
    }
}

/// Distribution of the number of queries that one query makes at one child task: `(count, probability)` by increasing
/// count. The probabilities sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct FanoutCounts(pub Vec<(u32, f64)>);

impl FanoutCounts {
    /// Mean number of queries made.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|&(count, p)| f64::from(count) * p).sum()
    }
}

/// One variant of a task: a model with its accuracy, its fan-out and its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Unique in its task.
    pub name: String,
    /// 0 to 1, normalised as the user likes.
    pub accuracy: f64,
    /// Mean queries produced per query processed: Loki's multiplicative factor (section 4.1).
    pub fanout: f64,
    /// Mean queries made at a child task, instead of `fanout * ratio`.
    pub fanout_to: BTreeMap<TaskIndex, f64>,
    /// Distribution of the queries made at a child task, instead of either mean.
    pub fanout_counts: BTreeMap<TaskIndex, FanoutCounts>,
    /// Time to load the variant onto a device, in milliseconds.
    pub load_ms: f64,
    /// Device memory in MiB while it is loaded; `None` is not counted.
    pub memory_mib: Option<f64>,
    /// Times of its batches.
    pub profile: Profile,
}
