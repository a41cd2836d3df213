//! What does the fleet's target mean for an agent, and how does it differ from the loaded replicas?

mod error;
mod joins;
mod read;

pub use error::{LayoutError, PipelineError};
pub use joins::Wait;
pub use read::lay_out;

use crate::tensor::TensorSpec;
use apportion_domain::{Fence, ServingPolicy};
use apportion_serving::ladder::Step;
use apportion_serving::router::Within;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A checked target.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Which target.
    pub fence: Option<Fence>,
    /// By name.
    pub pipelines: BTreeMap<String, Arc<Pipeline>>,
    /// Data addresses of all agents, by number.
    pub agents: BTreeMap<u64, String>,
    /// Hardware type and number of the devices of each agent, where the target says.
    pub devices: BTreeMap<u64, (String, u32)>,
}

/// One pipeline of a target.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Deadline of a request, in nanoseconds from its arrival.
    pub slo_ns: u64,
    /// Time of a hop between agents in the plan's model, in nanoseconds.
    pub network_ns: u64,
    /// The plan's policies.
    pub serving: ServingPolicy,
    /// Whether an answer leaves dropped parts out. If not, one dropped part drops the request.
    pub partial: bool,
    /// Batches that a query may take at a task, waiting included (Loki section 4.1).
    pub queue_factor: f64,
    /// How a replica is chosen within a group.
    pub within: Within,
    /// In the target's order.
    pub tasks: Vec<Task>,
    /// Position of the root.
    pub root: usize,
    /// By number.
    pub groups: BTreeMap<u64, Group>,
    /// All replicas.
    pub replicas: Vec<Replica>,
    /// Groups and fractions for (sender's group or none for the gateway, task).
    pub tables: BTreeMap<(Option<u64>, usize), Entries>,
    /// Groups with capacity to spare (the backup table of Loki section 5.1).
    pub backup: BTreeSet<u64>,
    /// What queries at joins wait for.
    pub waits: Vec<Wait>,
    /// The demand that the plan was made for, in requests per second; 0 if it is not known.
    pub demand_qps: f64,
    /// The choices for requests that say their needs.
    pub choices: Vec<Choice>,
    /// The plan's ladder, by rising rate: replicas of each of `groups` in the order of their numbers.
    pub ladder: Vec<Step>,
}

/// A variant for each task.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// A group of each task, by its position.
    pub groups: Vec<u64>,
    /// The pipeline's accuracy with them, 0 to 1.
    pub accuracy: f64,
}

impl Pipeline {
    /// Position of the task of this name.
    #[must_use]
    pub fn position(&self, task: &str) -> Option<usize> {
        self.tasks.iter().position(|t| t.name == task)
    }
}

/// Groups of a table with their fractions.
pub type Entries = Vec<(u64, f64)>;

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// Inputs of a query.
    pub inputs: Vec<TensorSpec>,
    /// Outputs of a query.
    pub outputs: Vec<TensorSpec>,
    /// The tasks whose queries are made from its results.
    pub children: Vec<Edge>,
    /// Joins whose queries wait for its results without being made by them.
    pub delays: Vec<Edge>,
    /// Whether a row goes to one of the children instead of to all.
    pub one_of: bool,
}

impl Task {
    /// Whether its results are part of the answer.
    #[must_use]
    pub fn is_sink(&self) -> bool {
        self.children.is_empty() && self.delays.is_empty()
    }
}

/// An edge from a task to one of its children.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The child's position.
    pub to: usize,
    /// (child's input, parent's output).
    pub map: Vec<(String, String)>,
    /// Share of the rows under `one_of`.
    pub ratio: f64,
}

/// A variant on a hardware type.
#[derive(Clone, Debug)]
pub struct Group {
    /// Position of its task.
    pub task: usize,
    /// Its variant's name.
    pub variant: String,
    /// Hardware type of its replicas' devices.
    pub hardware: String,
    /// Largest batch.
    pub batch: usize,
    /// Accuracy, 0 to 1.
    pub accuracy: f64,
    /// Digest of its file, hex.
    pub digest: String,
    /// (batch, latency in nanoseconds), by increasing batch.
    pub service: Vec<(u32, u64)>,
    /// Fraction of a device that each replica has.
    pub share: f64,
    /// Memory of one replica and of a device of its hardware, where both are known.
    pub memory_mib: Option<(f64, f64)>,
    /// Price of one replica per hour, in the plan's currency; 0 if it is not known.
    pub price_per_hour: f64,
    /// Children that an emulated batch makes, by the child's position: their numbers with probabilities. Empty: one for
    /// each row.
    pub fanout: Vec<(usize, Vec<(u32, f64)>)>,
}

