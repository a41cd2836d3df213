//! When does a batch start, and what happens to its members when it ends?
//!
//! Example: a batch of two queries ends with three rows, two of them of the first query. The first query makes two
//! children, the second one makes one, and the station starts its next batch.

use super::batch_runs::{BatchOutcome, DroppedWork, EndedBatch};
use super::deliver::notify_sender;
use super::members::{BatchOutputs, Member, MemberOutputs, TaskRef};
use super::parts::EndedVisit;
use super::state::TrafficState;
use crate::layout::LayoutEdge;
use crate::node::replicas::{BatchPlace, EndedMember};
use crate::node::spans::VisitEnd;
use crate::node::split::{Branching, ChildQuery, MemberResult, SplitInput};
use crate::node::work::SendContext;
use crate::replica_event::BatchFault;
use crate::tensor::Tensor;
use crate::wire::{PartEnd, RoutedQuery, Scope};
use apportion_serving::DropReason;
use std::collections::BTreeMap;
use std::time::Duration;

impl TrafficState {
    /// Lets each station with new events start its batch, and fails the batches that cannot run. All events of this moment
    /// were handled before, so queries that come together share a batch.
    pub fn run_batches(&mut self) {
        loop {
            self.run_queues();
            // A queue that drops a query cancels the other queries of its request.
            self.cancel_queued_queries();
            if self.batch_runs.is_idle() && !self.queues.is_due() {
                return;
            }
            while let Some(id) = self.batch_runs.tick_next(&mut self.replicas, &self.site) {
                self.drain_station(id);
                // A tick may leave something to wait for.
                if let Some(replica) = self.replicas.get_mut(id) {
                    replica.wake_ns = replica.station.poll_timeout().map(|(at, _)| at.as_nanos());
                }
            }
            while let Some(place) = self.batch_runs.next_misfit() {
                let reason = "the inputs of its batch do not fit the task's".to_string();
                self.handle_batch_end(place, Err(BatchFault::of_batch(reason)), Duration::ZERO);
            }
            self.cancel_queued_queries();
        }
    }

    /// Marks the stations that are due, so that they are ticked.
    pub fn wake_stations(&mut self) {
        self.batch_runs.touch_due(&self.replicas, self.site.now_ns());
        self.queues.touch_due(self.site.now_ns());
    }

    /// Replicas here have other numbers now.
    pub fn renumber_batches(&mut self, renamed: impl Fn(&u64) -> u64) {
        self.queues.renumber(self.site.agent(), &renamed);
        self.batch_runs.renumber(renamed);
    }

    /// Carries out what a station asks for: it starts batches and drops queries.
    pub(super) fn drain_station(&mut self, id: u64) {
        while let Some(dropped) = self.batch_runs.next_dropped(id, &mut self.replicas, &mut self.site, &mut self.tallies) {
            self.end_dropped(id, dropped);
        }
    }

    /// Ends a query that the queue of a replica, or of its group, has dropped.
    pub(super) fn end_dropped(&mut self, id: u64, dropped: DroppedWork) {
        let DroppedWork { mut work, reason } = dropped;
        let end = VisitEnd::Left { error: Some(reason.name()) };
        self.tracing.end_visit(&mut self.site, &self.replicas, id, &mut work, end);
        notify_sender(&mut self.site, &mut self.fleet, &work);
        // The gateway that cancels a request has answered it.
        if reason != DropReason::Cancelled {
            self.end_query(&work.query, PartEnd::Dropped(format!("task {}: {}", work.query.task, reason.name())));
        }
    }

    /// Handles the end of a batch, or of the run of a single member of a failed batch.
    pub fn handle_batch_end(&mut self, place: BatchPlace, result: Result<Vec<Tensor>, BatchFault>, took: Duration) {
        let BatchPlace { replica: id, server } = place;
        let Some(replica) = self.replicas.get(id).filter(|replica| replica.is_running(server)) else { return };
        if replica.single_run.is_some() {
            return self.complete_single(id, result, took);
        }
        let size = replica.station.batch(server).len();
        match result.and_then(|outputs| BatchOutputs::of(outputs, size)) {
            Err(fault) if fault.is_of_batch && size > 1 => self.run_members_singly(id, &fault, took),
            made => self.end_batch(place, made, took),
        }
    }

    fn end_batch(&mut self, place: BatchPlace, made: Result<BatchOutputs, BatchFault>, took: Duration) {
        let id = place.replica;
        let outcome = if made.is_ok() { BatchOutcome::Succeeded } else { BatchOutcome::Failed };
        let (replicas, tallies) = (&mut self.replicas, &mut self.tallies);
        let Some(ended) = self.batch_runs.end_batch(place, outcome, took, replicas, &self.site, tallies) else { return };
        self.drain_station(id);
        self.replace_stale_station(id);
        self.send_batch_results(id, made, ended);
        self.run_offline();
    }

