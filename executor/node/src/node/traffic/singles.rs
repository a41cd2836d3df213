//! Which member of a failed batch is at fault?
//!
//! Example: a batch of three queries fails. Each of them runs again in a batch of its own. Two do well, and one fails:
//! that one was at fault, and only its request fails.
//!
//! The members run one after the other. The station knows nothing of this: to it the batch takes longer.
//!
//! The price is the time of one batch of one for each member, once. Members whose requests are cancelled meanwhile are
//! left out. As soon as the backend says that nothing can run at all, the rest fails. A sender cannot do this to its
//! neighbours again and again: its queries then share batches with no other sender's
//! (`Suspects` of the gateway).

use super::batch_runs::EndedBatch;
use super::deliver::notify_sender;
use super::members::{BatchOutputs, Member, MemberOutputs, TaskRef, inputs_of};
use super::state::TrafficState;
use crate::node::event::Action;
use crate::node::replicas::SingleRun;
use crate::node::spans::VisitEnd;
use crate::node::split::MemberResult;
use crate::node::work::SendContext;
use crate::replica_event::BatchFault;
use crate::tensor::Tensor;
use crate::trace::Batch;
use crate::wire::PartEnd;
use apportion_domain::TimeSpan;
use apportion_serving::replica::StationInput;
use std::collections::BTreeMap;
use std::time::Duration;

/// The server of every station that runs batches of several queries. A slot's only query need not run again.
const SERVER: u32 = 0;

impl TrafficState {
    /// A batch of several has failed.
    pub(super) fn run_members_singly(&mut self, id: u64, fault: &BatchFault, took: Duration) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        let single_run = SingleRun::of(replica.batch_members(SERVER).collect());
        let (task, variant, members) = (&replica.task().name, &replica.group.variant, replica.station.batch(SERVER).len());
        tracing::debug!(replica = id, task, variant, members, why = fault.why, "a batch has failed: its members run alone");
        replica.single_run = Some(single_run);
        replica.measure_failed(took.as_nanos() as u64);
        let counts = replica.group_counts(self.tallies.counts());
        counts.failed += 1;
        counts.busy_ns += took.as_nanos() as u64;
        self.run_next_single(id);
    }

    fn run_next_single(&mut self, id: u64) {
        loop {
            let Some(replica) = self.replicas.get_mut(id) else { return };
            let Some(single_run) = &mut replica.single_run else { return };
            let Some(member) = single_run.next_member() else { return self.end_singles(id) };
            let Some(work) = replica.works.get(&member.key) else { continue };
            if self.cancelled.contains(work.query.origin, work.query.request) {
                continue;
            }
            let inputs = inputs_of(&replica.of.tasks[replica.group.task], &[work]);
            let Some(inputs) = inputs else {
                single_run.note_failure(member.key, "its inputs are not the task's".into());
                continue;
            };
            single_run.begin(member);
            replica.begin_batch(SERVER, self.site.now_ns());
            let expected = Duration::from_nanos(replica.group.latency_ns(1));
            let spread = replica.spread(1);
            replica.group_counts(self.tallies.counts()).alone += 1;
            return self.site.push(Action::Run { replica: id, server: SERVER, inputs, expected, spread });
        }
    }

    /// A member has run alone.
    pub(super) fn complete_single(&mut self, id: u64, result: Result<Vec<Tensor>, BatchFault>, took: Duration) {
        let now = self.site.now();
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.measure_failed(took.as_nanos() as u64);
        replica.group_counts(self.tallies.counts()).busy_ns += took.as_nanos() as u64;
        let Some(single_run) = &mut replica.single_run else { return };
        let Some(member) = single_run.end_current() else { return };
        match result.and_then(|outputs| BatchOutputs::of(outputs, 1)) {
            Ok(made) => {
                single_run.note_success();
                let batch = Batch { size: 1, begun_ns: replica.begun_ns(SERVER), execution: took, wait: Duration::ZERO };
                if let Some(member) = replica.take_member(member, now) {
                    self.send_batch_results(id, Ok(made), EndedBatch { members: vec![member], batch });
                }
            }
            Err(fault) if fault.is_of_batch => single_run.note_failure(member.key, fault.why),
            Err(fault) => single_run.fail_rest(member.key, &fault.why),
        }
        self.run_next_single(id);
    }

    /// All members have run. A member that failed alone, while another did well, made the batch fail.
    fn end_singles(&mut self, id: u64) {
        let now = self.site.now();
        let Some(replica) = self.replicas.get_mut(id) else { return };
        let Some(single_run) = replica.single_run.take() else { return };
        let is_at_fault = single_run.has_done_well();
        replica.station.handle(now, StationInput::BatchFinished { server: SERVER });
        let (of, at, group) = (replica.of.clone(), replica.group.task, replica.group_id);
        // Cancelled ones are not among the failed.
        let keys: Vec<u64> = replica.batch_members(SERVER).map(|member| member.key).collect();
        let mut why: BTreeMap<u64, String> = single_run.into_failed().into_iter().map(|f| (f.key, f.why)).collect();
        let left: Vec<_> = keys.iter().filter_map(|key| Some((replica.works.remove(key)?, why.remove(key)))).collect();
        self.batch_runs.touch(id);
        self.drain_station(id);
        self.replace_stale_station(id);
        for (mut work, why) in left {
            let end = VisitEnd::Left { error: why.as_deref() };
            self.tracing.end_visit(&mut self.site, &self.replicas, id, &mut work, end);
            let is_wanted = !self.cancelled.contains(work.query.origin, work.query.request);
            if let Some(why) = why.filter(|_| is_wanted) {
                let reason = format!("task {}: {why}", work.query.task);
                let end = if is_at_fault { PartEnd::Harmful(reason) } else { PartEnd::Failed(reason) };
                let to = SendContext { deadline_ns: work.deadline_ns, from: Some(group), behind: TimeSpan::ZERO };
                let outputs = MemberOutputs::default();
                let member = Member { query: &work.query, fate: MemberResult::End(end), outputs, to };
                self.carry_out_fate(TaskRef { of: &of, at }, member, &mut BTreeMap::new());
            }
            notify_sender(&mut self.site, &mut self.fleet, &work);
        }
        self.run_offline();
    }
}
