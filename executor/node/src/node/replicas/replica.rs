//! What does an agent know of one of its replicas?

use super::meter::{BatchKind, Disturbance, LoadMeter, MeasuredBatch};
use super::single_run::SingleRun;
use crate::layout::{self, LayoutGroup, LayoutPipeline, LayoutTask, ProfiledTime};
use crate::node::counts::{Batches, Labels, ReportCounts};
use crate::node::event::RunSpread;
use crate::node::work::LocalQuery;
use crate::policies::QueryHandle;
use crate::wire::{Announced, PendingReplica, ReplicaLoad};
use apportion_domain::Moment;
use apportion_serving::replica::{Station, StationInput};
use apportion_serving::{StationView, Stride};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Where a replica is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaPhase {
    /// There is no room for it on its device yet.
    Blocked,
    /// Its file is fetched or loaded.
    Loading,
    /// It takes queries.
    Ready,
    /// It could not be loaded or its thread died.
    Failed(String),
    /// It takes no new queries since this time. Queries that still come are served.
    Draining(u64),
}

/// One replica.
pub struct LocalReplica {
    /// Its number.
    pub id: u64,
    /// Its pipeline's name.
    pub pipeline: String,
    /// Its group's number.
    pub(crate) group_id: u64,
    /// Its group.
    pub group: LayoutGroup,
    /// Its pipeline as the latest target that has this replica says.
    pub of: Arc<LayoutPipeline>,
    /// Its device.
    pub device: u32,
    /// Where it is in its life.
    pub state: ReplicaPhase,
    /// The target in force does not have it. It leaves when other replicas have taken over.
    pub retired: bool,
    /// Its queue and what its servers run: one server for batches, or one for each slot of a continuous task.
    pub(crate) station: Station<QueryHandle>,
    /// The state of the other tasks that its station was told last.
    pub(crate) view: Option<StationView>,
    /// When the last batch of each server of its station began.
    begun_ns: Vec<u64>,
    /// Queries that wait or run, by the key of the station's handle.
    pub(crate) works: BTreeMap<u64, LocalQuery>,
    /// Offline queries of `works` that wait for a gap, by key.
    pub(crate) offline: VecDeque<u64>,
    /// Whose turn it is, if each row goes to one of several children.
    pub(crate) turns: Option<Stride>,
    /// When its station wants to be ticked, if later.
    pub(crate) wake_ns: Option<u64>,
    /// Queries in its group's central queue, if it speaks for that queue; counted once in a period.
    pub in_group_queue: usize,
    /// Measures its load.
    meter: LoadMeter,
    /// The runs of its failed batch's members.
    pub(crate) single_run: Option<SingleRun>,
    /// Its station is of an earlier target. A new one replaces it when its batch has ended.
    pub(crate) is_stale: bool,
}

impl LocalReplica {
    /// A replica at its place, which is blocked until its device has room.
    pub(crate) fn new(
        place: &layout::LayoutReplica,
        pipeline: &str,
        of: &Arc<LayoutPipeline>,
        view: Option<StationView>,
    ) -> Self {
        let group = of.groups[&place.group].clone();
        let mut this = Self {
            id: place.id,
            pipeline: pipeline.to_string(),
            group_id: place.group,
            station: of.station(&group),
            turns: turns(&of.tasks[group.task]),
            group,
            of: of.clone(),
            device: place.device,
            state: ReplicaPhase::Blocked,
            retired: false,
            view,
            begun_ns: Vec::new(),
            works: BTreeMap::new(),
            offline: VecDeque::new(),
            wake_ns: None,
            in_group_queue: 0,
            meter: LoadMeter::default(),
            single_run: None,
            is_stale: false,
        };
        this.renew_station();
        this
    }

    /// Replaces its station by an empty one.
    pub(crate) fn renew_station(&mut self) {
        self.station = self.of.station(&self.group);
        self.begun_ns = vec![0; self.station.servers()];
        self.single_run = None;
        self.is_stale = false;
        if let Some(view) = self.view {
            self.apply_view(Moment::ZERO, view);
        }
    }

    /// Tells its station the state of the other tasks.
    pub(crate) fn apply_view(&mut self, now: Moment, view: StationView) {
        self.view = Some(view);
        self.station.handle(now, StationInput::Steer { view });
        debug_assert!(self.station.poll_output().is_none(), "a station that is told something asks for nothing");
    }

    /// Follows a new form of its pipeline. Another batch size or other policies need another station.
    pub(crate) fn follow_pipeline(&mut self, of: &Arc<LayoutPipeline>, view: Option<StationView>, now: Moment) {
        self.group_id = group_of(of, self.id).unwrap_or(self.group_id);
        let group = &of.groups[&self.group_id];
        let is_same = |a: &LayoutPipeline, b: &LayoutPipeline| {
            (a.serving, a.queue_factor, a.slo_ns) == (b.serving, b.queue_factor, b.slo_ns)
        };
        self.is_stale |= (group.batch, &group.service) != (self.group.batch, &self.group.service) || !is_same(of, &self.of);
        self.group = group.clone();
        self.turns = turns(&of.tasks[group.task]);
        self.of = of.clone();
        self.view = view;
        if let (Some(view), false) = (view, self.is_stale) {
            self.apply_view(now, view);
        }
    }

    /// A server of its station begins a batch.
    pub(crate) fn begin_batch(&mut self, server: u32, now_ns: u64) {
        self.begun_ns[server as usize] = now_ns;
    }

    /// When the last batch of a server of its station began.
    pub(crate) fn begun_ns(&self, server: u32) -> u64 {
        self.begun_ns[server as usize]
    }

