//! Which queries wait or run at a replica, and in which order?
//!
//! Example: an important query comes while three unimportant ones wait. It passes the ones that are not about to be late,
//! and joins the queue before them.

use super::replica::LocalReplica;
use super::single_run::QueuedMember;
use crate::layout::LayoutGroup;
use crate::node::work::LocalQuery;
use crate::policies::{LEVEL_OFFLINE, QueryHandle};
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::Waiting;
use apportion_serving::replica::StationInput;

/// A query with its deadline, as it joins the queue of a station.
#[derive(Clone, Copy, Debug)]
pub struct QueuedQuery {
    /// Its handle.
    pub query: QueryHandle,
    /// Its deadline.
    pub deadline: Moment,
}

/// Where a batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The replica's number.
    pub replica: u64,
    /// The server of its station: 0, or a slot of a continuous task.
    pub server: u32,
}

/// A member that has left its batch.
#[derive(Debug)]
pub struct EndedMember {
    /// The query.
    pub work: LocalQuery,
    /// By how much it overran its part of the SLO.
    pub behind: TimeSpan,
}

/// What decides where a query joins a queue.
pub struct QueueOrder<'q> {
    /// The queries that wait, first to last.
    pub waiting: &'q [Waiting<QueryHandle>],
    /// Their group.
    pub group: &'q LayoutGroup,
    /// Queries that run at once with full batches.
    pub at_once: usize,
    /// The pipeline's SLO, in nanoseconds.
    pub slo_ns: u64,
}

impl QueueOrder<'_> {
    /// A query joins the queue, before those that are less important.
    pub fn place_query(&self, queued: QueuedQuery, now: Moment) -> StationInput<QueryHandle> {
        let QueuedQuery { query, deadline } = queued;
        match self.passes(query.level, now) {
            0 => StationInput::Arrive { query, deadline },
            passes => StationInput::Overtake { query, deadline, passes },
        }
    }

    /// How many waiting queries a new query of this level passes: the last ones that are less important. A query that would
    /// be on time where it stands, and late one place further back, is not passed. A query that is late by more than the
    /// SLO is not passed either: its turn has come.
    fn passes(&self, level: u32, now: Moment) -> u32 {
        if self.waiting.last().is_none_or(|last| last.query.level <= level) {
            return 0;
        }
        let (execution_ns, at_once) = (self.group.execution().as_nanos(), self.at_once);
        // Full batches for those before and its own one; the batch that runs may be about to end, or have just begun.
        let done = |place: usize, running: usize| {
            now + TimeSpan::from_nanos(execution_ns.saturating_mul((place / at_once + 1 + running) as u64))
        };
        let slo = TimeSpan::from_nanos(self.slo_ns);
        let keeps_place = |place: usize, deadline: Moment| {
            (done(place, 0) <= deadline && deadline < done(place + 1, 1)) || deadline + slo < now
        };
        let from_last = self.waiting.iter().enumerate().rev();
        from_last.take_while(|(at, w)| w.query.level > level && !keeps_place(*at, w.deadline)).count() as u32
    }
}

impl LocalReplica {
    /// A query joins the queue, before those that are less important.
    pub fn enqueue(&mut self, queued: QueuedQuery, now: Moment) {
        let (waiting, at_once) = (self.station.waiting(), self.group.batch);
        let order = QueueOrder { waiting, group: &self.group, at_once, slo_ns: self.of.slo_ns };
        let input = order.place_query(queued, now);
        self.station.handle(now, input);
    }

    /// Takes the queries of a request out of the station's queue.
    pub fn cancel_queued(&mut self, origin: u64, request: u64, now: Moment) {
        self.station.handle(now, StationInput::Cancel { query: QueryHandle::of_request(origin, request) });
    }

    /// The slots in which queries of a request run. Queries that share a batch end together, so none of these.
    pub fn slots_of(&self, origin: u64, request: u64) -> Vec<u32> {
        if !self.task().is_continuous {
            return Vec::new();
        }
        self.station.servers_of(QueryHandle::of_request(origin, request))
    }

    /// Whether a server of its station runs a batch.
    pub fn is_running(&self, server: u32) -> bool {
        !self.station.is_gone(server) && !self.station.is_idle(server)
    }

    /// The members of the batch that a server runs.
    pub fn batch_members(&self, server: u32) -> impl Iterator<Item = QueuedMember> {
        self.station.batch(server).iter().map(|w| QueuedMember { key: w.query.key, arrived: w.arrived })
    }

    /// Takes out a member of the batch that has ended.
    pub fn take_member(&mut self, member: QueuedMember, now: Moment) -> Option<EndedMember> {
        let (budget, work) = (self.of.budget(&self.group), self.works.remove(&member.key)?);
        // A query that came in a batch has waited in its group's queue. An offline one counts from its gap.
        let arrived = if work.is_offline() { member.arrived } else { member.arrived.min(work.arrived()) };
        Some(EndedMember { work, behind: now.since(arrived + budget) })
    }

    /// Replaces the station if it is of an earlier target and none of its servers runs a batch. Returns the queries that
    /// wait on, in their order; offline ones wait for a gap again.
    pub fn replace_stale_station(&mut self) -> Option<Vec<QueuedQuery>> {
        if !self.is_stale || self.station.running() > 0 {
            return None;
        }
        self.renew_station();
        self.offline = self.works.iter().filter(|(_, w)| w.is_offline()).map(|(key, _)| *key).collect();
        let online = self.works.iter().filter(|(_, w)| !w.is_offline());
        Some(online.map(|(key, work)| QueuedQuery { query: work.handle(*key), deadline: work.deadline() }).collect())
    }

    /// Takes out all queries: the replica is lost.
    pub fn take_works(&mut self) -> impl Iterator<Item = LocalQuery> + use<> {
        let works = std::mem::take(&mut self.works);
        self.offline.clear();
        self.renew_station();
        works.into_values()
    }

    /// An offline query that the station has refused waits for another gap. False if the query is not offline.
    pub fn take_back_offline(&mut self, query: QueryHandle) -> bool {
        if query.level == LEVEL_OFFLINE {
            self.offline.push_front(query.key);
            return true;
        }
        false
    }

    /// Takes out the offline queries of a request that wait for a gap.
    pub fn take_offline_of(&mut self, origin: u64, request: u64) -> Vec<LocalQuery> {
        let works = &self.works;
        let (gone, kept): (Vec<u64>, Vec<u64>) = self.offline.iter().partition(|key| works[*key].is_of(origin, request));
        self.offline = kept.into();
        gone.iter().filter_map(|key| self.works.remove(key)).collect()
    }

    /// Takes out all offline queries that wait for a gap.
    pub fn take_offline(&mut self) -> Vec<LocalQuery> {
        let keys: Vec<u64> = self.offline.drain(..).collect();
        keys.iter().filter_map(|key| self.works.remove(key)).collect()
    }
}
