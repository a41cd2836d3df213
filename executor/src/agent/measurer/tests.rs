//! Orders to measure, on emulated devices.

use super::*;

/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Latency of the emulated profile.
const LATENCY_NS: u64 = 2_000_000;

fn measurer() -> (Measurer, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a folder");
    let options = AgentOptions {
        loader: BackendLoader::Emulated,
        pace: false,
        slowness: 1.0,
        files: Files::open(directory.path()).expect("an empty folder"),
        record: None,
        tracer: None,
        may_sleep: true,
    };
    (Measurer::new(&options), directory)
}

fn order(claim: u64, point: u64, batch: u32) -> v1::Measure {
    let tensor = |name: &str| v1::TensorSpec { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 3] };
    let group = v1::GroupTarget {
        variant: "v".into(),
        hardware: "h".into(),
        share: 1.0,
        batch,
        service: vec![v1::ServicePoint { batch: 1, latency_ns: LATENCY_NS, ..Default::default() }],
        ..Default::default()
    };
    let task =
        v1::TaskTarget { name: "t".into(), inputs: vec![tensor("x")], outputs: vec![tensor("y")], ..Default::default() };
    let (task, group) = (Some(task), Some(group));
    v1::Measure { claim, point, device: 0, task, group, batch, time_max_ms: 100, sizes: Vec::new() }
}

/// The next answer that this accepts.
async fn answer(
    told: &mut watch::Receiver<Option<v1::Measurement>>,
    check: impl Fn(&v1::Measurement) -> bool,
) -> v1::Measurement {
    let found = told.wait_for(|answer| answer.as_ref().is_some_and(&check));
    let found = tokio::time::timeout(PATIENCE, found).await.expect("in time").expect("the measurer lives");
    found.clone().expect("it was accepted")
}

#[tokio::test]
async fn an_order_is_measured_once_and_answered_with_its_numbers() {
    let (mut measurer, _directory) = measurer();
    let mut told = measurer.told();
    measurer.obey(order(3, 1, 4), DeviceOccupancy::Free);
    measurer.obey(order(3, 1, 4), DeviceOccupancy::Free);
    let first = answer(&mut told, |answer| answer.claim == 3).await;
    assert_eq!((first.point, first.error.as_str(), first.yielded.as_str()), (1, "", ""));
    assert!(first.median_ms >= 2.0 && first.p99_ms >= first.median_ms && first.runs >= 7, "{first:?}");
    assert_eq!((first.device.as_str(), first.version.is_empty()), ("emulated", false));
    measurer.obey(order(3, 2, 8), DeviceOccupancy::Free);
    assert_eq!(answer(&mut told, |answer| answer.point == 2).await.error, "");
}

#[tokio::test]
async fn a_replica_has_precedence() {
    let (mut measurer, _directory) = measurer();
    let mut told = measurer.told();
    measurer.obey(order(1, 1, 1), DeviceOccupancy::Replicas);
    assert_eq!(answer(&mut told, |answer| answer.claim == 1).await.yielded, "the device has a replica");
    measurer.obey(v1::Measure { time_max_ms: 600_000, ..order(2, 1, 1) }, DeviceOccupancy::Free);
    measurer.yield_device(7);
    measurer.yield_device(0);
    let yielded = answer(&mut told, |answer| answer.claim == 2).await;
    assert_eq!(yielded.yielded, "a replica came to the device");
}

#[tokio::test]
async fn older_claims_and_wrong_orders_are_refused() {
    let (mut measurer, _directory) = measurer();
    let mut told = measurer.told();
    measurer.obey(order(5, 1, 0), DeviceOccupancy::Free);
    assert_eq!(answer(&mut told, |answer| answer.claim == 5).await.error, "batch 0: expected 1 to 4096");
    measurer.obey(order(4, 1, 1), DeviceOccupancy::Free);
    measurer.obey(v1::Measure { group: None, ..order(6, 1, 1) }, DeviceOccupancy::Free);
    assert_eq!(answer(&mut told, |answer| answer.claim != 5).await.error, "the order names no variant");
    measurer.stop(6);
    assert!(measurer.last.is_none() && measurer.worker.is_none());
    let silent = v1::GroupTarget { variant: "v".into(), ..Default::default() };
    measurer.obey(v1::Measure { group: Some(silent), ..order(7, 1, 1) }, DeviceOccupancy::Free);
    let refused = answer(&mut told, |answer| answer.claim == 7).await.error;
    assert!(refused.contains("variant v of task t") && refused.contains("no latencies"), "{refused}");
}
