//! Agents with emulated devices do what the plan's policies say: under overload, at joins, over a change of plan on full
//! devices, and when the load steps up while the control plane is away. Whatever they did, a fresh node does again from
//! their records.

use crate::support::agents::{Agent, output};
use crate::support::control::Control;
use crate::support::until;
use apportion_executor::agent::AgentCommand;
use apportion_executor::record::replay;
use apportion_protocol::v1;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const MS: u64 = 1_000_000;

/// A group: its number, its task, its batch, milliseconds of a batch of one (and twice that of a full one), its replicas'
/// agents.
type Crew<'a> = (u64, u32, u32, u64, &'a [u64]);

/// A pipeline `p`: tasks by letters, each with an input for each edge into it, named after the parent, and an output `y`.
/// Edges are (makes queries, from, to).
fn target(generation: u64, agents: &[&Agent], tasks: &str, edges: &[(bool, u32, u32)], crews: &[Crew<'_>]) -> v1::Target {
    let spec = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 1] };
    let names: Vec<String> = tasks.chars().map(String::from).collect();
    let task = |(at, name): (u32, &String)| {
        let parents = edges.iter().filter(|(_, _, to)| *to == at).map(|(_, from, _)| spec(&names[*from as usize]));
        let inputs: Vec<_> = if at == 0 { vec![spec("x")] } else { parents.collect() };
        v1::TaskTarget { name: name.clone(), inputs, outputs: vec![spec("y")], ..Default::default() }
    };
    let edge = |(makes, from, to): &(bool, u32, u32)| v1::EdgeTarget {
        from: *from,
        to: *to,
        map: [(names[*from as usize].clone(), "y".to_string())].into(),
        delays: !makes,
        ..Default::default()
    };
    let point = |batch, ms: u64| v1::ServicePoint { batch, latency_ns: ms * MS, ..Default::default() };
    let group = |(group, task, batch, ms, _): &Crew<'_>| v1::GroupTarget {
        group: *group,
        task: *task,
        batch: *batch,
        hardware: "cpu".into(),
        accuracy: 0.5,
        service: if *batch > 1 { vec![point(1, *ms), point(*batch, 2 * ms)] } else { vec![point(1, *ms)] },
        ..Default::default()
    };
    let replicas = crews.iter().flat_map(|(group, .., on)| {
        let replica = move |agent: &u64| 100 * group + agent;
        on.iter().map(move |agent| v1::ReplicaTarget { replica: replica(agent), group: *group, agent: *agent, device: 0 })
    });
    let of_task = |task: u32| crews.iter().filter(move |c| c.1 == task);
    let entries = |task: u32| of_task(task).map(|c| v1::TableEntry { group: c.0, fraction: 1.0 }).collect();
    let senders = edges.iter().filter(|e| e.0).flat_map(|(_, from, to)| of_task(*from).map(|c| (Some(c.0), *to)));
    let tables = std::iter::once((None, 0)).chain(senders);
    let pipeline = v1::PipelineTarget {
        name: "p".into(),
        slo_ns: 200 * MS,
        tasks: (0..).zip(&names).map(task).collect(),
        edges: edges.iter().map(edge).collect(),
        groups: crews.iter().map(group).collect(),
        replicas: replicas.collect(),
        tables: tables.map(|(from, to_task)| v1::Table { from, to_task, entries: entries(to_task) }).collect(),
        ..Default::default()
    };
    let peer = |(agent, a): (u64, &&Agent)| v1::Peer {
        agent,
        data_address: a.data.clone(),
        hardware: "cpu".into(),
        devices: 2,
        ..Default::default()
    };
    let agents = (1..).zip(agents).map(peer).collect();
    v1::Target {
        fence: Some(v1::Fence { incarnation: 1, generation }),
        agents,
        pipelines: vec![pipeline],
        ..Default::default()
    }
}

/// A control plane on a runtime of its own, which can go away, and agents `a1 ..` with two devices each.
fn fleet(count: u64, folder: &Path) -> (Runtime, Control, Vec<Arc<Agent>>) {
    let plane = Runtime::new().expect("a runtime");
    let control = plane.block_on(Control::start(&[]));
    let mut agents = Vec::new();
    for n in 1..=count {
        let name = format!("a{n}");
        agents.push(Arc::new(Agent::start_recorded(&name, &control.url, folder, 2)));
        plane.block_on(until("it registers", || (control.heard(&name).number == n).then_some(())));
    }
    (plane, control, agents)
}

async fn ask(agent: &Agent) -> (u16, Value) {
    agent.post("p", &json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]})).await
}

/// Requests at this rate for so long; status and body of each.
async fn offer(agent: &Arc<Agent>, every: Duration, count: usize) -> Vec<(u16, Value)> {
    let mut asked = Vec::new();
    for _ in 0..count {
        let agent = agent.clone();
        asked.push(tokio::spawn(async move { ask(&agent).await }));
        tokio::time::sleep(every).await;
    }
    let mut answers = Vec::new();
    for one in asked {
        answers.push(one.await.expect("one answer"));
    }
    answers
}

