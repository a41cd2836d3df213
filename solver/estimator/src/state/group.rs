//! One group of the plan, with everything that a query needs there.

use super::durations::TimeVariation;
use super::fanout::Fanout;
use crate::random::RandomStream;
use apportion_domain::{GroupName, HardwareIndex, TimeSpan};

/// The budget of a group whose queries are never behind.
pub const NO_BUDGET: TimeSpan = TimeSpan::from_nanos(u64::MAX);

/// One group of a plan.
#[derive(Clone, Debug)]
pub struct CompiledGroup {
    /// Its pipeline.
    pub pipeline: u32,
    /// Its batch in the plan, or its slots.
    pub batch: u32,
    /// Queries that a replica runs at a time, each on its own; 1 where they run in batches.
    pub slots: u32,
    /// Whether its queries run in slots, each on its own, and not in batches.
    pub has_slots: bool,
    /// How times vary around those of `service`, if they do.
    pub spread: Option<TimeVariation>,
    /// Its name.
    pub name: GroupName,
    /// Its hardware.
    pub hardware: HardwareIndex,
    /// How long a replica of it takes to load.
    pub load: TimeSpan,
    /// Its task, among all tasks of the problem.
    pub task: u32,
    /// Its task in its pipeline.
    pub task_in_pipeline: u32,
    /// The channel for which each query counts on its own, if so (`task_mean`).
    pub stage_channel: Option<u32>,
    /// Accuracy of its variant.
    pub accuracy: f64,
    /// Whether another measured variant of its task is more accurate.
    pub is_fallback: bool,
    /// Tasks on the path up to here.
    pub depth: u32,
    /// Its step in the table of path accuracies.
    pub step: Option<u32>,
    /// Time of a batch of `i + 1` queries.
    pub service: Vec<TimeSpan>,
    /// How long a query may take here before it is behind; [`NO_BUDGET`] for policies without task budgets.
    pub budget: TimeSpan,
    /// Channels for which a path ends here for certain.
    pub closes: Vec<u32>,
    /// Whether every query counts for some channel, leaf or not.
    pub is_scored: bool,
    /// Whether each query makes exactly one query at the only child, and has no other effect on its request.
    pub passes_on: bool,
    /// Children.
    pub edges: Vec<OutEdge>,
    /// How one of the edges is chosen; `None` if all are taken.
    pub one_of: Option<OneOf>,
}

impl CompiledGroup {
    /// Whether a query with these edges makes exactly one query at the only child.
    pub fn makes_one_child(edges: &[OutEdge]) -> bool {
        matches!(edges, [edge] if matches!(edge.fanout, Fanout::Fixed(1)))
    }

    /// The edges that a query takes.
    #[inline]
    pub fn chosen(&self, streams: &mut [RandomStream]) -> std::ops::Range<usize> {
        match &self.one_of {
            None => 0..self.edges.len(),
            Some(choice) => {
                let bits = streams[choice.stream as usize].bits();
                let at = choice.cumulated.partition_point(|&c| c <= bits).min(self.edges.len() - 1);
                at..at + 1
            }
        }
    }
}

/// One way out of a group.
#[derive(Clone, Debug)]
pub struct OutEdge {
    /// How many queries are made.
    pub fanout: Fanout,
    /// The edge's random stream.
    pub stream: u32,
    /// The child, in its pipeline.
    pub to: u32,
}

/// A choice among edges.
#[derive(Clone, Debug)]
pub struct OneOf {
    /// Cumulated probability of each edge in 2^-64.
    pub cumulated: Vec<u64>,
    /// The task's random stream.
    pub stream: u32,
}
