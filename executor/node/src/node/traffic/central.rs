//! How does a query of a group with a central queue come to a replica (InferLine section 3)?
//!
//! Example: agents 1 and 2 have a replica of `read` each. All senders send its queries to agent 1, which holds the queue.
//! The replica at agent 2 is free, so agent 1 sends it the next batch as one message. It runs at once. When its last query
//! has been taken, agent 1 sends the next batch. A batch that no message carries comes, and runs, in parts.
//!
//! The queue is a station of crate `serving`, as in the estimator: its servers are the replicas, at whatever agent. So
//! batches are formed, and queries dropped, when a replica is free. The replica's own station only runs what comes.
//!
//! The holder is the lowest agent with a ready replica of the group. If it is lost, the senders have kept its queries and
//! send them to the next one. If it lets its last replica go, it sends the queries on itself. A batch at a lost agent comes
//! back into the queue.

use super::batch_runs::DroppedWork;
use super::deliver::notify_sender;
use super::sent::SentQuery;
use super::state::TrafficState;
use crate::frames::MESSAGE_BYTES_MAX;
use crate::node::queues::{GroupQueue, QueueServer, ServerBatch};
use crate::node::replicas::QueuedQuery;
use crate::node::work::{LocalQuery, QuerySender};
use crate::policies::QueryHandle;
use crate::wire::{DispatchedQuery, Message};
use apportion_serving::DropReason;
use apportion_serving::replica::StationOutput;

/// More than most queries take in a message beside the data of their inputs.
const BESIDE_DATA: usize = 4_096;

impl TrafficState {
    /// A query joins the queue of its replica's group.
    pub(super) fn join_group_queue(&mut self, work: LocalQuery) {
        let key = self.replicas.next_key();
        let Some(replica) = self.replicas.get(work.query.replica) else { return };
        let number = self.queues.number_of(replica);
        let queued = QueuedQuery { query: work.handle(key), deadline: work.deadline() };
        if let Some(queue) = self.queues.get_mut(number) {
            queue.enqueue(work, queued, self.site.now());
        }
        self.queues.touch(number);
        self.drain_queue(number);
    }

    /// Lets the central queues send their batches to replicas that are free.
    pub(super) fn run_queues(&mut self) {
        loop {
            for hop in self.site.take_left() {
                self.end_hop(hop);
            }
            if !self.queues.is_due() {
                return;
            }
            let now = self.site.now();
            while let Some(QueueServer { queue: number, server }) = self.queues.next_finished() {
                if let Some(queue) = self.queues.get_mut(number) {
                    queue.end_batch(server, now);
                }
                self.queues.touch(number);
            }
            if self.queues.take_stale() {
                self.queues.numbers().into_iter().for_each(|number| self.renew_crew(number));
                self.queues.forget_over();
            }
            while let Some(number) = self.queues.next_touched() {
                if self.queues.get_mut(number).is_some_and(|queue| queue.tick(now)) {
                    self.drain_queue(number);
                }
            }
        }
    }

    /// Gives a queue the replicas that serve it now. If there are none, its queries go elsewhere.
    fn renew_crew(&mut self, number: u64) {
        let now = self.site.now();
        let Some(queue) = self.queues.get(number) else { return };
        let (name, of) = (queue.pipeline.clone(), self.fleet.pipeline(&queue.pipeline).cloned());
        let group = match &of {
            // The pipeline is gone: what waits is served by the replicas that drain.
            None => Some(queue.group_id()),
            Some(of) => queue.number_in(of).filter(|_| of.is_central()),
        };
        let group = group.filter(|group| !self.queues.has_other(number, &name, *group, of.as_deref()));
        let crew = group.map(|group| self.fleet.crew(&self.site, &self.replicas, &name, group)).unwrap_or_default();
        let Some(queue) = self.queues.get_mut(number) else { return };
        if let (Some(of), Some(group)) = (&of, group) {
            queue.follow(of, group);
        }
        queue.set_crew(&crew, now);
        let of_group = self.replicas.iter().find(|replica| queue.is_of(replica));
        queue.apply_view(now, of_group.and_then(|replica| replica.view));
        let forsaken = queue.take_forsaken();
        self.queues.touch(number);
        self.drain_queue(number);
        forsaken.into_iter().for_each(|work| self.pass_on(work, "its group's queue is elsewhere now"));
    }

    /// Carries out what the station of a queue asks for.
    fn drain_queue(&mut self, number: u64) {
        let outputs = self.queues.get_mut(number).map(GroupQueue::take_outputs).unwrap_or_default();
        for output in outputs {
            match output {
                StationOutput::StartBatch { server, .. } => self.dispatch_batch(QueueServer { queue: number, server }),
                StationOutput::Drop { query, reason } => self.drop_queued(number, query, reason),
                StationOutput::ServerGone { .. } => {}
            }
        }
    }

