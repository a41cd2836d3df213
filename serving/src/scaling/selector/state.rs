//! In which state is a variant on a worker (figure 4 of INFaaS), and how loaded is the worker?

/// Part of a peak throughput at which a variant is overloaded: the paper's state begins at the peak itself.
pub const PEAK: f64 = 1.0;
/// A variant is disturbed if its batches take longer than profiled by this factor. The paper gives none; profiles repeat to
/// within a few per cent.
pub const DISTURBED: f64 = 1.2;
/// Offline queries run on workers used less (section 5).
pub const OFFLINE_UTILISATION_MAX: f64 = 0.4;

/// A variant's state on one worker (figure 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VariantState {
    /// Its load is below its peak throughput.
    Active,
    /// It is not overloaded, but slower than profiled.
    Interfered,
    /// Its load is at its peak throughput.
    Overloaded,
    /// It is not loaded.
    #[default]
    Inactive,
}

/// The load of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerLoad {
    /// Busy device time over all device time, 0 to 1.
    pub utilisation: f64,
    /// Whether no variant there is slower than profiled.
    pub is_calm: bool,
}

impl WorkerLoad {
    /// Whether the worker may run offline queries now (sections 4 and 5): it is little used, and nothing there is slower
    /// than profiled.
    #[must_use]
    pub fn allows_offline(self) -> bool {
        self.is_calm && self.utilisation < OFFLINE_UTILISATION_MAX
    }
}

/// Whether others disturb a variant (figure 4): it is slower than profiled though it is not overloaded. `load` is its
/// throughput over its peak throughput. `slowness` is the time of its batches over the profiled time.
#[must_use]
pub fn is_disturbed(load: f64, slowness: f64) -> bool {
    load < PEAK && slowness > DISTURBED
}
