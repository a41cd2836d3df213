//! Which settings of a registered pipeline stay if a new file leaves them out?

use serde_json::{Map, Value};

/// Blocks of settings that are completed key by key. Every other value is taken as it is sent.
const BLOCKS: [&str; 2] = ["replan", "serving"];
/// Lists whose members are known by their names.
const NAMED: [&str; 2] = ["tasks", "variants"];
/// Keys that belong to a graph, a file or a measurement, and are not kept.
const NOT_KEPT: [&str; 11] = [
    "edges",
    "validation",
    "model",
    "model_digest",
    "profile",
    "before",
    "after",
    "python",
    "runtime",
    "threads",
    "provider",
];

/// Adds the settings of the registered pipeline that the sent pipeline leaves out. Tasks and variants keep the settings
/// of their namesakes. The lists of tasks, variants and edges are as sent. Null is a value and stays.
pub fn add_missing_settings(sent: &mut Value, had: &Value) {
    let (Some(sent), Some(had)) = (sent.as_object_mut(), had.as_object()) else { return };
    add_missing_keys(sent, had);
    keep_known_names(sent);
}

fn add_missing_keys(sent: &mut Map<String, Value>, had: &Map<String, Value>) {
    for (key, old) in had {
        match sent.get_mut(key) {
            None if !NOT_KEPT.contains(&key.as_str()) => {
                sent.insert(key.clone(), old.clone());
            }
            Some(Value::Object(new)) if BLOCKS.contains(&key.as_str()) => {
                if let Some(old) = old.as_object() {
                    add_missing_keys(new, old);
                }
            }
            Some(Value::Array(new)) if NAMED.contains(&key.as_str()) => {
                for member in new.iter_mut().filter_map(Value::as_object_mut) {
                    let same = |o: &&Value| o.get("name") == member.get("name");
                    if let Some(old) = old.as_array().into_iter().flatten().find(same).and_then(Value::as_object) {
                        add_missing_keys(member, old);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Removes names of missing tasks and paths from kept tables.
pub fn keep_known_names(sent: &mut Map<String, Value>) {
    let tasks = sent.get("tasks").and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |v: &Value| v["name"].as_str().map(str::to_owned);
    let names: Vec<String> = tasks.iter().filter_map(name).collect();
    let variants = |task: &Value| task["variants"].as_array().cloned().unwrap_or_default();
    let stage = |task: &Value, variant: &Value| Some(format!("{}:{}", name(task)?, name(variant)?));
    let stages: Vec<String> =
        tasks.iter().flat_map(|t| variants(t).iter().filter_map(|v| stage(t, v)).collect::<Vec<_>>()).collect();
    if let Some(Value::Object(weights)) = sent.get_mut("leaf_weights") {
        weights.retain(|task, _| names.contains(task));
    }
    if let Some(Value::Object(paths)) = sent.get_mut("path_accuracy") {
        paths.retain(|path, _| path.split('>').all(|s| stages.iter().any(|known| known == s.trim())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_are_not_sent_are_kept() {
        let had = json!({
            "name": "p", "slo_ms": 100, "weight": 2.0, "replan": {"mode": "apply", "period_s": 5.0},
            "leaf_weights": {"b": 1.0, "gone": 2.0}, "path_accuracy": {"a:x>b:z": 0.5, "a:old>b:z": 0.4},
            "tasks": [
                {"name": "a", "min_replicas": 2,
                    "variants": [{"name": "x", "load_ms": 7.0, "model_digest": "aa"}, {"name": "old"}]},
                {"name": "gone", "variants": []}],
            "edges": [{"from": "a", "to": "gone"}],
        });
        let mut sent = json!({
            "name": "p", "slo_ms": 200, "min_accuracy": null, "replan": {"mode": "off"},
            "tasks": [{"name": "a", "variants": [{"name": "x"}, {"name": "y"}]}, {"name": "b", "variants": [{"name": "z"}]}],
        });
        add_missing_settings(&mut sent, &had);
        let expected = json!({
            "name": "p", "slo_ms": 200, "weight": 2.0, "min_accuracy": null, "replan": {"mode": "off", "period_s": 5.0},
            "leaf_weights": {"b": 1.0}, "path_accuracy": {"a:x>b:z": 0.5},
            "tasks": [
                {"name": "a", "min_replicas": 2, "variants": [{"name": "x", "load_ms": 7.0}, {"name": "y"}]},
                {"name": "b", "variants": [{"name": "z"}]}],
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn transforms_and_runtimes_are_as_sent() {
        let task = json!({"name": "a", "min_replicas": 2, "before": [{"keep": {"tensors": ["x"]}}],
            "after": [{"nms": {}}],
            "variants": [{"name": "v", "runtime": "python", "threads": 2, "provider": "cpu", "load_ms": 3.0}]});
        let had = json!({"name": "p", "tasks": [task]});
        let mut sent = json!({"name": "p", "tasks": [{"name": "a", "variants": [{"name": "v"}]}]});
        add_missing_settings(&mut sent, &had);
        let variants = json!([{"name": "v", "load_ms": 3.0}]);
        assert_eq!(sent["tasks"], json!([{"name": "a", "min_replicas": 2, "variants": variants}]));
    }

    #[test]
    fn a_missing_replan_block_keeps_replanning() {
        let had = json!({"name": "p", "replan": {"mode": "apply"}, "tasks": []});
        let mut sent = json!({"name": "p", "tasks": []});
        add_missing_settings(&mut sent, &had);
        assert_eq!(sent["replan"], json!({"mode": "apply"}));
    }
}
