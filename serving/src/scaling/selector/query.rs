//! What is the selector told and asked, and what does it answer?

use super::state::VariantState;
use apportion_domain::TimeSpan;

/// A variant on a hardware type, as it was registered and profiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegisteredVariant {
    /// Its application.
    pub application: u32,
    /// Accuracy, 0 to 1.
    pub accuracy: f64,
    /// Time of its batch.
    pub inference: TimeSpan,
    /// Time to load it.
    pub load: TimeSpan,
    /// Peak throughput of one replica, in queries per second.
    pub peak_qps: f64,
    /// Its hardware type, by number.
    pub hardware: u32,
    /// Eighths of a device that a replica takes.
    pub eighths: u32,
    /// Price of one replica per hour.
    pub price: f64,
}

impl RegisteredVariant {
    /// The price of one query at peak throughput.
    #[must_use]
    pub fn query_price(&self) -> f64 {
        self.price / (3_600.0 * self.peak_qps.max(1e-9))
    }
}

/// A worker's measurements of one variant in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerMeasurement {
    /// The variant.
    pub variant: u32,
    /// Replicas there, at least one.
    pub replicas: u32,
    /// Queries served per second.
    pub served_qps: f64,
    /// Mean time of a batch of the profiled size; zero if none ran.
    pub inference: TimeSpan,
    /// Queries that wait there.
    pub queued: u64,
}

/// The needs of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryNeeds {
    /// Any variant of an application that is accurate and fast enough.
    Needs {
        /// The application.
        application: u32,
        /// Least accuracy.
        accuracy: f64,
        /// Longest time.
        latency: TimeSpan,
        /// Highest price of a query at peak throughput; infinite: any.
        price: f64,
    },
    /// This variant.
    Variant(u32),
}

/// When is a variant loaded for a query?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadRule {
    /// If no variant that fits is active and has time for it (section 4.1).
    WhenBusy,
    /// If no variant that fits is loaded anywhere. Others than the selector, such as replanning and stewards, care for
    /// variants that are overloaded.
    WhenMissing,
}

/// The variant that serves a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantSelection {
    /// A variant that is loaded. It is other than active, or has too long a queue, only if nothing that fits is better or
    /// can be loaded.
    Serve {
        /// The variant.
        variant: u32,
        /// The worker.
        worker: u32,
        /// Its state there.
        state: VariantState,
    },
    /// A variant that is to be loaded first.
    Load {
        /// The variant.
        variant: u32,
        /// The least used worker that has room for it.
        worker: u32,
    },
    /// No variant meets the needs; this one is nearest. It may be loaded or not, and only serves queries that name it.
    Nearest {
        /// The variant.
        variant: u32,
    },
    /// It fits, but no worker has it or has room for it.
    NoRoom {
        /// The variant.
        variant: u32,
    },
    /// The application has no variant, or the variant is not registered.
    Unknown,
}

/// A replica that should go elsewhere, because others disturb it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The variant.
    pub variant: u32,
    /// Where it is.
    pub from: u32,
    /// Where it should be: the same worker if that has room, else the least used one.
    pub to: u32,
}
