//! Which agents are alive, and why does a pipeline not answer, as they say it?
//!
//! Example: an agent cannot load a variant. `apportion status` and `apportion deploy` print its reason.

use apportion_wire::{AgentState, ReplicaState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Sentences about one pipeline.
const FAULTS_MAX: usize = 8;

/// The agents of a list that are alive.
pub fn live(agents: &Value) -> impl Iterator<Item = &Value> {
    agents.as_array().into_iter().flatten().filter(|agent| agent["state"] == AgentState::Live.name())
}

/// A sentence for each living agent that does not obey the target which it got last.
pub fn refused_targets(agents: &Value) -> Vec<String> {
    let of_agent = |agent: &Value| {
        let (name, ack) = (text(&agent["name"]), &agent["ack"]);
        let error = Some(text(&ack["error"])).filter(|error| !error.is_empty())?;
        Some(format!("agent {name} does not obey target {}: {error}", ack["generation"]))
    };
    live(agents).filter_map(of_agent).take(FAULTS_MAX).collect()
}

/// A sentence for each of these replicas that has failed at its agent.
pub fn failed_replicas(agents: &Value, replicas: &BTreeSet<u64>) -> Vec<String> {
    let of_agent = |agent: &Value| -> Vec<String> {
        let all = agent["ack"]["replicas"].as_array().into_iter().flatten();
        let failed = all.filter(|replica| replica["state"] == ReplicaState::Failed.name());
        let mine = failed.filter(|replica| replica["replica"].as_u64().is_some_and(|number| replicas.contains(&number)));
        let told = |replica: &Value| {
            format!(
                "replica {} of agent {} has failed: {}",
                replica["replica"],
                text(&agent["name"]),
                text(&replica["error"])
            )
        };
        mine.map(told).collect()
    };
    live(agents).flat_map(of_agent).take(FAULTS_MAX).collect()
}

/// A sentence for each replica of a pipeline that could not be loaded for the target with this generation or a later one.
pub fn load_failures(agents: &Value, pipeline: &str, generation: u64) -> Vec<String> {
    let of_agent = |agent: &Value| -> Vec<String> {
        let all = agent["load_failures"].as_array().into_iter().flatten();
        let is_mine = |failure: &&Value| {
            failure["pipeline"] == pipeline && failure["generation"].as_u64().is_some_and(|of| of >= generation)
        };
        let told = |failure: &Value| {
            let (task, variant) = (text(&failure["task"]), text(&failure["variant"]));
            format!("agent {} cannot load {task}/{variant}: {}", text(&agent["name"]), text(&failure["error"]))
        };
        all.filter(is_mine).map(told).collect()
    };
    live(agents).flat_map(of_agent).take(FAULTS_MAX).collect()
}

/// Whether a task of a pipeline has its replicas only at living agents that refuse this target. Such an agent loads
/// nothing of it.
pub fn has_refused_task(target: &Value, agents: &Value, pipeline: &str) -> bool {
    let refusing: BTreeSet<u64> =
        live(agents).filter(|agent| refuses(agent, target)).filter_map(|agent| agent["number"].as_u64()).collect();
    let mut tasks = placed_tasks(&target["placement"], pipeline).into_values();
    tasks.any(|task| !task.agents.is_empty() && task.agents.is_subset(&refusing))
}

/// Whether a task of a pipeline has no replica in this target because its replicas failed on every device.
pub fn has_failed_task(target: &Value, pipeline: &str) -> bool {
    let mut tasks = placed_tasks(&target["placement"], pipeline).into_values();
    tasks.any(|task| task.agents.is_empty() && task.has_failed)
}

/// Whether an agent refuses this target as a whole. An agent that takes a target names the replicas that have failed.
fn refuses(agent: &Value, target: &Value) -> bool {
    let ack = &agent["ack"];
    let is_of_target = ["incarnation", "generation"].iter().all(|part| ack[*part].is_u64() && ack[*part] == target[*part]);
    is_of_target && !text(&ack["error"]).is_empty() && ack["replicas"].as_array().is_none_or(Vec::is_empty)
}

/// Where a task of a placement can be served.
#[derive(Default)]
struct PlacedTask {
    /// The agents that have replicas of it.
    agents: BTreeSet<u64>,
    /// Whether a replica of it failed on a device, where none is placed any more.
    has_failed: bool,
}

/// The groups of a pipeline in a placement, and those that are only offered.
pub fn groups_of<'p>(placement: &'p Value, pipeline: &str) -> impl Iterator<Item = &'p Value> {
    let list = move |key: &str| placement[key].as_array().into_iter().flatten();
    list("groups").chain(list("offered")).filter(move |group| group["pipeline"] == pipeline)
}

