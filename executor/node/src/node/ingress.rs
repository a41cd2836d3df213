//! How does a request at this gateway become queries, and how do their parts become its one answer?

use super::Action;
use super::request::{Answer, Attempt, Pending, Piece, Terms};
use super::requests::{ATTEMPTS_MAX, Completed, Run};
use super::state::{GIVE_UP_NS_MIN, GIVE_UP_SLOS, Node};
use super::work::Sending;
use crate::node::counts::BIN_NS;
use crate::policies::LEVEL_OFFLINE;
use crate::tensor::Tensor;
use crate::wire::{Credit, End, Message, Query, Return};
use apportion_domain::Span;

/// How long an offline request without a timeout waits for its answer, in nanoseconds.
const OFFLINE_PATIENCE_NS: u64 = 3_600_000_000_000;
/// After the loss of an agent, a request runs again when it stays unanswered for this part of its SLO. The time is long
/// enough for most requests that never touched the lost agent. It is short enough that most second runs are in time.
const AGAIN_SLO_PARTS: u64 = 4;

impl Node {
    pub(super) fn accept_request(&mut self, name: String, inputs: Vec<Tensor>, terms: Terms, caller: u64) {
        let Some(pipeline) = self.layout.pipelines.get(&name).cloned() else {
            self.answer(caller, Answer::NotReady(format!("pipeline {name} is not in the target")));
            return;
        };
        let rows = inputs.first().map_or(0, Tensor::rows) as u64;
        assert!(rows > 0, "the gateway refuses empty requests");
        let chosen = terms.needs.map(|needs| self.choose(&name, &needs, rows as u32)).transpose();
        let chosen = match chosen {
            Ok(chosen) => chosen,
            Err(answer) => {
                self.answer(caller, answer);
                return;
            }
        };
        // Offline requests take what is left over: nothing is planned for them.
        if terms.level != LEVEL_OFFLINE {
            let counts = self.counts.pipelines.entry(name.clone()).or_default();
            *counts.bins.entry(self.now_ns / BIN_NS).or_default() += rows as u32;
            self.count_offered(&name, rows as u32);
        }
        let counts = self.counts.pipelines.entry(name.clone()).or_default();
        let task = pipeline.tasks[pipeline.root].name.clone();
        if self.leaving {
            counts.failed += 1;
            self.answer(caller, Answer::NotReady("this agent is stopping".into()));
            return;
        }
        if !self.routes.reaches(&name, &task) && !self.is_coming(&name, &task) {
            self.counts.pipelines.entry(name).or_default().failed += 1;
            self.answer(caller, Answer::NotReady(format!("no replica of task {task} is ready")));
            return;
        }
        let is_offline = terms.level == LEVEL_OFFLINE;
        let patience_ns = if is_offline { OFFLINE_PATIENCE_NS } else { self.patience_ns(&name) };
        let timed = terms.timeout_ns.is_some_and(|t| t <= patience_ns);
        let timeout_ns = terms.timeout_ns.unwrap_or(u64::MAX);
        let needed_ns = terms.needs.map_or(u64::MAX, |n| n.latency_ns_max);
        let slo_ns = if is_offline { OFFLINE_PATIENCE_NS } else { pipeline.slo_ns };
        let deadline_ns = self.now_ns.saturating_add(timeout_ns.min(needed_ns).min(slo_ns));
        let give_up_ns = self.now_ns.saturating_add(timeout_ns.min(patience_ns));
        let arrived_ns = self.now_ns;
        let (attempts, again_ns) = (Vec::new(), None);
        let pipeline = name;
        let pending = Pending {
            pipeline,
            inputs,
            terms,
            chosen,
            arrived_ns,
            deadline_ns,
            give_up_ns,
            timed,
            caller,
            attempts,
            again_ns,
        };
        let request = self.requests.insert(pending);
        self.run_request(request, &task);
    }

    /// After how many nanoseconds a request of this pipeline is given up, and what waits for the rest of it with it.
    pub(super) fn patience_ns(&self, pipeline: &str) -> u64 {
        let slo_ns = self.layout.pipelines.get(pipeline).map_or(0, |p| p.slo_ns);
        slo_ns.saturating_mul(GIVE_UP_SLOS).max(GIVE_UP_NS_MIN)
    }

