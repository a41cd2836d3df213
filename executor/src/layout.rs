//! The fleet's target in the form in which an agent uses it, and the difference to what is there.

use crate::tensor::{Datatype, TensorSpec};
use apportion_domain::{Batching, Dropping, Fence, Queueing, RoutingPolicy};
use apportion_protocol::v1;
use apportion_serving::router::Within;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A checked target.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Which target.
    pub fence: Option<Fence>,
    /// By name.
    pub pipelines: BTreeMap<String, Pipeline>,
    /// Data addresses of all agents, by number.
    pub agents: BTreeMap<u64, String>,
}

/// One pipeline of a target.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Deadline of a request, in nanoseconds from its arrival.
    pub slo_ns: u64,
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
    pub tables: HashMap<(Option<u64>, usize), Entries>,
}

/// Groups of a table with their fractions.
pub type Entries = Vec<(u64, f64)>;

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// What a query brings.
    pub inputs: Vec<TensorSpec>,
    /// What it makes.
    pub outputs: Vec<TensorSpec>,
    /// Where its results go.
    pub children: Vec<Edge>,
}

/// From a task to one of its children.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The child's position.
    pub to: usize,
    /// (child's input, parent's output).
    pub map: Vec<(String, String)>,
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

/// A place of a group.
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

/// Checks a target and lays it out.
///
/// # Errors
/// What this agent cannot obey, in words.
pub fn lay_out(target: &v1::Target) -> Result<Layout, String> {
    let fence = target.fence.ok_or("the target has no fence")?;
    let mut pipelines = BTreeMap::new();
    for pipeline in &target.pipelines {
        let laid = lay_out_pipeline(pipeline).map_err(|e| format!("pipeline {}: {e}", pipeline.name))?;
        pipelines.insert(pipeline.name.clone(), laid);
    }
    let agents = target.agents.iter().map(|a| (a.agent, a.data_address.clone())).collect();
    Ok(Layout { fence: Some(fence.into()), pipelines, agents })
}

fn lay_out_pipeline(from: &v1::PipelineTarget) -> Result<Pipeline, String> {
    let mut tasks = Vec::new();
    for task in &from.tasks {
        let inputs = specs(&task.inputs).map_err(|e| format!("task {}: {e}", task.name))?;
        let outputs = specs(&task.outputs).map_err(|e| format!("task {}: {e}", task.name))?;
        tasks.push(Task { name: task.name.clone(), inputs, outputs, children: Vec::new() });
    }
    let mut parents = vec![0; tasks.len()];
    for edge in &from.edges {
        let (parent, to) = (edge.from as usize, edge.to as usize);
        if parent >= tasks.len() || to >= tasks.len() {
            return Err("an edge of no task".into());
        }
        parents[to] += 1;
        if parents[to] > 1 {
            return Err(format!("task {} has several parents: this agent cannot join", tasks[to].name));
        }
        let map = edge.map.iter().map(|(input, output)| (input.clone(), output.clone())).collect();
        tasks[parent].children.push(Edge { to, map });
    }
    let root = from.root as usize;
    if root >= tasks.len() || parents[root] > 0 {
        return Err("its root is no root".into());
    }
    let mut groups = BTreeMap::new();
    for g in &from.groups {
        if g.task as usize >= tasks.len() {
            return Err(format!("group {} is of no task", g.group));
        }
        let service: Vec<_> = g.service.iter().map(|p| (p.batch, p.latency_ns)).collect();
        let (variant, digest) = (g.variant.clone(), g.file_digest.clone());
        let (task, batch) = (g.task as usize, g.batch.max(1) as usize);
        if service.windows(2).any(|pair: &[(u32, u64)]| pair[0].0 >= pair[1].0) {
            return Err(format!("group {}: its service points are not by increasing batch", g.group));
        }
        let hardware = g.hardware.clone();
        groups.insert(g.group, Group { task, variant, hardware, batch, accuracy: g.accuracy, digest, service });
    }
    let mut replicas = Vec::new();
    for r in &from.replicas {
        if !groups.contains_key(&r.group) {
            return Err(format!("replica {} is of no group", r.replica));
        }
        replicas.push(Replica { id: r.replica, group: r.group, agent: r.agent, device: r.device });
    }
    let entries = |t: &v1::Table| t.entries.iter().map(|e| (e.group, e.fraction)).collect();
    let tables = from.tables.iter().map(|t| ((t.from, t.to_task as usize), entries(t))).collect();
    let within = within(from.serving.as_ref())?;
    Ok(Pipeline { slo_ns: from.slo_ns, within, tasks, root, groups, replicas, tables })
}

