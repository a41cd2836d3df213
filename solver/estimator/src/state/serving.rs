//! Where are the queries? Stations, the senders' routers, and the network between them.

use super::bounds::RunBounds;
use super::faults::ServerId;
use super::network::Network;
use super::paths::{PathPoint, PathStep};
use super::query::{Dispatch, NO_PICK, SimulatedQuery};
use super::timers::StationTimers;
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::station::{StationInput, StationOutput};
use apportion_serving::{DropReason, RouteChoice, Router, Station, StationView, Waiting};

/// A query that was dropped.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedDrop {
    /// Its pipeline.
    pub pipeline: u32,
    /// The task at which it was dropped, in its pipeline.
    pub at: u32,
    /// Its own task. It differs from `at` for a query that was dropped before it was sent.
    pub task: u32,
    /// The query.
    pub query: SimulatedQuery,
    /// Why.
    pub reason: DropReason,
}

/// A queue that a query joined. The order is by station, then by moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JoinedQueue {
    /// The station.
    pub station: u32,
    /// When.
    pub at: Moment,
}

/// The place of a station in the order in which stations start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartRank {
    /// Its pipeline.
    pub pipeline: u32,
    /// Its task, in its pipeline.
    pub task: u32,
    /// The position of its group among the groups of its task.
    pub position: u32,
    /// Its position among the stations of its group.
    pub replica: u32,
}

/// Room that a request's list of joined queues keeps for the next request of its slot.
const JOINED_KEPT: usize = 64;
/// A search for a cancelled query examines this many queries in the time of one event.
const CANCELLED_AT_ONCE: u64 = 32;

/// The group of a station, and the numbers of its routers and servers.
#[derive(Clone, Copy, Debug)]
pub struct StationInfo {
    /// Its group.
    pub group: u32,
    /// Its group's pipeline.
    pub pipeline: u32,
    /// Its group's task, in its pipeline.
    pub task_in_pipeline: u32,
    /// Router of the group's first edge from here. The other edges' routers follow.
    pub router: u32,
    /// Number of its first server among all servers.
    pub server: u32,
    /// Whether each of its servers is a slot of a `continuous` task.
    pub has_slots: bool,
    /// Queries that joined its queue so far. Runs without changes may leave some out.
    pub joined: u64,
}

/// All stations, their routers, and the network between them.
#[derive(Debug, Default)]
pub struct ServingState {
    /// The stations of the first plan, in the order in which free replicas start (groups in order, replicas by index), then
    /// later stations.
    pub stations: Vec<Station<SimulatedQuery>>,
    /// The group and the numbers of each station.
    pub infos: Vec<StationInfo>,
    /// The order in which stations start, by station; empty while no station was added.
    pub ranks: Vec<StartRank>,
    /// Routers, one for each sender and child task; `None` for a sender that never sends to the task.
    pub routers: Vec<Option<Router>>,
    /// Queries on their way.
    pub network: Network,
    /// Queries made by each sender for each child task, by router, since the last report; empty without stewards.
    pub made: Vec<u64>,
    /// Queries that ended at each station and may have made others, since the last report; empty without stewards.
    pub done: Vec<u64>,
    /// By request: the stations whose queues its queries joined, and when. So the other queries of a request that lost one
    /// are found without a search. Empty if no pipeline needs it.
    pub joined: Vec<Vec<JoinedQueue>>,
    /// The number of entries in `joined`.
    pub joined_count: usize,
    /// The bounds of the run.
    pub bounds: RunBounds,
    /// Queries that were dropped and have not been accounted for.
    pub dropped: Vec<SimulatedDrop>,
    /// Slots whose queries have left before their end, which is still among the events.
    pub left: Vec<ServerId>,
    /// Replicas for queries that leave a sender together: a buffer.
    picked: Vec<RouteChoice>,
    /// Stations that asked to be ticked now.
    due: Vec<u32>,
    /// Those that are being ticked.
    ticking: Vec<u32>,
    is_due: Vec<bool>,
    /// Stations that asked to be ticked later.
    wakes: StationTimers,
}

impl ServingState {
    /// A query leaves its sender for the station that the router picks. Returns `false` if the query is behind and no group
    /// would make up for it.
    #[inline(always)]
    #[must_use]
    pub fn send(&mut self, now: Moment, network: Option<usize>, mut query: SimulatedQuery, to: Dispatch) -> bool {
        let router = self.routers[query.router as usize].as_mut();
        let Some(picked) = router.expect("a sender with children has a router").pick_behind(to.behind) else {
            return false;
        };
        query.pick = picked.slot;
        match network {
            None => self.join(now, picked.target, query, to.deadline),
            Some(link) => self.network.send(link, now, picked.target, query, to.deadline),
        }
        true
    }