    /// Runs a request: one query for each of its rows.
    fn run_request(&mut self, request: u64, root: &str) {
        let run = self.requests.begin_run(request).expect("it is pending");
        let Run { pipeline, inputs, deadline_ns, terms, attempt, pins } = run;
        let Terms { level, trace, sender, .. } = terms;
        let apart = self.suspects.apart(sender, self.now_ns);
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
                group: 0,
                behind_ns: 0,
                level,
                apart,
                pins: pins.clone(),
                trace,
                scopes: Vec::new(),
                inputs: columns.iter_mut().filter_map(Iterator::next).collect(),
            };
            self.deliver(query, Sending { deadline_ns, from: None, behind: Span::ZERO });
        }
    }

    /// After the loss of an agent: what is still unanswered after a part of its SLO is run again. Most of it never
    /// touched the lost agent and is answered before.
    pub(super) fn plan_retries(&mut self) {
        let (now_ns, layout) = (self.now_ns, self.layout.clone());
        let slo_ns = |pipeline: &str| layout.pipelines.get(pipeline).map_or(0, |p| p.slo_ns);
        self.requests.plan_retries(|pipeline| now_ns + slo_ns(pipeline) / AGAIN_SLO_PARTS);
    }

    /// Runs again and gives up the requests that are due. To look at each of many at every tick would take longer than to
    /// serve them.
    pub(super) fn check_due_requests(&mut self) {
        if !self.requests.is_any_due(self.now_ns) {
            return;
        }
        self.retry_due_requests();
        self.expire_requests();
        self.requests.find_next_due();
    }

    /// Runs again what is due.
    fn retry_due_requests(&mut self) {
        let now_ns = self.now_ns;
        for request in self.requests.due_retries(now_ns) {
            let Some(pending) = self.requests.get_mut(request) else { continue };
            let pipeline = self.layout.pipelines.get(&pending.pipeline);
            let root = pipeline.map(|p| p.tasks[p.root].name.clone());
            let Some(root) = root.filter(|root| self.routes.reaches(&pending.pipeline, root)) else {
                // While nobody takes it, the first run may still come back; to fail now would be too early.
                pending.again_ns = Some(now_ns + pipeline.map_or(GIVE_UP_NS_MIN, |p| p.slo_ns) / AGAIN_SLO_PARTS);
                continue;
            };
            pending.again_ns = None;
            self.choose_variants_again(request);
            tracing::debug!(request, "a request is run again because an agent was lost");
            self.run_request(request, &root);
        }
    }

    /// The variants of a request may have gone with the lost agent: others that do what it needs are taken, if there are
    /// any.
    fn choose_variants_again(&mut self, request: u64) {
        let Some(pending) = self.requests.get(request) else { return };
        let Some(needs) = pending.terms.needs else { return };
        let (name, rows) = (pending.pipeline.clone(), pending.inputs[0].rows() as u32);
        if let (Ok(chosen), Some(pending)) = (self.choose(&name, &needs, rows), self.requests.get_mut(request)) {
            pending.chosen = Some(chosen);
        }
    }

    /// Returns a query's part of its request.
    pub(super) fn send_return(&mut self, query: &Query, end: End) {
        let (request, row, attempt) = (query.request, query.row, query.attempt);
        let part = Return { request, row, attempt, credit: query.credit, end };
        if self.is_own(query.origin, query.request) {
            self.receive_return(part);
        } else {
            self.actions.push(Action::Send(query.origin, Message::Return(part)));
        }
    }

    /// A part of a request of this gateway has come back.
    pub(super) fn receive_return(&mut self, part: Return) {
        let Some(pending) = self.requests.get_mut(part.request) else { return };
        let is_partial = self.layout.pipelines.get(&pending.pipeline).is_some_and(|p| p.partial);
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
                _ => {
                    pending.again_ns = Some(self.now_ns);
                    self.requests.make_due(self.now_ns);
                }
            };
        }
        if !attempt.covered.add(part.credit) {
            return;
        }
        match part.end {
            End::Leaf { task, outputs } => {
                attempt.leaves += 1;
                if !task.is_empty() {
                    attempt.pieces.push(Piece { row: part.row, order: part.credit.start, task, outputs });
                }
            }
            End::Dropped(reason) if is_partial => {
                attempt.dropped.0 += 1;
                attempt.dropped.1.get_or_insert(reason);
            }
            End::Dropped(reason) => return self.finish(part.request, Err(Answer::Dropped(reason))),
            End::Failed(reason) => return self.finish(part.request, Err(Answer::Failed(reason))),
            End::NotReady(reason) => return self.finish(part.request, Err(Answer::NotReady(reason))),
            End::Harmful(reason) => {
                self.suspects.note(pending.terms.sender, self.now_ns);
                return self.finish(part.request, Err(Answer::Failed(reason)));
            }
        }
        if attempt.covered.is_whole() {
            let result = answered(attempt);
            self.finish(part.request, result);
        }
    }

    fn finish(&mut self, request: u64, result: Result<Completed, Answer>) {
        let pending = self.requests.remove(request).expect("it is pending");
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
        // Whatever of it is still under way is not wanted any more.
        if pending.attempts.iter().any(|a| !a.covered.is_whole()) {
            self.cancel_everywhere(request);
        }
        let answer = result.map_or_else(
            |failure| failure,
            |Completed { mut pieces, dropped }| {
                pieces.sort_by_key(|p| (p.row, p.order));
                let (latency_ns, chosen) = (self.now_ns - pending.arrived_ns, pending.chosen);
                Answer::Done { pieces, late, latency_ns, dropped, chosen }
            },
        );
        self.answer(pending.caller, answer);
    }

    fn answer(&mut self, caller: u64, answer: Answer) {
        self.actions.push(Action::Answer(caller, answer));
    }

    fn expire_requests(&mut self) {
        for request in self.requests.expired(self.now_ns) {
            let timed = self.requests.get(request).is_some_and(|pending| pending.timed);
            self.finish(request, Err(if timed { Answer::TimedOut } else { Answer::GivenUp }));
        }
    }
}

/// What a run that has come back as a whole has come to: dropped parts are left out, unless nothing else is left.
fn answered(attempt: &mut Attempt) -> Result<Completed, Answer> {
    match &mut attempt.dropped {
        (_, Some(reason)) if attempt.leaves == 0 => Err(Answer::Dropped(std::mem::take(reason))),
        (dropped, _) => Ok(Completed { pieces: std::mem::take(&mut attempt.pieces), dropped: *dropped }),
    }
}
