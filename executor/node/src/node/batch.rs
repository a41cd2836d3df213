//! When does a batch start, which queries are its members, and what happens to them when it ends?

use super::replica::Replica;
use super::split::{Branching, Ended, Fate, OutputError, rows_of};
use super::work::Sending;
use super::{Action, Node, Work};
use crate::layout::{Pipeline, Task};
use crate::replica_event::BatchFault;
use crate::tensor::concatenate;
use crate::tensor::{Tensor, TensorSpec};
use crate::trace::Batch;
use crate::wire::{End, Query};
use apportion_domain::{Moment, Span};
use apportion_serving::DropReason;
use apportion_serving::replica::{Input, Output};
use std::collections::BTreeMap;
use std::time::Duration;

/// The outputs of a batch, and which of their rows belong to each member.
pub(super) struct Made {
    outputs: Vec<Tensor>,
    rows: Vec<Vec<usize>>,
}

/// A task of a pipeline.
#[derive(Clone, Copy)]
pub(super) struct TaskRef<'p> {
    /// The pipeline.
    pub of: &'p Pipeline,
    /// The task's position.
    pub at: usize,
}

/// The rows of a batch's outputs that belong to one member.
#[derive(Clone, Copy, Default)]
pub(super) struct MemberOutputs<'o> {
    /// The outputs of the batch.
    pub tensors: &'o [Tensor],
    /// The member's rows of them.
    pub rows: &'o [usize],
}

/// A member of a batch that has ended.
pub(super) struct Member<'m> {
    /// Its query.
    pub query: &'m Query,
    /// What becomes of it.
    pub fate: Fate,
    /// What it has made.
    pub outputs: MemberOutputs<'m>,
    /// How its children are sent.
    pub to: Sending,
}

impl Made {
    /// Assigns the rows of outputs to the members of a batch.
    ///
    /// # Errors
    /// If the outputs do not fit a batch of this size.
    pub fn of(outputs: Vec<Tensor>, members: usize) -> Result<Self, BatchFault> {
        let unfit = |error: OutputError| BatchFault::of_batch(error.to_string());
        let rows = rows_of(&outputs, members).map_err(unfit)?;
        Branching::of(&outputs, None).map_err(unfit)?;
        Ok(Self { outputs, rows })
    }
}

/// The inputs of a batch of these members; none if they do not fit together, or one lacks an input of the task.
pub(super) fn inputs_of(task: &Task, members: &[&Work]) -> Option<Vec<Tensor>> {
    let input = |spec: &TensorSpec| {
        let of = |w: &&Work| w.query.inputs.iter().find(|t| t.name == spec.name).cloned();
        let parts = members.iter().map(of).collect::<Option<Vec<Tensor>>>()?;
        concatenate(&parts.iter().collect::<Vec<_>>())
    };
    task.inputs.iter().map(input).collect()
}

impl Replica {
    /// Takes a member out of the batch that has ended, and says by how much it is behind.
    pub(super) fn take_member(&mut self, key: u64, arrived: Moment, now: Moment) -> Option<(Work, Span)> {
        let budget = self.of.budget(&self.group);
        Some((self.works.remove(&key)?, now.since(arrived + budget)))
    }
}

impl Node {
    /// Lets each station with new events start its batch. The caller has handled all events of this moment before, so
    /// queries that come together share a batch.
    pub(super) fn start_batches(&mut self) {
        let now = Moment::from_nanos(self.now_ns);
        while let Some(id) = self.touched.pop_first() {
            let Some(replica) = self.replicas.get_mut(&id) else { continue };
            match replica.station.poll_timeout() {
                Some((at, _)) if at <= now => {
                    replica.wake_ns = None;
                    replica.station.handle(now, Input::Tick);
                    self.drain_station(id);
                    // A tick may leave something to wait for.
                    if let Some(replica) = self.replicas.get_mut(&id) {
                        replica.wake_ns = replica.station.poll_timeout().map(|(at, _)| at.as_nanos());
                    }
                }
                later => replica.wake_ns = later.map(|(at, _)| at.as_nanos()),
            }
        }
    }

    /// When the next station is due, in nanoseconds of the agent's clock. The loop feeds [`super::Event::Wake`] at that
    /// moment.
    #[must_use]
    pub fn wake_ns(&self) -> Option<u64> {
        self.replicas.values().filter_map(|r| r.wake_ns).min()
    }

