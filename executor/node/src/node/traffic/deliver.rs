//! How does a query reach a replica's queue, and what happens when none serves it?

use super::parked::ParkedQuery;
use super::sent::SentQuery;
use super::state::TrafficState;
use crate::node::fleet::FleetState;
use crate::node::replicas::{LocalReplica, QueuedQuery};
use crate::node::route::{RouteConstraints, RouteDecision, Ticket};
use crate::node::site::Site;
use crate::node::work::{LocalQuery, QuerySender, SendContext};
use crate::wire::{CreditReturn, Message, PartEnd, RoutedQuery};
use apportion_domain::TimeSpan;
use apportion_serving::DropReason;
use std::collections::BTreeMap;

/// How often a query may be passed on because a replica was gone.
const HOPS_MAX: u8 = 8;

/// The replica that was chosen for a query.
#[derive(Clone, Copy)]
struct Destination {
    agent: u64,
    replica: u64,
    /// The routing choice; none if the query's fork has chosen the replica.
    ticket: Option<Ticket>,
}

impl TrafficState {
    /// Sends a query to a place, here or there. One that is too far behind is dropped; one whose task has no replica
    /// waits for one that is coming, and has failed if there is none.
    pub(super) fn deliver(&mut self, mut query: RoutedQuery, to: SendContext) {
        if let Some(scope) = query.scopes.iter().find(|s| s.join == query.task) {
            let (agent, replica) = (scope.agent, scope.replica);
            // Its gateway, too, loses that agent and runs the request again.
            if !self.fleet.is_reached(&self.site, agent) {
                tracing::debug!(task = query.task, "the agent where parts of a request meet is lost");
                return;
            }
            (query.group, query.behind_ns) = (to.from.unwrap_or(0), to.behind.as_nanos());
            return self.send(query, to.deadline_ns, Destination { agent, replica, ticket: None });
        }
        let way = RouteConstraints { from: to.from, only: self.pinned_group(&query), behind: to.behind };
        match self.fleet.place(&query.pipeline, &query.task, &way) {
            RouteDecision::Place(place, ticket) => {
                let (agent, replica, ticket) = (place.agent, place.replica, Some(ticket));
                self.send(query, to.deadline_ns, Destination { agent, replica, ticket });
            }
            RouteDecision::Behind => {
                let pipeline = self.fleet.pipeline(&query.pipeline);
                let maker = pipeline.and_then(|p| Some(&p.tasks[p.groups.get(&to.from?)?.task].name));
                let reason = format!("task {}: {}", maker.unwrap_or(&query.task), DropReason::Budget.name());
                self.end_query(&query, PartEnd::Dropped(reason));
            }
            RouteDecision::Nowhere => self.park_query(query, to),
        }
    }

    /// The group that a query must go to, if its request has chosen one.
    fn pinned_group(&self, query: &RoutedQuery) -> Option<u64> {
        if query.pins.is_empty() {
            return None;
        }
        let at = self.fleet.pipeline(&query.pipeline)?.position(&query.task)?;
        query.pins.get(at).copied()
    }

    fn send(&mut self, mut query: RoutedQuery, deadline_ns: i64, to: Destination) {
        let Destination { agent, replica, ticket } = to;
        query.replica = replica;
        let now_ns = self.site.now_ns();
        if agent == self.site.agent() {
            return self.accept_query(LocalQuery {
                query,
                deadline_ns,
                from: QuerySender::Here(ticket),
                arrived_ns: now_ns,
            });
        }
        query.budget_ns = deadline_ns.saturating_sub(now_ns.cast_signed());
        let kept = query.clone();
        let span = self.tracing.begin_hop(query.trace, now_ns);
        query.trace = span.map(|hop| hop.below());
        let from = QuerySender::Here(ticket);
        let hop = self.sent.insert(SentQuery { agent, query: kept, deadline_ns, from, server: None, span });
        self.site.send(agent, Message::Query { from: self.site.agent(), hop, query });
    }

    /// Takes a query that another agent has sent.
    pub fn receive_query(&mut self, from: u64, hop: u64, query: RoutedQuery) {
        let arrived_ns = self.site.now_ns();
        self.fleet.peers_mut().note_heard_from(from, arrived_ns);
        let deadline_ns = arrived_ns.cast_signed().saturating_add(query.budget_ns);
        self.accept_query(LocalQuery { query, deadline_ns, from: QuerySender::Agent { agent: from, hop }, arrived_ns });
    }

