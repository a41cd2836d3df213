//! How does a query reach a replica's queue, and what happens when none serves it?

use super::parked::Parked;
use super::replica::Replica;
use super::route::{Choice, Ticket, Way};
use super::sent::Sent;
use super::work::{Sender, Sending, Work};
use super::{Action, Node};
use crate::policies::Handle;
use crate::wire::{End, Message, Query};
use apportion_domain::{Moment, Span};
use apportion_serving::DropReason;
use apportion_serving::replica::Input;
use std::collections::BTreeMap;

/// How often a query may be passed on because a replica was gone.
const HOPS_MAX: u8 = 8;

impl Replica {
    /// How many of those that wait here a new query of this level passes: the last ones that are less important. One that
    /// would be on time where it stands, and late one place further back, is not passed, nor is one that is late by more
    /// than the SLO: its turn has come.
    fn passes(&self, level: u32, now: Moment) -> u32 {
        let waiting = self.station.waiting();
        if waiting.last().is_none_or(|last| last.query.level <= level) {
            return 0;
        }
        let (execution_ns, batch) = (self.group.execution().as_nanos(), self.group.batch);
        // Full batches for those before and its own one; the batch that runs may be about to end, or have just begun.
        let done = |place: usize, running: usize| {
            now + Span::from_nanos(execution_ns.saturating_mul((place / batch + 1 + running) as u64))
        };
        let slo = Span::from_nanos(self.of.slo_ns);
        let keeps_place = |place: usize, deadline: Moment| {
            (done(place, 0) <= deadline && deadline < done(place + 1, 1)) || deadline + slo < now
        };
        let from_last = waiting.iter().enumerate().rev();
        from_last.take_while(|(at, w)| w.query.level > level && !keeps_place(*at, w.deadline)).count() as u32
    }
}

impl Node {
    /// Sends a query to a place, here or there. One that is too far behind is dropped; one whose task has no replica
    /// waits for one that is coming, and has failed if there is none.
    pub(super) fn deliver(&mut self, mut query: Query, to: Sending) {
        if let Some(scope) = query.scopes.iter().find(|s| s.join == query.task) {
            let place = (scope.agent, scope.replica);
            // Its gateway, too, loses that agent and runs the request again.
            if place.0 != self.agent && !self.peers.is_connected(place.0) {
                tracing::debug!(task = query.task, "the agent where parts of a request meet is lost");
                return;
            }
            (query.group, query.behind_ns) = (to.from.unwrap_or(0), to.behind.as_nanos());
            return self.send(query, to.deadline_ns, place, None);
        }
        let pipeline = self.layout.pipelines.get(&query.pipeline);
        let pipeline = pipeline.map(AsRef::as_ref);
        let at = || pipeline.and_then(|p| p.position(&query.task));
        let only = if query.pins.is_empty() { None } else { at().and_then(|at| query.pins.get(at).copied()) };
        let way = Way { from: to.from, only, behind: to.behind };
        match self.routes.place(&query.pipeline, pipeline, &query.task, &way) {
            Choice::Place(place, ticket) => {
                self.send(query, to.deadline_ns, (place.agent, place.replica), Some(ticket));
            }
            Choice::Behind => {
                let maker = pipeline.and_then(|p| Some(&p.tasks[p.groups.get(&to.from?)?.task].name));
                let reason = format!("task {}: {}", maker.unwrap_or(&query.task), DropReason::Budget.name());
                self.end_query(&query, End::Dropped(reason));
            }
            Choice::Nowhere => self.park_query(query, to),
        }
    }

    fn send(&mut self, mut query: Query, deadline_ns: i64, place: (u64, u64), ticket: Option<Ticket>) {
        let (agent, replica) = place;
        query.replica = replica;
        if agent == self.agent {
            return self.accept_query(Work { query, deadline_ns, from: Sender::Here(ticket), arrived_ns: self.now_ns });
        }
        query.budget_ns = deadline_ns.saturating_sub(self.now_ns.cast_signed());
        let kept = query.clone();
        let (span, below) = self.begin_hop(query.trace);
        query.trace = below;
        let hop = self.sent.insert(Sent { agent, query: kept, deadline_ns, ticket, span });
        self.actions.push(Action::Send(agent, Message::Query { from: self.agent, hop, query }));
    }

    /// Puts a query into its replica's queue, or passes it on if that replica is not up.
    pub(super) fn accept_query(&mut self, work: Work) {
        let id = work.query.replica;
        if self.cancelled.contains(work.query.origin, work.query.request) {
            return self.notify_sender(&work);
        }
        if work.query.waits() {
            return self.wait_at_join(work);
        }
        // A sender that has not heard of the target in force yet may mean another replica by the number.
        let is_meant =
            |r: &&mut Replica| r.is_up() && r.pipeline == work.query.pipeline && r.task().name == work.query.task;
        let Some(replica) = self.replicas.get_mut(&id).filter(is_meant) else {
            return self.pass_on(work, "its replica is gone");
        };
        if work.is_offline() {
            return self.accept_offline(id, work);
        }
        self.key += 1;
        let query = work.handle(self.key);
        let deadline = Moment::from_nanos(u64::try_from(work.deadline_ns).unwrap_or(0));
        replica.works.insert(self.key, work);
        self.queue(id, query, deadline);
        self.touched.insert(id);
    }

