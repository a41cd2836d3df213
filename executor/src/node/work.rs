//! The way of a query: from the gateway to a place, through a replica's queue and batch, on to its children or back.

use super::request::{Answer, Attempt, Pending, Piece};
use super::split::{Fate, fate, rows_of};
use super::{Action, GIVE_UP_NS_MIN, GIVE_UP_SLOS, Node, Sender, Sent, Work};
use crate::node::counts::BIN_NS;
use crate::slot::concatenate;
use crate::tensor::Tensor;
use crate::wire::{Credit, End, Message, Query, Return};
use apportion_domain::Moment;
use apportion_serving::replica::{Input, Output};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a query may be passed on because a replica was gone.
const HOPS_MAX: u8 = 8;
/// How often a request is run, at most.
const ATTEMPTS_MAX: usize = 4;
/// After the loss of an agent, a request is run again when it is unanswered for this part of its SLO: long enough for most
/// of those that never touched the lost agent to be answered, and short enough to be in time more often than not.
const AGAIN_SLO_PARTS: u64 = 4;

impl Node {
    pub(super) fn arrive(
        &mut self,
        name: String,
        inputs: Vec<Tensor>,
        timeout_ns: Option<u64>,
        reply: oneshot::Sender<Answer>,
    ) {
        let Some(pipeline) = self.layout.pipelines.get(&name) else {
            let _gone = reply.send(Answer::NotReady(format!("pipeline {name} is not in the target")));
            return;
        };
        let rows = inputs.first().map_or(0, Tensor::rows) as u64;
        assert!(rows > 0, "the gateway refuses empty requests");
        let counts = self.counts.pipelines.entry(name.clone()).or_default();
        *counts.bins.entry(self.now_ns / BIN_NS).or_default() += rows as u32;
        let task = pipeline.tasks[pipeline.root].name.clone();
        if self.leaving {
            counts.failed += 1;
            let _gone = reply.send(Answer::NotReady("this agent is stopping".into()));
            return;
        }
        if !self.routes.reaches(&name, &task) {
            counts.failed += 1;
            let _gone = reply.send(Answer::NotReady(format!("no replica of task {task} is ready")));
            return;
        }
        let patience_ns = pipeline.slo_ns.saturating_mul(GIVE_UP_SLOS).max(GIVE_UP_NS_MIN);
        let timed = timeout_ns.is_some_and(|t| t <= patience_ns);
        let timeout_ns = timeout_ns.unwrap_or(u64::MAX);
        let deadline_ns = self.now_ns.saturating_add(timeout_ns.min(pipeline.slo_ns));
        let give_up_ns = self.now_ns.saturating_add(timeout_ns.min(patience_ns));
        self.request += 1;
        let (request, arrived_ns) = (self.request, self.now_ns);
        let (attempts, again_ns) = (Vec::new(), None);
        let pipeline = name;
        let pending = Pending { pipeline, inputs, arrived_ns, deadline_ns, give_up_ns, timed, reply, attempts, again_ns };
        self.requests.insert(request, pending);
        self.attempt(request, &task);
    }

    /// Runs a request: one query for each of its rows.
    fn attempt(&mut self, request: u64, root: &str) {
        let pending = self.requests.get_mut(&request).expect("it is pending");
        let attempt = u8::try_from(pending.attempts.len()).expect("few attempts");
        pending.attempts.push(Attempt::default());
        let (pipeline, inputs) = (pending.pipeline.clone(), pending.inputs.clone());
        let deadline_ns = pending.deadline_ns.cast_signed();
        let rows = inputs[0].rows();
        let mut columns: Vec<_> = inputs.iter().map(|t| t.each_row().into_iter()).collect();
        for row in 0..rows {
            let query = Query {
                pipeline: pipeline.clone(),
                task: root.to_string(),
                replica: 0,
                origin: self.agent,
                request,
                row: row as u32,
                credit: Credit::WHOLE.part(row as u64, rows as u64).expect("fewer rows than credit"),
                budget_ns: 0,
                hops: 0,
                attempt,
                inputs: columns.iter_mut().filter_map(Iterator::next).collect(),
            };
            self.deliver(query, deadline_ns, None);
        }
    }

