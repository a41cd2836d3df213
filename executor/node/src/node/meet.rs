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

use super::batch::{MemberOutputs, TaskRef};
use super::meetings::{Key, MEETINGS_MAX, Meeting, Met};
use super::route::Way;
use super::split::{Child, OutputError, child_inputs};
use super::work::Sending;
use super::{Action, Node, Work};
use crate::layout::{Pipeline, Wait};
use crate::tensor::zero_row;
use crate::wire::{Brought, Credit, End, Message, Part, Query, Scope};
use apportion_domain::Span;
use std::collections::BTreeSet;

fn key_of(query: &Query, scope: &Scope) -> Key {
    let (origin, request, attempt) = (query.origin, query.request, query.attempt);
    let credit = (scope.credit.start, scope.credit.len);
    Key { origin, request, attempt, join: scope.join.clone(), fork: scope.fork.clone(), credit }
}

/// What a scope waits for.
fn waits<'p>(of: &'p Pipeline, join: &str, fork: &str) -> impl Iterator<Item = &'p Wait> {
    let (join, fork) = (of.position(join), of.position(fork));
    of.waits.iter().filter(move |w| (Some(w.join), Some(w.fork)) == (join, fork))
}

impl Node {
    /// Tells the forks above a query that it has ended, and what it brings to their joins. `made` are its children; there
    /// are none if it did not run. Returns the scopes of each child.
    ///
    /// # Errors
    /// [`OutputError`] if the outputs lack an input of a join.
    pub(super) fn end_in_scopes(
        &mut self,
        task: TaskRef<'_>,
        query: &Query,
        made: &[Child],
        outputs: MemberOutputs<'_>,
    ) -> Result<Vec<Vec<Scope>>, OutputError> {
        let TaskRef { of, at } = task;
        if of.waits.is_empty() {
            return Ok(vec![Vec::new(); made.len()]);
        }
        let mut scopes = query.scopes.clone();
        if !made.is_empty() {
            self.open_scopes(of, at, query, &mut scopes);
        }
        let name = &of.tasks[at].name;
        for scope in &scopes {
            let is_fork = scope.fork == *name;
            for wait in waits(of, &scope.join, &scope.fork).filter(|w| is_fork || w.counted.contains(&at)) {
                let mut part = part(query, scope, &of.tasks[wait.parent].name);
                if wait.parent == at && !wait.makes {
                    part.ended.push(query.credit);
                    part.brought = brought(task, wait, query, scope, outputs)?;
                } else if made.is_empty() {
                    part.ended.push(query.credit);
                } else {
                    part.ended.extend(made.iter().filter(|c| !wait.leads(at, c.to)).map(|c| c.credit));
                }
                if !part.ended.is_empty() {
                    self.send_part(scope.agent, part);
                }
            }
        }
        let of_child = |child: &Child| {
            let leads = |s: &&Scope| waits(of, &s.join, &s.fork).any(|w| w.leads(at, child.to));
            let row = |s: &Scope| if s.fork == *name { child.row as u32 } else { s.row };
            scopes.iter().filter(leads).map(|s| Scope { row: row(s), ..s.clone() }).collect()
        };
        Ok(made.iter().map(of_child).collect())
    }

    /// A fork's query names the places where its parts meet: a replica of each join, the same as an outer fork's.
    fn open_scopes(&mut self, of: &Pipeline, at: usize, query: &Query, scopes: &mut Vec<Scope>) {
        let joins: BTreeSet<usize> = of.waits.iter().filter(|w| w.fork == at).map(|w| w.join).collect();
        for join in joins {
            let task = &of.tasks[join].name;
            let outer = scopes.iter().find(|s| s.join == *task).map(|s| (s.agent, s.replica));
            let (agent, replica) = outer.unwrap_or_else(|| {
                let way = Way { only: query.pins.get(join).copied(), ..Way::default() };
                let choice = self.routes.place(&query.pipeline, Some(of), task, &way).place();
                choice.map_or((self.agent, 0), |(place, ticket)| {
                    // The place gets no query yet, and nobody knows how many it will get.
                    self.routes.ended(&query.pipeline, task, ticket);
                    (place.agent, place.replica)
                })
            });
            let (join, fork, credit) = (task.clone(), of.tasks[at].name.clone(), query.credit);
            scopes.push(Scope { join, fork, agent, replica, credit, row: 0 });
        }
    }

    /// Tells the forks above a query that it has ended without having run, so that their joins do not wait for it.
    pub(super) fn end_unserved(&mut self, query: &Query) {
        if query.scopes.is_empty() {
            return;
        }
        let Some(of) = self.layout.pipelines.get(&query.pipeline).cloned() else { return };
        let Some(at) = of.position(&query.task) else { return };
        for scope in query.scopes.iter().filter(|s| s.join == query.task) {
            for wait in waits(&of, &scope.join, &scope.fork).filter(|w| w.makes) {
                let mut part = part(query, scope, &of.tasks[wait.parent].name);
                part.ended.push(query.credit);
                self.send_part(scope.agent, part);
            }
        }
        // Without outputs there is nothing that could be lacking.
        let _none = self.end_in_scopes(TaskRef { of: &of, at }, query, &[], MemberOutputs::default());
    }

