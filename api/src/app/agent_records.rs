//! Which messages of agents still wait for the database?
//!
//! Messages are collected in memory, and `act::agent_records` stores those of all streams together. So no stream waits for
//! the database, a stall of the database loses nothing, and a large fleet needs one transaction instead of one for each
//! agent.

use crate::decide::measured::{ReplicaLoadTime, with_loads};
use crate::store::arrivals::ArrivalsRow;
use crate::store::drifts::GroupSumsRow;
use crate::store::wants::VariantWantRow;
use apportion_protocol::v1::{self, replica_state::State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// Most acknowledgements of one stream that wait because each names a failed replica. Beyond them the oldest are dropped.
const ACKS_MAX: usize = 32;
/// Most seconds of pipelines that wait. Beyond them the oldest are dropped.
const ARRIVALS_MAX: usize = 100_000;
/// Most sums of groups that wait. Beyond them the oldest are dropped.
const GROUP_SUMS_MAX: usize = 100_000;
/// Most wants of variants that wait. Further ones are dropped: agents say them again.
const WANTS_MAX: usize = 256;

/// The records of one service process.
#[derive(Debug, Default)]
pub struct AgentRecords {
    unsaved: Mutex<UnsavedRecords>,
    added: Notify,
}

/// Records that are not in the database yet.
#[derive(Debug, Default, PartialEq)]
pub struct UnsavedRecords {
    /// Acknowledgements by stream: the newest, after older ones that name failed replicas.
    pub acks: BTreeMap<Uuid, Vec<v1::Ack>>,
    /// The last device use of each stream's agent.
    pub devices: BTreeMap<Uuid, Value>,
    /// The last hops of each stream's agent.
    pub hops: BTreeMap<Uuid, Value>,
    /// The loads of each stream's agent, at most
    /// [`LOAD_TIMES_MAX`](crate::decide::measured::LOAD_TIMES_MAX) of each.
    pub loads: BTreeMap<Uuid, Vec<ReplicaLoadTime>>,
    /// Arrivals in the order of their keys, so that two processes never deadlock.
    pub arrivals: BTreeMap<(i64, String), ArrivalsRow>,
    /// Batches that ended well.
    pub groups: BTreeMap<GroupSumsKey, GroupSumsRow>,
    /// Variants that requests wait for, by pipeline and groups. Those that could not be stored are not kept.
    pub wants: BTreeMap<(String, Vec<i64>), VariantWantRow>,
    /// How many arrivals and sums of groups were dropped.
    pub dropped: u64,
}

/// The key of a group's sums: of one period, and of one agent's stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupSumsKey {
    period: i64,
    pipeline: String,
    task: String,
    variant: String,
    hardware: String,
    session: Uuid,
}

impl GroupSumsKey {
    fn of(row: &GroupSumsRow) -> Self {
        let [pipeline, task, variant, hardware] = [&row.pipeline, &row.task, &row.variant, &row.hardware].map(Clone::clone);
        Self { period: row.period, pipeline, task, variant, hardware, session: row.session }
    }
}

/// What is stored of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportRecords {
    /// The use of the devices; `None`: nothing is known.
    pub devices: Option<Value>,
    /// The hops to other agents; `None`: as before.
    pub hops: Option<Value>,
    /// Replicas that became ready.
    pub loads: Vec<ReplicaLoadTime>,
    /// Arrivals by pipeline and second.
    pub arrivals: Vec<ArrivalsRow>,
    /// Batches that ended well, by period and group.
    pub groups: Vec<GroupSumsRow>,
}

impl ReportRecords {
    fn is_empty(&self) -> bool {
        let has_times = self.hops.is_some() || !self.loads.is_empty();
        self.devices.is_none() && !has_times && self.arrivals.is_empty() && self.groups.is_empty()
    }
}

/// Adds an acknowledgement to those of its stream. An older one is kept only for the failures that it names.
fn push_ack(acks: &mut Vec<v1::Ack>, ack: v1::Ack) {
    let names_failures = |ack: &v1::Ack| ack.replicas.iter().any(|r| r.state() == State::Failed);
    if acks.last().is_some_and(|last| !names_failures(last) || last.replicas == ack.replicas) {
        acks.pop();
    }
    acks.push(ack);
    if acks.len() > ACKS_MAX {
        acks.remove(0);
    }
}

impl UnsavedRecords {
    fn add_arrivals(&mut self, row: &ArrivalsRow) {
        let key = (row.second, row.pipeline.clone());
        let sum = self.arrivals.entry(key).or_insert_with(|| ArrivalsRow {
            pipeline: row.pipeline.clone(),
            second: row.second,
            ..ArrivalsRow::default()
        });
        sum.offered += row.offered;
        sum.ok += row.ok;
        sum.late += row.late;
        sum.dropped += row.dropped;
        sum.failed += row.failed;
        while self.arrivals.len() > ARRIVALS_MAX {
            self.arrivals.pop_first();
            self.dropped += 1;
        }
    }

