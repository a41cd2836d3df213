//! Where queries move: stations, the senders' routers, the network between them.

use crate::agenda::{Network, Wakes};
use crate::bounds::Gauge;
use crate::fleet::{Place, Query};
use crate::paths::Stage;
use apportion_domain::{Moment, Span};
use apportion_serving::replica::{Input, Output};
use apportion_serving::{DropReason, Picked, Router, Station, View, Waiting};

/// A query that was dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Its pipeline.
    pub line: u32,
    /// The task at which it was dropped, in its pipeline.
    pub at: u32,
    /// Its own task: another one if it was dropped before it was sent.
    pub task: u32,
    /// Which.
    pub query: Query,
    /// Why.
    pub reason: DropReason,
}

/// What a sender knows of a query.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// When its request should be answered.
    pub deadline: Moment,
    /// By how much the part of the SLO of the sender's task was overrun.
    pub behind: Span,
}

/// No slot of a router: the query was not sent.
pub const NO_PICK: u32 = u32::MAX;

/// Room that a request's list of joined queues keeps for the next request of its slot.
const JOINED_KEPT: usize = 64;
/// Queries that are looked at while another is served, when one that is cancelled is searched for.
const CANCELLED_AT_ONCE: u64 = 32;

/// All stations and what connects them.
#[derive(Debug, Default)]
pub struct Floor {
    /// Those of the first plan, in the order in which free replicas start (groups in their order, replicas by index), then what came.
    pub stations: Vec<Station<Query>>,
    /// The stations' places.
    pub places: Vec<Place>,
    /// The order in which stations start, once some have come: by pipeline, task, position of the group, replica.
    pub ranks: Vec<[u32; 4]>,
    /// Routers, one for each sender and child task. A sender without a target has none that could ever be asked.
    pub routers: Vec<Option<Router>>,
    /// Queries on their way.
    pub network: Network,
    /// Queries made by each sender for each child task, by router, since they were last asked for; empty if nobody asks.
    pub made: Vec<u64>,
    /// Queries that ended at each station and were to make others, since they were last asked for; empty if nobody asks.
    pub done: Vec<u64>,
    /// By request: the stations whose queues its queries joined, and when. Of pipelines whose requests may have several queries of
    /// which one can be dropped: what else they have is then found without a search. Empty if there is none such.
    pub joined: Vec<Vec<(u32, Moment)>>,
    /// How many these are together.
    pub joined_count: usize,
    /// What the run may still take.
    pub gauge: Gauge,
    /// Queries that were dropped and have not been accounted for.
    pub dropped: Vec<Dropped>,
    /// Stations that asked to be ticked now.
    due: Vec<u32>,
    /// Those that are being ticked.
    ticking: Vec<u32>,
    is_due: Vec<bool>,
    /// Stations that asked to be ticked later.
    wakes: Wakes,
}

impl Floor {
    /// A query leaves its sender, which is `behind` by so much, for whichever station the router picks; `false` if the router
    /// finds none that would make up for it.
    #[inline(always)]
    #[must_use]
    pub fn send(&mut self, now: Moment, network: Option<usize>, mut query: Query, to: Sending) -> bool {
        let router = self.routers[query.router as usize].as_mut();
        let Some(picked) = router.expect("a sender with children has a router").pick_behind(to.behind) else {
            return false;
        };
        query.pick = picked.slot;
        match network {
            None => self.join(now, picked.target, query, to.deadline),
            Some(line) => self.network.send(line, now, picked.target, query, to.deadline),
        }
        true
    }

    /// A query joins the queue of a station.
    #[inline(always)]
    pub fn join(&mut self, now: Moment, station: u32, query: Query, deadline: Moment) {
        if let Some(joined) = self.joined.get_mut(query.request as usize) {
            joined.push((station, now));
            self.joined_count += 1;
        }
        self.stations[station as usize].handle(now, Input::Arrive { query, deadline });
        self.settle(now, station, |_, _| {});
    }

