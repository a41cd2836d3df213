//! How does a steward's decision change a pipeline's layout, and which decisions and measurements of other agents are
//! plausible?

use crate::ladder::new_ladder;
use crate::layout::{AgentDevices, Layout, LayoutGroup, LayoutPipeline, LayoutReplica};
use apportion_domain::{Fence, RoutingPolicy, TimeSpan};
use apportion_protocol::v1;
use apportion_serving::ladder::LadderStep;
use apportion_serving::monitor::WAITS_MAX;
use apportion_serving::steward::{Scaler, StewardConfig};
use apportion_serving::tables::TaskGraph;
use apportion_serving::{Monitor, Outline, Priority, StatePlanner, StationView, Steering, TrafficEnvelope, outline};
use std::collections::BTreeMap;

/// Most replicas that one steward adds.
pub const EXTRAS_MAX: usize = 1_024;
/// How much a sum of shares may be off because of rounding.
pub const SLACK: f64 = 1e-6;
/// An epoch has the host's term above these bits.
pub const TERM_BITS: u32 = 32;
/// Terms by which a steering may be ahead of the last one: each is one agent that has taken over.
pub const TERM_JUMP_MAX: u64 = 1_024;
/// Largest term. Terms begin anew with each target.
pub const TERM_MAX: u64 = 1 << 31;
/// Largest count of a term's epochs: ten a second for three years.
pub const COUNT_MAX: u64 = 1 << 30;
/// Most tables, released replicas and the like of one steering, and most bins and groups of one measurement.
pub const LIST_MAX: usize = 16_384;
/// Most queries that are offered at one agent in a bin.
pub const BIN_QUERIES_MAX: u64 = 1_000_000;
/// Most queries of one group or station between two reports.
pub const QUERIES_MAX: u64 = 1 << 32;
/// Longest wait of a query at one station that is believed, in nanoseconds: a day.
pub const STATION_WAIT_NS_MAX: u64 = 86_400_000_000_000;
/// Most requests that ended at one gateway since its agent's start: a million a second for eight years.
pub const ENDED_MAX: u64 = 1 << 48;
/// Marks the numbers of extra replicas, which the control plane never gives.
pub const EXTRA_BIT: u64 = 1 << 62;

/// A group that has replicas.
#[derive(Clone, Copy, Debug)]
pub struct StaffedGroup<'p> {
    /// Its number.
    pub id: u64,
    /// The group.
    pub group: &'p LayoutGroup,
    /// Its replicas in the pipeline.
    pub replicas: u32,
}

/// A device of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePlace {
    /// The agent.
    pub agent: u64,
    /// The agent's number of the device.
    pub device: u32,
}

/// The free fraction of each device.
pub type FreeShares = BTreeMap<DevicePlace, f64>;

/// Whether replicas can be added anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRoom {
    /// On a spare device, or on one that a pipeline may release.
    Spare,
    /// Nowhere.
    None,
}