    fn add_group_sums(&mut self, row: &GroupSumsRow) {
        match self.groups.entry(GroupSumsKey::of(row)) {
            Entry::Vacant(entry) => {
                entry.insert(row.clone());
            }
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.batches += row.batches;
                sum.took_ms += row.took_ms;
                sum.expected_ms += row.expected_ms;
                sum.queries += row.queries;
                for (child, queries) in &row.children {
                    *sum.children.entry(child.clone()).or_default() += queries;
                }
            }
        }
        while self.groups.len() > GROUP_SUMS_MAX {
            self.groups.pop_first();
            self.dropped += 1;
        }
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_times = !(self.hops.is_empty() && self.loads.is_empty());
        let has_counts = !(self.arrivals.is_empty() && self.groups.is_empty());
        self.acks.is_empty() && self.devices.is_empty() && self.wants.is_empty() && !has_counts && !has_times
    }

    /// Adds records that could not be stored; records that came since are newer.
    fn put_back(&mut self, earlier: Self) {
        for (session, mut acks) in earlier.acks {
            let later = self.acks.remove(&session).unwrap_or_default();
            later.into_iter().for_each(|ack| push_ack(&mut acks, ack));
            self.acks.insert(session, acks);
        }
        for (session, devices) in earlier.devices {
            self.devices.entry(session).or_insert(devices);
        }
        for (session, hops) in earlier.hops {
            self.hops.entry(session).or_insert(hops);
        }
        for (session, loads) in earlier.loads {
            let later = self.loads.remove(&session).unwrap_or_default();
            self.loads.insert(session, with_loads(loads, &later));
        }
        earlier.arrivals.values().for_each(|row| self.add_arrivals(row));
        earlier.groups.values().for_each(|row| self.add_group_sums(row));
    }
}