    /// Marks the stations that are due, so that they are ticked.
    pub(super) fn wake(&mut self) {
        let now_ns = self.now_ns;
        let due = self.replicas.values().filter(|r| r.wake_ns.is_some_and(|at| at <= now_ns)).map(|r| r.id);
        self.touched.extend(due.collect::<Vec<_>>());
    }

    pub(super) fn drain_station(&mut self, id: u64) {
        while let Some(output) = self.replicas.get_mut(&id).and_then(|r| r.station.poll_output()) {
            match output {
                Output::StartBatch { .. } => self.start(id),
                Output::Drop { query, reason } if reason != DropReason::Cancelled && self.take_back_offline(id, query) => {}
                Output::Drop { query, reason } => {
                    let replica = self.replicas.get_mut(&id).expect("it has a station");
                    let mut work = replica.works.remove(&query.key).expect("it waited");
                    *replica.counted(&mut self.counts).drops.entry(reason.name()).or_default() += 1;
                    self.end_visit(id, &mut work, None, Some(reason.name()));
                    self.notify_sender(&work);
                    // The gateway that cancels a request has answered it.
                    if reason != DropReason::Cancelled {
                        self.end_query(&work.query, End::Dropped(format!("task {}: {}", work.query.task, reason.name())));
                    }
                }
                Output::ServerGone { .. } => {}
            }
        }
    }

    fn start(&mut self, id: u64) {
        let replica = self.replicas.get_mut(&id).expect("it has a batch");
        replica.begun_ns = self.now_ns;
        let keys: Vec<u64> = replica.station.batch(0).iter().map(|w| w.query.key).collect();
        let hold = Duration::from_nanos(replica.group.latency_ns(keys.len()));
        let members: Vec<&Work> = keys.iter().map(|k| &replica.works[k]).collect();
        let counts = replica.counted(&mut self.counts);
        counts.batches += 1;
        counts.queries += members.len() as u64;
        counts.waited_ns += members.iter().filter(|w| !w.is_offline()).map(|w| self.now_ns - w.arrived_ns).sum::<u64>();
        match inputs_of(replica.task(), &members) {
            Some(inputs) => self.actions.push(Action::Run(id, inputs, hold)),
            None => self.misfits.push(id),
        }
    }

