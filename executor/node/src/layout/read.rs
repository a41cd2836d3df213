//! Which layout does a target message describe, and which targets are refused?

use super::error::{LayoutError, PipelineError};
use super::glue::glues;
use super::joins::waits;
use super::model::{
    AgentDevices, Layout, LayoutEdge, LayoutFanout, LayoutGroup, LayoutPipeline, LayoutPoint, LayoutReplica, LayoutTask,
    MappedInput, VariantCombination,
};
use crate::tensor::{Datatype, TensorSignature};
use apportion_domain::{
    Batching, Dropping, INTERFERENCE_MAX, INTERFERENCE_MIN, Provider, Queueing, RoutingPolicy, ServingPolicy,
    VariantExecution, VariantRuntime,
};
use apportion_protocol::v1;
use apportion_serving::ladder::LadderStep;
use apportion_serving::router::Within;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Batches that a query may take at a task where the target does not say (Loki section 4.1).
const QUEUE_FACTOR: f64 = 2.0;

/// Checks a target and lays it out.
///
/// # Errors
/// [`LayoutError`], which says what an agent cannot do.
pub fn lay_out(target: &v1::Target) -> Result<Layout, LayoutError> {
    let fence = target.fence.ok_or(LayoutError::NoFence)?;
    let mut pipelines = BTreeMap::new();
    for pipeline in &target.pipelines {
        let laid = lay_out_pipeline(pipeline);
        let laid = laid.map_err(|cause| LayoutError::Pipeline { pipeline: pipeline.name.clone(), cause })?;
        pipelines.insert(pipeline.name.clone(), Arc::new(laid));
    }
    let agents = target.agents.iter().map(|a| (a.agent, a.data_address.clone())).collect();
    let devices = target.agents.iter().map(|a| (a.agent, devices_of(a))).collect();
    Ok(Layout { fence: Some(fence.into()), pipelines, agents, devices })
}

impl Layout {
    /// Refuses continuous tasks with replicas at this agent, whose variants run on another server.
    ///
    /// # Errors
    /// [`PipelineError::Continuous`], with the pipeline.
    pub fn refuse_continuous(&self, agent: u64) -> Result<(), LayoutError> {
        for (pipeline, of) in &self.pipelines {
            let own = of.replicas.iter().filter(|replica| replica.agent == agent);
            let mut tasks = own.filter_map(|replica| Some(&of.tasks[of.groups.get(&replica.group)?.task]));
            if let Some(task) = tasks.find(|task| task.is_continuous) {
                let cause = PipelineError::Continuous(task.name.clone());
                return Err(LayoutError::Pipeline { pipeline: pipeline.clone(), cause });
            }
        }
        Ok(())
    }
}

fn devices_of(peer: &v1::Peer) -> AgentDevices {
    let measured = peer.measured.iter().copied().collect();
    AgentDevices { hardware: peer.hardware.clone(), count: peer.devices, measured }
}

fn lay_out_pipeline(from: &v1::PipelineTarget) -> Result<LayoutPipeline, PipelineError> {
    let (tasks, root) = tasks(from)?;
    let groups = groups(from, tasks.len())?;
    let mut replicas = Vec::new();
    for r in &from.replicas {
        if !groups.contains_key(&r.group) {
            return Err(PipelineError::ReplicaOfNoGroup(r.replica));
        }
        replicas.push(LayoutReplica { id: r.replica, group: r.group, agent: r.agent, device: r.device });
    }
    let entries = |t: &v1::Table| t.entries.iter().map(|e| (e.group, e.fraction)).collect();
    let tables = from.tables.iter().map(|t| ((t.from, t.to_task as usize), entries(t))).collect();
    let serving = serving(from.serving.as_ref())?;
    let within = match serving.routing {
        RoutingPolicy::Jsq => Within::LeastOutstanding,
        RoutingPolicy::Stride | RoutingPolicy::MostAccurateFirst => Within::Turns,
    };
    let waits = waits(&tasks, root)?;
    let pipeline = LayoutPipeline {
        slo_ns: from.slo_ns,
        hops_ns: hops(from)?,
        serving,
        partial: from.partial,
        queue_factor: if from.queue_factor > 0.0 { from.queue_factor } else { QUEUE_FACTOR },
        within,
        tasks,
        root,
        groups,
        replicas,
        tables,
        backup: from.backup.iter().copied().collect(),
        waits,
        demand_qps: from.demand_qps,
        choices: choices(from)?,
        ladder: ladder(from)?,
        missed_share_max: missed_share_max(from)?,
        loads_on_demand: from.loads_on_demand,
    };
    match pipeline.outline().state_planner() {
        Ok(_) => Ok(pipeline),
        Err(too_many) => Err(PipelineError::Paths(serving.dropping, too_many)),
    }
}

