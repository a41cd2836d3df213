//! One pipeline of a run.

use super::joins::Joins;
use super::paths::PathAccuracies;
use apportion_domain::{Moment, Partial, TimeSpan};

/// One pipeline of a run, with its settings and its stations.
#[derive(Debug)]
pub struct PipelineState {
    /// Its number, in the problem's order.
    pub number: u32,
    /// How long a request may take.
    pub slo: TimeSpan,
    /// The link of the network that its hops take; `None` if they take no time.
    pub network: Option<usize>,
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
    /// The frontend's router; `None` if the plan serves nothing of it.
    pub frontend: Option<u32>,
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
    /// Whether queries join the next queue at once, and nothing else depends on it.
    #[inline]
    pub fn passes_on(&self) -> bool {
        self.network.is_none() && self.joins.is_none() && !self.counts_outstanding
    }
}