impl LayoutPipeline {
    /// Groups of the plan with replicas, in the order of their numbers: the steward knows them by their positions. Offered
    /// groups are not the steward's: the service loads and unloads their replicas.
    #[must_use]
    pub fn staffed(&self) -> Vec<StaffedGroup<'_>> {
        let replicas = |id: u64| self.replicas.iter().filter(|r| r.group == id).count() as u32;
        let all = self.groups.iter().map(|(id, group)| StaffedGroup { id: *id, group, replicas: replicas(*id) });
        all.filter(|staffed| staffed.replicas > 0 && !staffed.group.is_offered).collect()
    }

    /// Whether anything of it changes between two plans: tables with the load, module states, or replicas, for which
    /// there are spare devices or a ladder that begins below the plan.
    #[must_use]
    pub fn is_steered(&self, room: ReplicaRoom) -> bool {
        let routes = self.serving.routing == RoutingPolicy::MostAccurateFirst;
        routes || StatePlanner::needs_measurements(self.serving.dropping) || self.scales(room)
    }

    /// Queries that one query of a group makes at each child of its task.
    pub(crate) fn fanout_means(&self, group: &LayoutGroup) -> Vec<f64> {
        let task = &self.tasks[group.task];
        let mean = |edge: &crate::layout::LayoutEdge| {
            let counts = group.fanout.iter().find(|f| f.to == edge.to);
            let chosen = if task.one_of { edge.ratio } else { 1.0 };
            chosen * counts.map_or(1.0, |f| f.counts.iter().map(|(n, p)| f64::from(*n) * p).sum())
        };
        task.children.iter().map(mean).collect()
    }

    /// Positions of the tasks, each before its children.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order = vec![self.root];
        let mut at = 0;
        while let Some(task) = order.get(at) {
            order.extend(self.tasks[*task].children.iter().map(|e| e.to).collect::<Vec<_>>());
            at += 1;
        }
        order
    }

    /// The pipeline in numbers: what its machines are constructed from.
    #[must_use]
    pub fn outline(&self) -> Outline {
        let after = |t: &crate::layout::LayoutTask| t.children.iter().chain(&t.delays).map(|e| e.to).collect();
        let group = |StaffedGroup { group, replicas, .. }: &StaffedGroup<'_>| outline::PlannedGroup {
            task: group.task,
            accuracy: group.accuracy,
            replica_qps: group.capacity_qps(),
            execution: group.execution(),
            fanout: self.fanout_means(group),
            replicas: *replicas,
            traffic_share: 0.0,
        };
        let children = self.tasks.iter().map(|t| t.children.iter().map(|e| e.to).collect()).collect();
        Outline {
            graph: TaskGraph { order: self.order(), children },
            after: self.tasks.iter().map(after).collect(),
            groups: self.staffed().iter().map(group).collect(),
            slo: TimeSpan::from_nanos(self.slo_ns),
            hops: self.hops_ns.iter().copied().map(TimeSpan::from_nanos).collect(),
            queue_factor: self.queue_factor,
            dropping: self.serving.dropping,
            demand_qps: self.demand_qps,
        }
    }

    /// What a steward has to know; with the plan's ladder or a tuner if replicas may follow the load, that begins with
    /// those which the steering in force has. The target has no trace of the load that it was planned for, so the tuner
    /// takes a steady one for it.
    #[must_use]
    pub fn steward_config(&self, room: ReplicaRoom, steering: &v1::Steering) -> StewardConfig {
        let outline = self.outline();
        let scaler = self.scales(room).then(|| {
            let held = self.replicas_under(steering);
            if !self.ladder.is_empty() {
                return Scaler::Ladder(new_ladder(self, self.steps(), held));
            }
            let mut replicas = vec![0; self.tasks.len()];
            self.staffed().iter().zip(held).for_each(|(staffed, held)| replicas[staffed.group.task] += held);
            let sample = TrafficEnvelope::of_rate(outline.service(), self.demand_qps);
            Scaler::Tuner(outline.tuner(&sample, self.demand_qps, replicas))
        });
        StewardConfig { outline, routes: self.serving.routing == RoutingPolicy::MostAccurateFirst, scaler }
    }

    /// Replicas of each staffed group under a steering: the plan's without the released, and the extras.
    #[must_use]
    pub fn replicas_under(&self, steering: &v1::Steering) -> Vec<u32> {
        let group_of = |id: &u64| self.replicas.iter().find(|r| r.id == *id).map(|r| r.group);
        let released: Vec<u64> = steering.released.iter().filter_map(group_of).collect();
        let of = |groups: &mut dyn Iterator<Item = u64>, id: u64| groups.filter(|g| *g == id).count() as u32;
        let held = |StaffedGroup { id, replicas: planned, .. }: &StaffedGroup<'_>| {
            let added = of(&mut steering.extras.iter().map(|r| r.group), *id);
            planned + added - of(&mut released.iter().copied(), *id).min(*planned)
        };
        self.staffed().iter().map(held).collect()
    }

    /// What a steward wants, as far as the plan lets it: only a ladder was shown what fewer replicas than the plan's hold.
    #[must_use]
    pub fn allowed_replicas(&self, wanted: &[u32]) -> Vec<u32> {
        let least = |planned: u32| if self.ladder.is_empty() { planned } else { 1 };
        self.staffed().iter().zip(wanted).map(|(staffed, n)| least(staffed.replicas).max(*n)).collect()
    }

    /// Whether its replicas may follow the load: the target says how, and there is something to add or to give up.
    #[must_use]
    pub fn scales(&self, room: ReplicaRoom) -> bool {
        self.descends() || (room == ReplicaRoom::Spare && (self.demand_qps > 0.0 || !self.ladder.is_empty()))
    }

    /// Whether its ladder begins below the plan.
    fn descends(&self) -> bool {
        let steps = self.steps();
        let Some(first) = steps.first() else { return false };
        self.staffed().iter().zip(&first.replicas).any(|(staffed, n)| *n < staffed.replicas)
    }

    /// The ladder's steps for the groups that have replicas.
    fn steps(&self) -> Vec<LadderStep> {
        let staffed = self.staffed();
        let is_staffed: Vec<bool> = self.groups.keys().map(|id| staffed.iter().any(|s| s.id == *id)).collect();
        let of = |counts: &[u32]| counts.iter().zip(&is_staffed).filter(|(_, is)| **is).map(|(n, _)| (*n).max(1)).collect();
        self.ladder.iter().map(|s| LadderStep { rate_qps: s.rate_qps, replicas: of(&s.replicas) }).collect()
    }

    /// The pipeline as this steering has it.
    #[must_use]
    pub fn steered(&self, by: &v1::Steering) -> Self {
        let mut steered = self.clone();
        for table in &by.tables {
            let entries = table.entries.iter().map(|e| (e.group, e.fraction)).collect();
            steered.tables.insert((table.from, table.to_task as usize), entries);
        }
        if by.has_backup {
            steered.backup = by.backup.iter().copied().collect();
        }
        steered.replicas.retain(|r| !by.moved.contains(&r.id) && !by.released.contains(&r.id));
        let known = by.extras.iter().filter(|r| self.groups.contains_key(&r.group));
        let extra =
            |r: &v1::ReplicaTarget| LayoutReplica { id: r.replica, group: r.group, agent: r.agent, device: r.device };
        steered.replicas.extend(known.map(extra));
        steered
    }
}