    fn send_part(&mut self, agent: u64, part: Part) {
        if agent == self.agent {
            self.receive_join_part(part);
        } else {
            self.actions.push(Action::Send(agent, Message::Part(part)));
        }
    }

    /// Takes note of parts that have ended, and releases the queries that waited for them.
    pub(super) fn receive_join_part(&mut self, part: Part) {
        if self.cancelled.contains(part.origin, part.request) {
            return;
        }
        let Part { pipeline, origin, request, attempt, join, fork, parent, scope, ended, brought, .. } = part;
        let key = Key { origin, request, attempt, join, fork, credit: (scope.start, scope.len) };
        let Some(meeting) = self.meeting(&key, &pipeline) else {
            tracing::warn!(MEETINGS_MAX, "too many joins wait here: what comes on top is forgotten");
            return;
        };
        let met = meeting.edges.entry(parent).or_default();
        let mut is_new = false;
        for credit in ended {
            is_new |= met.covered.add(credit);
        }
        // A query that ran twice brings the same twice.
        if is_new {
            met.brought.extend(brought);
        }
        self.release_ready_queries(&key);
    }

    /// Lets a query of a join wait until all parts that it needs have ended.
    pub(super) fn wait_at_join(&mut self, work: Work) {
        let query = &work.query;
        let Some(of) = self.layout.pipelines.get(&query.pipeline).cloned() else {
            return self.fail_query(&work, "its pipeline is gone");
        };
        let keys: Vec<(Key, Credit)> =
            query.scopes.iter().filter(|s| s.join == query.task).map(|s| (key_of(query, s), query.credit)).collect();
        self.meetings.last += 1;
        let number = self.meetings.last;
        for (key, credit) in &keys {
            let maker = waits(&of, &key.join, &key.fork).find(|w| w.makes).map(|w| of.tasks[w.parent].name.clone());
            let Some(meeting) = self.meeting(key, &work.query.pipeline) else {
                tracing::warn!(MEETINGS_MAX, "too many joins wait here: one more is dropped");
                self.notify_sender(&work);
                return self.end_query(&work.query, End::Dropped(format!("task {}: join_full", work.query.task)));
            };
            if let Some(maker) = maker {
                meeting.edges.entry(maker).or_default().covered.add(*credit);
            }
            meeting.held.insert(number);
        }
        self.meetings.held.insert(number, work);
        keys.iter().for_each(|(key, _)| self.release_ready_queries(key));
    }

    /// The meeting of a scope, opened if need be; none if there are too many.
    fn meeting(&mut self, key: &Key, pipeline: &str) -> Option<&mut Meeting> {
        if !self.meetings.open.contains_key(key) {
            if self.meetings.open.len() >= MEETINGS_MAX {
                return None;
            }
            let until_ns = self.now_ns.saturating_add(self.patience_ns(pipeline));
            let meeting = Meeting { until_ns, pipeline: pipeline.into(), ..Meeting::default() };
            self.meetings.open.insert(key.clone(), meeting);
        }
        self.meetings.open.get_mut(key)
    }

    /// Releases the queries that need not wait any longer. Forgets the meeting when nothing more can come to it.
    fn release_ready_queries(&mut self, key: &Key) {
        let Some(meeting) = self.meetings.open.get(key) else { return };
        let Some(of) = self.layout.pipelines.get(&meeting.pipeline).cloned() else { return };
        for number in meeting.held.iter().copied().collect::<Vec<_>>() {
            let Some(work) = self.meetings.held.get(&number) else { continue };
            let scopes = work.query.scopes.iter().filter(|s| s.join == work.query.task);
            let is_free = scopes.map(|s| key_of(&work.query, s)).all(|key| self.may_release(&of, &key));
            if is_free {
                self.release(&of, number);
            }
        }
        let is_over = self.meetings.open.get(key).is_some_and(|m| m.held.is_empty()) && self.is_over(&of, key);
        if is_over {
            self.meetings.open.remove(key);
        }
    }

    /// Whether all that a scope's queries wait for has ended.
    fn may_release(&self, of: &Pipeline, key: &Key) -> bool {
        self.have_ended(key, waits(of, &key.join, &key.fork).filter(|w| !w.makes), of)
    }

    /// Whether all that a scope's queries wait for has ended, and nothing can make more of these queries.
    fn is_over(&self, of: &Pipeline, key: &Key) -> bool {
        self.have_ended(key, waits(of, &key.join, &key.fork), of)
    }

