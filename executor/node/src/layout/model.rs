//! What does a checked target consist of?

use crate::tensor::TensorSignature;
use apportion_domain::transform::TaskGlue;
use apportion_domain::{Fence, ServingPolicy, VariantExecution, VariantRuntime};
use apportion_serving::ladder::LadderStep;
use apportion_serving::router::Within;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most edges into joins of one pipeline.
pub(super) const WAITS_MAX: usize = 64;

/// A checked target.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Which target.
    pub fence: Option<Fence>,
    /// By name.
    pub pipelines: BTreeMap<String, Arc<LayoutPipeline>>,
    /// Data addresses of all agents, by number.
    pub agents: BTreeMap<u64, String>,
    /// The devices of each agent, where the target says.
    pub devices: BTreeMap<u64, AgentDevices>,
}

/// The devices of one agent, all of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDevices {
    /// Their hardware type.
    pub hardware: String,
    /// How many.
    pub count: u32,
    /// Devices that measure for a profile job: they take no replica beyond the plan's.
    pub measured: BTreeSet<u32>,
}

/// One pipeline of a target.
#[derive(Clone, Debug)]
pub struct LayoutPipeline {
    /// Deadline of a request, in nanoseconds from its arrival.
    pub slo_ns: u64,
    /// By task, the time of the hop into it in the plan's model, in nanoseconds. The root's has the time at the ingress.
    pub hops_ns: Vec<u64>,
    /// The plan's policies.
    pub serving: ServingPolicy,
    /// Whether an answer leaves dropped parts out. If not, one dropped part drops the request.
    pub partial: bool,
    /// Batches that a query may take at a task, waiting included (Loki section 4.1).
    pub queue_factor: f64,
    /// How a replica is chosen within a group.
    pub within: Within,
    /// In the target's order.
    pub tasks: Vec<LayoutTask>,
    /// Position of the root.
    pub root: usize,
    /// By number.
    pub groups: BTreeMap<u64, LayoutGroup>,
    /// All replicas.
    pub replicas: Vec<LayoutReplica>,
    /// Groups and fractions for (sender's group or none for the gateway, task).
    pub tables: BTreeMap<(Option<u64>, usize), TableEntries>,
    /// Groups with capacity to spare (the backup table of Loki section 5.1).
    pub backup: BTreeSet<u64>,
    /// What queries at joins wait for.
    pub waits: Vec<JoinWait>,
    /// The demand that the plan was made for, in requests per second; 0 if it is not known.
    pub demand_qps: f64,
    /// The choices for requests that say their needs.
    pub choices: Vec<VariantCombination>,
    /// The plan's ladder, by rising rate: replicas of each of `groups` in the order of their numbers.
    pub ladder: Vec<LadderStep>,
    /// The share of an hour's requests that may miss, above 0 and below 1: the headroom of the ladder follows the misses.
    /// `None`: the headroom is 1.
    pub missed_share_max: Option<f64>,
    /// Whether the service loads offered groups that requests need.
    pub loads_on_demand: bool,
}

/// A variant for each task.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantCombination {
    /// A group of each task, by its position.
    pub groups: Vec<u64>,
    /// The pipeline's accuracy with them, 0 to 1.
    pub accuracy: f64,
}

impl LayoutPipeline {
    /// Position of the task of this name.
    #[must_use]
    pub fn position(&self, task: &str) -> Option<usize> {
        self.tasks.iter().position(|t| t.name == task)
    }
}

/// Groups of a table with their fractions.
pub type TableEntries = Vec<(u64, f64)>;

/// A task.
#[derive(Clone, Debug)]
pub struct LayoutTask {
    /// Its name.
    pub name: String,
    /// Inputs of a query.
    pub inputs: Vec<TensorSignature>,
    /// Outputs of a query.
    pub outputs: Vec<TensorSignature>,
    /// The tasks whose queries are made from its results.
    pub children: Vec<LayoutEdge>,
    /// Joins whose queries wait for its results without being made by them.
    pub delays: Vec<LayoutEdge>,
    /// Whether a row goes to one of the children instead of to all.
    pub one_of: bool,
    /// Whether queries run in slots, each for its own time, and not in batches.
    pub is_continuous: bool,
    /// The transforms around its variants.
    pub glue: Arc<TaskGlue>,
}

