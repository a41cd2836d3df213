//! How do queries in the slots of a model with state share its steps?
//!
//! Example: the queries in slots 0 and 1 have made three steps when a query for slot 2 comes. It joins before the next
//! step, which all three make together. The query in slot 0 ends there, and its slot is free before the step after. The
//! client of the query in slot 1 goes away: the query leaves before the next step, and the query in slot 2 goes on alone.

use super::given::{SlotBatch, SlotOrder, fault_of, guarded, panicked};
use crate::backend::{Backend, EndedQuery, SteppedQuery, Stepping};
use crate::parts::contained;
use apportion_node::replica_event::ReplicaEvent;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The queries of one replica that are between two steps.
#[derive(Default)]
struct SteppedSlots {
    running: Vec<SteppedQuery>,
    /// When the query of each taken slot was started.
    begun: BTreeMap<u32, Instant>,
}

/// Takes orders between two steps, and reports each query when it has ended. Returns when the slot is dropped. A query
/// takes the time of its steps: it is not held for the profile's.
pub(super) fn serve(backend: &Mutex<Box<dyn Backend>>, inbox: &Receiver<SlotOrder>, report: &impl Fn(ReplicaEvent)) {
    let mut slots = SteppedSlots::default();
    while let Some(orders) = next_orders(inbox, &slots.running) {
        let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(steps) = backend.stepping() else { return };
        let mut ended = Vec::new();
        for order in orders {
            match order {
                SlotOrder::Run(batch) => ended.extend(slots.join(steps, batch)),
                SlotOrder::Leave(slot) => slots.leave(slot).into_iter().for_each(report),
            }
        }
        ended.extend(slots.step(steps));
        for EndedQuery { slot, result } in ended {
            // A step that panicked ends all queries, those that had just begun badly too.
            let Some(since) = slots.begun.remove(&slot) else { continue };
            let result = result.map_err(|error| fault_of(&error));
            report(ReplicaEvent::BatchEnded { server: slot, result, took: since.elapsed() });
        }
    }
}

/// The orders that have come; without running queries it waits for one. None if the slot is dropped.
fn next_orders(inbox: &Receiver<SlotOrder>, running: &[SteppedQuery]) -> Option<Vec<SlotOrder>> {
    let mut orders = Vec::new();
    if running.is_empty() {
        orders.push(inbox.recv().ok()?);
    }
    loop {
        match inbox.try_recv() {
            Ok(order) => orders.push(order),
            Err(TryRecvError::Empty) => return Some(orders),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

impl SteppedSlots {
    /// A query joins; its end, if it cannot.
    fn join(&mut self, steps: &dyn Stepping, batch: SlotBatch) -> Option<EndedQuery> {
        let slot = batch.given.server;
        self.begun.insert(slot, batch.begun);
        match guarded(|| steps.begin(slot, &batch.given.inputs)) {
            Ok(query) => {
                self.running.push(query);
                None
            }
            Err(error) => Some(EndedQuery { slot, result: Err(error) }),
        }
    }

    /// The query of a slot leaves, and its state with it. None if it has ended.
    fn leave(&mut self, slot: u32) -> Option<ReplicaEvent> {
        let since = self.begun.remove(&slot)?;
        self.running.retain(|query| query.slot != slot);
        Some(ReplicaEvent::Left { server: slot, took: since.elapsed() })
    }

    /// One step. If it panics, the queries in all taken slots have failed: their state is lost.
    fn step(&mut self, steps: &mut dyn Stepping) -> Vec<EndedQuery> {
        match contained(|| steps.step(&mut self.running)) {
            Ok(ended) => ended,
            Err(panic) => {
                self.running.clear();
                let fail = |slot: &u32| EndedQuery { slot: *slot, result: Err(panicked(&panic)) };
                self.begun.keys().map(fail).collect()
            }
        }
    }
}
