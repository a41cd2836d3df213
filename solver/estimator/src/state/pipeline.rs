//! One pipeline of a run.

use super::joins::Joins;
use super::paths::PathAccuracies;
use crate::random::RandomStream;
use apportion_domain::{Moment, Partial, TimeSpan};
use std::ops::Range;

/// One pipeline of a run, with its settings and its stations.
#[derive(Debug)]
pub struct PipelineState {
    /// Its number, in the problem's order.
    pub number: u32,
    /// How long a request may take.
    pub slo: TimeSpan,
    /// By task: the link of the network that a new query takes; `None` if its hop takes no time. That of the root has the
    /// time of the ingress.
    pub links: Vec<Option<usize>>,
    /// By task: the link that a query takes which is sent again.
    pub resend_links: Vec<Option<usize>>,
    /// Whether any of its hops takes time.
    pub has_hops: bool,
    /// Its root task.
    pub root: u32,
    /// Whether dropped parts are left out of the answer.
    pub partial: Partial,
    /// Whether the other queries of a request must be found when one of them is dropped.
    pub is_tracked: bool,
    /// Whether a request never has more than one query, and its accuracy is that query's path's.
    pub is_single: bool,
    /// Requests that arrived up to this moment were not tracked.
    pub untracked_until: Option<Moment>,
    /// Whether senders count their queries that have not ended (`jsq`).
    pub counts_outstanding: bool,
    /// Routers of its ingresses, one for each; empty if the plan serves nothing of it.
    pub ingresses: Range<u32>,
    /// The stream that draws the ingress of each request; `None` if clients use ingresses in turn.
    pub ingress_stream: Option<u32>,
    /// The ingress of each client that keeps one, counted from the first; empty where clients do not keep theirs.
    pub homes: Vec<u32>,
    /// Accuracies of paths.
    pub paths: PathAccuracies,
    /// Weight of each channel of the accuracy.
    pub weights: Vec<f64>,
    /// Channel of each task: only sinks have one or, under `task_mean`, all tasks.
    pub channels: Vec<Option<u32>>,
    /// Whether every task counts on its own (`task_mean`).
    pub by_task: bool,
    /// Number of its first task among all tasks of the problem.
    pub first_task: u32,
    /// The number of each task's choice stream. The streams of its edges follow, in the file's order.
    pub streams: Vec<u32>,
    /// Its joins, if it has any.
    pub joins: Option<Joins>,
    /// Its stations.
    pub stations: Vec<u32>,
}

impl PipelineState {
    /// The router of the ingress to which the client sends the request with this number.
    ///
    /// # Panics
    /// If the plan serves nothing of the pipeline: its traffic is refused before the run.
    #[inline]
    pub fn ingress_router(&self, request: u64, streams: &mut [RandomStream]) -> u32 {
        let Range { start, end } = self.ingresses;
        let count = u64::from(end.saturating_sub(start));
        assert!(count > 0, "traffic of a pipeline without replicas is refused before the run");
        let chosen = match self.ingress_stream {
            _ if count == 1 => 0,
            None => request % count,
            Some(stream) if self.homes.is_empty() => streams[stream as usize].below(count),
            Some(stream) => {
                let client = streams[stream as usize].below(self.homes.len() as u64);
                u64::from(self.homes[client as usize])
            }
        };
        start + chosen as u32
    }

    /// The router of the only ingress.
    #[inline]
    pub fn only_ingress(&self) -> Option<u32> {
        (self.ingresses.len() == 1).then_some(self.ingresses.start)
    }

    /// Whether queries join the next queue at once, and nothing else depends on it.
    #[inline]
    pub fn passes_on(&self) -> bool {
        !self.has_hops && self.joins.is_none() && !self.counts_outstanding
    }
}