impl LayoutTask {
    /// Whether its results are part of the answer.
    #[must_use]
    pub fn is_sink(&self) -> bool {
        self.children.is_empty() && self.delays.is_empty()
    }
}

/// An edge from a task to one of its children.
#[derive(Clone, Debug)]
pub struct LayoutEdge {
    /// The child's position.
    pub to: usize,
    /// Inputs of the child that outputs of the parent fill.
    pub map: Vec<MappedInput>,
    /// Share of the rows under `one_of`.
    pub ratio: f64,
}

/// An input of a child, and the parent's output that fills it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedInput {
    /// Name of the child's input.
    pub input: String,
    /// Name of the parent's output.
    pub output: String,
}

/// A row of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutPoint {
    /// Queries in the batch.
    pub batch: u32,
    /// Latency of the batch, in nanoseconds.
    pub latency_ns: u64,
    /// The 99th percentile of such latencies, in nanoseconds. Below the latency: it is not known.
    pub p99_ns: u64,
}

/// Numbers of children that an emulated batch makes for one child, with their probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutFanout {
    /// The child's position.
    pub to: usize,
    /// Children of one row, and the probability of this number.
    pub counts: Vec<(u32, f64)>,
}

/// The time of a batch by the profile. On a share of a device it is between that alone and that beside neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfiledTime {
    /// Without work beside it on its device, in nanoseconds.
    pub alone_ns: u64,
    /// Beside neighbours, in nanoseconds; at least `alone_ns`. 0: there is no profile.
    pub beside_ns: u64,
}

impl ProfiledTime {
    /// The time of a batch that nothing on its device disturbs.
    #[cfg(test)]
    pub(crate) const fn certain(ns: u64) -> Self {
        Self { alone_ns: ns, beside_ns: ns }
    }

    /// The time of the profile that is compared with this one: the nearest of those between both bounds.
    ///
    /// Example: a batch takes 10 ms alone and 15 ms beside neighbours. One that took 12 ms had its time, and is compared
    /// with 12 ms. One that took 20 ms is compared with 15 ms, and one that took 5 ms with 10 ms.
    #[must_use]
    pub fn compared_ns(self, took_ns: u64) -> u64 {
        took_ns.max(self.alone_ns).min(self.beside_ns)
    }
}

impl std::ops::AddAssign for ProfiledTime {
    fn add_assign(&mut self, more: Self) {
        self.alone_ns += more.alone_ns;
        self.beside_ns += more.beside_ns;
    }
}

/// A variant on a hardware type.
#[derive(Clone, Debug)]
pub struct LayoutGroup {
    /// Position of its task.
    pub task: usize,
    /// Its variant's name.
    pub variant: String,
    /// Hardware type of its replicas' devices.
    pub hardware: String,
    /// Largest batch; of a continuous task, the slots of each replica.
    pub batch: usize,
    /// Accuracy, 0 to 1.
    pub accuracy: f64,
    /// Digest of its file, hex.
    pub digest: String,
    /// What runs the file.
    pub runtime: VariantRuntime,
    /// What the variant asks of its execution.
    pub execution: VariantExecution,
    /// Its profile, by increasing batch.
    pub service: Vec<LayoutPoint>,
    /// Fraction of a device that each replica has.
    pub share: f64,
    /// Time of a batch beside neighbours on its device, which its profile has, over the time alone. At least 1.
    pub interference: f64,
    /// Memory of one replica and of a device of its hardware, where both are known.
    pub memory_mib: Option<(f64, f64)>,
    /// Price of one replica per hour, in the plan's currency; 0 if it is not known.
    pub price_per_hour: f64,
    /// Children that an emulated batch makes. Empty: one for each row.
    pub fanout: Vec<LayoutFanout>,
    /// Whether no plan has it: it takes only requests that say their needs, and no steward scales it.
    pub is_offered: bool,
    /// Time from the command to load one replica until it is ready, in nanoseconds; 0 if it is not known.
    pub load_ns: u64,
    /// Of a continuous task: 99th percentile of a query's time with all slots taken, in nanoseconds; 0 if it is not known.
    pub slot_p99_ns: u64,
}