    fn have_ended<'p>(&self, key: &Key, mut waits: impl Iterator<Item = &'p Wait>, of: &Pipeline) -> bool {
        let Some(meeting) = self.meetings.open.get(key) else { return true };
        let scope = Credit { start: key.credit.0, len: key.credit.1 };
        waits.all(|w| {
            let met = meeting.edges.get(&of.tasks[w.parent].name);
            met.is_some_and(|met| met.covered.has(scope))
        })
    }

    /// A query need not wait any longer: it takes what was brought along, and joins the queue of the replica that its
    /// fork chose, if it is not behind and that replica still takes queries.
    fn release(&mut self, of: &Pipeline, number: u64) {
        let mut work = self.meetings.held.remove(&number).expect("it is held");
        let task = work.query.task.clone();
        let (own, others): (Vec<Scope>, Vec<Scope>) =
            std::mem::take(&mut work.query.scopes).into_iter().partition(|s| s.join == task);
        work.query.scopes = others;
        for scope in &own {
            let Some(meeting) = self.meetings.open.get_mut(&key_of(&work.query, scope)) else { continue };
            meeting.held.remove(&number);
            meeting.edges.values().for_each(|met| bring(&mut work.query, met, scope.row));
        }
        if let Some(at) = of.position(&task) {
            let missing = |query: &Query, name: &str| query.inputs.iter().all(|t| t.name != name);
            let specs: Vec<_> = of.tasks[at].inputs.iter().filter(|s| missing(&work.query, &s.name)).collect();
            work.query.inputs.extend(specs.into_iter().map(zero_row));
        }
        work.arrived_ns = self.now_ns;
        let chosen = own.first().map_or(0, |scope| scope.replica);
        let is_up = self.replicas.get(&chosen).is_some_and(|r| r.takes() && r.task().name == task);
        if work.query.behind_ns == 0 && is_up {
            work.query.replica = chosen;
            return self.accept_query(work);
        }
        self.notify_sender(&work);
        let from = (work.query.group > 0).then_some(work.query.group);
        let behind = Span::from_nanos(work.query.behind_ns);
        self.deliver(work.query, Sending { deadline_ns: work.deadline_ns, from, behind });
    }

    /// Forgets the meetings of a cancelled request.
    pub(super) fn cancel_meetings(&mut self, origin: u64, request: u64) {
        let is_of = |key: &Key| (key.origin, key.request) == (origin, request);
        self.forget_meetings(|key, _| is_of(key));
    }

    /// Forgets meetings that are too old: an agent that would have brought the rest is lost, and the gateway has given up.
    pub(super) fn expire_meetings(&mut self) {
        let now_ns = self.now_ns;
        self.forget_meetings(|_, meeting| meeting.until_ns <= now_ns);
    }

    fn forget_meetings(&mut self, is_over: impl Fn(&Key, &Meeting) -> bool) {
        let over = self.meetings.open.extract_if(.., |key, meeting| is_over(key, meeting));
        let numbers: BTreeSet<u64> = over.flat_map(|(_, meeting)| meeting.held).collect();
        for number in numbers {
            let Some(work) = self.meetings.held.remove(&number) else { continue };
            for scope in &work.query.scopes {
                if let Some(meeting) = self.meetings.open.get_mut(&key_of(&work.query, scope)) {
                    meeting.held.remove(&number);
                }
            }
            self.notify_sender(&work);
        }
    }
}

fn part(query: &Query, scope: &Scope, parent: &str) -> Part {
    Part {
        pipeline: query.pipeline.clone(),
        origin: query.origin,
        request: query.request,
        row: query.row,
        attempt: query.attempt,
        join: scope.join.clone(),
        fork: scope.fork.clone(),
        parent: parent.to_string(),
        scope: scope.credit,
        ended: Vec::new(),
        brought: Vec::new(),
    }
}

/// What a query of a task brings to a join: each of its rows if it is the fork's own, else its first, for the fork's row.
fn brought(
    TaskRef { of, at }: TaskRef<'_>,
    wait: &Wait,
    query: &Query,
    scope: &Scope,
    MemberOutputs { tensors, rows }: MemberOutputs<'_>,
) -> Result<Vec<Brought>, OutputError> {
    let Some(edge) = of.tasks[at].delays.iter().find(|e| e.to == wait.join && !e.map.is_empty()) else {
        return Ok(Vec::new());
    };
    let is_fork = wait.fork == at;
    let one = |row: &usize| {
        let inputs = child_inputs(&of.tasks[wait.join], &edge.map, tensors, *row)?;
        let of_row = if is_fork { *row as u32 } else { scope.row };
        Ok(Brought { row: of_row, order: query.credit.start, inputs })
    };
    rows.iter().take(if is_fork { rows.len() } else { 1 }).map(one).collect()
}

/// Gives a query the inputs that one edge has brought: those of the same row of the fork if there are any, else the first.
fn bring(query: &mut Query, met: &Met, row: u32) {
    let first = met.brought.iter().min_by_key(|b| (b.row != row, b.row, b.order));
    for input in first.into_iter().flat_map(|b| &b.inputs) {
        if query.inputs.iter().all(|t| t.name != input.name) {
            query.inputs.push(input.clone());
        }
    }
}
