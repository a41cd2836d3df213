//! When do the queries of a request begin, and when are they not wanted any more?
//!
//! Example: a request is answered because one of its queries was dropped. Its other queries leave their queues at once,
//! and their slots after the step that they are in. Queries of it that arrive later are dropped on arrival, and queries
//! that run in batches make no children.

use super::deliver::notify_sender;
use super::state::TrafficState;
use crate::node::gateway::{Arrival, DueRun};
use crate::node::work::SendContext;
use crate::wire::CreditReturn;
use apportion_domain::TimeSpan;

impl TrafficState {
    /// A client's request comes to the gateway.
    pub fn accept_request(&mut self, arrival: Arrival) {
        let (site, tallies) = (&mut self.site, &mut self.tallies);
        if let Some(run) = self.gateway.accept(arrival, site, &self.fleet, &self.replicas, tallies) {
            self.run_request(&run);
        }
    }

    /// Runs a request: one query for each of its rows.
    fn run_request(&mut self, due: &DueRun) {
        let run = self.gateway.begin_run(due.request);
        let to = SendContext { deadline_ns: run.deadline_ns, from: None, behind: TimeSpan::ZERO };
        let apart = self.gateway.apart(&self.site, run.terms.sender);
        for query in run.into_queries(self.site.agent(), &due.root, apart) {
            self.deliver(query, to);
        }
    }

    /// Runs again and gives up the requests that are due.
    pub fn check_due_requests(&mut self) {
        if !self.gateway.is_any_due(&self.site) {
            return;
        }
        for request in self.gateway.due_retries(&self.site) {
            if let Some(run) = self.gateway.prepare_retry(request, &self.site, &self.fleet, &self.replicas) {
                self.run_request(&run);
            }
        }
        let (site, tallies, cancelled) = (&mut self.site, &mut self.tallies, &mut self.cancelled);
        self.gateway.expire_requests(site, &self.fleet, tallies, cancelled);
        self.gateway.find_next_due();
    }

    /// Runs the requests whose variants are ready by now.
    pub fn resume_waiting_requests(&mut self) {
        let (site, tallies) = (&mut self.site, &mut self.tallies);
        for run in self.gateway.resume_waiting(site, &self.fleet, &self.replicas, tallies) {
            self.run_request(&run);
        }
    }

    /// A part of a request of this gateway has come back.
    pub fn receive_return(&mut self, part: CreditReturn) {
        let (site, tallies, cancelled) = (&mut self.site, &mut self.tallies, &mut self.cancelled);
        self.gateway.receive_return(part, site, &self.fleet, tallies, cancelled);
    }

    /// A client has gone before its answer: nothing of its request is wanted any more.
    pub fn abandon_request(&mut self, caller: u64) {
        let (site, tallies, cancelled) = (&mut self.site, &mut self.tallies, &mut self.cancelled);
        self.gateway.abandon(caller, site, &self.fleet, tallies, cancelled);
    }

    /// Nothing of a request is wanted any more here. Its queries leave their queues after the event in hand.
    pub fn cancel(&mut self, origin: u64, request: u64) {
        self.cancelled.insert(origin, request);
    }

    /// Takes the queries of cancelled requests out of all queues, and has them leave their slots.
    pub fn cancel_queued_queries(&mut self) {
        let now = self.site.now();
        while let Some((origin, request)) = self.cancelled.next_in_queues() {
            for id in self.replicas.ids(|r| r.len() > 0) {
                if let Some(replica) = self.replicas.get_mut(id) {
                    replica.cancel_queued(origin, request, now);
                    self.batch_runs.touch(id);
                    self.drain_station(id);
                }
                self.leave_slots(id, origin, request);
                let waiting = self.replicas.get_mut(id).map(|r| r.take_offline_of(origin, request)).unwrap_or_default();
                waiting.iter().for_each(|work| notify_sender(&mut self.site, &mut self.fleet, work));
            }
            self.cancel_in_queues(origin, request);
            self.parked.cancel(origin, request);
            for work in self.joins.cancel(origin, request) {
                notify_sender(&mut self.site, &mut self.fleet, &work);
            }
        }
    }
}
