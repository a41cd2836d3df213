//! How do queries in the slots of a model with state share its steps?
//!
//! Example: the queries in slots 0 and 1 have made three steps when a query for slot 2 comes. It joins before the next
//! step, which all three make together. The query in slot 0 ends there, and its slot is free before the step after.

use super::given::SlotBatch;
use crate::backend::{Backend, BackendError, EndedQuery, SteppedQuery, Stepping};
use crate::parts::{CallPanic, contained};
use apportion_node::replica_event::{BatchFault, ReplicaEvent};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Takes queries between two steps, and reports each when it has ended. Returns when the slot is dropped. A query takes
/// the time of its steps: it is not held for the profile's.
pub(super) fn serve(backend: &Mutex<Box<dyn Backend>>, inbox: &Receiver<SlotBatch>, report: &impl Fn(ReplicaEvent)) {
    let mut running: Vec<SteppedQuery> = Vec::new();
    let mut begun: BTreeMap<u32, Instant> = BTreeMap::new();
    while let Some(joining) = next_queries(inbox, &running) {
        let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(steps) = backend.stepping() else { return };
        let mut ended = Vec::new();
        for batch in joining {
            let slot = batch.given.server;
            begun.insert(slot, batch.begun);
            let query = contained(|| steps.begin(slot, &batch.given.inputs));
            match query.unwrap_or_else(|panic| Err(panicked(&panic))) {
                Ok(query) => running.push(query),
                Err(error) => ended.push(EndedQuery { slot, result: Err(error) }),
            }
        }
        ended.extend(step(steps, &mut running, begun.keys().copied()));
        for EndedQuery { slot, result } in ended {
            // A step that panicked ends all queries, those that had just begun badly too.
            let Some(since) = begun.remove(&slot) else { continue };
            let result = result.map_err(|e| BatchFault { why: e.to_string(), is_of_batch: e.is_of_batch() });
            report(ReplicaEvent::BatchEnded { server: slot, result, took: since.elapsed() });
        }
    }
}

/// The queries that have come; without running ones it waits for one. None if the slot is dropped.
fn next_queries(inbox: &Receiver<SlotBatch>, running: &[SteppedQuery]) -> Option<Vec<SlotBatch>> {
    let mut queries = Vec::new();
    if running.is_empty() {
        queries.push(inbox.recv().ok()?);
    }
    loop {
        match inbox.try_recv() {
            Ok(query) => queries.push(query),
            Err(TryRecvError::Empty) => return Some(queries),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// One step. If it panics, the queries in these slots have failed: their state is lost.
fn step(steps: &mut dyn Stepping, running: &mut Vec<SteppedQuery>, slots: impl Iterator<Item = u32>) -> Vec<EndedQuery> {
    match contained(|| steps.step(running)) {
        Ok(ended) => ended,
        Err(panic) => {
            running.clear();
            let fail = |slot| EndedQuery { slot, result: Err(panicked(&panic)) };
            slots.map(fail).collect()
        }
    }
}

fn panicked(panic: &CallPanic) -> BackendError {
    BackendError::Run(format!("the backend panicked: {panic}"))
}