    /// Handles the end of a batch, or of the run of a single member of a failed batch.
    pub(super) fn handle_batch_end(&mut self, id: u64, result: Result<Vec<Tensor>, BatchFault>, took: Duration) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.station.running() == 0 {
            return;
        }
        if replica.alone.is_some() {
            return self.complete_single(id, result, took);
        }
        let size = replica.station.batch(0).len();
        match result.and_then(|outputs| Made::of(outputs, size)) {
            Err(fault) if fault.is_of_batch && size > 1 => self.run_members_singly(id, &fault, took),
            made => self.end_batch(id, made, took),
        }
    }

    fn end_batch(&mut self, id: u64, made: Result<Made, BatchFault>, took: Duration) {
        let now = Moment::from_nanos(self.now_ns);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.station.handle(now, Input::BatchFinished { server: 0 });
        let members: Vec<(u64, Moment)> = replica.station.batch(0).iter().map(|w| (w.query.key, w.arrived)).collect();
        let works: Vec<(Work, Span)> =
            members.iter().map(|(key, arrived)| replica.take_member(*key, *arrived, now).expect("it ran")).collect();
        let is_offline = works.iter().all(|(w, _)| w.is_offline());
        replica.tally(works.len(), took.as_nanos() as u64, is_offline);
        let waited_ns = replica.station.batch_wait(0).as_nanos() / (works.len() as u64).max(1);
        let (size, begun_ns, wait) = (works.len(), replica.begun_ns, Duration::from_nanos(waited_ns));
        let batch = Batch { size, begun_ns, execution: took, wait };
        let counts = replica.counted(&mut self.counts);
        counts.busy_ns += took.as_nanos() as u64;
        counts.failed += u64::from(made.is_err());
        let ended = counts.sizes.entry(works.len()).or_default();
        *ended = (ended.0 + 1, ended.1 + took.as_nanos() as u64);
        self.touched.insert(id);
        self.drain_station(id);
        self.refit_idle(id);
        self.send_batch_results(id, made, works, batch);
        self.run_offline();
    }

    /// Sends the results of a batch on: children to the next tasks, leaves to their gateways.
    pub(super) fn send_batch_results(
        &mut self,
        id: u64,
        made: Result<Made, BatchFault>,
        works: Vec<(Work, Span)>,
        batch: Batch,
    ) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let (of, group, name, at) = (replica.of.clone(), replica.group_id, replica.pipeline.clone(), replica.group.task);
        let split = made.map_err(|fault| fault.why).and_then(|Made { outputs, rows }| {
            let branching = Branching::of(&outputs, replica.turns.as_mut()).map_err(|error| error.to_string())?;
            let mut ended = Ended { task: &of.tasks[at], tasks: &of.tasks, outputs: &outputs, branching };
            let fate_of = |(work, rows): (&(Work, Span), &Vec<usize>)| ended.fate(work.0.query.credit, rows);
            let fates: Vec<Fate> = works.iter().zip(&rows).map(fate_of).collect();
            Ok((outputs, rows, fates))
        });
        let (outputs, rows, fates) = split.unwrap_or_else(|reason| {
            let fail = |w: &(Work, Span)| Fate::End(End::Failed(format!("task {}: {reason}", w.0.query.task)));
            (Vec::new(), vec![Vec::new(); works.len()], works.iter().map(fail).collect())
        });
        let ended = works.len() as u64;
        let mut children: BTreeMap<String, u64> = BTreeMap::new();
        for (((mut work, behind), fate), rows) in works.into_iter().zip(fates).zip(&rows) {
            let failed = if let Fate::End(End::Failed(reason)) = &fate { Some(reason.as_str()) } else { None };
            self.end_visit(id, &mut work, Some(batch), failed);
            // A member whose request was cancelled while it ran makes no children.
            if !self.cancelled.contains(work.query.origin, work.query.request) {
                let to = Sending { deadline_ns: work.deadline_ns, from: Some(group), behind };
                let outputs = MemberOutputs { tensors: &outputs, rows };
                self.carry_out_fate(
                    TaskRef { of: &of, at },
                    Member { query: &work.query, fate, outputs, to },
                    &mut children,
                );
            }
            self.notify_sender(&work);
        }
        let made = |edge: &crate::layout::Edge| children.get(&of.tasks[edge.to].name).copied().unwrap_or(0);
        let made: Vec<u64> = of.tasks[at].children.iter().map(made).collect();
        self.count_made(&name, group, ended, &made);
        let counts = self.counts.groups.entry((name, group)).or_default();
        children.into_iter().for_each(|(task, n)| *counts.children.entry(task).or_default() += n);
    }

    /// Carries out the fate of one member, and adds its children to `counted`, by task.
    pub(super) fn carry_out_fate(&mut self, task: TaskRef<'_>, member: Member<'_>, counted: &mut BTreeMap<String, u64>) {
        let TaskRef { of, .. } = task;
        let Member { query, fate, outputs, to } = member;
        let made = if let Fate::Children(made) = &fate { made.as_slice() } else { &[] };
        let scopes = match self.end_in_scopes(task, query, made, outputs) {
            Ok(scopes) => scopes,
            Err(error) => return self.end_query(query, End::Failed(error.to_string())),
        };
        match fate {
            Fate::End(end) => self.send_return(query, end),
            Fate::Children(made) => {
                for (child, scopes) in made.into_iter().zip(scopes) {
                    let task = of.tasks[child.to].name.clone();
                    *counted.entry(task.clone()).or_default() += 1;
                    let (credit, inputs) = (child.credit, child.inputs);
                    let (pipeline, origin, request) = (query.pipeline.clone(), query.origin, query.request);
                    let (row, attempt, level, pins) = (query.row, query.attempt, query.level, query.pins.clone());
                    let apart = query.apart;
                    let (replica, hops, budget_ns, group, behind_ns) = (0, 0, 0, 0, 0);
                    let trace = query.trace;
                    let child = Query {
                        pipeline,
                        task,
                        replica,
                        origin,
                        request,
                        row,
                        credit,
                        budget_ns,
                        hops,
                        attempt,
                        group,
                        behind_ns,
                        level,
                        apart,
                        pins,
                        trace,
                        scopes,
                        inputs,
                    };
                    self.deliver(child, to);
                }
            }
        }
    }

    /// Fails the batches whose members' inputs do not fit together.
    pub(super) fn fail_misfits(&mut self) {
        while let Some(id) = self.misfits.pop() {
            let reason = "the inputs of its batch do not fit the task's".to_string();
            self.handle_batch_end(id, Err(BatchFault::of_batch(reason)), Duration::ZERO);
        }
    }

    /// Sends everything elsewhere that waits or runs at a lost replica.
    pub(super) fn abandon_replica(&mut self, id: u64, why: &str) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let works = std::mem::take(&mut replica.works);
        replica.offline.clear();
        replica.renew_station();
        works.into_values().for_each(|work| self.pass_on(work, why));
    }
}
