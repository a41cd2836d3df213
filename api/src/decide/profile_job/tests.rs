//! Profile jobs: orders, rows and devices.

use super::super::placement::PlacedReplica;
use super::*;
use serde_json::json;

fn spec() -> PipelineSpec {
    serde_json::from_value(json!({
        "name": "p", "slo_ms": 100.0,
        "tasks": [
            {"name": "find", "variants": [{"name": "find-s"}, {"name": "find-l"}]},
            {"name": "read", "variants": [{"name": "read-s"}]}
        ]
    }))
    .expect("a spec")
}

fn request(document: serde_json::Value) -> ProfileJobRequest {
    let mut request: ProfileJobRequest = serde_json::from_value(document).expect("a request");
    request.resolve_variants(&spec()).expect("variants of the pipeline");
    request
}

fn names(request: &ProfileJobRequest) -> Vec<&str> {
    request.variants.iter().filter_map(|choice| choice.variant.as_deref()).collect()
}

fn row(order: &PointOrder, hardware: &str, latency_ms: f64) -> MeasuredRow {
    let measured = RowMeasurement {
        at: Some("2026-03-01T12:00:00Z".into()),
        runs: Some(400),
        median_low_ms: Some(0.9 * latency_ms),
        median_high_ms: Some(1.1 * latency_ms),
        ..RowMeasurement::default()
    };
    MeasuredRow {
        task: order.task.clone(),
        variant: order.variant.clone(),
        hardware: hardware.into(),
        share: 1.0,
        batch: order.batch,
        latency_ms,
        p99_ms: Some(2.0 * latency_ms),
        measured: Some(measured),
    }
}

/// Carries out the orders of a hardware type; `measure` is the latency, or `None` for a failure.
fn carry_out(
    request: &ProfileJobRequest,
    hardware: &str,
    points: &mut Vec<JobPoint>,
    measure: impl Fn(&PointOrder) -> Option<f64>,
) -> Vec<(String, u32)> {
    let mut orders = Vec::new();
    while let Some(order) = next_order(request, hardware, points) {
        let outcome = measure(&order).map(|ms| row(&order, hardware, ms)).ok_or_else(|| PointFailure("no room".into()));
        orders.push((order.variant.clone(), order.batch));
        let PointOrder { task, variant, batch } = order;
        points.push(JobPoint { hardware: hardware.into(), task, variant, batch, outcome });
        assert!(orders.len() < 100, "{orders:?}");
    }
    orders
}

#[test]
fn variants_are_resolved_in_the_order_of_the_pipeline() {
    assert_eq!(names(&request(json!({"pipeline": "p"}))), ["find-s", "find-l", "read-s"]);
    let some = request(json!({"pipeline": "p", "variants": [{"task": "read"}, {"task": "find", "variant": "find-l"}]}));
    assert_eq!(names(&some), ["find-l", "read-s"]);
    for wrong in [json!({"task": "sort"}), json!({"task": "read", "variant": "find-s"})] {
        let mut request: ProfileJobRequest =
            serde_json::from_value(json!({"pipeline": "p", "variants": [wrong]})).expect("a request");
        assert_eq!(request.resolve_variants(&spec()).expect_err("unknown").pointer, "/variants/0");
    }
}

#[test]
fn values_out_of_their_bounds_are_refused() {
    let refused = |document: serde_json::Value| {
        let request: ProfileJobRequest = serde_json::from_value(document).expect("a request");
        request.refused().into_iter().map(|invalid| invalid.pointer).collect::<Vec<_>>()
    };
    assert!(refused(json!({"pipeline": "p"})).is_empty());
    for (key, value) in [
        ("batches", json!([2, 1])),
        ("batches", json!([0, 1])),
        ("batches", json!([JOB_BATCH_MAX + 1])),
        ("batches", json!((1..=JOB_BATCHES_MAX + 1).collect::<Vec<_>>())),
        ("batch_max", json!(0)),
        ("time_max_s", json!(0.0)),
        ("time_max_s", json!(JOB_TIME_S_MAX + 1.0)),
        ("point_time_max_s", json!(POINT_TIME_S_MAX + 1.0)),
        ("hardware", json!(vec!["h"; JOB_LIST_MAX + 1])),
        ("shapes", json!({"x": [3, 0]})),
    ] {
        assert_eq!(refused(json!({"pipeline": "p", key: value})), [format!("/{key}")], "{value}");
    }
}

#[test]
fn unsure_sizes_are_measured_and_the_rest_is_interpolated() {
    let request = request(json!({"pipeline": "p", "variants": [{"task": "read"}], "hardware": ["h"]}));
    let mut points = Vec::new();
    let orders = carry_out(&request, "h", &mut points, |order| Some(5.0 + 2.0 * f64::from(order.batch)));
    let sizes: Vec<u32> = orders.iter().map(|(_, batch)| *batch).collect();
    assert!(sizes.len() == 3 && sizes[..2] == [1, 32], "a line needs three sizes: {sizes:?}");
    let part = JobPart { hardware: "h", task: "read", variant: "read-s" };
    let rows = part.profile_rows(&request, &points);
    let seen: Vec<(u32, f64)> = rows.iter().map(|row| (row.batch, row.latency_ms.round())).collect();
    assert_eq!(seen, [(1, 7.0), (2, 9.0), (4, 13.0), (8, 21.0), (16, 37.0), (32, 69.0)]);
    assert!(rows.iter().all(|row| (row.latency_ms - row.latency_ms.round()).abs() < 1e-9), "{rows:?}");
    let made = rows[1].measured.as_ref().expect("how it was made");
    assert_eq!((made.runs, made.median_low_ms.map(|ms| (ms * 10.0).round())), (Some(0), Some(81.0)));
    assert_eq!(rows[1].p99_ms.map(f64::round), Some(18.0));
    assert_eq!(ready_parts(&request, &points), 1);
}