    /// Sends the results of a batch on: children to the next tasks, leaves to their gateways.
    pub(super) fn send_batch_results(&mut self, id: u64, made: Result<BatchOutputs, BatchFault>, ended: EndedBatch) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        let EndedBatch { members, batch } = ended;
        let (of, group, name, at) = (replica.of.clone(), replica.group_id, replica.pipeline.clone(), replica.group.task);
        let split = made.map_err(|fault| fault.why).and_then(|BatchOutputs { outputs, rows }| {
            let branching = Branching::of(&outputs, replica.turns.as_mut()).map_err(|error| error.to_string())?;
            let mut ended = SplitInput { task: &of.tasks[at], tasks: &of.tasks, outputs: &outputs, branching };
            let fate_of = |(m, rows): (&EndedMember, &Vec<usize>)| ended.fate(m.work.query.credit, rows);
            let fates: Vec<MemberResult> = members.iter().zip(&rows).map(fate_of).collect();
            Ok((outputs, rows, fates))
        });
        let (outputs, rows, fates) = split.unwrap_or_else(|reason| {
            let fail =
                |m: &EndedMember| MemberResult::End(PartEnd::Failed(format!("task {}: {reason}", m.work.query.task)));
            (Vec::new(), vec![Vec::new(); members.len()], members.iter().map(fail).collect())
        });
        let ended = members.len() as u64;
        let mut ended_well = 0;
        let mut children: BTreeMap<String, u64> = BTreeMap::new();
        for ((EndedMember { mut work, behind }, fate), rows) in members.into_iter().zip(fates).zip(&rows) {
            let error = if let MemberResult::End(PartEnd::Failed(reason)) = &fate { Some(reason.as_str()) } else { None };
            let has_failed = error.is_some();
            let end = VisitEnd::Ran { batch, error };
            self.tracing.end_visit(&mut self.site, &self.replicas, id, &mut work, end);
            // A member whose request was cancelled while it ran makes no children.
            if !self.cancelled.contains(work.query.origin, work.query.request) {
                ended_well += u64::from(!has_failed);
                let to = SendContext { deadline_ns: work.deadline_ns, from: Some(group), behind };
                let outputs = MemberOutputs { tensors: &outputs, rows };
                let member = Member { query: &work.query, fate, outputs, to };
                self.carry_out_fate(TaskRef { of: &of, at }, member, &mut children);
            }
            notify_sender(&mut self.site, &mut self.fleet, &work);
        }
        let made = |edge: &LayoutEdge| children.get(&of.tasks[edge.to].name).copied().unwrap_or(0);
        let made: Vec<u64> = of.tasks[at].children.iter().map(made).collect();
        self.tallies.count_made(&name, group, ended, &made);
        let counts = self.tallies.counts().groups.entry((name, group)).or_default();
        counts.ended_well.queries += ended_well;
        children.into_iter().for_each(|(task, n)| *counts.children.entry(task).or_default() += n);
    }

    /// Carries out the fate of one member, and adds its children to `counted`, by task.
    pub(super) fn carry_out_fate(&mut self, task: TaskRef<'_>, member: Member<'_>, counted: &mut BTreeMap<String, u64>) {
        let Member { query, fate, outputs, to } = member;
        let made = if let MemberResult::Children(made) = &fate { made.as_slice() } else { &[] };
        let scopes = match self.end_in_scopes(EndedVisit { task, query, made, outputs }) {
            Ok(scopes) => scopes,
            Err(error) => return self.end_query(query, PartEnd::Failed(error.to_string())),
        };
        match fate {
            MemberResult::End(end) => self.send_return(query, end),
            MemberResult::Children(made) => {
                for (child, scopes) in made.into_iter().zip(scopes) {
                    let task = task.of.tasks[child.to].name.clone();
                    *counted.entry(task.clone()).or_default() += 1;
                    self.deliver(child_query(query, child, task, scopes), to);
                }
            }
        }
    }

    /// Replaces the station of an idle replica if it is of an earlier target. Its queries wait in the new one, or in the
    /// central queue of its group.
    pub fn replace_stale_station(&mut self, id: u64) {
        let Some(waiting) = self.replicas.get_mut(id).and_then(|r| r.replace_stale_station()) else { return };
        for queued in waiting {
            let replica = self.replicas.get_mut(id).filter(|replica| replica.of.is_central());
            match replica.and_then(|replica| replica.works.remove(&queued.query.key)) {
                Some(work) => self.pass_on(work, "its group has one queue"),
                None => self.enqueue(id, queued),
            }
        }
        self.batch_runs.touch(id);
    }

    /// Sends everything elsewhere that waits or runs at a lost replica.
    pub fn abandon_replica(&mut self, id: u64, why: &str) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.take_works().for_each(|work| self.pass_on(work, why));
    }
}

/// The query of a child before it has a place.
fn child_query(parent: &RoutedQuery, child: ChildQuery, task: String, scopes: Vec<Scope>) -> RoutedQuery {
    RoutedQuery {
        pipeline: parent.pipeline.clone(),
        task,
        replica: 0,
        origin: parent.origin,
        request: parent.request,
        row: parent.row,
        credit: child.credit,
        budget_ns: 0,
        hops: 0,
        attempt: parent.attempt,
        group: 0,
        behind_ns: 0,
        level: parent.level,
        apart: parent.apart,
        pins: parent.pins.clone(),
        trace: parent.trace,
        scopes,
        inputs: child.inputs,
    }
}