impl AgentRecords {
    fn with_unsaved<T>(&self, change: impl FnOnce(&mut UnsavedRecords) -> T) -> T {
        change(&mut self.unsaved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an acknowledgement from a stream's agent.
    pub fn add_ack(&self, session: Uuid, ack: v1::Ack) {
        self.with_unsaved(|unsaved| push_ack(unsaved.acks.entry(session).or_default(), ack));
        self.added.notify_one();
    }

    /// Adds variants that requests wait for.
    pub fn add_want(&self, row: VariantWantRow) {
        self.with_unsaved(|unsaved| {
            if unsaved.wants.len() < WANTS_MAX {
                unsaved.wants.insert((row.pipeline.clone(), row.groups.clone()), row);
            }
        });
        self.added.notify_one();
    }

    /// Adds a report from a stream's agent.
    pub fn add_report(&self, session: Uuid, report: ReportRecords) {
        if report.is_empty() {
            return;
        }
        self.with_unsaved(|unsaved| {
            unsaved.devices.extend(report.devices.map(|devices| (session, devices)));
            unsaved.hops.extend(report.hops.map(|hops| (session, hops)));
            if !report.loads.is_empty() {
                let known = unsaved.loads.remove(&session).unwrap_or_default();
                unsaved.loads.insert(session, with_loads(known, &report.loads));
            }
            report.arrivals.iter().for_each(|row| unsaved.add_arrivals(row));
            report.groups.iter().for_each(|row| unsaved.add_group_sums(row));
        });
        self.added.notify_one();
    }

    /// Waits until a record is added.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// Takes all records, to store them.
    pub fn take(&self) -> UnsavedRecords {
        self.with_unsaved(std::mem::take)
    }

    /// Puts records back that could not be stored.
    pub fn put_back(&self, records: UnsavedRecords) {
        self.with_unsaved(|unsaved| unsaved.put_back(records));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::measured::LOAD_TIMES_MAX;
    use serde_json::json;

    fn row(second: i64, offered: i64) -> ArrivalsRow {
        ArrivalsRow { pipeline: "p".into(), second, offered, ..ArrivalsRow::default() }
    }

    #[test]
    fn records_that_failed_are_stored_later_without_stale_ones() {
        let (records, session) = (AgentRecords::default(), Uuid::from_u128(1));
        let ack = |error: &str| v1::Ack { error: error.into(), ..v1::Ack::default() };
        records.add_ack(session, ack("old"));
        let arrivals = |rows: &[ArrivalsRow]| ReportRecords { arrivals: rows.to_vec(), ..ReportRecords::default() };
        records.add_report(session, arrivals(&[row(1, 5), row(1, 2), row(2, 1)]));
        let failed = records.take();
        records.add_ack(session, ack("new"));
        records.add_report(session, ReportRecords { devices: Some(json!([])), ..arrivals(&[row(2, 3)]) });
        records.put_back(failed);
        let all = records.take();
        let errors: Vec<_> = all.acks[&session].iter().map(|ack| ack.error.as_str()).collect();
        assert_eq!(errors, ["new"]);
        let sums: Vec<_> = all.arrivals.values().map(|row| (row.second, row.offered)).collect();
        assert_eq!(sums, [(1, 7), (2, 4)]);
    }

    #[test]
    fn times_that_failed_come_before_later_ones() {
        let (records, session) = (AgentRecords::default(), Uuid::from_u128(1));
        let load = |start_ms: f64| ReplicaLoadTime {
            pipeline: "p".into(),
            task: "t".into(),
            variant: "v".into(),
            hardware: "h".into(),
            download_ms: 0.0,
            start_ms,
            at: chrono::DateTime::UNIX_EPOCH,
        };
        let report = |hops: &str, loads: &[f64]| ReportRecords {
            hops: Some(json!(hops)),
            loads: loads.iter().copied().map(load).collect(),
            ..ReportRecords::default()
        };
        records.add_report(session, report("old", &[1.0, 2.0]));
        let failed = records.take();
        records.add_report(session, report("new", &[3.0]));
        records.add_report(session, report("newer", &[4.0]));
        records.put_back(failed);
        let all = records.take();
        assert_eq!(all.hops[&session], json!("newer"));
        let times = |unsaved: &UnsavedRecords| unsaved.loads[&session].iter().map(|l| l.start_ms).collect::<Vec<_>>();
        assert_eq!(times(&all), [1.0, 2.0, 3.0, 4.0]);
        records.add_report(session, report("", &[5.0; LOAD_TIMES_MAX + 1]));
        assert_eq!(records.take().loads[&session].len(), LOAD_TIMES_MAX);
    }

    fn sums(period: i64, batches: i64) -> GroupSumsRow {
        let took_ms = 13.0 * batches as f64;
        let children = [("read".to_owned(), 2 * batches)].into();
        GroupSumsRow { period, pipeline: "p".into(), batches, took_ms, children, ..GroupSumsRow::default() }
    }

    #[test]
    fn sums_of_groups_add_up_also_after_a_failure() {
        let (records, session) = (AgentRecords::default(), Uuid::from_u128(1));
        let report = |rows: &[GroupSumsRow]| ReportRecords { groups: rows.to_vec(), ..ReportRecords::default() };
        records.add_report(session, report(&[sums(1, 2), sums(1, 3), sums(2, 1)]));
        let failed = records.take();
        records.add_report(session, report(&[sums(2, 4)]));
        records.put_back(failed);
        let all = records.take();
        let known = all.groups.values().map(|row| (row.period, row.batches, row.took_ms, row.children["read"]));
        assert_eq!(known.collect::<Vec<_>>(), [(1, 5, 65.0, 10), (2, 5, 65.0, 10)]);
    }

    #[test]
    fn sums_of_groups_are_bounded() {
        let mut unsaved = UnsavedRecords::default();
        (0..GROUP_SUMS_MAX as i64 + 2).for_each(|period| unsaved.add_group_sums(&sums(period, 1)));
        assert_eq!((unsaved.groups.len(), unsaved.dropped), (GROUP_SUMS_MAX, 2));
        assert_eq!(unsaved.groups.keys().next().map(|key| key.period), Some(2));
    }

    #[test]
    fn an_acknowledgement_that_names_a_failure_is_kept() {
        let (records, session) = (AgentRecords::default(), Uuid::from_u128(1));
        let ack = |replica, state: State| {
            let replicas = vec![v1::ReplicaState { replica, state: state.into(), ..Default::default() }];
            v1::Ack { replicas, ..Default::default() }
        };
        let states = [(1, State::Ready), (1, State::Failed), (1, State::Failed), (2, State::Loading), (2, State::Ready)];
        states.into_iter().for_each(|(replica, state)| records.add_ack(session, ack(replica, state)));
        let all = records.take();
        let kept: Vec<_> =
            all.acks[&session].iter().map(|ack| (ack.replicas[0].replica, ack.replicas[0].state())).collect();
        assert_eq!(kept, [(1, State::Failed), (2, State::Ready)]);
        (0..100).for_each(|replica| records.add_ack(session, ack(replica, State::Failed)));
        assert_eq!(records.take().acks[&session].len(), ACKS_MAX);
    }

    #[test]
    fn a_long_stall_drops_and_counts_the_oldest_seconds() {
        let mut unsaved = UnsavedRecords::default();
        (0..ARRIVALS_MAX as i64 + 3).for_each(|second| unsaved.add_arrivals(&row(second, 1)));
        assert_eq!((unsaved.arrivals.len(), unsaved.dropped), (ARRIVALS_MAX, 3));
        assert_eq!(unsaved.arrivals.values().next().map(|row| row.second), Some(3));
    }
}