/// Why a steering cannot be what a host says after `last` (0: nothing yet), if so. Until agents prove who they are, a
/// number that jumps is the sign of one that is made up: believed, it would keep the host's own from being heard, or
/// overflow.
#[must_use]
pub fn why_implausible(told: &v1::Steering, last: u64) -> Option<&'static str> {
    let (term, count) = (told.epoch >> TERM_BITS, told.epoch & ((1 << TERM_BITS) - 1));
    let is_part = |e: &v1::TableEntry| e.fraction.is_finite() && e.fraction >= 0.0;
    let lists = [told.extras.len(), told.moved.len(), told.released.len(), told.backup.len(), told.views.len()];
    if term > TERM_MAX || term > (last >> TERM_BITS) + TERM_JUMP_MAX {
        Some("its term is far beyond the last one")
    } else if count > COUNT_MAX {
        Some("its epoch is far beyond the first one of its term")
    } else if told.tables.len() > LIST_MAX || lists.iter().any(|len| *len > LIST_MAX) || told.extras.len() > EXTRAS_MAX {
        Some("it has more parts than any host names")
    } else if told.tables.iter().any(|t| t.entries.len() > LIST_MAX || !t.entries.iter().all(is_part)) {
        Some("its tables have parts that are none")
    } else {
        None
    }
}

