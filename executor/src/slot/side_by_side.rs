//! How do the slots of a continuous task run side by side on one thread?
//!
//! Example: slots 0 and 1 hold queries that leave after 30 and 50 ms. A query comes after 10 ms and takes slot 2 at once.
//! It stays for 5 ms, so it leaves first, and no other query waits for it (PARD section 7). A query that nobody waits for
//! leaves at once.

use super::given::{SLEEP_LATE, SlotBatch, SlotOrder, run_backend, wait_until};
use crate::backend::Backend;
use apportion_node::replica_event::ReplicaEvent;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

/// Takes queries as they come, and reports each when its own time is over. Returns when the slot is dropped: the queries
/// that are in it then have no replica.
pub(super) fn serve(backend: &Mutex<Box<dyn Backend>>, inbox: &Receiver<SlotOrder>, report: &impl Fn(ReplicaEvent)) {
    let mut running: Vec<SlotBatch> = Vec::new();
    loop {
        match next_order(inbox, running.iter().map(SlotBatch::due).min()) {
            Ok(SlotOrder::Run(batch)) => running.push(batch),
            Ok(SlotOrder::Leave(slot)) => {
                for batch in running.extract_if(.., |batch| batch.given.server == slot) {
                    report(ReplicaEvent::Left { server: slot, took: batch.begun.elapsed() });
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for batch in take_due(&mut running, Instant::now()) {
            let result = run_backend(backend, &batch.given.inputs);
            report(ReplicaEvent::BatchEnded { server: batch.given.server, result, took: batch.begun.elapsed() });
        }
    }
}

/// The next order, or a timeout at the moment when the first of the running ones leaves.
fn next_order(inbox: &Receiver<SlotOrder>, leaves: Option<Instant>) -> Result<SlotOrder, RecvTimeoutError> {
    let Some(leaves) = leaves else { return inbox.recv().map_err(|_| RecvTimeoutError::Disconnected) };
    let left = leaves.saturating_duration_since(Instant::now());
    let order = inbox.recv_timeout(left.saturating_sub(SLEEP_LATE));
    if matches!(order, Err(RecvTimeoutError::Timeout)) {
        wait_until(leaves);
    }
    order
}

/// Takes out the queries whose time is over, the first one first.
fn take_due(running: &mut Vec<SlotBatch>, now: Instant) -> Vec<SlotBatch> {
    let (mut due, rest): (Vec<SlotBatch>, Vec<SlotBatch>) = running.drain(..).partition(|batch| batch.due() <= now);
    *running = rest;
    due.sort_by_key(SlotBatch::due);
    due
}