/// The tasks of a pipeline, by their names.
fn placed_tasks<'p>(placement: &'p Value, pipeline: &str) -> BTreeMap<&'p str, PlacedTask> {
    let list = move |key: &str| placement[key].as_array().into_iter().flatten();
    let mut tasks: BTreeMap<&str, PlacedTask> = BTreeMap::new();
    for group in groups_of(placement, pipeline) {
        let is_mine = |placed: &&Value| placed["group"] == group["id"];
        let task = tasks.entry(text(&group["task"])).or_default();
        task.agents.extend(list("replicas").filter(is_mine).filter_map(|replica| replica["agent"].as_u64()));
        task.has_failed |= list("refused").any(|failed| is_mine(&failed));
    }
    tasks
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agents() -> Value {
        let failure = |pipeline: &str, generation: u64| json!({"pipeline": pipeline, "generation": generation, "task": "read", "variant": "s", "error": "no room"});
        let replicas =
            json!([{"replica": 7, "state": "failed", "error": "no room"}, {"replica": 8, "state": "ready", "error": ""}]);
        json!([
            {"name": "a", "state": "live", "ack": {"generation": 3, "error": "", "replicas": replicas},
             "load_failures": [failure("p", 2), failure("p", 3), failure("q", 3)]},
            {"name": "b", "state": "live", "ack": {"generation": 3, "error": "kind continuous", "replicas": []}},
            {"name": "c", "state": "lost", "ack": {"generation": 3, "error": "gone", "replicas": replicas}},
            {"name": "new", "state": "live", "ack": null},
        ])
    }

    #[test]
    fn faults_are_those_of_living_agents_and_of_the_pipeline() {
        let agents = agents();
        assert_eq!(refused_targets(&agents), ["agent b does not obey target 3: kind continuous"]);
        assert_eq!(failed_replicas(&agents, &[7, 8].into()), ["replica 7 of agent a has failed: no room"]);
        assert_eq!(failed_replicas(&agents, &[8].into()), [""; 0]);
        assert_eq!(load_failures(&agents, "p", 3), ["agent a cannot load read/s: no room"]);
        assert_eq!(load_failures(&agents, "p", 2).len(), 2);
    }

    /// A target of the tasks `find` and `read` of a pipeline, whose replicas are at these agents.
    fn target(find: &[u64], read: &[u64], refused: &Value) -> Value {
        let placed = |group: u64, agents: &[u64]| -> Vec<Value> {
            agents
                .iter()
                .map(|agent| json!({"id": 10 * group + agent, "group": group, "agent": agent, "device": 0}))
                .collect()
        };
        let group = |id: u64, pipeline: &str, task: &str| json!({"id": id, "pipeline": pipeline, "task": task});
        let replicas = [placed(1, find), placed(2, read), placed(3, &[1])].concat();
        json!({"incarnation": 9, "generation": 3, "placement": {
            "groups": [group(1, "p", "find"), group(2, "p", "read"), group(3, "q", "read")],
            "replicas": replicas,
            "refused": refused,
        }})
    }

    #[test]
    fn a_task_is_refused_if_no_other_agent_has_it() {
        let agent = |number: u64, generation: u64, error: &str, replicas: Value| {
            json!({"number": number, "state": "live",
            "ack": {"incarnation": 9, "generation": generation, "error": error, "replicas": replicas}})
        };
        let failed = json!([{"replica": 13, "state": "failed", "error": "no room"}]);
        let agents = json!([
            agent(1, 3, "kind continuous", json!([])),
            agent(2, 3, "", json!([])),
            agent(3, 3, "replica 13: no room", failed),
            agent(4, 2, "kind continuous", json!([])),
            {"number": 5, "state": "lost", "ack": {"incarnation": 9, "generation": 3, "error": "gone", "replicas": []}},
            {"number": 6, "state": "live", "ack": null},
        ]);
        let is_refused = |find: &[u64], read: &[u64]| has_refused_task(&target(find, read, &json!([])), &agents, "p");
        assert!(is_refused(&[1], &[2]) && is_refused(&[2], &[1]) && is_refused(&[1], &[]));
        for others in [2, 3, 4, 5, 6] {
            assert!(!is_refused(&[1, others], &[others]), "agent {others} may serve");
        }
        assert!(!is_refused(&[], &[]), "no device has it yet");
        assert!(!has_refused_task(&target(&[1], &[1], &json!([])), &agents, "other"), "it is not in the target");
    }

    #[test]
    fn a_task_has_failed_if_no_device_is_left() {
        let failed_on_agent_1 = |group: u64| json!([{"group": group, "agent": 1, "device": 0}]);
        let has_failed = |read: &[u64], group: u64| has_failed_task(&target(&[1], read, &failed_on_agent_1(group)), "p");
        assert!(has_failed(&[], 2));
        assert!(!has_failed(&[2], 2), "another device is tried");
        assert!(!has_failed(&[], 1) && !has_failed(&[], 3), "no device has it yet");
    }

    #[test]
    fn faults_are_bounded() {
        let replicas: Vec<Value> = (0..100).map(|n| json!({"replica": n, "state": "failed", "error": "no room"})).collect();
        let agents = json!([{"name": "a", "state": "live", "ack": {"generation": 3, "error": "", "replicas": replicas}}]);
        assert_eq!(failed_replicas(&agents, &(0..100).collect()).len(), FAULTS_MAX);
    }
}