    /// After the loss of an agent: what is still unanswered after a part of its SLO is run again. Most of it never touched the
    /// lost agent and is answered before.
    pub(super) fn plan_attempts(&mut self) {
        let (now_ns, layout) = (self.now_ns, self.layout.clone());
        for pending in self.requests.values_mut().filter(|p| p.attempts.len() < ATTEMPTS_MAX) {
            let slo_ns = layout.pipelines.get(&pending.pipeline).map_or(0, |p| p.slo_ns);
            pending.again_ns = Some(now_ns + slo_ns / AGAIN_SLO_PARTS);
        }
    }

    /// Runs again what is due.
    pub(super) fn attempt_again(&mut self) {
        let now_ns = self.now_ns;
        let due = |p: &Pending| p.again_ns.is_some_and(|at| at <= now_ns);
        let due: Vec<u64> = self.requests.iter().filter(|(_, p)| due(p)).map(|(r, _)| *r).collect();
        for request in due {
            let Some(pending) = self.requests.get_mut(&request) else { continue };
            let pipeline = self.layout.pipelines.get(&pending.pipeline);
            let root = pipeline.map(|p| p.tasks[p.root].name.clone());
            let Some(root) = root.filter(|root| self.routes.reaches(&pending.pipeline, root)) else {
                // While nobody takes it, the first run may still come back; to fail now would be too early.
                pending.again_ns = Some(now_ns + pipeline.map_or(GIVE_UP_NS_MIN, |p| p.slo_ns) / AGAIN_SLO_PARTS);
                continue;
            };
            pending.again_ns = None;
            tracing::debug!(request, "a request is run again because an agent was lost");
            self.attempt(request, &root);
        }
    }

    /// Sends a query to a place, here or there; a query without a place has failed.
    fn deliver(&mut self, mut query: Query, deadline_ns: i64, from: Option<u64>) {
        let pipeline = self.layout.pipelines.get(&query.pipeline);
        let Some((place, ticket)) = self.routes.place(&query.pipeline, pipeline, &query.task, from) else {
            let reason = format!("no replica of task {} is ready", query.task);
            return self.send_back(&query, End::Failed(reason));
        };
        query.replica = place.replica;
        if place.agent == self.agent {
            self.accept(Work { query, deadline_ns, from: Sender::Here(ticket), arrived_ns: self.now_ns });
            return;
        }
        self.hop += 1;
        query.budget_ns = deadline_ns.saturating_sub(self.now_ns.cast_signed());
        self.sent.insert(self.hop, Sent { agent: place.agent, query: query.clone(), deadline_ns, ticket });
        self.actions.push(Action::Send(place.agent, Message::Query { from: self.agent, hop: self.hop, query }));
    }

    /// Takes a query into its replica's queue, or passes it on if that replica is not up.
    pub(super) fn accept(&mut self, work: Work) {
        let id = work.query.replica;
        let Some(replica) = self.replicas.get_mut(&id).filter(|r| r.is_up()) else {
            return self.pass_on(work, "its replica is gone");
        };
        self.key += 1;
        let deadline = Moment::from_nanos(u64::try_from(work.deadline_ns).unwrap_or(0));
        replica.works.insert(self.key, work);
        replica.station.handle(Moment::from_nanos(self.now_ns), Input::Arrive { query: self.key, deadline });
        self.touched.insert(id);
        self.drain(id);
    }

    /// Finds another place for a query whose place is gone.
    pub(super) fn pass_on(&mut self, mut work: Work, why: &str) {
        self.taken(&work);
        work.query.hops += 1;
        if work.query.hops > HOPS_MAX {
            let reason = format!("task {}: {why}, and {HOPS_MAX} other places too", work.query.task);
            return self.send_back(&work.query, End::Failed(reason));
        }
        tracing::debug!(task = work.query.task, why, "a query is sent elsewhere");
        self.deliver(work.query, work.deadline_ns, None);
    }

    /// A query for which there is no room on its way is shed: what it would wait for is too much already.
    pub(super) fn shed(&mut self, hop: u64, why: &str) {
        let Some(sent) = self.sent.remove(&hop) else { return };
        self.routes.ended(&sent.query.pipeline, &sent.query.task, sent.ticket);
        self.send_back(&sent.query, End::Dropped(format!("task {}: {why}", sent.query.task)));
    }

