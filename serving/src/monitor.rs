//! What a station measures of itself for those that decide about the whole pipeline.

use apportion_domain::Span;

/// Batch waits that are kept between two reports: the youngest ones.
pub const WAITS_MAX: usize = 128;

/// Counts since the last report: PARD's "runtime state of each worker" (section 4.1).
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    /// Queries that came, those that were refused included.
    pub arrived: u64,
    /// Queries that entered a batch.
    pub entered: u64,
    /// Their waits from joining the queue to entering the batch, summed, in nanoseconds.
    pub queueing_ns: u64,
    /// The longest of them.
    pub queueing_max: Span,
    /// The longest wait from entering the batch to its start.
    pub wait_max: Span,
    waits: Vec<Span>,
    next: usize,
}

impl Monitor {
    /// A query entered a batch.
    #[inline]
    pub fn enter(&mut self, queued: Span) {
        self.entered += 1;
        self.queueing_ns = self.queueing_ns.saturating_add(queued.as_nanos());
        self.queueing_max = self.queueing_max.max(queued);
    }

    /// The batch of a query started so long after the query had entered it.
    #[inline]
    pub fn start(&mut self, waited: Span) {
        self.wait_max = self.wait_max.max(waited);
        if self.waits.len() < WAITS_MAX {
            self.waits.push(waited);
        } else {
            self.waits[self.next] = waited;
        }
        self.next = (self.next + 1) % WAITS_MAX;
    }

    /// The youngest batch waits, in no order.
    #[must_use]
    pub fn waits(&self) -> &[Span] {
        &self.waits
    }

    /// Starts counting anew; its buffer stays.
    pub fn clear(&mut self) {
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        *self = Self { waits, ..Self::default() };
    }
}
