//! Kubernetes' real autoscaler and our service scale equal Deployments under the same load: `apportion dev bench hpa`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(control_plane: &Path) -> Output {
    let mut command = Command::new(apportion_tests::programs().join("apportion"));
    command.args(["bench", "hpa", "--quick", "--format", "json", "--control-plane"]).arg(control_plane);
    command.stdin(Stdio::null()).output().expect("the benchmark runs")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number: {value}"))
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_else(|| panic!("a list: {value}"))
}

/// The replicas that a Deployment asks for at the moments of a report, the start included.
fn replicas(workload: &Value) -> Vec<(f64, f64)> {
    let start = (0.0, number(&workload["at_start"]));
    let steps = entries(&workload["changes"]).iter().map(|step| (number(&step["at_s"]), number(&step["replicas"])));
    std::iter::once(start).chain(steps).collect()
}

/// It has more replicas after the doubling than before, and fewer at the end than at the most.
fn check_follows_the_load(workload: &Value, phases: &Value) {
    let all = replicas(workload);
    let double_at = number(&phases["double_at_s"]);
    let before = all.iter().filter(|(at, _)| *at < double_at).map(|(_, count)| *count).next_back().expect("the start");
    let most = all.iter().filter(|(at, _)| *at >= double_at).map(|(_, count)| *count).fold(0.0, f64::max);
    let last = all.last().expect("the start").1;
    assert!(most > before, "no growth after the doubling: {workload}");
    assert!(last < most, "no shrinking after the fall: {workload}");
    let fall_at = number(&phases["fall_at_s"]);
    assert!(all.iter().any(|(at, count)| *at >= fall_at && *count < most), "no change after the fall: {workload}");
}

#[test]
fn both_sides_follow_the_load_through_scale() {
    let Some(control_plane) = apportion_needs::kubernetes() else { return };
    let output = bench(&control_plane);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("JSON: {error}: {said}"));
    eprintln!("{said}\n{report:#}");
    let sides = entries(&report["sides"]);
    assert_eq!(sides.iter().map(|side| side["side"].as_str()).collect::<Vec<_>>(), [Some("autoscaler"), Some("service")]);
    let workloads: Vec<&[Value]> = sides.iter().map(|side| entries(&side["workloads"])).collect();
    for (autoscaler, service) in workloads[0].iter().zip(workloads[1]) {
        assert_eq!(autoscaler["workload"], service["workload"]);
        assert_eq!(autoscaler["at_start"], service["at_start"], "equal replicas at the start: {report}");
    }
    for workload in workloads.concat() {
        check_follows_the_load(&workload, &report["phases"]);
        assert_eq!(workload["recorded"], workload["told"], "a change that its author does not tell: {workload}");
    }
    for side in sides {
        let served = &side["served"];
        assert!(number(&served["cost"]) > 0.0 && number(&served["replica_seconds"]) > 0.0, "{side}");
        assert!(number(&served["attainment"]) > 0.5 && number(&served["p99_ms"]) > 0.0, "{side}");
    }
    check_syncs(&report["syncs"]);
}

/// Most decisions of the model are the controller's, and the others are listed.
fn check_syncs(syncs: &Value) {
    let (compared, equal) = (number(&syncs["compared"]), number(&syncs["equal"]));
    assert!(compared >= 40.0, "two autoscalers, three minutes, a sync in three seconds: {syncs}");
    assert!(equal >= 0.9 * compared, "{equal} of {compared} decisions: {syncs}");
    let differing = entries(&syncs["differing"]);
    assert_eq!(differing.len() as f64, compared - equal);
    assert!(differing.iter().all(|sync| sync["decided"] != sync["modelled"] && sync["at_s"].is_f64()), "{syncs}");
}

#[test]
fn a_folder_without_a_control_plane_is_bad_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = bench(folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--control-plane") && said.contains("expected a program that starts a control plane"), "{said}");
}