impl LayoutGroup {
    /// Latency of a batch in nanoseconds, as the estimator has it: linear between profiled sizes, rounded half to even, the
    /// smallest's below and the largest's above.
    #[must_use]
    pub fn latency_ns(&self, batch: usize) -> u64 {
        self.interpolated_ns(batch, |point| point.latency_ns)
    }

    /// The 99th percentile of such latencies, interpolated in the same way. A size without one counts with its latency.
    #[must_use]
    pub fn p99_ns(&self, batch: usize) -> u64 {
        self.interpolated_ns(batch, |point| point.p99_ns.max(point.latency_ns))
    }

    /// The time of a batch by the profile, with neighbours and without.
    #[must_use]
    pub fn profiled(&self, batch: usize) -> ProfiledTime {
        let beside_ns = self.latency_ns(batch);
        let alone_ns = (beside_ns as f64 / self.interference).round_ties_even() as u64;
        ProfiledTime { alone_ns: alone_ns.min(beside_ns), beside_ns }
    }

    fn interpolated_ns(&self, batch: usize, of: impl Fn(LayoutPoint) -> u64) -> u64 {
        let size = batch as u64;
        let above = self.service.partition_point(|point| u64::from(point.batch) < size);
        match (above.checked_sub(1).map(|below| self.service[below]), self.service.get(above).copied()) {
            (Some(left), Some(right)) => {
                let from_ns = of(left) as f64;
                let slope = (of(right) as f64 - from_ns) / f64::from(right.batch - left.batch);
                (from_ns + slope * (batch as f64 - f64::from(left.batch))).round_ties_even() as u64
            }
            (Some(point), None) | (None, Some(point)) => of(point),
            (None, None) => 0,
        }
    }
}

/// A replica of a group, with its place.
#[derive(Clone, Debug)]
pub struct LayoutReplica {
    /// Unique in the fleet.
    pub id: u64,
    /// Its group.
    pub group: u64,
    /// Its agent.
    pub agent: u64,
    /// The agent's device.
    pub device: u32,
}

/// What an agent must do for a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetDifference {
    /// Replicas to load.
    pub load: Vec<u64>,
    /// Replicas that stay, loaded as they are.
    pub keep: Vec<u64>,
    /// Replicas to drain and unload, once the new ones are ready.
    pub retire: Vec<u64>,
}

/// From the loaded replicas to those of agent `agent` in `layout`. A replica's number is never used again for another group
/// or place, so equal numbers are equal replicas.
#[must_use]
pub fn difference(loaded: &BTreeSet<u64>, layout: &Layout, agent: u64) -> TargetDifference {
    let all = layout.pipelines.values().flat_map(|p| &p.replicas);
    let wanted: BTreeSet<u64> = all.filter(|r| r.agent == agent).map(|r| r.id).collect();
    TargetDifference {
        load: wanted.difference(loaded).copied().collect(),
        keep: wanted.intersection(loaded).copied().collect(),
        retire: loaded.difference(&wanted).copied().collect(),
    }
}

/// One edge into a join, as seen from one fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinWait {
    /// Position of the join.
    pub join: usize,
    /// Position of the fork.
    pub fork: usize,
    /// Position of the edge's parent.
    pub parent: usize,
    /// Whether the edge makes the join's queries; each fork has one such wait, which says when no more of them can come.
    pub makes: bool,
    /// Tasks from the fork (excluded) to the parent (included).
    pub counted: Vec<usize>,
}

impl JoinWait {
    /// Whether a query of `child`, made by one of `parent`, may still bring something over this edge.
    #[must_use]
    pub fn leads(&self, parent: usize, child: usize) -> bool {
        self.counted.contains(&child) || (self.makes && parent == self.parent && child == self.join)
    }
}
