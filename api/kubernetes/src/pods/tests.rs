//! Pods as the API shows them.

use super::*;

fn pod(phase: &str, node: &str, status: &Value) -> DynamicObject {
    let mut whole = json!({"phase": phase});
    for (key, value) in status.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let mut object = DynamicObject::new("app.t4.0c9f", &pod_resource());
    object.metadata.uid = Some("d1".to_owned());
    object.data = json!({"spec": {"nodeName": node}, "status": whole});
    object
}

fn read(phase: &str, node: &str, status: &Value) -> String {
    let seen = PodObservation::read(&pod(phase, node, status));
    assert_eq!((seen.name.as_str(), seen.uid.as_str()), ("app.t4.0c9f", "d1"));
    format!("{:?}: {}", seen.stage, seen.said)
}

#[test]
fn a_pod_waits_starts_runs_and_ends() {
    let no_room = json!({"conditions": [
        {"type": "Ready", "status": "False"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
    ]});
    let container = |state: Value| json!({"containerStatuses": [{"state": state}]});
    let pulling = container(json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}));
    let crashed = container(json!({"waiting": {"reason": "CrashLoopBackOff"}}));
    let refused = container(json!({"terminated": {"reason": "Error", "exitCode": 3}}));
    let evicted = json!({"reason": "Evicted", "message": "the node is low on memory"});
    let cases = [
        ("Pending", "", json!({}), "Unplaced: Pod app.t4.0c9f is Pending"),
        ("Pending", "", no_room, "Unplaced: Pod app.t4.0c9f is Pending (Unschedulable: 0/3 nodes are available)"),
        ("Pending", "n1", pulling, "Starting: Pod app.t4.0c9f is Pending (ImagePullBackOff: no such image)"),
        ("Running", "n1", container(json!({"running": {}})), "Running: Pod app.t4.0c9f is Running"),
        ("Running", "n1", crashed, "Starting: Pod app.t4.0c9f is Running (CrashLoopBackOff)"),
        ("Unknown", "n1", json!({}), "Running: Pod app.t4.0c9f is Unknown"),
        ("Running", "n1", refused.clone(), "Starting: Pod app.t4.0c9f is Running (Error: exit status 3)"),
        ("Failed", "n1", refused, "Ended: Pod app.t4.0c9f is Failed (Error: exit status 3)"),
        ("Failed", "n1", evicted, "Ended: Pod app.t4.0c9f is Failed (Evicted: the node is low on memory)"),
        ("Succeeded", "n1", json!({}), "Ended: Pod app.t4.0c9f is Succeeded"),
    ];
    for (phase, node, status, expected) in cases {
        assert_eq!(read(phase, node, &status), expected);
    }
}

#[test]
fn a_pod_that_was_deleted_ends() {
    let deleted = |phase: &str| {
        let object = json!({
            "metadata": {"name": "app.t4.0c9f", "deletionTimestamp": "2026-11-25T07:30:00Z"},
            "spec": {"nodeName": "n1"}, "status": {"phase": phase},
        });
        PodObservation::read(&serde_json::from_value(object).expect("an object"))
    };
    let ending = deleted("Running");
    assert_eq!((ending.stage, ending.said.as_str()), (PodStage::Deleted, "Pod app.t4.0c9f is Running and was deleted"));
    assert_eq!(deleted("Failed").stage, PodStage::Ended);
}

#[test]
fn long_words_are_cut() {
    let long = json!({"reason": "Evicted", "message": "x".repeat(5_000)});
    assert_eq!(PodObservation::read(&pod("Failed", "n1", &long)).said.chars().count(), SAID_CHARS_MAX);
}
