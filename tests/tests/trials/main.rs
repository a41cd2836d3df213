//! Whole clusters of processes under load: what is promised in production must hold here.
//!
//! Each trial takes about a minute. `APPORTION_TRIAL_S` sets the length of those that can go on for longer.
//! `APPORTION_TRIAL_SHAPE` names the loads of `fidelity` that are run, by a part of their names.

mod changes;
mod drift;
mod faults;
mod fidelity;
mod large;
mod outlive;
mod overload;
mod pauses;
mod processes;
mod rag;
mod step;
mod week;

use apportion_tests::cluster::HARDWARE;
use serde_json::{Value, json};
use std::time::Duration;

const SLO_MS: u64 = 400;

/// How long a trial goes on.
fn seconds(default: u64) -> Duration {
    let asked = std::env::var("APPORTION_TRIAL_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(asked.unwrap_or(default))
}

/// The tasks of [`chain`].
const fn task_names() -> [&'static str; 2] {
    ["a", "b"]
}

/// `a -> b` with these variants at each task; `more` is merged into it.
fn chain(variants: &[&str], more: Value) -> Value {
    let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1, 4]}]);
    let variants: Vec<Value> = variants.iter().map(|v| json!({"name": v, "load_ms": 200.0})).collect();
    let task = |name: &str, input: &str, output: &str| json!({"name": name, "inputs": tensor(input), "outputs": tensor(output), "variants": variants});
    let mut chain = json!({
        "name": "chain", "slo_ms": SLO_MS,
        "tasks": [task("a", "x", "y"), task("b", "y", "z")],
        "edges": [{"from": "a", "to": "b", "map": {"y": "y"}}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        chain[key] = value.clone();
    }
    chain
}

/// The first variant is the most accurate, each further one twice as fast.
fn profile(variants: &[&str]) -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_owned();
    for task in task_names() {
        for (at, variant) in (0..).zip(variants) {
            let (faster, accuracy) = (f64::powi(2.0, at), 0.9 - 0.1 * f64::from(at));
            for (batch, latency_ms) in [(1, 20.0), (2, 25.0), (4, 35.0)] {
                csv += &format!("chain,{task},{variant},{HARDWARE},{batch},{},{accuracy}\n", latency_ms / faster);
            }
        }
    }
    csv
}

/// One row for `a`.
fn inputs() -> Value {
    json!([{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}])
}