#[test]
fn given_sizes_are_all_measured_and_never_fall() {
    let of = json!({"pipeline": "p", "variants": [{"task": "read"}], "hardware": ["h"], "batches": [1, 2, 3]});
    let (request, mut points) = (request(of), Vec::new());
    carry_out(&request, "h", &mut points, |order| Some([4.0, 6.0, 5.0][order.batch as usize - 1]));
    let part = JobPart { hardware: "h", task: "read", variant: "read-s" };
    let rows = part.profile_rows(&request, &points);
    let seen: Vec<_> = rows.iter().map(|row| (row.batch, row.latency_ms, row.p99_ms)).collect();
    assert_eq!(seen, [(1, 4.0, Some(8.0)), (2, 5.5, Some(11.0)), (3, 5.5, Some(11.0))]);
}

#[test]
fn sizes_above_a_failure_are_left_out() {
    let request = request(json!({"pipeline": "p", "hardware": ["h", "g"]}));
    let mut points = Vec::new();
    let fits = |order: &PointOrder| (order.variant != "find-l" || order.batch <= 4).then_some(3.0);
    let orders = carry_out(&request, "h", &mut points, fits);
    let of_large: Vec<u32> = orders.iter().filter(|(variant, _)| variant == "find-l").map(|(_, batch)| *batch).collect();
    assert_eq!(of_large, [1, 32, 16, 8, 4, 2]);
    assert_eq!((ready_parts(&request, &points), request.parts()), (3, 6), "the other hardware type is not measured");
    let none = carry_out(&request, "g", &mut points, |_| None);
    assert_eq!(none, [("find-s".to_owned(), 1), ("find-l".to_owned(), 1), ("read-s".to_owned(), 1)]);
    assert_eq!(ready_parts(&request, &points), 6);
}

#[test]
fn a_device_without_replicas_measures() {
    let device = |agent, device| Device::new(agent, device, "h");
    let devices = [device(1, 0), device(1, 1), device(2, 0), device(2, 1)];
    let replica = |agent, device| PlacedReplica { id: agent, group: 1, agent, device };
    let with = |replicas: &[PlacedReplica]| Placement { replicas: replicas.to_vec(), ..Placement::default() };
    let place = |agent, device| Some(DeviceSlot { agent, device });
    let chosen = |placement: &Placement, claimed: &[u64], avoided: &[DeviceSlot]| {
        let (claimed, avoided) = (claimed.iter().copied().collect(), avoided.iter().copied().collect());
        choose_device(&devices, "h", placement, &claimed, &avoided)
    };
    assert_eq!(chosen(&with(&[]), &[], &[]), place(1, 0));
    assert_eq!(chosen(&with(&[replica(1, 0)]), &[], &[]), place(2, 0), "agent 2 has no replica");
    assert_eq!(chosen(&with(&[replica(1, 0)]), &[2], &[]), place(1, 1));
    assert_eq!(chosen(&with(&[]), &[], &[DeviceSlot { agent: 1, device: 0 }]), place(1, 1));
    let full = [replica(1, 0), replica(1, 1), replica(2, 0), replica(2, 1)];
    assert_eq!(chosen(&with(&full), &[], &[]), None);
    assert_eq!(choose_device(&devices, "g", &with(&[]), &BTreeSet::new(), &BTreeSet::new()), None);
}

#[test]
fn a_lasting_drift_is_measured_again_seldom() {
    let at = |seconds: i64| DateTime::from_timestamp(seconds, 0).expect("a moment");
    assert!(!is_measured_again(at(0), None, at(DRIFT_LASTS_S - 1)));
    assert!(is_measured_again(at(0), None, at(DRIFT_LASTS_S)));
    let newest = Some(at(100));
    assert!(!is_measured_again(at(0), newest, at(99 + MEASURE_AGAIN_S)));
    assert!(is_measured_again(at(0), newest, at(100 + MEASURE_AGAIN_S)));
}

#[test]
fn only_chosen_variants_need_an_accuracy() {
    let mut measured = spec();
    measured.tasks[0].variants[1].accuracy = Some(0.9);
    let of = |variants: serde_json::Value| request(json!({"pipeline": "p", "hardware": ["t4"], "variants": variants}));
    let chosen = of(json!([{"task": "find", "variant": "find-l"}]));
    assert_eq!(chosen.check_accuracies(&measured), Ok(()));
    let refused = of(json!([{"task": "find"}])).check_accuracies(&measured).expect_err("find-s has none").to_string();
    assert!(refused.starts_with("/pipeline: find/find-s has no accuracy: expected `accuracy` of the variant"), "{refused}");
}
