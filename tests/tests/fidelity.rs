//! `apportion dev bench fidelity --emulated` for a few seconds: every load has figures, and each difference has its parts.

use serde_json::Value;
use std::process::{Command, Stdio};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// The report of runs of two seconds on one agent, which has no hop. No assertion is about what an estimate says, so the
/// steward need not forget a run before the next.
fn report() -> Value {
    let output = Command::new(apportion_tests::programs().join("apportion"))
        .args(["bench", "fidelity", "--emulated", "--agents", "1", "--devices", "4", "--seconds", "2", "--runs", "1"])
        .args(["--idle", "1", "--format", "json"])
        .current_dir(apportion_tests::root())
        .stdin(Stdio::null())
        .output()
        .expect("the benchmark runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn every_load_is_compared_and_explained() {
    let report = report();
    assert_eq!((&report["backend"], &report["hop_ms"]), (&"emulated".into(), &Value::Null));
    assert!(number(&report["ingress_ms"]) > 0.0, "HTTP and JSON take time: {report}");
    assert!(number(&report["agent_ms"]) >= 0.0, "{report}");
    let loads = report["loads"].as_array().expect("loads");
    assert_eq!(loads.len(), 10);
    for load in loads {
        assert!(number(&load["requests"]) > 0.0, "{load}");
        for figures in [load, &load["without_single_requests"], &load["told"]] {
            for figure in ["attainment", "p50_ms", "p95_ms", "p99_ms"] {
                assert_eq!(figures[figure]["runs"].as_array().map(Vec::len), Some(1), "{figure}: {figures}");
            }
        }
        let parts = &load["parts"];
        let part = |key: &str| number(&parts[key]);
        assert!(part("measured_ms") > 0.0 && part("estimated_ms") > 0.0, "{load}");
        let sum: f64 = ["outside_ms", "queues_ms", "batches_ms", "hops_ms", "rest_ms"].map(part).iter().sum();
        assert!((sum - part("difference_ms")).abs() < 1e-6, "{parts}");
        assert_eq!(part("hops_ms"), 0.0, "one agent has no hop: {parts}");
        assert!(part("batches_ms") > -50.0, "batches were counted beside their profile: {parts}");
    }
    let inside = loads.iter().filter(|load| load["is_inside"] == true).count();
    assert_eq!(number(&report["inside"]), inside as f64);
}