    /// Sends a batch to the replica of a server, here or at another agent.
    fn dispatch_batch(&mut self, at: QueueServer) {
        let (now_ns, own) = (self.site.now_ns(), self.site.agent());
        let Some(batch) = self.queues.get_mut(at.queue).and_then(|queue| queue.take_batch(at.server)) else { return };
        let ServerBatch { member, works } = batch;
        let mut queries = Vec::with_capacity(works.len());
        for LocalQuery { mut query, deadline_ns, from, arrived_ns } in works {
            query.replica = member.replica;
            query.budget_ns = deadline_ns.saturating_sub(now_ns.cast_signed());
            let kept = query.clone();
            let span = if member.agent == own { None } else { self.tracing.begin_hop(query.trace, now_ns) };
            query.trace = span.map_or(query.trace, |hop| Some(hop.below()));
            let sent = SentQuery { agent: member.agent, query: kept, deadline_ns, from, server: Some(at), span };
            let (hop, waited_ns) = (self.sent.insert(sent), now_ns.saturating_sub(arrived_ns));
            queries.push(DispatchedQuery { hop, waited_ns, query });
        }
        if member.agent == own {
            return self.accept_batch(queries, |hop| QuerySender::Queue { hop });
        }
        for queries in in_messages(queries, bytes_of, MESSAGE_BYTES_MAX) {
            self.site.send(member.agent, Message::Batch { from: own, queries });
        }
    }

    /// Takes a batch that the holder of its group's queue has sent.
    pub fn receive_batch(&mut self, from: u64, queries: Vec<DispatchedQuery>) {
        self.fleet.peers_mut().note_heard_from(from, self.site.now_ns());
        self.accept_batch(queries, |hop| QuerySender::Agent { agent: from, hop });
    }

    /// Gives the queries of a batch to their replica, which starts them when it is free.
    fn accept_batch(&mut self, queries: Vec<DispatchedQuery>, sender: impl Fn(u64) -> QuerySender) {
        let now_ns = self.site.now_ns();
        for DispatchedQuery { hop, waited_ns, query } in queries {
            let deadline_ns = now_ns.cast_signed().saturating_add(query.budget_ns);
            let arrived_ns = now_ns.saturating_sub(waited_ns);
            let work = LocalQuery { query, deadline_ns, from: sender(hop), arrived_ns };
            if self.cancelled.contains(work.query.origin, work.query.request) {
                notify_sender(&mut self.site, &mut self.fleet, &work);
            } else if let Some(work) = self.keep_if_served(work) {
                self.join_replica(work);
            }
        }
    }

    fn drop_queued(&mut self, number: u64, query: QueryHandle, reason: DropReason) {
        let Some(queue) = self.queues.get_mut(number) else { return };
        let Some(work) = queue.take_dropped(query) else { return };
        if let Some(replica) = self.replicas.iter().find(|replica| queue.is_of(replica)) {
            *replica.group_counts(self.tallies.counts()).drops.entry(reason.name()).or_default() += 1;
        }
        self.end_dropped(work.query.replica, DroppedWork { work, reason });
    }

    /// Takes the queries of a cancelled request out of the central queues.
    pub(super) fn cancel_in_queues(&mut self, origin: u64, request: u64) {
        let now = self.site.now();
        for number in self.queues.numbers() {
            if let Some(queue) = self.queues.get_mut(number).filter(|queue| queue.waiting() > 0) {
                queue.cancel(origin, request, now);
                self.queues.touch(number);
                self.drain_queue(number);
            }
        }
    }
}

/// About the bytes of a query in a message, and rarely fewer.
fn bytes_of(dispatched: &DispatchedQuery) -> usize {
    let data = dispatched.query.inputs.iter().map(|input| input.data.len());
    data.fold(BESIDE_DATA, usize::saturating_add)
}

/// The items of each message, in their order. One that alone is too large has a message of its own.
fn in_messages<T>(items: Vec<T>, bytes_of: impl Fn(&T) -> usize, bytes_max: usize) -> Vec<Vec<T>> {
    let (mut messages, mut bytes): (Vec<Vec<T>>, usize) = (Vec::new(), 0);
    for item in items {
        let more = bytes_of(&item);
        bytes = bytes.saturating_add(more);
        match messages.last_mut().filter(|_| bytes <= bytes_max) {
            Some(message) => message.push(item),
            None => {
                messages.push(vec![item]);
                bytes = more;
            }
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DISPATCHED_MAX;

    #[test]
    fn a_batch_goes_in_as_few_messages_as_carry_it() {
        let sent = |bytes: &[usize]| in_messages(bytes.to_vec(), |bytes| *bytes, 10);
        assert_eq!(sent(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(sent(&[4, 6]), [vec![4, 6]]);
        assert_eq!(sent(&[4, 7, 3, 1]), [vec![4], vec![7, 3], vec![1]]);
        assert_eq!(sent(&[1, 11, 1]), [vec![1], vec![11], vec![1]], "its sender hears that it is too large");
        let largest = in_messages(vec![(); DISPATCHED_MAX as usize], |()| BESIDE_DATA, MESSAGE_BYTES_MAX);
        assert_eq!(largest.len(), 1, "the largest batch of queries without data");
    }
}
