//! When may a query of a join run?
//!
//! Example: `a` sends queries to `b` and to `c`, and `d` joins both. A query of `d` waits at the replica that `a` has
//! named, until every part of the query of `a` has ended at `b` and at `c`.
//!
//! A query of a fork opens a *scope*, which its credit names. The queries that stem from it carry the scope along. The
//! agent that ends a part of the scope tells the agent where the parts meet, once for each edge into the join that the
//! part could have led to. It tells by credit, so a query that ran twice ends its part once. An edge is done when all of
//! the scope's credit has ended over it. A meeting is forgotten in three cases: all its edges are done and no query waits
//! there; its request is cancelled; or its request's gateway has given up.

use super::deliver::notify_sender;
use super::joins::MeetingKey;
use super::members::{MemberOutputs, TaskRef};
use super::parts::{EndedVisit, empty_part, waits};
use super::state::TrafficState;
use crate::layout::LayoutPipeline;
use crate::node::route::RouteConstraints;
use crate::node::split::BatchOutputError;
use crate::node::work::{LocalQuery, SendContext};
use crate::wire::{JoinPart, Message, PartEnd, RoutedQuery, Scope};
use apportion_domain::TimeSpan;
use std::collections::BTreeSet;

impl TrafficState {
    /// Tells the forks above a query that it has ended, with the inputs that it brings to their joins. Returns the scopes
    /// of each child.
    ///
    /// # Errors
    /// [`BatchOutputError`] if the outputs lack an input of a join.
    pub(super) fn end_in_scopes(&mut self, visited: EndedVisit<'_>) -> Result<Vec<Vec<Scope>>, BatchOutputError> {
        let EndedVisit { task, query, made, .. } = visited;
        if task.of.waits.is_empty() {
            return Ok(vec![Vec::new(); made.len()]);
        }
        let mut scopes = query.scopes.clone();
        if !made.is_empty() {
            self.open_scopes(task, query, &mut scopes);
        }
        for scope in &scopes {
            for wait in visited.edges(scope) {
                let part = visited.part_over(wait, scope)?;
                if !part.ended.is_empty() {
                    self.send_part(scope.agent, part);
                }
            }
        }
        Ok(visited.scopes_of_children(&scopes))
    }

    /// A fork's query names the places where its parts meet: a replica of each join, the same as an outer fork's.
    fn open_scopes(&mut self, TaskRef { of, at }: TaskRef<'_>, query: &RoutedQuery, scopes: &mut Vec<Scope>) {
        let joins: BTreeSet<usize> = of.waits.iter().filter(|w| w.fork == at).map(|w| w.join).collect();
        for join in joins {
            let task = &of.tasks[join].name;
            let outer = scopes.iter().find(|s| s.join == *task).map(|s| (s.agent, s.replica));
            let (agent, replica) = outer.unwrap_or_else(|| {
                let way = RouteConstraints { only: query.pins.get(join).copied(), ..RouteConstraints::default() };
                let routes = self.fleet.routes_mut();
                let choice = routes.place(&query.pipeline, Some(of), task, &way).place();
                choice.map_or((self.site.agent(), 0), |(place, ticket)| {
                    // The place gets no query yet, and it is not known how many it will get.
                    routes.ended(&query.pipeline, task, ticket);
                    (place.agent, place.replica)
                })
            });
            let (join, fork, credit) = (task.clone(), of.tasks[at].name.clone(), query.credit);
            scopes.push(Scope { join, fork, agent, replica, credit, row: 0 });
        }
    }

    /// Tells the forks above a query that it has ended without having run, so that their joins do not wait for it.
    pub(super) fn end_unserved(&mut self, query: &RoutedQuery) {
        if query.scopes.is_empty() {
            return;
        }
        let Some(of) = self.fleet.pipeline(&query.pipeline).cloned() else { return };
        let Some(at) = of.position(&query.task) else { return };
        for scope in query.scopes.iter().filter(|s| s.join == query.task) {
            for wait in waits(&of, &scope.join, &scope.fork).filter(|w| w.makes) {
                let mut part = empty_part(query, scope, &of.tasks[wait.parent].name);
                part.ended.push(query.credit);
                self.send_part(scope.agent, part);
            }
        }
        // Without outputs there is nothing that could be lacking.
        let task = TaskRef { of: &of, at };
        let _none = self.end_in_scopes(EndedVisit { task, query, made: &[], outputs: MemberOutputs::default() });
    }

    fn send_part(&mut self, agent: u64, part: JoinPart) {
        if agent == self.site.agent() {
            self.receive_join_part(part);
        } else {
            self.site.send(agent, Message::Part(part));
        }
    }

    /// Takes note of parts that have ended, and releases the queries that waited for them.
    pub fn receive_join_part(&mut self, part: JoinPart) {
        if self.cancelled.contains(part.origin, part.request) {
            return;
        }
        if let Some(key) = self.joins.note_part(part, &self.fleet, self.site.now_ns()) {
            self.release_ready_queries(&key);
        }
    }

    /// Lets a query of a join wait until all parts that it needs have ended.
    pub(super) fn wait_at_join(&mut self, work: LocalQuery) {
        let Some(of) = self.fleet.pipeline(&work.query.pipeline) else {
            return self.fail_query(&work, "its pipeline is gone");
        };
        let Some(waiting) = self.joins.enter(&work.query, of, &self.fleet, self.site.now_ns()) else {
            notify_sender(&mut self.site, &mut self.fleet, &work);
            return self.end_query(&work.query, PartEnd::Dropped(format!("task {}: join_full", work.query.task)));
        };
        self.joins.hold(waiting.number, work);
        waiting.keys.iter().for_each(|key| self.release_ready_queries(key));
    }

    /// Releases the queries that need not wait any longer. Forgets the meeting when nothing more can come to it.
    fn release_ready_queries(&mut self, key: &MeetingKey) {
        let Some(pipeline) = self.joins.pipeline_of(key) else { return };
        let Some(of) = self.fleet.pipeline(pipeline).cloned() else { return };
        for number in self.joins.waiting_for(key) {
            if self.joins.may_release(number, &of) {
                self.release(&of, number);
            }
        }
        self.joins.forget_if_over(key, &of);
    }

    /// A query need not wait any longer: it joins the queue of the replica that its fork chose, if it is not behind and
    /// that replica still takes queries.
    fn release(&mut self, of: &LayoutPipeline, number: u64) {
        let released = self.joins.release(number, of, self.site.now_ns());
        let (mut work, chosen) = (released.work, released.replica);
        let is_up = self.replicas.get(chosen).is_some_and(|r| r.takes_queries() && r.task().name == work.query.task);
        if work.query.behind_ns == 0 && is_up {
            work.query.replica = chosen;
            return self.accept_query(work);
        }
        notify_sender(&mut self.site, &mut self.fleet, &work);
        let from = (work.query.group > 0).then_some(work.query.group);
        let behind = TimeSpan::from_nanos(work.query.behind_ns);
        self.deliver(work.query, SendContext { deadline_ns: work.deadline_ns, from, behind });
    }

    /// Forgets meetings that are too old.
    pub fn expire_meetings(&mut self) {
        for work in self.joins.expire(self.site.now_ns()) {
            notify_sender(&mut self.site, &mut self.fleet, &work);
        }
    }
}