    /// A query that this agent has taken joins its replica's queue, before those that are less important.
    pub(super) fn queue(&mut self, id: u64, query: Handle, deadline: Moment) {
        let now = Moment::from_nanos(self.now_ns);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let input = match replica.passes(query.level, now) {
            0 => Input::Arrive { query, deadline },
            passes => Input::Overtake { query, deadline, passes },
        };
        replica.station.handle(now, input);
        self.drain_station(id);
    }

    /// Sends a query elsewhere whose replica is gone.
    pub(super) fn pass_on(&mut self, mut work: Work, why: &str) {
        self.notify_sender(&work);
        work.query.hops += 1;
        if work.query.hops > HOPS_MAX {
            let reason = format!("task {}: {why}, and {HOPS_MAX} other places too", work.query.task);
            return self.end_query(&work.query, End::Failed(reason));
        }
        tracing::debug!(task = work.query.task, why, "a query is sent elsewhere");
        let deadline_ns = work.deadline_ns;
        self.deliver(work.query, Sending { deadline_ns, from: None, behind: Span::ZERO });
    }

    /// Ends a query that this agent had taken, and that has failed.
    pub(super) fn fail_query(&mut self, work: &Work, why: &str) {
        self.notify_sender(work);
        self.end_query(&work.query, End::Failed(format!("task {}: {why}", work.query.task)));
    }

    /// Drops a query that could not be sent: too many bytes already wait for its receiver.
    pub(super) fn shed_query(&mut self, hop: u64, why: &str) {
        let Some(sent) = self.sent.remove(hop) else { return };
        self.end_hop(&sent, Some(why));
        self.release_ticket(&sent.query, sent.ticket);
        self.end_query(&sent.query, End::Dropped(format!("task {}: {why}", sent.query.task)));
    }

    /// Tells a query's sender that the query has left its replica. If this agent is the sender, the router counts one
    /// less outstanding.
    pub(super) fn notify_sender(&mut self, work: &Work) {
        match work.from {
            Sender::Agent { agent, hop } => self.actions.push(Action::Send(agent, Message::Taken { hop })),
            Sender::Here(ticket) => self.release_ticket(&work.query, ticket),
        }
    }

    /// Tells the router that a query with this ticket has left its replica.
    pub(super) fn release_ticket(&mut self, query: &Query, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.routes.ended(&query.pipeline, &query.task, ticket);
        }
    }

    /// Ends a query that was not served: tells its forks, and returns its part of the request.
    pub(super) fn end_query(&mut self, query: &Query, end: End) {
        self.end_unserved(query);
        self.send_return(query, end);
    }

    fn park_query(&mut self, query: Query, to: Sending) {
        if self.parked.is_full() || !self.is_coming(&query.pipeline, &query.task) {
            return self.end_query_unready(&query);
        }
        let until_ns = self.now_ns.saturating_add(self.patience_ns(&query.pipeline));
        self.parked.push(Parked { query, to, until_ns });
    }

    /// Sends the parked queries on whose task has a ready replica again, or has none coming.
    pub(super) fn resume_parked(&mut self) {
        for Parked { query, to, until_ns } in self.parked.take_by_level() {
            let reaches = self.routes.reaches(&query.pipeline, &query.task);
            if !reaches && self.is_coming(&query.pipeline, &query.task) {
                self.parked.push(Parked { query, to, until_ns });
            } else {
                self.deliver(query, to);
            }
        }
    }

    /// Ends the parked queries that have waited for too long, or whose replica is not coming any more.
    pub(super) fn expire_parked_queries(&mut self) {
        let parked = self.parked.take();
        let mut coming = BTreeMap::new();
        let mut waits = |p: &Parked| {
            let (pipeline, task) = (&p.query.pipeline, &p.query.task);
            let is_coming = coming.entry((pipeline.clone(), task.clone()));
            self.now_ns < p.until_ns && *is_coming.or_insert_with(|| self.is_coming(pipeline, task))
        };
        let (waiting, old) = parked.into_iter().partition::<Vec<_>, _>(|p| waits(p));
        self.parked.put_back(waiting);
        for Parked { query, .. } in old {
            self.end_query_unready(&query);
        }
    }

    fn end_query_unready(&mut self, query: &Query) {
        self.end_query(query, End::NotReady(format!("no replica of task {} is ready", query.task)));
    }
}
