//! Several agents' nodes in one thread: an agenda instead of clocks, connections and devices.

use super::*;
use crate::layout::lay_out;
use crate::replica_event::BatchFault;
use crate::tensor::Datatype;
use crate::tensor::concatenate;
use crate::trace::TraceContext;
use apportion_protocol::v1;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

pub const MS: u64 = 1_000_000;
/// How long a message takes.
const HOP_NS: u64 = 10_000;
/// How long a step of the queries in slots takes.
const STEP_NS: u64 = MS;
const TICK_NS: u64 = 20 * MS;
const ANNOUNCE_NS: u64 = 1_000 * MS;

/// What a batch of a task makes of its inputs.
pub type Runs = fn(&str, &[Tensor]) -> Vec<Tensor>;

/// A batch that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    pub begun_ns: u64,
    pub replica: u64,
    pub size: usize,
}

pub struct World {
    pub now_ns: u64,
    pub nodes: BTreeMap<u64, Node>,
    pub load_ns: u64,
    /// How long a message takes from one agent to another.
    pub hop_ns: fn(u64, u64) -> u64,
    agenda: BTreeMap<(u64, u64), (u64, NodeEvent)>,
    sequence: u64,
    runs: Runs,
    /// Every batch, in the order in which they started.
    pub batches: Vec<Started>,
    /// Replicas that are loaded, by agent.
    pub loaded: BTreeMap<u64, BTreeSet<u64>>,
    /// How much longer than profiled a batch takes where so many replicas are loaded.
    pub slowness: fn(usize) -> f64,
    /// Agents at which nothing more can be loaded.
    pub broken: fn(u64) -> bool,
    /// Where that was tried.
    pub failures: Vec<u64>,
    /// Agents that hang, and what has come to them meanwhile.
    hung: BTreeMap<u64, Vec<NodeEvent>>,
    /// Whether messages between agents are lost.
    pub is_cut: bool,
    /// Why a batch fails, if it does.
    pub fails: fn(&[Tensor]) -> Option<BatchFault>,
    /// Clients that wait for an answer, by agent and number.
    callers: BTreeMap<(u64, u64), Sender<RequestAnswer>>,
    /// Messages that an agent has counted as refused.
    pub refused: Vec<(u64, RefusedMessage)>,
    /// The trace of the requests to come.
    pub trace: Option<TraceContext>,
    /// Spans, and of which agent they are.
    pub spans: Vec<(u64, TraceSpan)>,
    /// Variants that agents want loaded, by agent.
    pub wants: Vec<(u64, v1::VariantWant)>,
}

/// Numbers as a tensor of one column.
pub fn numbers(name: &str, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { name: name.into(), datatype: Datatype::Fp32, shape: vec![values.len(), 1], data: data.into() }
}

/// The numbers of a tensor.
pub fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Each row's output `y` is the sum of its inputs.
pub fn sums(_: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let columns: Vec<Vec<f32>> = inputs.iter().map(values).collect();
    let rows: Vec<f32> = (0..columns[0].len()).map(|row| columns.iter().map(|c| c[row]).sum()).collect();
    vec![numbers("y", &rows)]
}

impl World {
    pub fn new(agents: u64, runs: Runs) -> Self {
        let nodes = (1..=agents).map(|n| (n, Node::new(n, 1_000 * n))).collect();
        let mut this = Self {
            now_ns: 0,
            nodes,
            load_ns: MS,
            hop_ns: |_, _| HOP_NS,
            agenda: BTreeMap::new(),
            sequence: 0,
            runs,
            batches: Vec::new(),
            loaded: BTreeMap::new(),
            slowness: |_| 1.0,
            broken: |_| false,
            failures: Vec::new(),
            hung: BTreeMap::new(),
            is_cut: false,
            fails: |_| None,
            callers: BTreeMap::new(),
            refused: Vec::new(),
            trace: None,
            spans: Vec::new(),
            wants: Vec::new(),
        };
        for agent in 1..=agents {
            this.put(TICK_NS, agent, NodeEvent::Tick);
            this.put(ANNOUNCE_NS, agent, NodeEvent::Announce);
            for peer in (1..=agents).filter(|peer| *peer != agent) {
                this.put(0, agent, NodeEvent::PeerUp(peer));
            }
        }
        this
    }

