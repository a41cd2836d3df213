//! Which time of a hop into each task do agents receive?

use apportion_domain::{Pipeline, TaskIndex, TimeSpan};

/// The time of the hop into each task, in nanoseconds. Where all hops take `network_ms`, the list is empty: the target is
/// then as older agents know it.
pub(super) fn hops_ns(pipeline: &Pipeline) -> Vec<u64> {
    let nanos = |millis: f64| TimeSpan::from_millis(millis).as_nanos();
    let hops: Vec<u64> = (0..pipeline.tasks.len()).map(|t| nanos(pipeline.hop_ms(TaskIndex(t)))).collect();
    let network_ns = nanos(pipeline.network_ms);
    if hops.iter().all(|&hop| hop == network_ns) { Vec::new() } else { hops }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::Hardware;
    use apportion_wire::PipelineSpec;
    use serde_json::{Value, json};

    /// The hops of `find`, then `read`, with `network_ms` 0.5 and other keys.
    fn hops_of(more: &Value, of_edge: &Value) -> Vec<u64> {
        let row = json!({"hardware": "h", "batch": 1, "latency_ms": 10.0});
        let task = |name: &str| json!({"name": name, "variants": [{"name": "v", "accuracy": 0.9, "profile": [row]}]});
        let edge = with(json!({"from": "find", "to": "read"}), of_edge);
        let tasks = [task("find"), task("read")];
        let spec = json!({"name": "p", "slo_ms": 100.0, "network_ms": 0.5, "tasks": tasks, "edges": [edge]});
        let spec: PipelineSpec = serde_json::from_value(with(spec, more)).expect("a pipeline");
        let hardware = [Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
        hops_ns(&spec.to_domain(&hardware, "").expect("a valid pipeline"))
    }

    /// The object with the keys of another one.
    fn with(mut object: Value, more: &Value) -> Value {
        more.as_object().into_iter().flatten().for_each(|(key, value)| object[key] = value.clone());
        object
    }

    #[test]
    fn agents_hear_of_hops_that_differ_from_the_constant() {
        let none = json!({});
        assert!(hops_of(&none, &none).is_empty());
        let per_mib = json!({"network_ms_per_mib": 8.0});
        assert!(hops_of(&per_mib, &none).is_empty(), "no size is known");
        assert_eq!(hops_of(&per_mib, &json!({"kib_per_query": 256.0})), [500_000, 2_500_000]);
        assert_eq!(hops_of(&json!({"ingress_ms": 1.5}), &none), [2_000_000, 500_000]);
    }
}