    /// A query has left its place: tells its sender, or if this agent sent it, that its place has one less outstanding.
    fn taken(&mut self, work: &Work) {
        match work.from {
            Sender::Agent { agent, hop } => self.actions.push(Action::Send(agent, Message::Taken { hop })),
            Sender::Here(ticket) => self.routes.ended(&work.query.pipeline, &work.query.task, ticket),
        }
    }

    /// Returns a query's part of its request.
    fn send_back(&mut self, query: &Query, end: End) {
        let (request, row, attempt) = (query.request, query.row, query.attempt);
        let part = Return { request, row, attempt, credit: query.credit, end };
        if query.origin == self.agent {
            self.take_back(part);
        } else {
            self.actions.push(Action::Send(query.origin, Message::Return(part)));
        }
    }

    /// A part of a request of this gateway has come back.
    pub(super) fn take_back(&mut self, part: Return) {
        let Some(pending) = self.requests.get_mut(&part.request) else { return };
        let Some(attempt) = pending.attempts.get_mut(usize::from(part.attempt)) else { return };
        if attempt.spoiled {
            return;
        }
        if attempt.covered.cuts(part.credit) {
            attempt.spoiled = true;
            return match pending.attempts.len() {
                ATTEMPTS_MAX.. => {
                    let reason = "it was run several times, in parts that do not fit together";
                    self.finish(part.request, Err(Answer::Failed(reason.into())));
                }
                _ => pending.again_ns = Some(self.now_ns),
            };
        }
        if !attempt.covered.add(part.credit) {
            return;
        }
        match part.end {
            End::Leaf { task, outputs } => {
                if !task.is_empty() {
                    attempt.pieces.push(Piece { row: part.row, order: part.credit.start, task, outputs });
                }
                if attempt.covered.is_whole() {
                    let pieces = std::mem::take(&mut attempt.pieces);
                    self.finish(part.request, Ok(pieces));
                }
            }
            End::Dropped(reason) => self.finish(part.request, Err(Answer::Dropped(reason))),
            End::Failed(reason) => self.finish(part.request, Err(Answer::Failed(reason))),
        }
    }

    fn finish(&mut self, request: u64, result: Result<Vec<Piece>, Answer>) {
        let pending = self.requests.remove(&request).expect("it is pending");
        let late = self.now_ns > pending.deadline_ns;
        let counts = self.counts.pipelines.entry(pending.pipeline).or_default();
        let count = match &result {
            Ok(_) if late => &mut counts.late,
            Ok(_) => &mut counts.ok,
            Err(Answer::TimedOut) => &mut counts.late,
            Err(Answer::Dropped(_)) => &mut counts.dropped,
            Err(_) => &mut counts.failed,
        };
        *count += 1;
        let answer = result.map_or_else(
            |failure| failure,
            |mut pieces| {
                pieces.sort_by_key(|p| (p.row, p.order));
                Answer::Done { pieces, late, latency_ns: self.now_ns - pending.arrived_ns }
            },
        );
        let _client_gone = pending.reply.send(answer);
    }

    pub(super) fn give_up(&mut self) {
        let old: Vec<u64> = self.requests.iter().filter(|(_, p)| p.give_up_ns <= self.now_ns).map(|(r, _)| *r).collect();
        for request in old {
            let timed = self.requests[&request].timed;
            self.finish(request, Err(if timed { Answer::TimedOut } else { Answer::GivenUp }));
        }
    }

    /// Lets every station to which something happened start its batch: called after all that happens at one moment, so
    /// that queries that come together share a batch.
    pub(super) fn start_batches(&mut self) {
        while let Some(id) = self.touched.pop_first() {
            if let Some(replica) = self.replicas.get_mut(&id)
                && replica.station.poll_timeout().is_some()
            {
                replica.station.handle(Moment::from_nanos(self.now_ns), Input::Tick);
                self.drain(id);
            }
        }
    }

    fn drain(&mut self, id: u64) {
        while let Some(output) = self.replicas.get_mut(&id).and_then(|r| r.station.poll_output()) {
            match output {
                Output::StartBatch { .. } => self.start(id),
                Output::Drop { query, reason } => {
                    let work = self.replicas.get_mut(&id).and_then(|r| r.works.remove(&query)).expect("it waited");
                    self.taken(&work);
                    self.send_back(&work.query, End::Dropped(format!("task {}: {}", work.query.task, reason.name())));
                }
                Output::ServerGone { .. } => {}
            }
        }
    }

