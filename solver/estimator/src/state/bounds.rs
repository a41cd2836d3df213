//! The bounds of a run: how long its caller lets it go on, how many queries it serves, and how much memory it holds.
//!
//! A run checks its bounds every [`LOOK_EVERY`] queries, so that the check costs nothing that can be measured. A run that
//! is cut short has no estimate: it ends with a [`CutReason`].

use super::query::SimulatedQuery;
use apportion_serving::Waiting;
use std::fmt;
use std::sync::Arc;

/// Most memory that a run holds for requests and queries in flight, in bytes: 512 MiB.
pub const BYTES_MAX: usize = 1 << 29;
/// Queries between two looks at the bounds: some milliseconds.
pub const LOOK_EVERY: u64 = 1 << 15;
/// Memory of a query in flight: buffers double when they grow.
const QUERY_BYTES: usize = 2 * size_of::<Waiting<SimulatedQuery>>();

/// Says when a run is to end early; it is asked every [`LOOK_EVERY`] queries, from the run's thread.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// The run ends once `is_over` says so.
    #[must_use]
    pub fn when(is_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_over)))
    }

    /// Whether the run is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(when asked)" } else { "Stop(never)" })
    }
}

/// Why a run ended before each of its requests had an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutReason {
    /// Its caller's [`Stop`] said so.
    #[error("it was stopped")]
    Stopped,
    /// More requests missed than its caller allows.
    #[error("{missed} requests had missed their objective, more than were allowed")]
    Missed {
        /// Requests that were late, dropped or failed by then.
        missed: u64,
    },
    /// Its devices had cost more than its caller allows.
    #[error("its devices had cost more than was allowed")]
    Cost,
    /// It served more queries than its caller allows.
    #[error("it had served {visits_max} queries, as many as were allowed")]
    Visits {
        /// The caller's bound.
        visits_max: u64,
    },
    /// Its requests and queries in flight took more memory than [`BYTES_MAX`].
    #[error("its queries in flight took more than {} MiB", BYTES_MAX >> 20)]
    Memory,
}

/// The bounds of one run, and how much of them is used.
#[derive(Debug)]
pub struct RunBounds {
    /// Queries until the next look.
    left: u64,
    /// Queries that were made or had arrived, and those of them that ended or were dropped.
    made: u64,
    ended: u64,
    /// Requests that had arrived at the last look.
    arrived: u64,
    /// Memory of all but queries at the last look.
    other_bytes: usize,
    /// Memory of a query in flight, and the number of queries that are added to those in flight.
    bytes_each: usize,
    margin: usize,
    visits_max: u64,
    stop: Stop,
    cut: Option<CutReason>,
}

impl Default for RunBounds {
    fn default() -> Self {
        Self::new(Stop::default(), None)
    }
}

impl RunBounds {
    /// Bounds of which nothing is used.
    #[must_use]
    pub fn new(stop: Stop, visits_max: Option<u64>) -> Self {
        let visits_max = visits_max.unwrap_or(u64::MAX);
        let (left, cut, bytes_each, margin) = (0, None, QUERY_BYTES, 0);
        Self { left, made: 0, ended: 0, arrived: 0, other_bytes: 0, bytes_each, margin, visits_max, stop, cut }
    }

    /// Another thread knows how many requests are open. As many memory is counted as if each query in flight were alone in
    /// its request, with this many bytes: requests are never more. So are the queries that may be made until the next look.
    /// A run that this cuts short may be within its bounds; one that it does not is.
    pub fn count_requests_as_queries(&mut self, request_bytes: usize) {
        self.bytes_each = QUERY_BYTES + request_bytes;
        self.margin = LOOK_EVERY as usize;
    }

    /// Counts work: queries, or turns of the loop without queries.
    #[inline(always)]
    pub fn count_work(&mut self, queries: u64) {
        self.left = self.left.saturating_sub(queries);
    }

    /// Counts queries that are about to be made. Returns how many of them may be made before the next check, at least one;
    /// 0 if the run is cut short.
    #[inline(always)]
    pub fn count_made(&mut self, queries: u64) -> u64 {
        if queries > self.left {
            return self.count_some_made(queries);
        }
        self.left -= queries;
        self.made += queries;
        queries
    }

    #[cold]
    #[inline(never)]
    fn count_some_made(&mut self, queries: u64) -> u64 {
        self.check_now();
        if self.cut.is_some() {
            return 0;
        }
        let some = queries.min(self.left);
        self.left -= some;
        self.made += some;
        some
    }

    /// Counts queries that ended, or were dropped.
    #[inline(always)]
    pub fn count_ended(&mut self, queries: u64) {
        self.ended += queries;
        self.count_work(queries);
    }

    /// Counts ended queries that each made exactly one other.
    #[inline(always)]
    pub fn count_passed(&mut self, queries: u64) {
        self.made += queries;
    }

    /// Whether it is time to look at the bounds.
    #[inline(always)]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Checks the bounds, given the requests that have arrived and the memory of everything but queries. Returns whether
    /// the run goes on. Once it is cut short, a check is always due.
    #[cold]
    #[inline(never)]
    pub fn check(&mut self, arrived: u64, other_bytes: usize) -> bool {
        (self.arrived, self.other_bytes) = (arrived, other_bytes);
        self.check_now();
        self.cut.is_none()
    }

    fn check_now(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let begun = self.arrived + self.made;
        let in_flight = begun.saturating_sub(self.ended) as usize + self.margin;
        let bytes = in_flight.saturating_mul(self.bytes_each).saturating_add(self.other_bytes);
        self.cut = match () {
            () if self.stop.is_asked() => Some(CutReason::Stopped),
            () if begun > self.visits_max => Some(CutReason::Visits { visits_max: self.visits_max }),
            () if bytes > BYTES_MAX => Some(CutReason::Memory),
            () => None,
        };
        self.left = if self.cut.is_some() { 0 } else { LOOK_EVERY };
    }

    /// Ends the run for a reason that lies elsewhere.
    pub fn cut_short(&mut self, reason: CutReason) {
        self.cut.get_or_insert(reason);
        self.left = 0;
    }

    /// Why the run is cut short, if it is.
    #[inline(always)]
    #[must_use]
    pub fn cut(&self) -> Option<CutReason> {
        self.cut
    }
}
