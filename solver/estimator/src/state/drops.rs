//! What follows when a query is dropped or lost.

use super::bounds::CutReason;
use super::joins::{MadeQuery, NO_SCOPE, Scopes};
use super::pipeline::PipelineState;
use super::query::{NO_PICK, SimulatedQuery};
use super::run_state::RunState;
use super::serving::{ServingState, SimulatedDrop};
use apportion_domain::{Moment, Partial};
use apportion_serving::DropReason;

impl RunState {
    /// Accounts for all dropped queries, in the order in which they were dropped. To cancel the other queries of a request
    /// may drop more.
    #[inline]
    pub fn account_for_drops(&mut self) {
        let mut next = 0;
        while let Some(&dropped) = self.serving.dropped.get(next) {
            next += 1;
            self.account_for_drop(dropped);
            if !self.is_within_bounds() {
                break;
            }
        }
        self.serving.dropped.clear();
    }

    #[cold]
    fn account_for_drop(&mut self, SimulatedDrop { pipeline, at, task, query, reason }: SimulatedDrop) {
        if let Some(journal) = &mut self.journal {
            // The request and its other queries are known to another thread.
            journal.give_up();
            return self.serving.bounds.cut_short(CutReason::Stopped);
        }
        let state = &self.pipelines[pipeline as usize];
        if state.counts_outstanding {
            self.serving.query_ended(&query);
        }
        let is_first = self.requests.drop_at(query.request, at);
        let request = self.requests.get_mut(query.request);
        request.progress.dropped(self.now, 1, reason);
        if is_first && state.partial == Partial::Deny && !request.progress.is_complete() {
            self.cancel_waiting(pipeline, query);
        }
        self.stop_waiting_for(pipeline, task, query);
    }

    /// Drops the queries of this query's request that wait, in queues and at joins.
    fn cancel_waiting(&mut self, pipeline: u32, query: SimulatedQuery) {
        let state = &self.pipelines[pipeline as usize];
        let request = self.requests.get_mut(query.request);
        if state.is_tracked && state.untracked_until.is_none_or(|until| request.arrival > until) {
            self.serving.cancel_tracked(self.now, query, request.deadline);
        } else {
            self.serving.cancel(self.now, &state.stations, query);
        }
        if state.joins.is_some() {
            while let Some(held) = self.scopes.cancel(query.request) {
                self.serving.bounds.count_work(1);
                let (query, reason) = (held.query, DropReason::Cancelled);
                self.serving.dropped.push(SimulatedDrop { pipeline, at: held.task, task: held.task, query, reason });
            }
        }
    }

    /// The gateway of an open request gives it up: its queries that wait are dropped. Unless the pipeline answers in part,
    /// those on their way are dropped when they arrive, and those that run make no children. Then nothing waits of a
    /// request that has lost a query already.
    pub fn give_up(&mut self, pipeline: u32, slot: u32) {
        let PipelineState { root, partial, .. } = self.pipelines[pipeline as usize];
        if self.requests.drop_at(slot, root) || partial == Partial::Allow {
            self.requests.get_mut(slot).progress.give_up(DropReason::Cancelled);
            // It equals all queries of its request, and is never sent.
            let any = SimulatedQuery { request: slot, node: 0, stages: 1.0, router: 0, pick: NO_PICK, scope: NO_SCOPE };
            self.cancel_waiting(pipeline, any);
        }
    }

    /// A query is lost with the replica that held it: its request fails.
    #[cold]
    pub fn lose(&mut self, pipeline: u32, task: u32, query: SimulatedQuery) {
        if self.pipelines[pipeline as usize].counts_outstanding {
            self.serving.query_ended(&query);
        }
        self.requests.get_mut(query.request).progress.failed(self.now, 1);
        self.stop_waiting_for(pipeline, task, query);
    }

    /// Nobody waits any more for a query that was lost or dropped. This may send other queries, or end its request.
    fn stop_waiting_for(&mut self, pipeline: u32, task: u32, query: SimulatedQuery) {
        self.serving.bounds.count_ended(1);
        let state = &self.pipelines[pipeline as usize];
        if let Some(joins) = &state.joins {
            self.scopes.count_ended(joins, query.scope, task);
            send_released(&mut self.scopes, &mut self.serving, state, self.now);
        }
        if self.requests.get_mut(query.request).progress.is_complete() {
            let closed = self.requests.close(query.request, &state.weights);
            self.statistics.count_outcome(closed, state.partial);
        }
    }
}

/// Sends the queries that need not wait any longer at a join of this pipeline.
pub fn send_released(scopes: &mut Scopes, serving: &mut ServingState, state: &PipelineState, now: Moment) {
    for held in scopes.released.drain(..) {
        let MadeQuery { query, to, maker, task } = held.made;
        if !serving.send(now, state.links[task as usize], query, to) {
            let (at, pipeline) = (maker, state.number);
            serving.dropped.push(SimulatedDrop { pipeline, at, task, query, reason: DropReason::Budget });
        }
    }
}