/// Why a measurement is impossible, if it is.
#[must_use]
pub fn why_impossible(told: &v1::Measured) -> Option<&'static str> {
    let is_many = |n: &u64| *n > QUERIES_MAX;
    let of_made = told.made.iter().flat_map(|m| std::iter::once(&m.queries).chain(&m.children));
    let of_stations = told.stations.iter().flat_map(|s| [&s.arrived, &s.entered]);
    let waits = told.stations.iter().map(|s| s.waits_ns.len()).max().unwrap_or(0);
    let is_endless = |s: &v1::StationMeasured| {
        let mut waits_ns = s.waits_ns.iter().chain([&s.queueing_max_ns, &s.wait_max_ns]);
        waits_ns.any(|ns| *ns > STATION_WAIT_NS_MAX) || s.queueing_ns > s.entered.saturating_mul(STATION_WAIT_NS_MAX)
    };
    if told.offered.iter().any(|bin| u64::from(bin.count) > BIN_QUERIES_MAX) {
        Some("more queries in a hundredth of a second than any agent takes")
    } else if of_made.chain(of_stations).any(is_many) {
        Some("more queries in a second than any agent takes")
    } else if told.ended.is_some_and(|ended| ended.in_time.max(ended.missed) > ENDED_MAX) {
        Some("more requests than have ended at any agent")
    } else if [told.offered.len(), told.made.len(), told.stations.len()].iter().any(|n| *n > LIST_MAX) || waits > WAITS_MAX
    {
        Some("more parts than any agent reports")
    } else if told.stations.iter().any(is_endless) {
        Some("a query that has waited for more than a day")
    } else {
        None
    }
}

/// Whether two steerings are alike but for module states.
#[must_use]
pub fn routes_alike(a: &v1::Steering, b: &v1::Steering) -> bool {
    let replicas = |s: &v1::Steering| (s.extras.clone(), s.moved.clone(), s.released.clone());
    (&a.tables, a.has_backup, &a.backup) == (&b.tables, b.has_backup, &b.backup) && replicas(a) == replicas(b)
}

/// Module states by task, as they were told.
#[must_use]
pub fn views_of(told: &v1::Steering) -> Vec<StationView> {
    let view = |v: &v1::TaskView| StationView {
        forward: TimeSpan::from_nanos(v.forward_ns),
        budget: TimeSpan::from_nanos(v.budget_ns),
        priority: if v.high_budget_first { Priority::HighBudgetFirst } else { Priority::LowBudgetFirst },
        admit: v.admit,
    };
    told.views.iter().map(view).collect()
}

/// A steward's decision, in the target's numbers.
#[must_use]
pub fn steering_message(of: &LayoutPipeline, steering: &Steering) -> v1::Steering {
    let staffed = of.staffed();
    let id = |group: u32| staffed[group as usize].id;
    let table = |t: &apportion_serving::tables::RouterTable| v1::Table {
        from: t.from.map(id),
        to_task: t.to_task,
        entries: t.entries.iter().map(|(g, fraction)| v1::TableEntry { group: id(*g), fraction: *fraction }).collect(),
    };
    let view = |v: &StationView| v1::TaskView {
        forward_ns: v.forward.as_nanos(),
        budget_ns: v.budget.as_nanos(),
        high_budget_first: v.priority == Priority::HighBudgetFirst,
        admit: v.admit,
    };
    v1::Steering {
        epoch: steering.epoch,
        tables: steering.tables.iter().map(table).collect(),
        has_backup: !steering.tables.is_empty(),
        backup: steering.backup.iter().map(|(group, _)| id(*group)).collect(),
        views: steering.views.iter().map(view).collect(),
        ..Default::default()
    }
}

/// A monitor's counts, as a message.
#[must_use]
pub fn measurement_of(task: usize, monitor: &Monitor) -> v1::StationMeasured {
    v1::StationMeasured {
        task: task as u32,
        arrived: monitor.arrived,
        entered: monitor.entered,
        queueing_ns: monitor.queueing_ns,
        queueing_max_ns: monitor.queueing_max.as_nanos(),
        wait_max_ns: monitor.wait_max.as_nanos(),
        waits_ns: monitor.waits().iter().map(|w| w.as_nanos()).collect(),
    }
}

