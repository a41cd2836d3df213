//! Which dropping policy has a registered pipeline that names none, in a plan with a ladder?
//!
//! `pard`. Example: the load triples, and new replicas serve 5 s later. Meanwhile a replica serves only queries that can be
//! in time, so only the requests beyond its capacity miss. Under `naive` all of them miss until the queues are gone.
//!
//! A plan without a ladder has the general default, `naive`: its report then counts late requests and drops none.

use apportion_domain::Dropping;
use apportion_serving::modules::PATHS_MAX;
use apportion_wire::PipelineSpec;
use std::collections::BTreeMap;

/// Gives a pipeline that names no dropping policy the one of plans with a ladder. One with more than [`PATHS_MAX`] paths
/// keeps `naive`, because `pard` knows no more of them.
pub fn default_to_pard(pipeline: &mut PipelineSpec) {
    if paths(pipeline) <= PATHS_MAX {
        let serving = pipeline.serving.get_or_insert_default();
        serving.dropping.get_or_insert_with(|| Dropping::Pard.name().to_owned());
    }
}

/// The most paths from one task to the end of the pipeline; a number above [`PATHS_MAX`] is only that.
fn paths(pipeline: &PipelineSpec) -> usize {
    let tasks = &pipeline.tasks;
    let mut paths: BTreeMap<&str, usize> = tasks.iter().map(|task| (task.name.as_str(), 1)).collect();
    // No path has more edges than there are tasks.
    for _ in tasks {
        let before = paths.clone();
        let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
        for edge in &pipeline.edges {
            let below = before.get(edge.to.as_str()).copied().unwrap_or(1);
            let sum = sums.entry(edge.from.as_str()).or_default();
            *sum = (*sum + below).min(PATHS_MAX + 1);
        }
        paths.extend(sums);
        if paths == before {
            break;
        }
    }
    paths.into_values().max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A pipeline of so many pairs of tasks side by side, each pair between two tasks: 2^n paths.
    fn pipeline(pairs: usize, serving: Value) -> PipelineSpec {
        let task = |name: String| json!({"name": name, "variants": []});
        let (mut tasks, mut edges) = (vec![task("t0".into())], Vec::new());
        for i in 0..pairs {
            let next = format!("t{}", i + 1);
            for side in ["a", "b"] {
                let side = format!("{side}{i}");
                edges.push(json!({"from": format!("t{i}"), "to": side}));
                edges.push(json!({"from": side, "to": next, "primary": side.starts_with('a')}));
                tasks.push(task(side));
            }
            tasks.push(task(next));
        }
        let spec = json!({"name": "p", "slo_ms": 100.0, "serving": serving, "tasks": tasks, "edges": edges});
        serde_json::from_value(spec).expect("a spec")
    }

    fn dropping(mut spec: PipelineSpec) -> Option<String> {
        default_to_pard(&mut spec);
        spec.serving.and_then(|serving| serving.dropping)
    }

    #[test]
    fn a_pipeline_that_names_no_policy_gets_pard() {
        assert_eq!(dropping(pipeline(0, Value::Null)).as_deref(), Some("pard"));
        assert_eq!(dropping(pipeline(2, json!({"batching": "forming"}))).as_deref(), Some("pard"));
        assert_eq!(dropping(pipeline(2, json!({"dropping": "naive"}))).as_deref(), Some("naive"), "it names one");
    }

    #[test]
    fn paths_are_counted_up_to_the_limit() {
        assert_eq!([0, 1, 5, 10].map(|pairs| paths(&pipeline(pairs, Value::Null))), [1, 2, 32, 1_024]);
        assert_eq!(dropping(pipeline(10, Value::Null)).as_deref(), Some("pard"));
        assert_eq!(dropping(pipeline(11, Value::Null)), None, "2,048 paths are too many");
        assert_eq!(dropping(pipeline(200, Value::Null)), None);
    }
}
