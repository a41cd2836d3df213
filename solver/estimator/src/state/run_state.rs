//! All parts of a run's state together.

use super::bounds::Cut;
use super::group::CompiledGroup;
use super::joins::Scopes;
use super::module_states::ModuleStates;
use super::pipeline::PipelineState;
use super::requests::Requests;
use super::serving::ServingState;
use super::statistics::Statistics;
use crate::random::Stream;
use apportion_domain::{Moment, Span};

/// A replica that is slow for a while.
#[derive(Clone, Debug)]
pub struct SlowReplica {
    /// Its station.
    pub station: u32,
    /// Its servers there.
    pub servers: std::ops::Range<u32>,
    /// Its batches take longer by this factor.
    pub factor: f64,
    /// When it is as fast as before.
    pub until: Moment,
}

/// A server of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerId {
    /// The station.
    pub station: u32,
    /// The server there.
    pub server: u32,
}

/// Everything that a run holds at one moment, apart from the events to come.
#[derive(Debug)]
pub struct RunState {
    /// The present.
    pub now: Moment,
    /// Pipelines in the problem's order.
    pub pipelines: Vec<PipelineState>,
    /// Compiled groups.
    pub groups: Vec<CompiledGroup>,
    /// Stations, routers and network.
    pub serving: ServingState,
    /// Random streams of edges, choices and service times.
    pub streams: Vec<Stream>,
    /// Requests in flight.
    pub requests: Requests,
    /// Queries that wait at joins.
    pub scopes: Scopes,
    /// PARD's module states.
    pub modules: ModuleStates,
    /// The results so far.
    pub statistics: Statistics,
    /// Whether replicas or plans may change during the run.
    pub has_changes: bool,
    /// Replicas that were slow at some time.
    pub slow: Vec<SlowReplica>,
    /// Servers that died while they ran a batch, whose end is still among the events.
    pub stale: Vec<ServerId>,
}

impl RunState {
    /// Why the run was cut short, if it was.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.serving.bounds.cut().or_else(|| self.statistics.too_many_missed().map(|missed| Cut::Missed { missed }))
    }

    /// Whether the run goes on, by its bounds.
    #[inline]
    pub fn is_within_bounds(&mut self) -> bool {
        !self.serving.bounds.is_due() || {
            let tracked = self.serving.joined_count * 2 * size_of::<(u32, Moment)>();
            let other_bytes = self.requests.bytes() + self.scopes.bytes() + tracked;
            self.serving.bounds.check(self.statistics.sums().arrived, other_bytes)
        }
    }

    /// How long a query of a pipeline travels between two stations.
    pub fn hop(&self, pipeline: u32) -> Span {
        self.pipelines[pipeline as usize].network.map_or(Span::ZERO, |link| self.serving.network.delay(link))
    }

    /// The time of a batch that a server starts now, given its time without slow replicas.
    #[cold]
    pub fn slowed(slow: &[SlowReplica], now: Moment, id: ServerId, service: Span) -> Span {
        let of_server = slow.iter().filter(|s| s.station == id.station && s.servers.contains(&id.server) && s.until > now);
        let factor: f64 = of_server.map(|s| s.factor).product();
        Span::from_nanos((service.as_nanos() as f64 * factor).round_ties_even() as u64)
    }

    /// Servers of a station end their batches and leave.
    pub fn remove_servers(&mut self, station: u32, servers: std::ops::Range<u32>) {
        for server in servers {
            self.serving.remove_server(self.now, station, server);
        }
    }

    /// Routers of a pipeline that lead to a task, by number. `root` is the pipeline's root task.
    pub fn routers_to(&self, pipeline: u32, task: u32, root: u32) -> Vec<u32> {
        let state = &self.pipelines[pipeline as usize];
        let mut routers: Vec<u32> = state.frontend.filter(|_| task == root).into_iter().collect();
        for &station in &state.stations {
            let info = self.serving.infos[station as usize];
            let edges = &self.groups[info.group as usize].edges;
            routers.extend((0..).zip(edges).filter(|(_, e)| e.to == task).map(|(at, _)| info.router + at));
        }
        routers
    }
}
