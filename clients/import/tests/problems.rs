//! Do profiles, prices and a demand make the right problem?

use apportion_domain::Mode;
use apportion_import::{ProblemRequest, default_slo_ms, hardware_offers, problem_of};
use apportion_wire::{MeasuredRow, MeasuredVariant, ProblemSpec, ProfileSet};

fn row(task: &str, variant: &str, hardware: &str, batch: u32) -> MeasuredRow {
    let names = (task.to_owned(), variant.to_owned(), hardware.to_owned());
    MeasuredRow {
        task: names.0,
        variant: names.1,
        hardware: names.2,
        share: 1.0,
        batch,
        latency_ms: 10.0,
        p99_ms: None,
        measured: None,
    }
}

fn figures(task: &str, variant: &str, accuracy: f64) -> MeasuredVariant {
    let (task, variant) = (task.to_owned(), variant.to_owned());
    MeasuredVariant { task, variant, accuracy: Some(accuracy), ..MeasuredVariant::default() }
}

fn request(hardware: &str) -> ProblemRequest {
    ProblemRequest {
        pipeline: "main".into(),
        qps: 50.0,
        slo_ms: 200.0,
        hardware: hardware_offers(hardware).expect("offers"),
        mode: None,
        min_accuracy: None,
    }
}

fn made(profile: &ProfileSet, hardware: &str) -> (ProblemSpec, Vec<String>) {
    let (spec, notes) = problem_of("f", profile, &request(hardware)).expect("a problem");
    spec.to_domain().unwrap_or_else(|e| panic!("a valid problem: {e:?}"));
    (spec, notes)
}

fn edges(spec: &ProblemSpec) -> Vec<(&str, &str)> {
    spec.pipelines[0].edges.iter().map(|e| (e.from.as_str(), e.to.as_str())).collect()
}

#[test]
fn prices_and_counts_are_read() {
    let offers = hardware_offers("cpu=0.05x20, t4=0.53").expect("offers");
    let read: Vec<_> = offers.iter().map(|h| (h.name.as_str(), h.price_per_hour, h.count)).collect();
    assert_eq!(read, [("cpu", 0.05, Some(20)), ("t4", 0.53, None)]);
    for wrong in ["", "cpu", "=1", "cpu=", "cpu=x3", "cpu=1x", "cpu=1x-2", "cpu=-1", "cpu=NaN", "cpu=1,", "cpu=1xx2"] {
        let found = hardware_offers(wrong).expect_err(wrong).to_string();
        assert!(found.contains("expected NAME=PRICE or NAME=PRICExCOUNT"), "{wrong}: {found}");
    }
}

#[test]
fn tasks_are_a_chain_in_their_order() {
    let rows = vec![row("z", "v", "t4", 1), row("a", "v", "t4", 1), row("z", "w", "t4", 4), row("m", "v", "t4", 1)];
    let (spec, notes) = made(&ProfileSet { rows, ..ProfileSet::default() }, "t4=1");
    assert_eq!(edges(&spec), [("z", "a"), ("a", "m")]);
    assert_eq!(spec.pipelines[0].tasks[0].variants.len(), 2);
    assert_eq!(spec.objective.mode, Mode::MinCost.name());
    assert_eq!(notes, ["f: not every variant has an accuracy: each counts as 1, and the goal is min_cost"]);
}

#[test]
fn measured_fan_outs_are_the_edges() {
    let rows = ["a", "b", "c"].map(|task| row(task, "v", "t4", 1)).to_vec();
    let counts = |children: [&str; 2]| children.map(|c| (c.to_owned(), [(2, 1.0)].into())).into();
    let root = MeasuredVariant { fanout_counts: counts(["b", "c"]), ..figures("a", "v", 0.9) };
    let variants = vec![root, figures("b", "v", 0.8), figures("c", "v", 0.8)];
    let path_accuracy = [("a:v>b:v".to_owned(), 0.7), ("a:gone>b:v".to_owned(), 0.6)].into();
    let (spec, notes) = made(&ProfileSet { rows, variants, path_accuracy, ..ProfileSet::default() }, "t4=1");
    assert_eq!(edges(&spec), [("a", "b"), ("a", "c")]);
    assert_eq!(spec.objective.mode, Mode::default().name(), "all accuracies are known");
    assert_eq!(spec.pipelines[0].path_accuracy.keys().collect::<Vec<_>>(), ["a:v>b:v"]);
    assert_eq!(notes, [""; 0]);
}

#[test]
fn variants_without_latencies_on_the_hardware_are_left_out() {
    let rows = vec![row("a", "small", "cpu", 1), row("a", "large", "t4", 1)];
    let profile = ProfileSet { rows, ..ProfileSet::default() };
    let (spec, notes) = made(&profile, "cpu=0.1");
    assert_eq!(spec.pipelines[0].tasks[0].variants.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["small"]);
    assert_eq!(notes[0], "f: left out a/large: it has no latency on cpu");
    let refused = problem_of("f", &profile, &request("tpu=1")).expect_err("no such hardware").to_string();
    assert_eq!(refused, "f: a has no latency on tpu: expected --hardware with one of cpu, t4");
}

#[test]
fn the_default_objective_is_five_times_a_query() {
    let timed = |task: &str, variant: &str, hardware: &str, batch: u32, latency_ms: f64| MeasuredRow {
        latency_ms,
        ..row(task, variant, hardware, batch)
    };
    let rows = vec![
        timed("find", "small", "t4", 1, 4.0),
        timed("find", "large", "t4", 4, 30.0),
        timed("find", "large", "t4", 1, 10.5),
        timed("find", "large", "cpu", 1, 90.0),
        timed("read", "only", "t4", 2, 8.0),
        MeasuredRow { share: 0.5, ..timed("read", "only", "t4", 1, 100.0) },
        MeasuredRow { share: 0.25, ..timed("read", "only", "a100", 1, 40.0) },
        MeasuredRow { share: 0.5, ..timed("read", "only", "a100", 1, 20.0) },
    ];
    let profile = ProfileSet { rows, ..ProfileSet::default() };
    let of = |hardware: &str| default_slo_ms(&profile, &hardware_offers(hardware).expect("offers"));
    assert_eq!(of("t4=1"), 93.0, "5 times 10.5 and 8 ms, in whole milliseconds");
    assert_eq!(of("t4=1,cpu=1"), 93.0, "the fastest of both");
    assert_eq!(of("cpu=1"), 450.0);
    assert_eq!(of("a100=1"), 100.0, "the largest share, where nothing has a whole device");
    assert_eq!(of("h100=1"), 1.0, "the problem is refused for another reason");
}
