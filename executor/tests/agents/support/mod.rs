//! A fleet in one process: a control plane that says what a test wants, and agents with real sockets and a toy backend.

pub mod agents;
pub mod control;
pub mod ingress;
pub mod rows;
pub mod toy;

use apportion_executor::greeting::LINK_KEY_BYTES;
use apportion_protocol::v1;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up; nothing is asserted about how long it does take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done` gives a value.
///
/// # Panics
/// If it never does.
pub async fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The key of a pair of agents, in either order.
pub fn link_key(one: u64, other: u64) -> Vec<u8> {
    let mut key = [one.min(other).to_be_bytes(), one.max(other).to_be_bytes()].concat();
    key.resize(LINK_KEY_BYTES, 7);
    key
}

/// The target as agent `own` gets it: with the keys of its links, unless the test has set others.
pub fn keyed(mut target: v1::Target, own: u64) -> v1::Target {
    for peer in target.agents.iter_mut().filter(|peer| peer.agent != own && peer.link_keys.is_empty()) {
        peer.link_keys = vec![link_key(own, peer.agent)];
    }
    target
}

/// One group of [`target`]: its number, position of its task, its variant and the agents that have a replica.
pub struct Group<'a> {
    pub id: u64,
    pub task: u32,
    pub variant: &'a str,
    pub agents: &'a [u64],
}

/// The tasks `split` and `sum` of the pipeline `toy`.
fn tasks() -> Vec<v1::TaskTarget> {
    let spec = |name: &str, datatype: &str, shape: &[i64]| v1::TensorSpec {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
    };
    let pair = |name: &str| spec(name, "FP32", &[-1, 2]);
    let split = v1::TaskTarget {
        name: "split".into(),
        inputs: vec![pair("x")],
        outputs: vec![pair("y"), spec("parent", "INT64", &[-1])],
        ..Default::default()
    };
    let sum = v1::TaskTarget {
        name: "sum".into(),
        inputs: vec![pair("x")],
        outputs: vec![spec("s", "FP32", &[-1])],
        ..Default::default()
    };
    vec![split, sum]
}

/// A target of one pipeline `toy`: task `split` makes as many queries of task `sum` as the first number of its row says.
/// Replica numbers are `100 * group + agent`.
pub fn target(generation: u64, agents: &[(u64, String)], groups: &[Group<'_>]) -> v1::Target {
    let group = |g: &Group<'_>| v1::GroupTarget {
        group: g.id,
        task: g.task,
        variant: g.variant.into(),
        batch: 4,
        accuracy: 0.5,
        file_digest: toy::digest(g.variant),
        service: vec![v1::ServicePoint { batch: 4, latency_ns: 1_000_000, ..Default::default() }],
        ..Default::default()
    };
    let replicas = groups.iter().flat_map(|g| {
        g.agents.iter().map(|agent| v1::ReplicaTarget {
            replica: 100 * g.id + agent,
            group: g.id,
            agent: *agent,
            device: 0,
        })
    });
    let entries = |task: u32| {
        let of_task: Vec<_> = groups.iter().filter(|g| g.task == task).collect();
        let fraction = 1.0 / of_task.len() as f64;
        of_task.iter().map(|g| v1::TableEntry { group: g.id, fraction }).collect()
    };
    let senders = groups.iter().filter(|g| g.task == 0).map(|g| (Some(g.id), 1));
    let tables = std::iter::once((None, 0)).chain(senders);
    let pipeline = v1::PipelineTarget {
        name: "toy".into(),
        slo_ns: 5_000_000_000,
        tasks: tasks(),
        edges: vec![v1::EdgeTarget {
            from: 0,
            to: 1,
            map: [("x".to_string(), "y".to_string())].into(),
            ..Default::default()
        }],
        groups: groups.iter().map(group).collect(),
        replicas: replicas.collect(),
        tables: tables.map(|(from, to_task)| v1::Table { from, to_task, entries: entries(to_task) }).collect(),
        ..Default::default()
    };
    let peer = |(agent, data_address): &(u64, String)| v1::Peer {
        agent: *agent,
        data_address: data_address.clone(),
        ..Default::default()
    };
    let fence = Some(v1::Fence { incarnation: 1, generation });
    v1::Target { fence, agents: agents.iter().map(peer).collect(), pipelines: vec![pipeline], ..Default::default() }
}