/// The counts of a message, as a monitor.
#[must_use]
pub fn monitor_of(told: &v1::StationMeasured) -> Monitor {
    let mut monitor = Monitor::default();
    told.waits_ns.iter().for_each(|ns| monitor.start(TimeSpan::from_nanos(*ns)));
    monitor.arrived = told.arrived;
    monitor.entered = told.entered;
    monitor.queueing_ns = told.queueing_ns;
    monitor.queueing_max = TimeSpan::from_nanos(told.queueing_max_ns);
    monitor.wait_max = TimeSpan::from_nanos(told.wait_max_ns);
    monitor
}

/// Whether replicas can be added anywhere: on a spare device, or on one that a pipeline may release.
#[must_use]
pub fn find_room(layout: &Layout, free: &FreeShares) -> ReplicaRoom {
    let has_spare = free.values().any(|left| *left > SLACK) || layout.pipelines.values().any(|p| p.descends());
    if has_spare { ReplicaRoom::Spare } else { ReplicaRoom::None }
}

/// The free fraction of each device of the live agents: nothing of the devices of the plans and of the steered extras, all
/// of the spare ones.
#[must_use]
pub fn free_shares(layout: &Layout, is_live: impl Fn(u64) -> bool) -> FreeShares {
    let live = layout.devices.iter().filter(|(agent, _)| is_live(**agent));
    let open = |(agent, all): (&u64, &AgentDevices)| {
        let (agent, measured) = (*agent, all.measured.clone());
        let devices = (0..all.count).filter(move |device| !measured.contains(device));
        devices.map(move |device| DevicePlace { agent, device })
    };
    let places = live.flat_map(open);
    let mut free: FreeShares = places.map(|place| (place, 1.0)).collect();
    for pipeline in layout.pipelines.values() {
        for replica in &pipeline.replicas {
            if let Some(left) = free.get_mut(&DevicePlace { agent: replica.agent, device: replica.device }) {
                *left -= pipeline.groups[&replica.group].share;
            }
        }
    }
    free
}

