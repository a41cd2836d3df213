//! All parts of a run's state together.

use super::bounds::CutReason;
use super::faults::{SlowReplicas, StaleServers};
use super::group::CompiledGroup;
use super::joins::Scopes;
use super::journal::Journal;
use super::module_states::ModuleStates;
use super::pipeline::PipelineState;
use super::requests::RequestSlots;
use super::serving::{JoinedQueue, ServingState};
use super::statistics::Statistics;
use crate::random::RandomStream;
use apportion_domain::{Moment, TimeSpan};

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
    pub streams: Vec<RandomStream>,
    /// Requests in flight.
    pub requests: RequestSlots,
    /// Queries that wait at joins.
    pub scopes: Scopes,
    /// PARD's module states.
    pub modules: ModuleStates,
    /// The results so far.
    pub statistics: Statistics,
    /// The notes for the thread that keeps the accounts of waits and requests; `None` if this thread keeps them.
    pub journal: Option<Journal>,
    /// Whether replicas or plans may change during the run.
    pub has_changes: bool,
    /// Replicas that were slow at some time.
    pub slow: SlowReplicas,
    /// Servers that died while they ran a batch, whose end is still among the events.
    pub stale: StaleServers,
}

impl RunState {
    /// From now on, before the first event, another thread keeps the accounts of waits and requests.
    pub fn keep_journal(&mut self, journal: Journal) {
        self.serving.bounds.count_requests_as_queries(self.requests.bytes_each());
        self.journal = Some(journal);
    }

    /// Hands over the last notes. Returns whether the accounts of the other thread are complete.
    #[must_use]
    pub fn close_journal(&mut self) -> bool {
        self.journal.take().is_none_or(Journal::close)
    }

    /// Why the run was cut short, if it was.
    #[must_use]
    pub fn cut(&self) -> Option<CutReason> {
        self.serving.bounds.cut().or_else(|| self.statistics.too_many_missed().map(|missed| CutReason::Missed { missed }))
    }

    /// Whether the run goes on, by its bounds.
    #[inline]
    pub fn is_within_bounds(&mut self) -> bool {
        !self.serving.bounds.is_due() || {
            let tracked = self.serving.joined_count * 2 * size_of::<JoinedQueue>();
            let other_bytes = self.requests.bytes() + self.scopes.bytes() + tracked;
            self.serving.bounds.check(self.statistics.sums().arrived, other_bytes)
        }
    }

    /// How long a query of a task of a pipeline travels at most before it joins a queue there.
    pub fn hop_delay(&self, pipeline: u32, task: u32) -> TimeSpan {
        let link = self.pipelines[pipeline as usize].links[task as usize];
        link.map_or(TimeSpan::ZERO, |link| self.serving.network.delay(link))
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
        let mut routers: Vec<u32> = state.ingresses.clone().filter(|_| task == root).collect();
        for &station in &state.stations {
            let info = self.serving.infos[station as usize];
            let edges = &self.groups[info.group as usize].edges;
            routers.extend((0..).zip(edges).filter(|(_, e)| e.to == task).map(|(at, _)| info.router + at));
        }
        routers
    }
}