    fn put(&mut self, after_ns: u64, agent: u64, event: NodeEvent) {
        self.sequence += 1;
        self.agenda.insert((self.now_ns + after_ns, self.sequence), (agent, event));
    }

    /// Something happens to an agent.
    pub fn send_event(&mut self, agent: u64, event: NodeEvent) {
        self.put(0, agent, event);
    }

    /// Hands a target to all agents, and lets them act on it.
    pub fn apply_target(&mut self, target: &v1::Target) {
        let layout = Arc::new(lay_out(target).expect("a valid target"));
        let agents: Vec<u64> = self.nodes.keys().copied().collect();
        agents.into_iter().for_each(|agent| self.put(0, agent, NodeEvent::Target(layout.clone())));
    }

    /// A request at an agent's gateway, with these rows of `x`.
    pub fn ask(&mut self, agent: u64, pipeline: &str, rows: &[f32]) -> Receiver<RequestAnswer> {
        self.ask_on(agent, pipeline, rows, RequestTerms::default())
    }

    /// The same on these terms.
    pub fn ask_on(&mut self, agent: u64, pipeline: &str, rows: &[f32], terms: RequestTerms) -> Receiver<RequestAnswer> {
        self.ask_for(agent, pipeline, numbers("x", rows), terms)
    }

    /// The same with this input.
    pub fn ask_for(&mut self, agent: u64, pipeline: &str, input: Tensor, terms: RequestTerms) -> Receiver<RequestAnswer> {
        let (reply, answer) = channel();
        let caller = self.sequence;
        self.callers.insert((agent, caller), reply);
        let (inputs, terms) = (vec![input], RequestTerms { trace: self.trace, ..terms });
        self.put(0, agent, NodeEvent::Arrive { pipeline: pipeline.into(), inputs, terms, caller });
        answer
    }

    /// An agent is gone, and the others notice.
    pub fn lose(&mut self, agent: u64) {
        self.nodes.remove(&agent);
        let others: Vec<u64> = self.nodes.keys().copied().collect();
        others.into_iter().for_each(|other| self.put(0, other, NodeEvent::PeerDown(agent)));
    }

    /// An agent stops where it is; its connections stay.
    pub fn hang(&mut self, agent: u64) {
        self.hung.entry(agent).or_default();
    }

    /// It goes on, and finds all that has come meanwhile.
    pub fn resume(&mut self, agent: u64) {
        for event in self.hung.remove(&agent).unwrap_or_default() {
            self.put(0, agent, event);
        }
    }

    /// Lets so much time pass.
    pub fn pass(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        loop {
            let event = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let running = self.nodes.iter().filter(|(agent, _)| !self.hung.contains_key(agent));
            let wake = running.filter_map(|(_, node)| node.wake_ns()).min();
            let Some(next) = event.into_iter().chain(wake).min().filter(|at| *at <= end_ns) else { break };
            self.now_ns = self.now_ns.max(next);
            self.deliver_now();
        }
        self.now_ns = end_ns;
    }