/// The time of the hop into each task, in nanoseconds.
fn hops(from: &v1::PipelineTarget) -> Result<Vec<u64>, PipelineError> {
    let (hops, tasks) = (from.hops_ns.len(), from.tasks.len());
    match hops {
        0 => Ok(vec![from.network_ns; tasks]),
        _ if hops == tasks => Ok(from.hops_ns.clone()),
        _ => Err(PipelineError::Hops { hops, tasks }),
    }
}

/// The tasks with their edges, and the root's position.
fn tasks(from: &v1::PipelineTarget) -> Result<(Vec<LayoutTask>, usize), PipelineError> {
    let mut tasks = Vec::new();
    for task in &from.tasks {
        let inputs = specs(&task.name, &task.inputs)?;
        let outputs = specs(&task.name, &task.outputs)?;
        let (name, one_of, is_continuous) = (task.name.clone(), task.one_of, task.continuous);
        let (children, delays, glue) = Default::default();
        tasks.push(LayoutTask { name, inputs, outputs, children, delays, one_of, is_continuous, glue });
    }
    let (mut makers, mut parents) = (vec![0; tasks.len()], vec![0; tasks.len()]);
    for edge in &from.edges {
        let (parent, to) = (edge.from as usize, edge.to as usize);
        if parent >= tasks.len() || to >= tasks.len() {
            return Err(PipelineError::EdgeOfNoTask);
        }
        parents[to] += 1;
        let mapped = |(input, output): (&String, &String)| MappedInput { input: input.clone(), output: output.clone() };
        let mut map: Vec<_> = edge.map.iter().map(mapped).collect();
        // The message's map has no order, and the same target must mean the same everywhere.
        map.sort_unstable();
        let edge_of = LayoutEdge { to, map, ratio: if edge.ratio > 0.0 { edge.ratio } else { 1.0 } };
        if edge.delays {
            tasks[parent].delays.push(edge_of);
        } else {
            makers[to] += 1;
            tasks[parent].children.push(edge_of);
        }
    }
    tasks.iter_mut().zip(glues(from)?).for_each(|(task, glue)| task.glue = Arc::new(glue));
    if let Some(at) = (0..tasks.len()).find(|&t| parents[t] > 0 && makers[t] != 1) {
        return Err(PipelineError::Makers { task: tasks[at].name.clone(), count: makers[at] });
    }
    let root = from.root as usize;
    if root >= tasks.len() || parents[root] > 0 {
        return Err(PipelineError::Root);
    }
    Ok((tasks, root))
}

fn groups(from: &v1::PipelineTarget, tasks: usize) -> Result<BTreeMap<u64, LayoutGroup>, PipelineError> {
    let mut groups = BTreeMap::new();
    for g in &from.groups {
        let fanout: Vec<_> = g.fanout.iter().map(read_fanout).collect();
        if g.task as usize >= tasks || fanout.iter().any(|f| f.to >= tasks) {
            return Err(PipelineError::GroupOfNoTask(g.group));
        }
        let point = |p: &v1::ServicePoint| LayoutPoint { batch: p.batch, latency_ns: p.latency_ns, p99_ns: p.p99_ns };
        let service: Vec<_> = g.service.iter().map(point).collect();
        if service.windows(2).any(|pair| pair[0].batch >= pair[1].batch) {
            return Err(PipelineError::ServicePoints(g.group));
        }
        let runtime = match g.runtime.as_str() {
            "" => Some(VariantRuntime::default()),
            name => VariantRuntime::from_name(name),
        };
        let unknown = || PipelineError::Runtime { group: g.group, asked: g.runtime.clone() };
        let group = LayoutGroup {
            runtime: runtime.ok_or_else(unknown)?,
            execution: execution(g)?,
            task: g.task as usize,
            variant: g.variant.clone(),
            hardware: g.hardware.clone(),
            batch: g.batch.max(1) as usize,
            accuracy: g.accuracy,
            digest: g.file_digest.clone(),
            service,
            share: if g.share > 0.0 { g.share } else { 1.0 },
            // Without a measurement, and with one that is no such factor, the profile says one time.
            interference: if is_interference(g.interference) { g.interference } else { INTERFERENCE_MIN },
            memory_mib: (g.memory_mib > 0.0 && g.device_memory_mib > 0.0).then_some((g.memory_mib, g.device_memory_mib)),
            price_per_hour: g.price_per_hour,
            fanout,
            is_offered: g.offered,
            load_ns: g.load_ns,
            slot_p99_ns: g.slot_p99_ns,
        };
        groups.insert(g.group, group);
    }
    Ok(groups)
}

