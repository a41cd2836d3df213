//! What does a run tell the thread that keeps its accounts?
//!
//! Example: a detector's batch of four ends and makes nine queries. The run notes four ended queries, with the number that
//! each of them made, and goes on. It never asks for an account, so notes are handed over in blocks.

use apportion_domain::{Moment, TimeSpan};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Notes of one kind in a block: about as many as the second-level cache of a processor holds.
const NOTES_PER_BLOCK: usize = 1 << 12;
/// Full blocks that wait. A run that is further ahead of its accounts waits for them.
const BLOCKS_MAX: usize = 4;

/// A batch that started: the waits of its members are notes of their own.
#[derive(Clone, Copy, Debug)]
pub struct JournalStart {
    /// Its task, among all tasks of the problem.
    pub task: u32,
    /// Its members.
    pub queries: u32,
}

/// A batch that ended: its members are notes of their own.
#[derive(Clone, Copy, Debug)]
pub struct JournalEnd {
    /// When.
    pub now: Moment,
    /// Its group.
    pub group: u32,
    /// Its members, but for those that a ledger does not need.
    pub queries: u32,
}

/// A query that ended.
#[derive(Clone, Copy, Debug)]
pub struct JournalQuery {
    /// When its request should be answered.
    pub deadline: Moment,
    /// Accuracy of its path, where the path is scored.
    pub accuracy: f64,
    /// The number of its request among those of its pipeline, in 32 bits: it begins again at 0.
    pub request: u32,
    /// Queries that it made.
    pub made: u32,
}

/// The notes of a part of a run.
#[derive(Debug, Default)]
pub struct JournalBlock {
    /// Batches that started.
    pub starts: Vec<JournalStart>,
    /// How long their members had waited, in the same order.
    pub waits: Vec<TimeSpan>,
    /// Batches that ended, in the order of the run.
    pub ends: Vec<JournalEnd>,
    /// Their members, in the same order.
    pub queries: Vec<JournalQuery>,
}

impl JournalBlock {
    fn is_full(&self) -> bool {
        self.waits.len().max(self.queries.len()) >= NOTES_PER_BLOCK
    }

    fn clear(&mut self) {
        self.starts.clear();
        self.waits.clear();
        self.ends.clear();
        self.queries.clear();
    }
}

/// The side of the run.
#[derive(Debug)]
pub struct Journal {
    block: JournalBlock,
    /// Members of the batch that ends now which are noted already.
    noted: u32,
    full: SyncSender<JournalBlock>,
    empty: Receiver<JournalBlock>,
    is_given_up: bool,
}

/// The side of the thread that keeps the accounts.
#[derive(Debug)]
pub struct JournalReader {
    full: Receiver<JournalBlock>,
    empty: SyncSender<JournalBlock>,
}

/// Both sides of a new journal.
#[must_use]
pub fn open_journal() -> (Journal, JournalReader) {
    let (full, read) = sync_channel(BLOCKS_MAX);
    let (back, empty) = sync_channel(BLOCKS_MAX);
    let journal = Journal { block: JournalBlock::default(), noted: 0, full, empty, is_given_up: false };
    (journal, JournalReader { full: read, empty: back })
}

impl Journal {
    /// A batch of a task starts. Its members have waited for so long.
    #[inline]
    pub fn note_start(&mut self, task: u32, waits: impl ExactSizeIterator<Item = TimeSpan>) {
        self.block.starts.push(JournalStart { task, queries: waits.len() as u32 });
        self.block.waits.extend(waits);
    }

    /// A query of the batch that ends now has ended.
    #[inline]
    pub fn note_query(&mut self, query: JournalQuery) {
        self.block.queries.push(query);
        self.noted += 1;
    }

    /// All queries of the batch that ends now have ended.
    #[inline]
    pub fn note_queries(&mut self, queries: impl ExactSizeIterator<Item = JournalQuery>) {
        self.noted += queries.len() as u32;
        self.block.queries.extend(queries);
    }

    /// The batch whose queries were noted last has ended.
    #[inline]
    pub fn note_end(&mut self, now: Moment, group: u32) {
        let queries = std::mem::take(&mut self.noted);
        if queries > 0 {
            self.block.ends.push(JournalEnd { now, group, queries });
        }
        if self.block.is_full() {
            self.hand_over();
        }
    }

    #[cold]
    #[inline(never)]
    fn hand_over(&mut self) {
        let next = self.empty.try_recv().unwrap_or_default();
        // A reader that is gone has panicked: its thread is joined after the run, and says so.
        let _ = self.full.send(std::mem::replace(&mut self.block, next));
    }

    /// The accounts cannot be kept apart: something happened that other events depend on.
    #[cold]
    pub fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// Hands over the last notes. Returns whether the accounts are complete.
    #[must_use]
    pub fn close(mut self) -> bool {
        self.hand_over();
        !self.is_given_up
    }
}

impl JournalReader {
    /// Reads all blocks until the run has closed its journal.
    pub fn read(self, mut enter: impl FnMut(&JournalBlock)) {
        while let Ok(mut block) = self.full.recv() {
            enter(&block);
            block.clear();
            // If the run has blocks enough, this one is not needed.
            let _ = self.empty.try_send(block);
        }
    }
}