impl Group {
    /// Latency of a batch in nanoseconds, as the estimator has it: linear between profiled sizes, rounded half to even, the
    /// smallest's below and the largest's above.
    #[must_use]
    pub fn latency_ns(&self, batch: usize) -> u64 {
        let size = batch as u64;
        let above = self.service.partition_point(|(b, _)| u64::from(*b) < size);
        match (above.checked_sub(1).map(|below| self.service[below]), self.service.get(above).copied()) {
            (Some((left, from)), Some((right, to))) => {
                let slope = (to as f64 - from as f64) / f64::from(right - left);
                (from as f64 + slope * (batch as f64 - f64::from(left))).round_ties_even() as u64
            }
            (Some((_, ns)), None) | (None, Some((_, ns))) => ns,
            (None, None) => 0,
        }
    }
}

/// A replica of a group, with its place.
#[derive(Clone, Debug)]
pub struct Replica {
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
pub struct Difference {
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
pub fn difference(loaded: &BTreeSet<u64>, layout: &Layout, agent: u64) -> Difference {
    let all = layout.pipelines.values().flat_map(|p| &p.replicas);
    let wanted: BTreeSet<u64> = all.filter(|r| r.agent == agent).map(|r| r.id).collect();
    Difference {
        load: wanted.difference(loaded).copied().collect(),
        keep: wanted.intersection(loaded).copied().collect(),
        retire: loaded.difference(&wanted).copied().collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use apportion_domain::Dropping;
    use apportion_protocol::v1;

    /// A chain `a -> b` with one replica of each: `a` (replica 1, group 1) on agent 1 and `b` (2, 2) on agent 2.
    pub(crate) fn chain() -> v1::Target {
        let spec = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
        let task = |name: &str| v1::TaskTarget {
            name: name.into(),
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            ..Default::default()
        };
        let group = |group: u64, task: u32| v1::GroupTarget {
            group,
            task,
            variant: "v".into(),
            batch: 4,
            file_digest: "d".into(),
            service: vec![v1::ServicePoint { batch: 1, latency_ns: 10 }, v1::ServicePoint { batch: 4, latency_ns: 20 }],
            ..Default::default()
        };
        let replica = |replica: u64, agent| v1::ReplicaTarget { replica, group: replica, agent, device: 0 };
        let table =
            |from, to_task, group| v1::Table { from, to_task, entries: vec![v1::TableEntry { group, fraction: 1.0 }] };
        let pipeline = v1::PipelineTarget {
            name: "p".into(),
            slo_ns: 1_000_000_000,
            tasks: vec![task("a"), task("b")],
            edges: vec![v1::EdgeTarget {
                from: 0,
                to: 1,
                map: [("x".to_string(), "y".to_string())].into(),
                ..Default::default()
            }],
            groups: vec![group(1, 0), group(2, 1)],
            replicas: vec![replica(1, 1), replica(2, 2)],
            tables: vec![table(None, 0, 1), table(Some(1), 1, 2)],
            ..Default::default()
        };
        let peer = |agent| v1::Peer { agent, data_address: format!("127.0.0.1:{agent}"), ..Default::default() };
        let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
        v1::Target { fence, agents: vec![peer(1), peer(2)], pipelines: vec![pipeline] }
    }

    #[test]
    fn a_replica_is_loaded_kept_or_retired_by_its_number() {
        let layout = lay_out(&chain()).expect("a valid target");
        let expected = Difference { load: vec![1], keep: vec![], retire: vec![7] };
        assert_eq!(difference(&[7].into(), &layout, 1), expected);
        let expected = Difference { load: vec![], keep: vec![2], retire: vec![] };
        assert_eq!(difference(&[2].into(), &layout, 2), expected);
    }

    #[test]
    fn what_an_agent_cannot_do_is_refused_by_name() {
        let mut target = chain();
        let asked = |dropping: &str, routing: &str| v1::Serving {
            dropping: dropping.into(),
            routing: routing.into(),
            ..Default::default()
        };
        target.pipelines[0].serving = Some(v1::Serving { queueing: "central".into(), ..Default::default() });
        assert!(lay_out(&target).expect_err("one process has no group's queue").to_string().contains("queueing central"));
        target.pipelines[0].serving = Some(asked("naive", "dice"));
        assert!(lay_out(&target).expect_err("no such policy").to_string().contains("stride"));
        for dropping in Dropping::NAMES {
            target.pipelines[0].serving = Some(asked(dropping, "jsq"));
            let laid = lay_out(&target).expect("can be done");
            assert_eq!(laid.pipelines["p"].serving.dropping.name(), *dropping);
            assert_eq!(laid.pipelines["p"].within, Within::LeastOutstanding);
        }
    }

    #[test]
    fn a_continuous_task_is_refused_by_name() {
        let mut target = chain();
        target.pipelines[0].tasks[1].continuous = true;
        let refused = lay_out(&target).expect_err("agents have no slots").to_string();
        assert!(refused.contains("pipeline p: task b: kind continuous"), "{refused}");
    }

    #[test]
    fn a_flat_or_incomplete_ladder_is_refused() {
        let mut target = chain();
        let step = |rate_qps, replicas: &[u32]| v1::LadderStep { rate_qps, replicas: replicas.to_vec() };
        target.pipelines[0].ladder = vec![step(1.0, &[1, 2]), step(2.0, &[3, 4])];
        target.pipelines[0].groups.reverse();
        let laid = lay_out(&target).expect("valid");
        let counts: Vec<_> = laid.pipelines["p"].ladder.iter().map(|s| s.replicas.as_slice()).collect();
        assert_eq!(counts, [[2, 1], [4, 3]], "by the groups' numbers");
        target.pipelines[0].ladder[1].rate_qps = 1.0;
        assert!(lay_out(&target).expect_err("flat").to_string().contains("do not rise"));
        target.pipelines[0].ladder = vec![step(1.0, &[1])];
        assert!(
            lay_out(&target)
                .expect_err("a count lacks")
                .to_string()
                .contains("has 1 counts: expected one for each of 2 groups")
        );
    }

    #[test]
    fn two_makers_or_too_many_paths_are_refused() {
        let mut target = chain();
        let edge = target.pipelines[0].edges[0].clone();
        target.pipelines[0].edges.push(edge);
        assert!(lay_out(&target).expect_err("two makers").to_string().contains("task b: 2 of its edges make queries"));
        // A ladder: each of 12 steps doubles the paths.
        let mut target = chain();
        let pipeline = &mut target.pipelines[0];
        (pipeline.groups, pipeline.replicas, pipeline.tables) = Default::default();
        let task = pipeline.tasks[0].clone();
        pipeline.tasks = (0..36).map(|n| v1::TaskTarget { name: n.to_string(), ..task.clone() }).collect();
        let edge = |from, to, delays| v1::EdgeTarget { from, to, delays, ..Default::default() };
        let step = |n: u32| {
            let both = [edge(3 * n, 3 * n + 1, false), edge(3 * n, 3 * n + 2, false)];
            let on = [edge(3 * n + 1, 3 * n + 3, false), edge(3 * n + 2, 3 * n + 3, true)];
            both.into_iter().chain(if n < 11 { on.to_vec() } else { vec![] })
        };
        pipeline.edges = (0..12).flat_map(step).collect();
        assert!(lay_out(&target).is_ok());
        target.pipelines[0].serving = Some(v1::Serving { dropping: "pard".into(), ..Default::default() });
        assert!(lay_out(&target).expect_err("too many").to_string().contains("dropping pard: more than 1024 paths"));
    }

    #[test]
    fn latency_is_linear_between_profiled_batches() {
        let layout = lay_out(&chain()).expect("a valid target");
        let group = &layout.pipelines["p"].groups[&1];
        assert_eq!([1, 2, 3, 4, 9].map(|b| group.latency_ns(b)), [10, 13, 17, 20, 20]);
    }
}