/// All agents stop; their records are replayed.
fn replayed(runtime: &Runtime, agents: &[Arc<Agent>], folder: &Path) {
    let mut answers = 0;
    for (n, agent) in (1..).zip(agents) {
        runtime.block_on(async {
            until("nothing is left to do", || (agent.handle.view.borrow().queues.iter().all(|q| q.1 == 0)).then_some(()))
                .await;
            agent.handle.commands.send(AgentCommand::Leave).await.expect("the loop runs");
            let (reply, unfinished) = tokio::sync::oneshot::channel();
            agent.handle.commands.send(AgentCommand::Unfinished(reply)).await.expect("the loop runs");
            unfinished.await.expect("it has left, and its record is on the disk");
        });
        let seen = replay(&folder.join(format!("a{n}")).join("record")).expect("the same comes out");
        assert!(seen.events > 50 && seen.flushes > 50, "{seen:?}");
        answers += seen.answers;
    }
    assert!(answers > 20, "{answers} requests were answered alike");
}

#[test]
fn under_overload_joins_and_drops_are_as_the_plan_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_plane, control, agents) = fleet(3, folder.path());
    let runtime = Runtime::new().expect("a runtime");
    // `d` is made by `b` and waits for `c`.
    let edges = [(true, 0, 1), (true, 0, 2), (true, 1, 3), (false, 2, 3)];
    let crews: &[Crew<'_>] = &[(1, 0, 4, 2, &[1]), (2, 1, 4, 4, &[2]), (3, 2, 2, 10, &[3]), (4, 3, 4, 2, &[1, 2])];
    let all: Vec<&Agent> = agents.iter().map(AsRef::as_ref).collect();
    let mut plan = target(1, &all, "abcd", &edges, crews);
    plan.pipelines[0].serving =
        Some(v1::Serving { batching: "forming".into(), dropping: "pard".into(), ..Default::default() });
    control.send(plan);
    runtime.block_on(async {
        for agent in &agents {
            agent.ready("p").await;
        }
        let (status, body) = ask(&agents[0]).await;
        assert_eq!((status, output(&body, "y")), (200, (&json!([1, 1]), &json!([0.0]))), "{body}");
        // `c` serves 100 a second; four times that is asked for.
        let begun = std::time::Instant::now();
        let answers = offer(&agents[0], Duration::from_micros(2_500), 1_200).await;
        let possible = begun.elapsed().as_secs_f64() * 100.0;
        let ok = answers.iter().filter(|(_, body)| body["parameters"]["outcome"] == "ok").count();
        assert!(ok as f64 >= 0.6 * possible, "{ok} of {possible:.0} that could be served were in time");
        let shed: Vec<_> = answers.iter().filter(|(status, _)| *status != 200).collect();
        assert!(shed.len() >= 200, "{} of 1,200 were shed", shed.len());
        let says = |reason: &str| shed.iter().any(|(_, body)| body["reason"].as_str().is_some_and(|r| r.contains(reason)));
        assert!(says("predicted"), "{:?}", shed.first());
        assert!(shed.iter().all(|(status, body)| matches!(status, 503 | 504) && body["error"].is_string()), "{shed:?}");
    });
    replayed(&runtime, &agents, folder.path());
}

#[test]
fn a_change_of_plan_on_full_devices_fails_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_plane, control, agents) = fleet(2, folder.path());
    let runtime = Runtime::new().expect("a runtime");
    let all: Vec<&Agent> = agents.iter().map(AsRef::as_ref).collect();
    let plan = |generation| {
        let mut plan = target(generation, &all, "a", &[], &[(generation, 0, 4, 2, &[1, 2])]);
        for group in &mut plan.pipelines[0].groups {
            (group.memory_mib, group.device_memory_mib) = (600.0, 1_000.0);
        }
        plan
    };
    control.send(plan(1));
    runtime.block_on(async {
        for agent in &agents {
            agent.ready("p").await;
        }
        let asking = tokio::spawn({
            let agent = agents[0].clone();
            async move { offer(&agent, Duration::from_millis(5), 1_200).await }
        });
        for generation in [2, 3] {
            tokio::time::sleep(Duration::from_millis(300)).await;
            control.send(plan(generation));
            control.applied("a1", generation).await;
            control.applied("a2", generation).await;
        }
        for (status, body) in asking.await.expect("all answers") {
            assert_eq!(status, 200, "{body}");
        }
    });
    replayed(&runtime, &agents, folder.path());
}

#[test]
fn agents_scale_up_while_the_control_plane_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plane, control, agents) = fleet(2, folder.path());
    let runtime = Runtime::new().expect("a runtime");
    let all: Vec<&Agent> = agents.iter().map(AsRef::as_ref).collect();
    let mut plan = target(1, &all, "a", &[], &[(1, 0, 1, 20, &[1])]);
    plan.pipelines[0].demand_qps = 20.0;
    control.send(plan);
    runtime.block_on(async {
        for agent in &agents {
            agent.ready("p").await;
        }
        plane.shutdown_background();
        let replicas = || agents.iter().map(|a| a.handle.view.borrow().queues.len()).sum::<usize>();
        assert_eq!(replicas(), 1);
        // One replica serves 50 a second; the others that come serve the rest.
        let asking = tokio::spawn({
            let agent = agents[1].clone();
            async move { offer(&agent, Duration::from_millis(10), 1_000).await }
        });
        until("replicas are added", || (replicas() >= 3).then_some(())).await;
        let answers = asking.await.expect("all answers");
        let last = &answers[answers.len() - 100..];
        let ok = last.iter().filter(|(_, body)| body["parameters"]["outcome"] == "ok").count();
        assert!(ok >= 90, "{ok} of the last 100 were in time");
    });
    replayed(&runtime, &agents, folder.path());
}