    /// Whether anybody counts the queries that are made, or tracks where they are.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !(self.made.is_empty() && self.joined.is_empty())
    }

    /// Queries that ended at `stage`, none of them behind, go on from one sender at one moment, as by [`Floor::send`] one after the
    /// other, where hops take no time and nobody watches.
    #[inline(always)]
    pub fn pass_on(&mut self, now: Moment, router: u32, stage: Stage<'_>, queries: &[Waiting<Query>]) {
        let of_sender = self.routers[router as usize].as_mut().expect("a sender with children has a router");
        let child = |query: &Query, pick: u32| {
            let (node, stages) = stage.pass(query);
            Query { request: query.request, scope: query.scope, node, stages, router, pick }
        };
        if let Some(Picked { target, slot }) = of_sender.only() {
            self.stations[target as usize]
                .handle_arrivals(now, queries.iter().map(|m| (child(&m.query, slot), m.deadline)));
            return self.settle(now, target, |_, _| {});
        }
        for &Waiting { query, deadline, .. } in queries {
            let is_sent = self.send(now, None, child(&query, NO_PICK), Sending { deadline, behind: Span::ZERO });
            debug_assert!(is_sent, "whoever is not behind is sent");
        }
    }

    /// Carries out what a station asks for, `start` what server and size it starts; then notes whether it wants a tick.
    #[inline(always)]
    pub fn settle(&mut self, now: Moment, station: u32, mut start: impl FnMut(&Station<Query>, (u32, u32))) {
        let at = station as usize;
        let machine = &mut self.stations[at];
        while let Some(output) = machine.poll_output() {
            match output {
                Output::StartBatch { server, size } => start(machine, (server, size)),
                Output::Drop { query, reason } => {
                    let Place { line, task_of_line, .. } = self.places[at];
                    self.dropped.push(Dropped { line, at: task_of_line, task: task_of_line, query, reason });
                }
                Output::ServerGone { .. } => {}
            }
        }
        let Some((at_moment, _)) = machine.poll_timeout() else { return };
        if at_moment > now {
            self.wakes.set(station, at_moment);
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

    /// Whether none did, and nothing was dropped that has not been accounted for.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.dropped.is_empty()
    }

    /// How many stations asked to be ticked now: [`Floor::ticking`] says which.
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

    /// One of those that are being ticked, in the order in which they start.
    #[inline]
    pub fn ticking(&self, at: usize) -> u32 {
        self.ticking[at]
    }

    /// A request takes this slot; whether its queries are to be found again.
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

    /// No query of this one's request is wanted any more: of a request that was tracked, in any queue that it joined.
    pub fn cancel_tracked(&mut self, now: Moment, query: Query, deadline: Moment) {
        let at = query.request as usize;
        let mut joined = std::mem::take(&mut self.joined[at]);
        self.joined_count -= joined.len();
        joined.sort_unstable();
        joined.dedup();
        self.gauge.spend(joined.len() as u64);
        for (station, arrived) in joined.drain(..) {
            self.stations[station as usize].handle(now, Input::CancelJoined { query, arrived, deadline });
            self.settle(now, station, |_, _| {});
        }
        self.joined[at] = joined;
    }

    /// The same at these stations, wherever its queries are.
    pub fn cancel(&mut self, now: Moment, stations: &[u32], query: Query) {
        for &station in stations {
            self.gauge.spend(1 + self.stations[station as usize].queued() as u64 / CANCELLED_AT_ONCE);
            self.stations[station as usize].handle(now, Input::Cancel { query });
            self.settle(now, station, |_, _| {});
        }
    }

    /// Room for what has come is there to be counted, if anything is.
    pub fn count_new(&mut self) {
        if !self.made.is_empty() {
            self.made.resize(self.routers.len().max(1), 0);
            self.done.resize(self.stations.len(), 0);
        }
    }

    /// A station is told of the module states.
    pub fn steer(&mut self, now: Moment, station: u32, view: View) {
        self.stations[station as usize].handle(now, Input::Steer { view });
        self.settle(now, station, |_, _| {});
    }

    /// A query has ended where this router sent it.
    #[inline]
    pub fn ended(&mut self, query: &Query) {
        if let Some(router) = &mut self.routers[query.router as usize] {
            router.ended(query.pick);
        }
    }
}