/// Agents do what the plan says, so they refuse what they cannot do. Empty names are the defaults.
fn within(serving: Option<&v1::Serving>) -> Result<Within, String> {
    let Some(serving) = serving else { return Ok(Within::Turns) };
    let only = [
        ("queueing", &serving.queueing, Queueing::PerReplica.name()),
        ("batching", &serving.batching, Batching::AtStart.name()),
        ("dropping", &serving.dropping, Dropping::Naive.name()),
    ];
    if let Some((key, asked, done)) = only.into_iter().find(|(_, asked, done)| !asked.is_empty() && asked != done) {
        return Err(format!("{key} {asked}: this agent does only {done}"));
    }
    match RoutingPolicy::from_name(&serving.routing) {
        Some(RoutingPolicy::Jsq) => Ok(Within::LeastOutstanding),
        Some(RoutingPolicy::Stride | RoutingPolicy::MostAccurateFirst) => Ok(Within::Turns),
        None if serving.routing.is_empty() => Ok(Within::Turns),
        None => Err(format!("routing {}: expected one of {}", serving.routing, RoutingPolicy::NAMES.join(", "))),
    }
}

fn specs(from: &[v1::TensorSpec]) -> Result<Vec<TensorSpec>, String> {
    let spec = |s: &v1::TensorSpec| {
        let datatype = Datatype::from_name(&s.datatype).ok_or_else(|| format!("{}: datatype {}", s.name, s.datatype))?;
        Ok(TensorSpec { name: s.name.clone(), datatype, shape: s.shape.clone() })
    };
    from.iter().map(spec).collect()
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

    /// A chain `a -> b` with one replica of each: `a` (replica 1, group 1) on agent 1 and `b` (2, 2) on agent 2.
    pub(crate) fn chain() -> v1::Target {
        let spec = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
        let task = |name: &str| v1::TaskTarget { name: name.into(), inputs: vec![spec("x")], outputs: vec![spec("y")] };
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
            edges: vec![v1::EdgeTarget { from: 0, to: 1, map: [("x".to_string(), "y".to_string())].into() }],
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
    fn a_join_is_refused() {
        let mut target = chain();
        let edge = target.pipelines[0].edges[0].clone();
        target.pipelines[0].edges.push(edge);
        assert!(lay_out(&target).expect_err("a join").contains("join"));
    }

    #[test]
    fn what_an_agent_cannot_do_is_refused_by_name() {
        let mut target = chain();
        let asked = |dropping: &str, routing: &str| v1::Serving {
            dropping: dropping.into(),
            routing: routing.into(),
            ..Default::default()
        };
        target.pipelines[0].serving = Some(asked("pard", ""));
        assert!(lay_out(&target).expect_err("not yet").contains("dropping pard"));
        target.pipelines[0].serving = Some(asked("naive", "dice"));
        assert!(lay_out(&target).expect_err("no such policy").contains("stride"));
        target.pipelines[0].serving = Some(asked("naive", "jsq"));
        assert_eq!(lay_out(&target).expect("can be done").pipelines["p"].within, Within::LeastOutstanding);
    }

    #[test]
    fn latency_is_linear_between_profiled_batches() {
        let layout = lay_out(&chain()).expect("a valid target");
        let group = &layout.pipelines["p"].groups[&1];
        assert_eq!([1, 2, 3, 4, 9].map(|b| group.latency_ns(b)), [10, 13, 17, 20, 20]);
    }
}
