//! How many old rows did this process delete, and how old are the oldest ones?

use crate::decide::retention::{RetentionPolicy, RowKind};
use crate::store::Time;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The policy of a process, and the results of its deletions.
#[derive(Debug, Default)]
pub struct RetentionState {
    /// For how long rows are kept.
    pub policy: RetentionPolicy,
    notes: Mutex<DeletionNotes>,
}

/// The results of deletions by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionNotes {
    /// Rows that were deleted since the process began.
    pub deleted: BTreeMap<RowKind, u64>,
    /// The time of the oldest row, as the last pass found it. A process that does not lead has none.
    pub oldest: BTreeMap<RowKind, Time>,
}

impl RetentionState {
    /// A process with this policy, which has deleted nothing.
    #[must_use]
    pub fn new(policy: RetentionPolicy) -> Self {
        Self { policy, notes: Mutex::default() }
    }

    /// Counts deleted rows.
    pub fn count(&self, kind: RowKind, rows: u64) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        *notes.deleted.entry(kind).or_default() += rows;
    }

    /// Notes the times of the oldest rows; none if this process no longer looks at them.
    pub fn set_oldest(&self, oldest: BTreeMap<RowKind, Time>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).oldest = oldest;
    }

    /// The results so far.
    #[must_use]
    pub fn notes(&self) -> DeletionNotes {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