    /// Puts a query into the queue of its replica or of its group, or passes it on if that replica is not up.
    pub(super) fn accept_query(&mut self, work: LocalQuery) {
        if self.cancelled.contains(work.query.origin, work.query.request) {
            return notify_sender(&mut self.site, &mut self.fleet, &work);
        }
        if work.query.waits() {
            return self.wait_at_join(work);
        }
        let Some(work) = self.keep_if_served(work) else { return };
        if work.is_offline() {
            return self.accept_offline(work.query.replica, work);
        }
        match self.replicas.get(work.query.replica) {
            Some(replica) if replica.of.is_central() => self.join_group_queue(work),
            _ => self.join_replica(work),
        }
    }

    /// Gives a query back if its replica here serves it. Else the query is passed on.
    pub(super) fn keep_if_served(&mut self, work: LocalQuery) -> Option<LocalQuery> {
        // A sender that has not heard of the target in force yet may mean another replica by the number.
        let is_meant =
            |r: &LocalReplica| r.is_up() && r.pipeline == work.query.pipeline && r.task().name == work.query.task;
        if self.replicas.get(work.query.replica).is_some_and(is_meant) {
            return Some(work);
        }
        self.pass_on(work, "its replica is gone");
        None
    }

    /// A query joins the queue of its replica.
    pub(super) fn join_replica(&mut self, work: LocalQuery) {
        let (id, key) = (work.query.replica, self.replicas.next_key());
        let queued = QueuedQuery { query: work.handle(key), deadline: work.deadline() };
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.works.insert(key, work);
        self.enqueue(id, queued);
        self.batch_runs.touch(id);
    }

    /// A query that this agent has taken joins its replica's queue.
    pub(super) fn enqueue(&mut self, id: u64, queued: QueuedQuery) {
        let Some(replica) = self.replicas.get_mut(id) else { return };
        replica.enqueue(queued, self.site.now());
        self.drain_station(id);
    }

    /// Sends a query elsewhere whose replica is gone.
    pub(super) fn pass_on(&mut self, mut work: LocalQuery, why: &str) {
        notify_sender(&mut self.site, &mut self.fleet, &work);
        work.query.hops = work.query.hops.saturating_add(1);
        if work.query.hops > HOPS_MAX {
            let reason = format!("task {}: {why}, and {HOPS_MAX} other places too", work.query.task);
            return self.end_query(&work.query, PartEnd::Failed(reason));
        }
        tracing::debug!(task = work.query.task, why, "a query is sent elsewhere");
        let deadline_ns = work.deadline_ns;
        self.deliver(work.query, SendContext { deadline_ns, from: None, behind: TimeSpan::ZERO });
    }

    /// Ends a query that this agent had taken, and that has failed.
    pub(super) fn fail_query(&mut self, work: &LocalQuery, why: &str) {
        notify_sender(&mut self.site, &mut self.fleet, work);
        self.end_query(&work.query, PartEnd::Failed(format!("task {}: {why}", work.query.task)));
    }

    /// The next agent has finished a query.
    pub fn end_hop(&mut self, hop: u64) {
        let Some(sent) = self.sent.remove(hop) else { return };
        self.export_hop(&sent, None);
        self.release_hop(&sent);
    }

    /// A hop has ended: the sender of its query hears of it, and the server of its batch runs one query less.
    fn release_hop(&mut self, sent: &SentQuery) {
        tell_sender(&mut self.site, &mut self.fleet, &sent.query, sent.from);
        sent.server.into_iter().for_each(|server| self.queues.note_left(server));
    }

    /// Drops a query that could not be sent: too many bytes already wait for its receiver.
    pub fn shed_query(&mut self, hop: u64, why: &str) {
        let Some(sent) = self.sent.remove(hop) else { return };
        self.export_hop(&sent, Some(why));
        self.release_hop(&sent);
        self.end_query(&sent.query, PartEnd::Dropped(format!("task {}: {why}", sent.query.task)));
    }

