//! Which member of a failed batch is at fault?
//!
//! The members run again, each in a batch of its own and one after the other. Only the members whose inputs are at fault
//! fail. The station knows nothing of this: to it the batch takes longer.
//!
//! The price is the time of one batch of one for each member, once. Members whose requests are cancelled meanwhile are
//! left out. As soon as the backend says that nothing can run at all, the rest fails. A sender cannot do this to its
//! neighbours again and again: its queries then share batches with no other sender's ([`super::suspects`]).

use super::batch::{Made, Member, MemberOutputs, TaskRef, inputs_of};
use super::replica::Alone;
use super::work::Sending;
use super::{Action, Node};
use crate::node::split::Fate;
use crate::replica_event::BatchFault;
use crate::tensor::Tensor;
use crate::trace::Batch;
use crate::wire::End;
use apportion_domain::{Moment, Span};
use apportion_serving::replica::Input;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

impl Node {
    /// A batch of several has failed.
    pub(super) fn run_members_singly(&mut self, id: u64, fault: &BatchFault, took: Duration) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let rest: VecDeque<_> = replica.station.batch(0).iter().map(|w| (w.query.key, w.arrived)).collect();
        let (task, variant, members) = (&replica.task().name, &replica.group.variant, rest.len());
        tracing::debug!(replica = id, task, variant, members, why = fault.why, "a batch has failed: its members run alone");
        replica.alone = Some(Alone { rest, ..Alone::default() });
        replica.tally_failed(took.as_nanos() as u64);
        let counts = replica.counted(&mut self.counts);
        counts.failed += 1;
        counts.busy_ns += took.as_nanos() as u64;
        self.run_next_single(id);
    }

    fn run_next_single(&mut self, id: u64) {
        loop {
            let Some(replica) = self.replicas.get_mut(&id) else { return };
            let Some(alone) = &mut replica.alone else { return };
            let Some((key, arrived)) = alone.rest.pop_front() else { return self.end_singles(id) };
            let Some(work) = replica.works.get(&key) else { continue };
            if self.cancelled.contains(work.query.origin, work.query.request) {
                continue;
            }
            let inputs = inputs_of(&replica.of.tasks[replica.group.task], &[work]);
            let Some(inputs) = inputs else {
                alone.failed.push((key, "its inputs are not the task's".into()));
                continue;
            };
            alone.current = Some((key, arrived));
            replica.begun_ns = self.now_ns;
            let hold = Duration::from_nanos(replica.group.latency_ns(1));
            replica.counted(&mut self.counts).alone += 1;
            return self.actions.push(Action::Run(id, inputs, hold));
        }
    }

    /// A member has run alone.
    pub(super) fn complete_single(&mut self, id: u64, result: Result<Vec<Tensor>, BatchFault>, took: Duration) {
        let now = Moment::from_nanos(self.now_ns);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.tally_failed(took.as_nanos() as u64);
        replica.counted(&mut self.counts).busy_ns += took.as_nanos() as u64;
        let Some(alone) = &mut replica.alone else { return };
        let Some((key, arrived)) = alone.current.take() else { return };
        match result.and_then(|outputs| Made::of(outputs, 1)) {
            Ok(made) => {
                alone.has_done_well = true;
                let batch = Batch { size: 1, begun_ns: replica.begun_ns, execution: took, wait: Duration::ZERO };
                if let Some(work) = replica.take_member(key, arrived, now) {
                    self.send_batch_results(id, Ok(made), vec![work], batch);
                }
            }
            Err(fault) => {
                let rest = if fault.is_of_batch { VecDeque::new() } else { std::mem::take(&mut alone.rest) };
                let all = std::iter::once(key).chain(rest.into_iter().map(|(key, _)| key));
                alone.failed.extend(all.map(|key| (key, fault.why.clone())));
            }
        }
        self.run_next_single(id);
    }

    /// All members have run. What failed alone, while another did well, was what made the batch fail.
    fn end_singles(&mut self, id: u64) {
        let now = Moment::from_nanos(self.now_ns);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let Some(alone) = replica.alone.take() else { return };
        replica.station.handle(now, Input::BatchFinished { server: 0 });
        let (of, at, group) = (replica.of.clone(), replica.group.task, replica.group_id);
        // Cancelled ones are not among the failed.
        let members: Vec<u64> = replica.station.batch(0).iter().map(|w| w.query.key).collect();
        let mut why: BTreeMap<u64, String> = alone.failed.into_iter().collect();
        let left: Vec<_> = members.iter().filter_map(|key| Some((replica.works.remove(key)?, why.remove(key)))).collect();
        self.touched.insert(id);
        self.drain_station(id);
        self.refit_idle(id);
        for (mut work, why) in left {
            self.end_visit(id, &mut work, None, why.as_deref());
            let is_wanted = !self.cancelled.contains(work.query.origin, work.query.request);
            if let Some(why) = why.filter(|_| is_wanted) {
                let reason = format!("task {}: {why}", work.query.task);
                let end = if alone.has_done_well { End::Harmful(reason) } else { End::Failed(reason) };
                let to = Sending { deadline_ns: work.deadline_ns, from: Some(group), behind: Span::ZERO };
                let outputs = MemberOutputs::default();
                let member = Member { query: &work.query, fate: Fate::End(end), outputs, to };
                self.carry_out_fate(TaskRef { of: &of, at }, member, &mut BTreeMap::new());
            }
            self.notify_sender(&work);
        }
        self.run_offline();
    }
}
