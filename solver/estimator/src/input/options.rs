//! What does the caller of a run choose?

use super::ingresses::IngressSettings;
use crate::state::bounds::Stop;
use crate::state::durations::ServiceTimes;
use apportion_domain::{ServingPolicy, TimeSpan};
use apportion_serving::modules::StatePlannerSettings;

/// Which thread keeps the accounts of a run: the waits of queries, open requests and their outcomes. The results are the
/// same, to the last bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// The caller's, which plays the run.
    #[default]
    SameThread,
    /// A second one, where that is possible and worth it ([`keeps_accounts_apart`](crate::keeps_accounts_apart)). It is for
    /// a caller that waits for one run while a processor is idle. The run takes less time, and a little more processor
    /// time.
    SecondThread,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct SimulateOptions {
    /// Keep one record per request.
    pub requests: bool,
    /// Count the requests of each pipeline by class, in windows of this length ([`Simulation::classes`]). Memory follows
    /// the number of windows, at most [`WINDOWS_MAX`](crate::scenario::WINDOWS_MAX). Later arrivals count in the last.
    ///
    /// [`Simulation::classes`]: crate::Simulation::classes
    pub class_window: Option<TimeSpan>,
    /// Serving policy of all pipelines instead of the plan's.
    pub serving: Option<ServingPolicy>,
    /// Where the times of batches come from.
    pub service: ServiceTimes,
    /// The ingresses at which requests come in.
    pub ingresses: IngressSettings,
    /// Which thread keeps the accounts.
    pub accounting: Accounting,
    /// How PARD looks ahead.
    pub foresight: StatePlannerSettings,
    /// End with [`CutReason::Missed`](crate::CutReason::Missed) once more requests than this have missed (late, dropped or
    /// failed).
    pub misses_max: Option<u64>,
    /// End with [`CutReason::Visits`](crate::CutReason::Visits) once more queries than this have been made, over all tasks.
    /// A run that is expected to make more ([`expected_visits`](crate::expected_visits)) does not begin.
    pub visits_max: Option<u64>,
    /// End with [`CutReason::Stopped`](crate::CutReason::Stopped) once it says so.
    pub stop: Stop,
}