    /// Sends the queries elsewhere that a lost agent had taken.
    pub(super) fn resend_queries_of(&mut self, agent: u64) {
        for sent in self.sent.remove_to(agent) {
            self.export_hop(&sent, Some("its agent was lost"));
            sent.server.into_iter().for_each(|server| self.queues.note_left(server));
            // A query that was to meet others there cannot meet them elsewhere: its gateway runs the request again.
            if sent.query.waits() {
                continue;
            }
            let SentQuery { query, deadline_ns, from, .. } = sent;
            let work = LocalQuery { query, deadline_ns, from, arrived_ns: self.site.now_ns() };
            self.pass_on(work, "its agent was lost");
        }
    }

    fn export_hop(&mut self, sent: &SentQuery, error: Option<&str>) {
        if let Some(hop) = sent.span {
            hop.end(&mut self.site, &sent.query.task, sent.agent, error);
        }
    }

    /// Ends a query that was not served: tells its forks, and returns its part of the request.
    pub(super) fn end_query(&mut self, query: &RoutedQuery, end: PartEnd) {
        self.end_unserved(query);
        self.send_return(query, end);
    }

    /// Returns a query's part of its request.
    pub(super) fn send_return(&mut self, query: &RoutedQuery, end: PartEnd) {
        let (request, row, attempt) = (query.request, query.row, query.attempt);
        let part = CreditReturn { request, row, attempt, credit: query.credit, end };
        if self.gateway.owns(&self.site, query.origin, query.request) {
            self.receive_return(part);
        } else {
            self.site.send(query.origin, Message::Return(part));
        }
    }

    /// Whether a replica of the task comes soon, though none is ready.
    fn is_coming(&self, pipeline: &str, task: &str) -> bool {
        self.fleet.is_coming(&self.site, &self.replicas, pipeline, task)
    }

    fn park_query(&mut self, query: RoutedQuery, to: SendContext) {
        if self.parked.is_full() || !self.is_coming(&query.pipeline, &query.task) {
            return self.end_query_unready(&query);
        }
        let until_ns = self.site.now_ns().saturating_add(self.fleet.patience_ns(&query.pipeline));
        self.parked.push(ParkedQuery { query, to, until_ns });
    }

    /// Sends the parked queries on whose task has a ready replica again, or has none coming.
    pub(super) fn resume_parked(&mut self) {
        for ParkedQuery { query, to, until_ns } in self.parked.take_by_level() {
            let reaches = self.fleet.routes().reaches(&query.pipeline, &query.task);
            if !reaches && self.is_coming(&query.pipeline, &query.task) {
                self.parked.push(ParkedQuery { query, to, until_ns });
            } else {
                self.deliver(query, to);
            }
        }
    }

    /// Ends the parked queries that have waited for too long, or whose replica is not coming any more.
    pub fn expire_parked_queries(&mut self) {
        let parked = self.parked.take();
        let mut coming = BTreeMap::new();
        let mut waits = |p: &ParkedQuery| {
            let (pipeline, task) = (&p.query.pipeline, &p.query.task);
            let is_coming = coming.entry((pipeline.clone(), task.clone()));
            self.site.now_ns() < p.until_ns && *is_coming.or_insert_with(|| self.is_coming(pipeline, task))
        };
        let (waiting, old) = parked.into_iter().partition::<Vec<_>, _>(|p| waits(p));
        self.parked.put_back(waiting);
        for ParkedQuery { query, .. } in old {
            self.end_query_unready(&query);
        }
    }

    fn end_query_unready(&mut self, query: &RoutedQuery) {
        self.end_query(query, PartEnd::NotReady(format!("no replica of task {} is ready", query.task)));
    }
}

/// Tells a query's sender that the query has left its replica. If this agent is the sender, the router counts one less
/// outstanding.
pub(super) fn notify_sender(site: &mut Site, fleet: &mut FleetState, work: &LocalQuery) {
    tell_sender(site, fleet, &work.query, work.from);
}

/// Tells the sender of a query that the query has left.
fn tell_sender(site: &mut Site, fleet: &mut FleetState, query: &RoutedQuery, from: QuerySender) {
    match from {
        QuerySender::Agent { agent, hop } => site.send(agent, Message::Taken { hop }),
        QuerySender::Queue { hop } => site.note_left(hop),
        QuerySender::Here(Some(ticket)) => fleet.routes_mut().ended(&query.pipeline, &query.task, ticket),
        QuerySender::Here(None) => {}
    }
}