    /// The profile's time of a batch of this size; of a query in a slot, with all slots taken.
    pub(crate) fn expected_ns(&self, size: usize) -> u64 {
        self.group.latency_ns(if self.task().is_continuous { self.group.batch } else { size })
    }

    /// The profile's time that a batch of this size is compared with. None for a query in a slot: its time is its own, and
    /// says nothing of the profile.
    pub(crate) fn profiled(&self, size: usize) -> Option<ProfiledTime> {
        (!self.task().is_continuous).then(|| self.group.profiled(size))
    }

    /// How the times of its batches of this size spread, or those of queries in its slots.
    pub(crate) fn spread(&self, size: usize) -> RunSpread {
        match self.task().is_continuous {
            true => RunSpread::Slot(Duration::from_nanos(self.group.slot_p99_ns)),
            false => RunSpread::Batch(Duration::from_nanos(self.group.p99_ns(size))),
        }
    }

    /// The part of the replica's time that a batch took: its slots run side by side.
    pub(crate) fn busy_ns(&self, took_ns: u64) -> u64 {
        took_ns / (self.begun_ns.len() as u64).max(1)
    }

    /// Its task.
    #[must_use]
    pub fn task(&self) -> &LayoutTask {
        &self.of.tasks[self.group.task]
    }

    /// The counts of its group's batches at this agent.
    pub(crate) fn group_counts<'c>(&self, counts: &'c mut ReportCounts) -> &'c mut Batches {
        let batches = counts.groups.entry((self.pipeline.clone(), self.group_id)).or_default();
        if batches.labels.pipeline.is_empty() {
            batches.labels = Labels {
                pipeline: self.pipeline.clone(),
                task: self.task().name.clone(),
                variant: self.group.variant.clone(),
                hardware: self.group.hardware.clone(),
            };
        }
        batches
    }

    /// Whether senders may choose it.
    #[must_use]
    pub fn takes_queries(&self) -> bool {
        self.state == ReplicaPhase::Ready
    }

    /// Whether it could not be loaded, or died.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.state, ReplicaPhase::Failed(_))
    }

    /// Whether it can run what still comes.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state, ReplicaPhase::Ready | ReplicaPhase::Draining(_))
    }

    /// Its announcement while it is not ready yet.
    #[must_use]
    pub fn coming_announcement(&self) -> Option<PendingReplica> {
        let is_blocked = self.state == ReplicaPhase::Blocked;
        let is_coming = !self.retired && (is_blocked || self.state == ReplicaPhase::Loading);
        is_coming.then_some(PendingReplica { replica: self.id, is_blocked })
    }

    /// Queries that wait or run.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Its announcement to other agents while it takes queries.
    #[must_use]
    pub fn announcement(&self) -> Announced {
        Announced {
            replica: self.id,
            group: self.group_id,
            pipeline: self.pipeline.clone(),
            task: self.task().name.clone(),
            accuracy_ppm: (self.group.accuracy.clamp(0.0, 1.0) * 1e6) as u32,
        }
    }

    /// Its load, as it was announced last.
    #[must_use]
    pub fn load(&self) -> ReplicaLoad {
        self.meter.load()
    }

    /// Time of its batches of the last period over their time in the profile; 0 if none ended.
    #[must_use]
    pub fn slowness(&self) -> f64 {
        self.meter.slowness()
    }

    /// Whether it was slower than profiled in the last period, though it was not overloaded.
    pub(crate) fn was_slow(&self) -> bool {
        self.meter.was_slow()
    }

    /// A batch that failed, or a member of one, has ended; or a query has left its slot.
    pub(crate) fn measure_failed(&mut self, took_ns: u64) {
        let busy_ns = self.busy_ns(took_ns);
        self.meter.note_failed(busy_ns);
    }

    /// A batch has ended.
    pub(crate) fn measure_batch(&mut self, queries: usize, took_ns: u64, kind: BatchKind) {
        let expected = self.profiled(queries).unwrap_or_default();
        let (queries, took_ns) = (queries as u64, self.busy_ns(took_ns));
        self.meter.note_batch(MeasuredBatch { queries, took_ns, expected, kind });
    }

    /// The period of measurement is over. Whether it has begun to be disturbed, or has ceased.
    pub(crate) fn end_period(&mut self, period_ns: u64) -> bool {
        let (queued, capacity_qps) = (self.announced_len(), self.group.capacity_qps());
        let disturbance = self.meter.end_period(period_ns, queued, capacity_qps);
        if let Disturbance::Began { load } = disturbance {
            let (replica, task, variant) = (self.id, &self.task().name, &self.group.variant);
            let slowness = self.slowness();
            tracing::warn!(
                replica,
                task,
                variant,
                slowness,
                load,
                "a replica is slower than profiled, though not overloaded"
            );
        }
        disturbance != Disturbance::Unchanged
    }

    /// Queries that it announces: its own, and those of the central queue that it speaks for.
    pub(crate) fn announced_len(&self) -> usize {
        self.online_len() + self.in_group_queue
    }

    /// Queries that wait or run, without offline ones that wait for a gap.
    pub(crate) fn online_len(&self) -> usize {
        self.len() - self.offline.len()
    }
}

/// Whose turn it is among the children of a task whose rows go to one of them.
fn turns(task: &LayoutTask) -> Option<Stride> {
    let ratios = (0..).zip(&task.children).map(|(at, edge)| (edge.ratio, at));
    if task.one_of { Stride::new(ratios) } else { None }
}

/// The number of a loaded replica's group in the layout, which may have numbered it anew; none if it has no such group.
fn group_of(of: &LayoutPipeline, id: u64) -> Option<u64> {
    of.replicas.iter().find(|r| r.id == id).map(|r| r.group)
}
