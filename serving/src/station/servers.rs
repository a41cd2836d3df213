//! The servers of one station, and the batches that they run and fill.

use super::idle::IdleSet;
use super::queue::Waiting;
use apportion_domain::{Moment, TimeSpan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Idle,
    Busy,
    /// Busy, and leaves after its batch.
    Draining,
    Gone,
}

impl ServerState {
    /// Whether a batch runs.
    fn runs(self) -> bool {
        matches!(self, Self::Busy | Self::Draining)
    }
}

#[derive(Clone, Debug)]
pub(super) struct StationServer<Q> {
    pub(super) state: ServerState,
    /// The batch that runs, or ran last.
    pub(super) members: Vec<Waiting<Q>>,
    /// The next batch, under `forming`.
    pub(super) forming: Vec<Waiting<Q>>,
    /// When the members of the next batch entered it, in their order.
    pub(super) entered: Vec<Moment>,
    /// From entering the batch in `members` to its start, summed over its members.
    pub(super) batch_wait: TimeSpan,
    /// When the running batch is expected to end.
    pub(super) ends: Moment,
}

impl<Q> StationServer<Q> {
    fn new(state: ServerState) -> Self {
        Self {
            state,
            members: Vec::new(),
            forming: Vec::new(),
            entered: Vec::new(),
            batch_wait: TimeSpan::ZERO,
            ends: Moment::ZERO,
        }
    }
}

/// A server that is to leave.
#[derive(Debug)]
pub(super) struct Removal<Q> {
    /// Whether it has left: it ran no batch.
    pub(super) is_gone: bool,
    /// The members of its next batch.
    pub(super) forming: Vec<Waiting<Q>>,
}

/// All servers that a station ever had, by number, and which of them are idle.
#[derive(Clone, Debug)]
pub(super) struct Servers<Q> {
    pub(super) all: Vec<StationServer<Q>>,
    pub(super) idle: IdleSet,
}

impl<Q: Copy + PartialEq> Servers<Q> {
    /// This many idle servers.
    pub(super) fn new(count: u32) -> Self {
        let mut idle = IdleSet::default();
        (0..count).for_each(|server| idle.insert(server));
        Self { all: (0..count).map(|_| StationServer::new(ServerState::Idle)).collect(), idle }
    }

    #[inline]
    pub(super) fn get(&self, server: u32) -> &StationServer<Q> {
        &self.all[server as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, server: u32) -> &mut StationServer<Q> {
        &mut self.all[server as usize]
    }

    pub(super) fn is_gone(&self, server: u32) -> bool {
        self.all.get(server as usize).is_none_or(|s| s.state == ServerState::Gone)
    }

    pub(super) fn is_idle(&self, server: u32) -> bool {
        self.all.get(server as usize).is_some_and(|s| s.state == ServerState::Idle)
    }

    /// Servers that have not left. Draining ones count.
    pub(super) fn present(&self) -> usize {
        self.all.iter().filter(|s| s.state != ServerState::Gone).count()
    }

    /// Queries that run.
    pub(super) fn running(&self) -> usize {
        self.all.iter().filter(|s| s.state.runs()).map(|s| s.members.len()).sum()
    }

    /// Queries in next batches.
    pub(super) fn forming(&self) -> usize {
        self.all.iter().map(|s| s.forming.len()).sum::<usize>()
    }

    pub(super) fn add(&mut self, server: u32) {
        let at = server as usize;
        assert!(at <= self.all.len(), "server {server} leaves a gap after {}", self.all.len());
        if at == self.all.len() {
            self.all.push(StationServer::new(ServerState::Gone));
        }
        assert!(self.all[at].state == ServerState::Gone, "server {server} is here already");
        self.all[at].state = ServerState::Idle;
        self.idle.insert(server);
    }

    /// A server is to leave: at once, or after its batch.
    pub(super) fn remove(&mut self, server: u32) -> Removal<Q> {
        let of_server = &mut self.all[server as usize];
        of_server.entered.clear();
        let forming = std::mem::take(&mut of_server.forming);
        match of_server.state {
            ServerState::Idle => {
                of_server.state = ServerState::Gone;
                self.idle.remove(server);
                Removal { is_gone: true, forming }
            }
            ServerState::Busy => {
                of_server.state = ServerState::Draining;
                Removal { is_gone: false, forming }
            }
            ServerState::Draining | ServerState::Gone => panic!("server {server} was removed before"),
        }
    }

    /// A server dies. The queries that it ran, or would have run next, go to the end of `lost`. Returns whether it ran a
    /// batch.
    pub(super) fn fail(&mut self, server: u32, lost: &mut Vec<Waiting<Q>>) -> bool {
        let of_server = &mut self.all[server as usize];
        let is_busy = of_server.state.runs();
        if is_busy {
            lost.append(&mut of_server.members);
        }
        lost.append(&mut of_server.forming);
        of_server.entered.clear();
        if of_server.state == ServerState::Idle {
            self.idle.remove(server);
        }
        of_server.state = ServerState::Gone;
        is_busy
    }

    /// Takes every query that equals this one out of the next batches, to the end of `cancelled`. Returns whether a batch
    /// has become shorter.
    pub(super) fn cancel(&mut self, query: Q, cancelled: &mut Vec<Q>) -> bool {
        let mut is_shorter = false;
        for server in &mut self.all {
            let before = server.forming.len();
            let mut kept = 0;
            for i in 0..before {
                if server.forming[i].query != query {
                    server.forming.swap(kept, i);
                    server.entered.swap(kept, i);
                    kept += 1;
                }
            }
            cancelled.extend(server.forming.drain(kept..).map(|w| w.query));
            server.entered.truncate(kept);
            is_shorter |= kept < before;
        }
        is_shorter
    }

    /// Servers that run a query that equals this one, by number.
    pub(super) fn running_with(&self, query: Q) -> Vec<u32> {
        let runs_it = |s: &StationServer<Q>| s.state.runs() && s.members.iter().any(|w| w.query == query);
        (0..).zip(&self.all).filter(|(_, s)| runs_it(s)).map(|(at, _)| at).collect()
    }

    /// Busy servers whose next batch has fewer than `batch_max` members, by number.
    pub(super) fn with_room(&self, batch_max: usize) -> impl Iterator<Item = (usize, &StationServer<Q>)> {
        let has_room = move |s: &StationServer<Q>| s.state == ServerState::Busy && s.forming.len() < batch_max;
        self.all.iter().enumerate().filter(move |(_, s)| has_room(s))
    }

    /// Sets the expected end of each running batch, whose start is in `ends`, for stations that start to fill batches
    /// ahead.
    pub(super) fn add_expected_times(&mut self, time_of: impl Fn(usize) -> TimeSpan) {
        for server in self.all.iter_mut().filter(|s| s.state.runs() && !s.members.is_empty()) {
            server.ends = server.ends + time_of(server.members.len());
        }
    }
}