/// Whether this is a factor by which neighbours lengthen batches.
fn is_interference(factor: f64) -> bool {
    (INTERFERENCE_MIN..=INTERFERENCE_MAX).contains(&factor)
}

/// What the variant of a group asks of its execution.
fn execution(g: &v1::GroupTarget) -> Result<VariantExecution, PipelineError> {
    let unknown = || PipelineError::Provider { group: g.group, asked: g.provider.clone() };
    let provider = match g.provider.as_str() {
        "" => None,
        name => Some(Provider::from_name(name).ok_or_else(unknown)?),
    };
    Ok(VariantExecution { threads: (g.threads > 0).then_some(g.threads), provider })
}

/// A choice names a group of each task, in their order.
fn choices(from: &v1::PipelineTarget) -> Result<Vec<VariantCombination>, PipelineError> {
    let task_of = |group: &u64| from.groups.iter().find(|g| g.group == *group).map(|g| g.task);
    let is_whole = |c: &v1::Choice| c.groups.iter().map(task_of).eq((0..from.tasks.len() as u32).map(Some));
    match from.choices.iter().find(|c| !is_whole(c)) {
        Some(wrong) => Err(PipelineError::Choice(wrong.groups.clone())),
        None => {
            Ok(from.choices.iter().map(|c| VariantCombination { groups: c.groups.clone(), accuracy: c.accuracy }).collect())
        }
    }
}

/// The ladder, its counts in the order of the groups' numbers.
fn ladder(from: &v1::PipelineTarget) -> Result<Vec<LadderStep>, PipelineError> {
    if from.ladder.windows(2).any(|pair| pair[0].rate_qps >= pair[1].rate_qps) {
        return Err(PipelineError::LadderRates);
    }
    let step = |step: &v1::LadderStep| {
        if step.replicas.len() != from.groups.len() {
            let (counts, groups) = (step.replicas.len(), from.groups.len());
            return Err(PipelineError::LadderCounts { counts, groups });
        }
        let by_number: BTreeMap<u64, u32> =
            from.groups.iter().map(|g| g.group).zip(step.replicas.iter().copied()).collect();
        Ok(LadderStep { rate_qps: step.rate_qps, replicas: by_number.into_values().collect() })
    };
    from.ladder.iter().map(step).collect()
}

/// The share of the requests that may miss, if the target names one.
fn missed_share_max(from: &v1::PipelineTarget) -> Result<Option<f64>, PipelineError> {
    let share = from.missed_share_max;
    match share > 0.0 && share < 1.0 {
        true => Ok(Some(share)),
        false if share == 0.0 => Ok(None),
        false => Err(PipelineError::MissedShare(share)),
    }
}

fn read_fanout(fanout: &v1::Fanout) -> LayoutFanout {
    let counts = fanout.counts.iter().map(|c| (c.children, c.probability)).collect();
    LayoutFanout { to: fanout.to_task as usize, counts }
}

/// Agents do what the plan says, so they refuse what they do not know. Empty names are the defaults.
fn serving(from: Option<&v1::Serving>) -> Result<ServingPolicy, PipelineError> {
    fn named<T: Default>(
        key: &'static str,
        asked: &str,
        names: &'static [&'static str],
        from: fn(&str) -> Option<T>,
    ) -> Result<T, PipelineError> {
        match from(asked) {
            Some(policy) => Ok(policy),
            None if asked.is_empty() => Ok(T::default()),
            None => Err(PipelineError::Policy { key, asked: asked.to_owned(), expected: names }),
        }
    }
    let Some(asked) = from else { return Ok(ServingPolicy::default()) };
    Ok(ServingPolicy {
        queueing: named("queueing", &asked.queueing, Queueing::NAMES, Queueing::from_name)?,
        batching: named("batching", &asked.batching, Batching::NAMES, Batching::from_name)?,
        routing: named("routing", &asked.routing, RoutingPolicy::NAMES, RoutingPolicy::from_name)?,
        dropping: named("dropping", &asked.dropping, Dropping::NAMES, Dropping::from_name)?,
    })
}

fn specs(task: &str, from: &[v1::TensorSpec]) -> Result<Vec<TensorSignature>, PipelineError> {
    let spec = |s: &v1::TensorSpec| {
        let datatype = Datatype::from_name(&s.datatype).ok_or_else(|| PipelineError::Datatype {
            task: task.to_owned(),
            tensor: s.name.clone(),
            datatype: s.datatype.clone(),
        })?;
        Ok(TensorSignature { name: s.name.clone(), datatype, shape: s.shape.clone() })
    };
    from.iter().map(spec).collect()
}
