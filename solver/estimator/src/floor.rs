//! Where queries move: stations, the senders' routers, the network between them.

use crate::agenda::{Network, Wakes};
use crate::fleet::{Place, Query};
use apportion_domain::Moment;
use apportion_serving::replica::{Input, Output};
use apportion_serving::{DropReason, Router, Station};

/// A query that a station has dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Where.
    pub station: u32,
    /// Which.
    pub query: Query,
    /// Why.
    pub reason: DropReason,
}

/// All stations and what connects them.
#[derive(Debug, Default)]
pub struct Floor {
    /// In the order in which free replicas start: groups in their order, replicas by index.
    pub stations: Vec<Station<Query>>,
    /// The stations' places.
    pub places: Vec<Place>,
    /// Routers, one for each sender and child task. A sender without a target has none that could ever be asked.
    pub routers: Vec<Option<Router>>,
    /// Queries on their way.
    pub network: Network,
    /// Queries that were dropped and have not been accounted for.
    pub dropped: Vec<Dropped>,
    /// Stations that asked to be ticked now.
    due: Vec<u32>,
    is_due: Vec<bool>,
    /// Stations that asked to be ticked later.
    wakes: Wakes,
}

impl Floor {
    /// A query leaves its sender for whichever station the router picks.
    #[inline(always)]
    pub fn send(&mut self, now: Moment, network: Option<usize>, mut query: Query, deadline: Moment) {
        let router = self.routers[query.router as usize].as_mut();
        let picked = router.expect("a sender with children has a router").pick();
        query.pick = picked.slot;
        match network {
            None => self.join(now, picked.target, query, deadline),
            Some(line) => self.network.send(line, now, picked.target, query, deadline),
        }
    }

    /// A query joins the queue of a station.
    #[inline(always)]
    pub fn join(&mut self, now: Moment, station: u32, query: Query, deadline: Moment) {
        self.stations[station as usize].handle(now, Input::Arrive { query, deadline });
        self.settle(now, station, |_, _| {});
    }

    /// Carries out what a station asks for, `start` what server and size it starts; then notes whether it wants a tick.
    #[inline(always)]
    pub fn settle(&mut self, now: Moment, station: u32, mut start: impl FnMut(&Station<Query>, (u32, u32))) {
        let at = station as usize;
        let machine = &mut self.stations[at];
        while let Some(output) = machine.poll_output() {
            match output {
                Output::StartBatch { server, size } => start(machine, (server, size)),
                Output::Drop { query, reason } => self.dropped.push(Dropped { station, query, reason }),
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

    /// The stations that asked to be ticked now, in the order in which they start, to be given back by [`Floor::ticked`].
    #[inline]
    pub fn due(&mut self) -> Vec<u32> {
        if self.due.len() > 1 {
            self.due.sort_unstable();
        }
        let due = std::mem::take(&mut self.due);
        due.iter().for_each(|&station| self.is_due[station as usize] = false);
        due
    }

    /// Takes the list back once all of them have been ticked.
    #[inline]
    pub fn ticked(&mut self, mut due: Vec<u32>) {
        debug_assert!(self.due.is_empty(), "a station that ticked has nothing more to start now");
        due.clear();
        self.due = due;
    }

    /// A query has ended where this router sent it.
    #[inline]
    pub fn ended(&mut self, query: &Query) {
        if let Some(router) = &mut self.routers[query.router as usize] {
            router.ended(query.pick);
        }
    }
}
