//! The measurements of one station, for policies that decide about the whole pipeline.

use apportion_domain::{Moment, TimeSpan};

/// Batch waits that are kept between two reports. The youngest are kept.
pub const WAITS_MAX: usize = 128;

/// Counts since the last report: PARD's "runtime state of each worker" (section 4.1).
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    /// Queries that arrived, refused queries included.
    pub arrived: u64,
    /// Queries that entered a batch.
    pub entered: u64,
    /// Their waits from joining the queue to entering the batch, summed, in nanoseconds.
    pub queueing_ns: u64,
    /// The longest of these waits.
    pub queueing_max: TimeSpan,
    /// The longest wait from entering the batch to its start.
    pub wait_max: TimeSpan,
    waits: Vec<TimeSpan>,
    next: usize,
    kept: Option<Box<QueryRecords>>,
}

/// A query that entered a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry {
    /// When it did.
    pub at: Moment,
    /// How long it had been in the queue.
    pub queued: TimeSpan,
    /// The time left of its request's SLO; zero if the deadline had passed.
    pub left: TimeSpan,
}

/// Every query since the last report, for callers that need more than counts ([`Monitor::keep`]). Agents never do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRecords {
    /// Queries that entered a batch, in that order.
    pub entries: Vec<BatchEntry>,
    /// Waits from entering a batch to its start, in the order of the starts.
    pub waits: Vec<TimeSpan>,
    /// The expected time of its batch for each of these.
    pub executions: Vec<TimeSpan>,
}

impl Monitor {
    /// From now on it keeps every query until [`Monitor::take_kept`].
    pub fn keep(&mut self) {
        self.kept = Some(Box::default());
    }

    /// The queries that were kept since the last call; `None` if queries are not kept.
    pub fn take_kept(&mut self) -> Option<QueryRecords> {
        self.kept.as_deref_mut().map(std::mem::take)
    }

    /// A query entered a batch.
    #[inline]
    pub fn enter(&mut self, queued: TimeSpan) {
        self.entered += 1;
        self.queueing_ns = self.queueing_ns.saturating_add(queued.as_nanos());
        self.queueing_max = self.queueing_max.max(queued);
    }

    /// Keeps the query that entered a batch, if queries are kept.
    #[inline]
    pub fn keep_entry(&mut self, now: Moment, queued: TimeSpan, deadline: Moment) {
        if let Some(kept) = &mut self.kept {
            kept.entries.push(BatchEntry { at: now, queued, left: deadline.since(now) });
        }
    }

    /// The batch of a query started, `waited` after the query had entered it.
    #[inline]
    pub fn start(&mut self, waited: TimeSpan) {
        self.wait_max = self.wait_max.max(waited);
        if self.waits.len() < WAITS_MAX {
            self.waits.push(waited);
        } else {
            self.waits[self.next] = waited;
        }
        self.next = (self.next + 1) % WAITS_MAX;
        if let Some(kept) = &mut self.kept {
            kept.waits.push(waited);
        }
    }

    /// Keeps the expected time of a batch for each of its `queries` queries, if queries are kept. [`Monitor::start`] was
    /// called for each of them before.
    #[inline]
    pub fn keep_executions(&mut self, execution: TimeSpan, queries: usize) {
        if let Some(kept) = &mut self.kept {
            kept.executions.resize(kept.executions.len() + queries, execution);
        }
    }

    /// The youngest batch waits, in no order.
    #[must_use]
    pub fn waits(&self) -> &[TimeSpan] {
        &self.waits
    }

    /// Sets all counts to zero. The buffer and the kept queries stay.
    pub fn clear(&mut self) {
        let (mut waits, kept) = (std::mem::take(&mut self.waits), self.kept.take());
        waits.clear();
        *self = Self { waits, kept, ..Self::default() };
    }
}