    /// All that happens now, and then what follows from it.
    fn deliver_now(&mut self) {
        let mut touched = BTreeSet::new();
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= self.now_ns) {
            let (agent, event) = entry.remove();
            match event {
                NodeEvent::Tick => self.put(TICK_NS, agent, NodeEvent::Tick),
                NodeEvent::Announce => self.put(ANNOUNCE_NS, agent, NodeEvent::Announce),
                _ => {}
            }
            if let Some(missed) = self.hung.get_mut(&agent) {
                let is_clock = matches!(event, NodeEvent::Tick | NodeEvent::Announce);
                missed.extend(Some(event).filter(|_| !is_clock));
                continue;
            }
            if let Some(node) = self.nodes.get_mut(&agent) {
                node.handle(self.now_ns, event);
                touched.insert(agent);
            }
        }
        for (agent, node) in self.nodes.iter_mut().filter(|(agent, _)| !self.hung.contains_key(agent)) {
            if node.wake_ns().is_some_and(|at| at <= self.now_ns) {
                node.handle(self.now_ns, NodeEvent::Wake);
                touched.insert(*agent);
            }
        }
        for agent in touched {
            let actions = self.nodes.get_mut(&agent).map(Node::flush).unwrap_or_default();
            actions.into_iter().for_each(|action| self.act(agent, action));
        }
    }

    fn act(&mut self, agent: u64, action: Action) {
        match action {
            Action::Send { .. } if self.is_cut => {}
            Action::Send { agent: to, message } => self.put((self.hop_ns)(agent, to), to, NodeEvent::Message(message)),
            Action::Load { replica, .. } if (self.broken)(agent) => {
                self.failures.push(agent);
                let event = ReplicaEvent::Failed("it does not load".into());
                self.put(self.load_ns, agent, NodeEvent::Replica { replica, event });
            }
            Action::Load { replica, .. } => {
                self.loaded.entry(agent).or_default().insert(replica);
                self.put(self.load_ns, agent, NodeEvent::Replica { replica, event: ReplicaEvent::Ready });
            }
            Action::Run { replica, server, inputs, expected, .. } => {
                let rows = inputs[0].rows();
                self.batches.push(Started { begun_ns: self.now_ns, replica, size: rows });
                let of = self.nodes[&agent].replicas().find(|r| r.id == replica).expect("it runs a batch");
                let result = (self.fails)(&inputs).map_or_else(|| Ok((self.runs)(&of.task().name, &inputs)), Err);
                assert!(inputs.iter().all(|t| concatenate(&[t]).is_some()));
                let took = expected.mul_f64((self.slowness)(self.loaded[&agent].len()));
                let event = ReplicaEvent::BatchEnded { server, result, took };
                self.put(took.as_nanos() as u64, agent, NodeEvent::Replica { replica, event });
            }
            Action::LeaveSlot { replica, server } => self.leave_slot(agent, replica, server),
            Action::Unload(replica) => {
                self.loaded.entry(agent).or_default().remove(&replica);
            }
            Action::Renumber(pairs) => {
                let renamed = |id: u64| pairs.iter().find(|pair| pair.from == id).map_or(id, |pair| pair.to);
                let loaded = self.loaded.entry(agent).or_default();
                *loaded = loaded.iter().map(|id| renamed(*id)).collect();
                for (_, event) in self.agenda.values_mut().filter(|(of, _)| *of == agent) {
                    if let NodeEvent::Replica { replica, .. } = event {
                        *replica = renamed(*replica);
                    }
                }
            }
            Action::Answer { caller, answer } => {
                let reply = self.callers.remove(&(agent, caller)).expect("every request gets exactly one answer");
                let _client_gone = reply.send(answer);
            }
            Action::CountRefused(message) => self.refused.push((agent, message)),
            Action::Span(span) => self.spans.push((agent, *span)),
            Action::Want(want) => self.wants.push((agent, want)),
            Action::Acknowledge | Action::Prefetch(_) => {}
        }
    }

    /// The query of a slot leaves after the step that it is in, and does not come to its end.
    fn leave_slot(&mut self, agent: u64, of: u64, slot: u32) {
        let is_end = |event: &ReplicaEvent| matches!(event, ReplicaEvent::BatchEnded { server, .. } if *server == slot);
        let is_its = |entry: &(u64, NodeEvent)| match entry {
            (at, NodeEvent::Replica { replica, event }) => (*at, *replica) == (agent, of) && is_end(event),
            _ => false,
        };
        let found = self.agenda.iter().find(|(_, entry)| is_its(entry)).map(|(key, _)| *key);
        let Some(key) = found else { return };
        let Some((_, NodeEvent::Replica { event: ReplicaEvent::BatchEnded { took, .. }, .. })) = self.agenda.remove(&key)
        else {
            return;
        };
        let begun_ns = key.0 - took.as_nanos() as u64;
        let took = std::time::Duration::from_nanos(self.now_ns + STEP_NS - begun_ns);
        self.put(STEP_NS, agent, NodeEvent::Replica { replica: of, event: ReplicaEvent::Left { server: slot, took } });
    }

    /// The client of an agent that has waited longest goes away.
    pub fn disconnect_client(&mut self, agent: u64) {
        let (_, caller) = *self.callers.keys().find(|(at, _)| *at == agent).expect("a client that waits");
        self.put(0, agent, NodeEvent::ClientGone(caller));
    }

    /// Everything that any agent still has to do.
    pub fn unfinished(&self) -> Vec<usize> {
        self.nodes.values().map(Node::unfinished).collect()
    }
}

