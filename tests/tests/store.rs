//! `apportion dev bench store` on a small store: it fills every table, and every request answers.

use serde_json::Value;
use std::process::{Command, Stdio};

/// Plans; the other tables have parts of this number.
const PLANS: i64 = 3_000;
const PIPELINES: i64 = 300;
const AGENTS: i64 = 40;

#[test]
fn a_small_store_is_filled_and_read() {
    let output = Command::new(apportion_tests::programs().join("apportion"))
        .args(["bench", "store", "--requests", "3", "--page", "20", "--format", "json"])
        .args(["--pipelines", &PIPELINES.to_string(), "--plans", &PLANS.to_string(), "--agents", &AGENTS.to_string()])
        .stdin(Stdio::null())
        .output()
        .expect("the benchmark runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = |name: &str| {
        let tables = report["tables"].as_array().into_iter().flatten();
        let found = tables.filter(|table| table["table"] == name).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{name}: {report:#}");
        assert!(found[0]["index_bytes"].as_i64() > Some(0), "{name} has no index: {report:#}");
        found[0]["rows"].as_i64().expect("a number")
    };
    // One pipeline and one plan are there before, and the leader may make events.
    assert_eq!((rows("pipelines"), rows("plans"), rows("agents")), (PIPELINES + 1, PLANS + 1, AGENTS));
    assert_eq!((rows("decisions"), rows("analyses")), (PLANS / 10, PLANS / 100));
    assert!(rows("events") >= PLANS / 10);
    let requests = report["requests"].as_array().expect("requests");
    let paths = |what: &str| requests.iter().filter(|r| r["what"] == what).count();
    assert_eq!((paths("first page"), paths("one")), (12, 4), "{report:#}");
    assert!(paths("page in the middle") >= 8, "{report:#}");
    for request in requests {
        let time = |key: &str| request[key].as_f64().expect("a time");
        let times = [time("median_ms"), time("p99_ms"), time("worst_ms")];
        assert!(times[0] > 0.0 && times.is_sorted(), "{request}");
        let entries = request["entries"].as_u64().expect("a number");
        assert!(entries <= 20 && (entries > 0 || request["path"] == "/v1/decisions?decision=failed"), "{request}");
    }
}
