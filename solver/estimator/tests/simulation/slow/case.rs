//! A case for the slow simulator, and the times that its policies derive from it.

use crate::common::Stage;
use apportion_domain::{Batching, Dropping};

pub const MS: u64 = 1_000_000;

/// A case for both simulators.
#[derive(Clone, Debug)]
pub struct Case {
    pub stages: Vec<Stage>,
    pub central: bool,
    pub network_ms: u64,
    /// The time of a request at its ingress.
    pub ingress_ms: u64,
    /// By task, MiB that the edge from its parent brings to a query; for the first, the ingress. An edge that only delays
    /// brings as much as came to its first task. Each MiB takes a millisecond.
    pub mib: Vec<u64>,
    pub slo_ms: u64,
    pub batching: Batching,
    pub dropping: Dropping,
    pub partial: bool,
    /// Edges that only delay.
    pub delays: Vec<(usize, usize)>,
    /// How long gateways wait for an answer, in ns; `None` is for ever.
    pub patience: Option<u64>,
}

impl Case {
    /// MiB that an edge brings which only delays.
    pub fn delayed_mib(&self, from: usize) -> u64 {
        self.mib[from]
    }

    /// The time of the hop into a task. Of several edges the one that brings the most counts.
    pub fn hop(&self, task: usize) -> u64 {
        let delayed = self.delays.iter().filter(|&&(_, to)| to == task).map(|&(from, _)| self.delayed_mib(from));
        let mib = delayed.fold(self.mib[task], u64::max);
        let ingress_ms = if task == 0 { self.ingress_ms } else { 0 };
        (self.network_ms + ingress_ms + mib) * MS
    }

    pub fn service(&self, task: usize, size: usize) -> u64 {
        let stage = &self.stages[task];
        ((stage.base_ms + stage.each_ms * size as f64) * 1e6).round() as u64
    }

    pub fn full(&self, task: usize) -> u64 {
        self.service(task, self.stages[task].batch as usize)
    }

    pub fn children(&self, task: usize) -> Vec<usize> {
        (1..self.stages.len()).filter(|&c| self.stages[c].parent == task).collect()
    }

    /// The tasks after a task, over all edges.
    pub fn followers(&self, task: usize) -> Vec<usize> {
        let delayed = self.delays.iter().filter(|&&(from, _)| from == task).map(|&(_, to)| to);
        self.children(task).into_iter().chain(delayed).collect()
    }

    /// The longest way after a task, by the `charge` of each task on it.
    pub fn after(&self, task: usize, charge: &dyn Fn(usize) -> u64) -> u64 {
        self.followers(task).into_iter().map(|t| charge(t) + self.after(t, charge)).max().unwrap_or(0)
    }

    pub fn before(&self, task: usize, charge: &dyn Fn(usize) -> u64) -> u64 {
        let parents = (0..self.stages.len()).filter(|&p| self.followers(p).contains(&task));
        parents.map(|p| charge(p) + self.before(p, charge)).max().unwrap_or(0)
    }

    /// A task's part of the SLO under `clipper++`.
    pub fn part(&self, task: usize) -> u64 {
        let charge = |t: usize| self.full(t) + self.hop(t);
        let path = self.before(task, &charge) + charge(task) + self.after(task, &charge);
        (self.slo_ms * MS * charge(task) / path).saturating_sub(self.hop(task))
    }
}