    fn start(&mut self, id: u64) {
        let replica = self.replicas.get_mut(&id).expect("it has a batch");
        let keys: Vec<u64> = replica.station.batch(0).iter().map(|w| w.query).collect();
        let hold = Duration::from_nanos(replica.group.latency_ns(keys.len()));
        let members: Vec<&Work> = keys.iter().map(|k| &replica.works[k]).collect();
        let counts = replica.counted(&mut self.counts);
        counts.batches += 1;
        counts.queries += members.len() as u64;
        counts.waited_ns += members.iter().map(|w| self.now_ns - w.arrived_ns).sum::<u64>();
        let input = |spec: &crate::tensor::TensorSpec| {
            let of = |w: &&Work| w.query.inputs.iter().find(|t| t.name == spec.name).cloned();
            let parts = members.iter().map(of).collect::<Option<Vec<Tensor>>>()?;
            concatenate(&parts.iter().collect::<Vec<_>>())
        };
        match replica.task().inputs.iter().map(input).collect::<Option<Vec<_>>>() {
            Some(inputs) => self.actions.push(Action::Run(id, inputs, hold)),
            None => self.misfits.push(id),
        }
    }

    /// A batch has ended.
    pub(super) fn complete(&mut self, id: u64, result: Result<Vec<Tensor>, String>, took: Duration) {
        let now = Moment::from_nanos(self.now_ns);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.station.running() == 0 {
            return;
        }
        replica.station.handle(now, Input::BatchFinished { server: 0 });
        let keys: Vec<u64> = replica.station.batch(0).iter().map(|w| w.query).collect();
        let works: Vec<Work> = keys.iter().map(|k| replica.works.remove(k).expect("it ran")).collect();
        let (tasks, group, name) = (replica.tasks.clone(), replica.group_id, replica.pipeline.clone());
        let position = replica.group.task;
        let counts = replica.counted(&mut self.counts);
        counts.busy_ns += took.as_nanos() as u64;
        let ended = counts.sizes.entry(works.len()).or_default();
        *ended = (ended.0 + 1, ended.1 + took.as_nanos() as u64);
        self.touched.insert(id);
        self.drain(id);
        let split = result.and_then(|outputs| rows_of(&outputs, works.len()).map(|rows| (outputs, rows)));
        let mut children: BTreeMap<String, u64> = BTreeMap::new();
        for (i, work) in works.into_iter().enumerate() {
            let fate = match &split {
                Ok((outputs, rows)) => fate(&tasks[position], &tasks, work.query.credit, outputs, &rows[i]),
                Err(reason) => Fate::End(End::Failed(format!("task {}: {reason}", work.query.task))),
            };
            match fate {
                Fate::End(end) => self.send_back(&work.query, end),
                Fate::Children(all) => {
                    for child in all {
                        let task = tasks[child.to].name.clone();
                        *children.entry(task.clone()).or_default() += 1;
                        let (credit, inputs, hops) = (child.credit, child.inputs, 0);
                        let query = Query { task, credit, inputs, hops, replica: 0, ..work.query.clone() };
                        self.deliver(query, work.deadline_ns, Some(group));
                    }
                }
            }
            self.taken(&work);
        }
        let counts = self.counts.groups.entry((name, group)).or_default();
        children.into_iter().for_each(|(task, n)| *counts.children.entry(task).or_default() += n);
    }

    /// Batches whose members' inputs do not fit together end at once.
    pub(super) fn fail_misfits(&mut self) {
        while let Some(id) = self.misfits.pop() {
            let reason = "the inputs of its batch do not fit the task's".to_string();
            self.complete(id, Err(reason), Duration::ZERO);
        }
    }

    /// Everything that waits or runs at a replica that is lost goes elsewhere.
    pub(super) fn abandon(&mut self, id: u64, why: &str) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let works = std::mem::take(&mut replica.works);
        replica.renew_station();
        works.into_values().for_each(|work| self.pass_on(work, why));
    }
}
