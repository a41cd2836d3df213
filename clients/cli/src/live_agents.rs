//! Which agents are alive, and why does a pipeline not answer, as they say it?
//!
//! Example: an agent cannot load a variant. `apportion status` and `apportion deploy` print its reason.

use apportion_wire::{AgentState, ReplicaState};
use serde_json::Value;
use std::collections::BTreeSet;

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

    #[test]
    fn faults_are_bounded() {
        let replicas: Vec<Value> = (0..100).map(|n| json!({"replica": n, "state": "failed", "error": "no room"})).collect();
        let agents = json!([{"name": "a", "state": "live", "ack": {"generation": 3, "error": "", "replicas": replicas}}]);
        assert_eq!(failed_replicas(&agents, &(0..100).collect()).len(), FAULTS_MAX);
    }
}