/// A group: its number, its task, its batch, the time of a batch in milliseconds; and replicas as (number, agent).
pub type Crew<'a> = (u64, u32, u32, u64, &'a [(u64, u64)]);

/// A pipeline `p` whose tasks are named by these letters, with one input for each edge into them, named after the parent
/// (the root's: `x`), and one output `y`. Edges are (makes queries, from, to).
pub fn target(generation: u64, tasks: &str, edges: &[(bool, u32, u32)], crews: &[Crew<'_>]) -> v1::Target {
    let spec = |name: String| v1::TensorSpec { name, datatype: "FP32".into(), shape: vec![-1, 1] };
    let names: Vec<String> = tasks.chars().map(String::from).collect();
    let task = |(at, name): (u32, &String)| {
        let parents = edges.iter().filter(|(_, _, to)| *to == at).map(|(_, from, _)| spec(names[*from as usize].clone()));
        let inputs: Vec<_> = if at == 0 { vec![spec("x".into())] } else { parents.collect() };
        v1::TaskTarget { name: name.clone(), inputs, outputs: vec![spec("y".into())], ..Default::default() }
    };
    let edge = |(makes, from, to): &(bool, u32, u32)| v1::EdgeTarget {
        from: *from,
        to: *to,
        map: [(names[*from as usize].clone(), "y".to_string())].into(),
        delays: !makes,
        ..Default::default()
    };
    let group = |(group, task, batch, ms, _): &Crew<'_>| v1::GroupTarget {
        group: *group,
        task: *task,
        batch: *batch,
        accuracy: 0.5,
        service: vec![v1::ServicePoint { batch: 1, latency_ns: ms * MS }],
        ..Default::default()
    };
    let replicas = crews.iter().flat_map(|(group, .., replicas)| {
        replicas.iter().map(|(replica, agent)| v1::ReplicaTarget {
            replica: *replica,
            group: *group,
            agent: *agent,
            device: 0,
        })
    });
    let of_task = |task: u32| crews.iter().filter(move |c| c.1 == task);
    let entries = |task: u32| of_task(task).map(|c| v1::TableEntry { group: c.0, fraction: 1.0 }).collect();
    let senders = edges.iter().filter(|e| e.0).flat_map(|(_, from, to)| of_task(*from).map(|c| (Some(c.0), *to)));
    let tables = std::iter::once((None, 0)).chain(senders);
    let pipeline = v1::PipelineTarget {
        name: "p".into(),
        slo_ns: 100 * MS,
        tasks: (0..).zip(&names).map(task).collect(),
        edges: edges.iter().map(edge).collect(),
        groups: crews.iter().map(group).collect(),
        replicas: replicas.collect(),
        tables: tables.map(|(from, to_task)| v1::Table { from, to_task, entries: entries(to_task) }).collect(),
        ..Default::default()
    };
    let agents: BTreeSet<u64> = crews.iter().flat_map(|c| c.4.iter().map(|(_, agent)| *agent)).collect();
    let peer = |agent: &u64| v1::Peer { agent: *agent, ..Default::default() };
    let fence = Some(v1::Fence { incarnation: 1, generation });
    v1::Target { fence, agents: agents.iter().map(peer).collect(), pipelines: vec![pipeline], ..Default::default() }
}

/// The pipeline with these policies.
pub fn served(mut target: v1::Target, batching: &str, dropping: &str) -> v1::Target {
    target.pipelines[0].serving =
        Some(v1::Serving { batching: batching.into(), dropping: dropping.into(), ..Default::default() });
    target
}

/// Why a request has no numbers.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Missed {
    /// It has another answer, or a late one.
    #[error("{0:?}")]
    Answered(RequestAnswer),
    /// It has no answer yet.
    #[error("{0}")]
    Unanswered(TryRecvError),
}

/// The numbers of a request's answer in their order, if it came in time.
pub fn outcome(answer: &Receiver<RequestAnswer>) -> Result<Vec<f32>, Missed> {
    match answer.try_recv() {
        Ok(RequestAnswer::Done { pieces, late: false, .. }) => {
            Ok(pieces.iter().flat_map(|p| values(&p.outputs[0])).collect())
        }
        Ok(other) => Err(Missed::Answered(other)),
        Err(error) => Err(Missed::Unanswered(error)),
    }
}
