//! Which stations may start a batch, and which batches run?

use super::members::inputs_of;
use crate::node::event::Action;
use crate::node::replicas::{BatchKind, BatchPlace, EndedMember, LocalReplicas, QueuedMember};
use crate::node::site::Site;
use crate::node::tallies::Tallies;
use crate::node::work::LocalQuery;
use crate::trace::Batch;
use apportion_serving::DropReason;
use apportion_serving::replica::{StationInput, StationOutput};
use std::collections::BTreeSet;
use std::time::Duration;

/// Whether a batch has outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// It has.
    Succeeded,
    /// It has none.
    Failed,
}

/// A query that its station has dropped.
pub struct DroppedWork {
    /// The query.
    pub work: LocalQuery,
    /// Why.
    pub reason: DropReason,
}

/// A batch that has ended.
pub struct EndedBatch {
    /// Its members.
    pub members: Vec<EndedMember>,
    /// What their spans say of it.
    pub batch: Batch,
}

/// The stations with new events, and the batches that cannot run.
#[derive(Default)]
pub struct BatchRuns {
    /// Replicas whose station may start a batch.
    touched: BTreeSet<u64>,
    /// Batches that cannot be run.
    misfits: Vec<BatchPlace>,
}

impl BatchRuns {
    /// The station of a replica may start a batch.
    pub fn touch(&mut self, id: u64) {
        self.touched.insert(id);
    }

    /// The stations that are due may start a batch.
    pub fn touch_due(&mut self, replicas: &LocalReplicas, now_ns: u64) {
        let due = replicas.iter().filter(|r| r.wake_ns.is_some_and(|at| at <= now_ns)).map(|r| r.id);
        self.touched.extend(due.collect::<Vec<_>>());
    }

    /// Whether there is nothing to start and nothing to fail.
    pub fn is_idle(&self) -> bool {
        self.touched.is_empty() && self.misfits.is_empty()
    }

    /// Takes out a batch that cannot be run, the latest first.
    pub fn next_misfit(&mut self) -> Option<BatchPlace> {
        self.misfits.pop()
    }

    /// Replicas have other numbers now.
    pub fn renumber(&mut self, renamed: impl Fn(&u64) -> u64) {
        self.touched = self.touched.iter().map(&renamed).collect();
        self.misfits.iter_mut().for_each(|place| place.replica = renamed(&place.replica));
    }

    /// Ticks the next touched station that is due, and returns its replica. Notes when the others are due. A station of an
    /// earlier target starts nothing more: it is replaced when all its servers have ended their batches.
    pub fn tick_next(&mut self, replicas: &mut LocalReplicas, site: &Site) -> Option<u64> {
        let now = site.now();
        while let Some(id) = self.touched.pop_first() {
            let Some(replica) = replicas.get_mut(id) else { continue };
            match replica.station.poll_timeout().filter(|_| !replica.is_stale) {
                Some((at, _)) if at <= now => {
                    replica.wake_ns = None;
                    replica.station.handle(now, StationInput::Tick);
                    return Some(id);
                }
                later => replica.wake_ns = later.map(|(at, _)| at.as_nanos()),
            }
        }
        None
    }

    /// Carries out what a station asks for, up to the next query that it has dropped; none if it asks for nothing more.
    pub fn next_dropped(
        &mut self,
        id: u64,
        replicas: &mut LocalReplicas,
        site: &mut Site,
        tallies: &mut Tallies,
    ) -> Option<DroppedWork> {
        loop {
            let replica = replicas.get_mut(id)?;
            match replica.station.poll_output()? {
                StationOutput::StartBatch { server, .. } => {
                    self.start_batch(BatchPlace { replica: id, server }, replicas, site, tallies);
                }
                StationOutput::Drop { query, reason } => {
                    if reason != DropReason::Cancelled && replica.take_back_offline(query) {
                        continue;
                    }
                    let work = replica.works.remove(&query.key).expect("it waited");
                    *replica.group_counts(tallies.counts()).drops.entry(reason.name()).or_default() += 1;
                    return Some(DroppedWork { work, reason });
                }
                StationOutput::ServerGone { .. } => {}
            }
        }
    }

    fn start_batch(&mut self, place: BatchPlace, replicas: &mut LocalReplicas, site: &mut Site, tallies: &mut Tallies) {
        let (now_ns, BatchPlace { replica: id, server }) = (site.now_ns(), place);
        let replica = replicas.get_mut(id).expect("it has a batch");
        replica.begin_batch(server, now_ns);
        let keys: Vec<u64> = replica.batch_members(server).map(|member| member.key).collect();
        let expected = Duration::from_nanos(replica.expected_ns(keys.len()));
        let spread = replica.spread(keys.len());
        let members: Vec<&LocalQuery> = keys.iter().map(|k| &replica.works[k]).collect();
        let counts = replica.group_counts(tallies.counts());
        counts.batches += 1;
        counts.queries += members.len() as u64;
        // A peer says how long its queries waited before, and may say anything.
        let waits = members.iter().filter(|w| !w.is_offline()).map(|w| now_ns - w.arrived_ns);
        counts.waited_ns = waits.fold(counts.waited_ns, u64::saturating_add);
        match inputs_of(replica.task(), &members) {
            Some(inputs) => site.push(Action::Run { replica: id, server, inputs, expected, spread }),
            None => self.misfits.push(place),
        }
    }

    /// A batch has ended: its members leave it, and the station may start the next one.
    pub fn end_batch(
        &mut self,
        place: BatchPlace,
        outcome: BatchOutcome,
        took: Duration,
        replicas: &mut LocalReplicas,
        site: &Site,
        tallies: &mut Tallies,
    ) -> Option<EndedBatch> {
        let (now, took_ns, BatchPlace { replica: id, server }) = (site.now(), took.as_nanos() as u64, place);
        let replica = replicas.get_mut(id)?;
        replica.station.handle(now, StationInput::BatchFinished { server });
        let keys: Vec<QueuedMember> = replica.batch_members(server).collect();
        let members: Vec<EndedMember> =
            keys.iter().map(|member| replica.take_member(*member, now).expect("it ran")).collect();
        let is_offline = members.iter().all(|member| member.work.is_offline());
        replica.measure_batch(members.len(), took_ns, if is_offline { BatchKind::Offline } else { BatchKind::Online });
        let size = members.len();
        let wait = Duration::from_nanos(replica.station.batch_wait(server).as_nanos() / (size as u64).max(1));
        let batch = Batch { size, begun_ns: replica.begun_ns(server), execution: took, wait };
        let (profiled, busy_ns) = (replica.profiled(size), replica.busy_ns(took_ns));
        let counts = replica.group_counts(tallies.counts());
        if let Some(expected) = profiled.filter(|_| outcome == BatchOutcome::Succeeded) {
            counts.ended_well.add_batch(took_ns, expected);
            counts.ratios.add_batch(took_ns, expected);
        }
        counts.busy_ns += busy_ns;
        counts.failed += u64::from(outcome == BatchOutcome::Failed);
        counts.sizes.entry(size).or_default().add(1, took_ns);
        self.touch(id);
        Some(EndedBatch { members, batch })
    }
}