/// A number of an extra replica that no other replica has: the control plane, other hosts and other targets do not give
/// it. It has [`EXTRA_BIT`], then 22 bits of the generation, 12 of the term, 28 of the count.
#[must_use]
pub fn extra_number(epoch: u64, fence: Option<Fence>, count: u64) -> u64 {
    let generation = fence.map_or(0, |f| f.generation.0) & 0x003f_ffff;
    let term = (epoch >> TERM_BITS) & 0xfff;
    EXTRA_BIT | generation << 40 | term << 28 | (count & 0x0fff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};

    #[test]
    fn a_steering_arrives_as_it_was_decided() {
        let mut target = chain();
        target.pipelines[0].demand_qps = 10.0;
        let pipeline = lay_out(&target).expect("valid").pipelines["p"].clone();
        let config = pipeline.steward_config(ReplicaRoom::Spare, &v1::Steering::default());
        assert_eq!(
            (config.outline.groups.len(), config.outline.graph.order.clone(), config.outline.after.clone()),
            (2, vec![0, 1], vec![vec![1], vec![]])
        );
        assert!(config.scaler.is_some());
        assert!(pipeline.steward_config(ReplicaRoom::None, &v1::Steering::default()).scaler.is_none());
        let entries = vec![(1, 0.5), (0, 0.5)];
        let table = apportion_serving::tables::RouterTable { from: Some(0), to_task: 1, entries };
        let view =
            StationView { forward: TimeSpan::from_nanos(7), priority: Priority::HighBudgetFirst, ..StationView::default() };
        let decided =
            Steering { epoch: 9, tables: vec![table], backup: vec![(1, 3.0)], replicas: vec![], views: vec![view] };
        let mut told = steering_message(&pipeline, &decided);
        assert_eq!((views_of(&told), told.backup.clone(), told.epoch), (vec![view], vec![2], 9));
        told.extras.push(v1::ReplicaTarget { replica: EXTRA_BIT, group: 2, agent: 3, device: 1 });
        told.extras.push(v1::ReplicaTarget { replica: EXTRA_BIT + 1, group: 77, agent: 3, device: 1 });
        let steered = pipeline.steered(&told);
        assert_eq!(steered.tables[&(Some(1), 1)], [(2, 0.5), (1, 0.5)]);
        assert_eq!(steered.tables[&(None, 0)], pipeline.tables[&(None, 0)], "what it does not say stays");
        assert_eq!(steered.replicas.iter().map(|r| r.group).collect::<Vec<_>>(), [1, 2, 2]);
    }

    #[test]
    fn a_device_that_measures_has_no_room() {
        let mut target = chain();
        target.agents.iter_mut().for_each(|agent| agent.devices = 2);
        target.agents[1].measured = vec![1];
        let free = free_shares(&lay_out(&target).expect("valid"), |_| true);
        let places: Vec<(u64, u32)> = free.keys().map(|place| (place.agent, place.device)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn numbers_that_jump_are_implausible() {
        let of = |epoch| v1::Steering { epoch, ..Default::default() };
        let plausible = |epoch, last| why_implausible(&of(epoch), last).is_none();
        assert!(plausible(0, 0) && plausible(TERM_JUMP_MAX << TERM_BITS, 0) && plausible(5 << TERM_BITS | COUNT_MAX, 7));
        assert!(
            !plausible((TERM_JUMP_MAX + 1) << TERM_BITS, 0)
                && !plausible(u64::MAX, 0)
                && !plausible(u64::MAX, u64::MAX - 1)
        );
        assert!(!plausible(COUNT_MAX + 1, 0) && !plausible((TERM_MAX + 1) << TERM_BITS, TERM_MAX << TERM_BITS));
        let entries = vec![v1::TableEntry { group: 1, fraction: f64::NAN }];
        let table = v1::Table { from: None, to_task: 0, entries };
        assert!(why_implausible(&v1::Steering { tables: vec![table], ..Default::default() }, 0).is_some());
        let extras = vec![v1::ReplicaTarget::default(); EXTRAS_MAX + 1];
        assert!(why_implausible(&v1::Steering { extras, ..Default::default() }, 0).is_some());
    }

    #[test]
    fn what_nobody_can_measure_is_told() {
        let offered = |count| v1::Measured { offered: vec![v1::OfferedBin { age_ns: 0, count }], ..Default::default() };
        assert!(why_impossible(&offered(1_000)).is_none() && why_impossible(&offered(u32::MAX)).is_some());
        let made = v1::MadeCount { group: 1, queries: 1, children: vec![u64::MAX] };
        assert!(why_impossible(&v1::Measured { made: vec![made], ..Default::default() }).is_some());
        let ended = |missed| {
            let ended = v1::EndedRequests { session: u64::MAX, in_time: ENDED_MAX, missed };
            why_impossible(&v1::Measured { ended: Some(ended), ..Default::default() })
        };
        assert!(ended(ENDED_MAX).is_none() && ended(ENDED_MAX + 1).is_some());
        let waited = |queueing_ns, wait_max_ns| {
            let station = v1::StationMeasured { entered: 2, queueing_ns, wait_max_ns, ..Default::default() };
            why_impossible(&v1::Measured { stations: vec![station], ..Default::default() })
        };
        assert_eq!(waited(2 * STATION_WAIT_NS_MAX, STATION_WAIT_NS_MAX), None);
        assert!(waited(2 * STATION_WAIT_NS_MAX + 1, 0).is_some() && waited(0, STATION_WAIT_NS_MAX + 1).is_some());
    }

    #[test]
    fn monitors_arrive_as_they_were_measured() {
        let mut seen = Monitor::default();
        seen.arrived = 5;
        [3, 9].iter().for_each(|ms| seen.enter(TimeSpan::from_millis(f64::from(*ms))));
        [2, 1].iter().for_each(|ms| seen.start(TimeSpan::from_millis(f64::from(*ms))));
        let told = measurement_of(4, &seen);
        assert_eq!((told.task, measurement_of(4, &monitor_of(&told))), (4, told.clone()));
    }
}