    /// Queries that differ in nothing leave their sender at one moment, as by [`ServingState::send`] one after the other.
    /// They are not behind, and hops take no time. Queues change no pick, so all picks come first.
    #[inline(always)]
    pub fn send_alike(&mut self, now: Moment, query: SimulatedQuery, deadline: Moment, count: u64) {
        let router = self.routers[query.router as usize].as_mut().expect("a sender with children has a router");
        let picked = &mut self.picked;
        picked.clear();
        router.pick_each(count, |choice| picked.push(choice));
        for at in 0..self.picked.len() {
            let RouteChoice { target, slot } = self.picked[at];
            self.join(now, target, SimulatedQuery { pick: slot, ..query }, deadline);
        }
    }

    /// A query joins the queue of a station.
    #[inline(always)]
    pub fn join(&mut self, now: Moment, station: u32, query: SimulatedQuery, deadline: Moment) {
        if let Some(joined) = self.joined.get_mut(query.request as usize) {
            joined.push(JoinedQueue { station, at: now });
            self.joined_count += 1;
        }
        self.infos[station as usize].joined += 1;
        self.stations[station as usize].handle(now, StationInput::Arrive { query, deadline });
        self.take_outputs(now, station, |_, _, _| {});
    }

    /// Whether queries are counted for stewards, or tracked.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !(self.made.is_empty() && self.joined.is_empty())
    }

    /// Queries that ended at `stage` go on from one sender at one moment, as by [`ServingState::send`] one after the other.
    /// None is behind, hops take no time, and queries are not watched.
    #[inline(always)]
    pub fn pass_on(&mut self, now: Moment, router: u32, stage: PathStep<'_>, queries: &[Waiting<SimulatedQuery>]) {
        let of_sender = self.routers[router as usize].as_mut().expect("a sender with children has a router");
        let child = |query: &SimulatedQuery, pick: u32| {
            let PathPoint { node, stages } = stage.pass(query);
            SimulatedQuery { request: query.request, scope: query.scope, node, stages, router, pick }
        };
        if let Some(RouteChoice { target, slot }) = of_sender.only() {
            self.infos[target as usize].joined += queries.len() as u64;
            self.stations[target as usize]
                .handle_arrivals(now, queries.iter().map(|m| (child(&m.query, slot), m.deadline)));
            return self.take_outputs(now, target, |_, _, _| {});
        }
        for &Waiting { query, deadline, .. } in queries {
            let is_sent = self.send(now, None, child(&query, NO_PICK), Dispatch { deadline, behind: TimeSpan::ZERO });
            debug_assert!(is_sent, "a query that is not behind is sent");
        }
    }

    /// Takes the outputs of a station, and notes whether it wants a tick. `start` is called with the server and the size of
    /// each batch that starts.
    #[inline(always)]
    pub fn take_outputs(&mut self, now: Moment, station: u32, mut start: impl FnMut(&Station<SimulatedQuery>, u32, u32)) {
        let at = station as usize;
        let machine = &mut self.stations[at];
        while let Some(output) = machine.poll_output() {
            match output {
                StationOutput::StartBatch { server, size } => start(machine, server, size),
                StationOutput::Drop { query, reason } => {
                    let StationInfo { pipeline, task_in_pipeline, .. } = self.infos[at];
                    self.dropped.push(SimulatedDrop {
                        pipeline,
                        at: task_in_pipeline,
                        task: task_in_pipeline,
                        query,
                        reason,
                    });
                }
                StationOutput::ServerGone { .. } => {}
            }
        }
        let Some((wanted, _)) = machine.poll_timeout() else { return };
        if wanted > now {
            self.wakes.set(station, wanted);
        } else {
            self.tick_now(station);
        }
    }

    #[inline(always)]
    fn tick_now(&mut self, station: u32) {
        let at = station as usize;
        if self.is_due.len() <= at {
            self.is_due.resize(self.stations.len(), false);
        }
        if !self.is_due[at] {
            self.is_due[at] = true;
            self.due.push(station);
        }
    }

    /// When the next station wants to be ticked; `NEVER` if none does.
    #[inline]
    pub fn next_wake(&self) -> Moment {
        self.wakes.next()
    }

    /// Lets the stations whose moment has come be ticked now.
    #[inline]
    pub fn wake(&mut self, now: Moment) {
        while self.wakes.next() <= now {
            let Some(station) = self.wakes.pop() else { continue };
            // It may have started since for another reason.
            if matches!(self.stations[station as usize].poll_timeout(), Some((at, _)) if at <= now) {
                self.tick_now(station);
            }
        }
    }

    /// Whether any station asked to be ticked now.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether no station asked to be ticked now, and all drops have been accounted for.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.dropped.is_empty()
    }

    /// How many stations asked to be ticked now: [`ServingState::ticking`] says which.
    #[inline]
    pub fn begin_ticks(&mut self) -> usize {
        self.ticking.clear();
        if let [only] = *self.due.as_slice() {
            self.due.clear();
            self.is_due[only as usize] = false;
            self.ticking.push(only);
            return 1;
        }
        self.begin_many_ticks()
    }

    fn begin_many_ticks(&mut self) -> usize {
        if self.ranks.is_empty() {
            self.due.sort_unstable();
        } else {
            self.due.sort_unstable_by_key(|&station| self.ranks[station as usize]);
        }
        std::mem::swap(&mut self.ticking, &mut self.due);
        self.ticking.iter().for_each(|&station| self.is_due[station as usize] = false);
        self.ticking.len()
    }

    /// One of the stations that are being ticked, in the order in which they start.
    #[inline]
    pub fn ticking(&self, at: usize) -> u32 {
        self.ticking[at]
    }

    /// A request takes this slot. `is_tracked`: whether its queries must be found again.
    #[inline]
    pub fn track(&mut self, request: u32, is_tracked: bool) {
        let at = request as usize;
        if is_tracked && self.joined.len() <= at {
            self.joined.resize_with(at + 1, Vec::new);
        }
        if let Some(joined) = self.joined.get_mut(at) {
            self.joined_count -= joined.len();
            joined.clear();
            joined.shrink_to(JOINED_KEPT);
        }
    }

    /// Cancels all waiting queries of a tracked request, in all queues that they joined. Those in slots leave.
    pub fn cancel_tracked(&mut self, now: Moment, query: SimulatedQuery, deadline: Moment) {
        let at = query.request as usize;
        let mut joined = std::mem::take(&mut self.joined[at]);
        self.joined_count -= joined.len();
        joined.sort_unstable();
        joined.dedup();
        self.bounds.count_work(joined.len() as u64);
        for JoinedQueue { station, at: arrived } in joined.drain(..) {
            self.stations[station as usize].handle(now, StationInput::CancelJoined { query, arrived, deadline });
            self.take_outputs(now, station, |_, _, _| {});
            self.leave_slots(now, station, query);
        }
        self.joined[at] = joined;
    }

    /// Cancels all waiting queries of a request, by a search at these stations. Those in slots leave.
    pub fn cancel(&mut self, now: Moment, stations: &[u32], query: SimulatedQuery) {
        for &station in stations {
            self.bounds.count_work(1 + self.stations[station as usize].queued() as u64 / CANCELLED_AT_ONCE);
            self.stations[station as usize].handle(now, StationInput::Cancel { query });
            self.take_outputs(now, station, |_, _, _| {});
            self.leave_slots(now, station, query);
        }
    }

    /// The queries of a cancelled request leave the slots of a station: a step of theirs is short. Members of a batch end
    /// with it.
    fn leave_slots(&mut self, now: Moment, station: u32, query: SimulatedQuery) {
        let StationInfo { pipeline, task_in_pipeline: task, has_slots, .. } = self.infos[station as usize];
        if !has_slots {
            return;
        }
        let machine = &self.stations[station as usize];
        self.bounds.count_work(machine.servers() as u64 / CANCELLED_AT_ONCE);
        for server in machine.servers_of(query) {
            let machine = &mut self.stations[station as usize];
            machine.handle(now, StationInput::BatchFinished { server });
            let member = machine.batch(server)[0].query;
            let reason = DropReason::Cancelled;
            self.dropped.push(SimulatedDrop { pipeline, at: task, task, query: member, reason });
            self.left.push(ServerId { station, server });
            self.take_outputs(now, station, |_, _, _| {});
        }
    }

    /// Makes room for the counts of new routers and stations, if queries are counted.
    pub fn count_new(&mut self) {
        if !self.made.is_empty() {
            self.made.resize(self.routers.len().max(1), 0);
            self.done.resize(self.stations.len(), 0);
        }
    }

    /// From now on, the queries that senders make, and that end at stations, are counted.
    pub fn count_made_queries(&mut self) {
        self.made.resize(self.routers.len().max(1), 0);
        self.done.resize(self.stations.len(), 0);
    }

    /// A server joins a station.
    pub fn add_server(&mut self, now: Moment, station: u32, server: u32) {
        self.stations[station as usize].handle(now, StationInput::AddServer { server });
        self.take_outputs(now, station, |_, _, _| {});
    }

    /// A server of a station leaves once its batch has ended.
    pub fn remove_server(&mut self, now: Moment, station: u32, server: u32) {
        self.stations[station as usize].handle(now, StationInput::RemoveServer { server });
        self.take_outputs(now, station, |_, _, _| {});
    }

    /// A station gets new module states.
    pub fn set_view(&mut self, now: Moment, station: u32, view: StationView) {
        self.stations[station as usize].handle(now, StationInput::Steer { view });
        self.take_outputs(now, station, |_, _, _| {});
    }

    /// A query has ended. Its router counts it off.
    #[inline]
    pub fn query_ended(&mut self, query: &SimulatedQuery) {
        if let Some(router) = &mut self.routers[query.router as usize] {
            router.ended(query.pick);
        }
    }
}
