//! The example pipeline is profiled like a user's pipeline.

use apportion_domain::{VariantExecution, VariantRuntime};
use apportion_needs::{Need, need};
use apportion_profiler::{
    Backend, BackendError, EdgeFiles, ExecutionSettings, MatchRule, MeasureOptions, Measured, PipelineFiles, PointRule,
    PythonSettings, STAGE_TIMEOUT_DEFAULT, TaskFiles, ValidationFiles, ValueRule, VariantFile, file_loader, find_library,
    profile_pipeline,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn strings<T: From<String>>(pairs: &[(&str, &str)]) -> BTreeMap<String, T> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), T::from((*b).to_owned()))).collect()
}

fn digits(finds: &[&str], reads: &[&str]) -> PipelineFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits");
    let variant = |name: &&str| VariantFile {
        name: (*name).to_owned(),
        file: folder.join(format!("models/{name}.onnx")),
        runtime: VariantRuntime::Onnx,
        execution: VariantExecution::default(),
    };
    let task = |name: &str, variants: &[&str]| TaskFiles {
        name: name.to_owned(),
        variants: variants.iter().map(variant).collect(),
        ..TaskFiles::default()
    };
    let map = strings(&[("image", "crops"), ("center", "centers")]);
    let image = folder.join("validation/image.npy");
    let (value, at) = ("label".to_owned(), Some("position".to_owned()));
    let matching = MatchRule::Value(ValueRule { value, at, within: Some(4.0), top: None });
    PipelineFiles {
        tasks: vec![task("find", finds), task("read", reads)],
        edges: vec![EdgeFiles { from: "find".to_owned(), to: "read".to_owned(), map }],
        validation: Some(ValidationFiles {
            inputs: [("image".to_owned(), image)].into(),
            labels: Some(folder.join("validation/labels.json")),
            matching,
        }),
    }
}

fn library() -> Option<PathBuf> {
    need(Need::Onnx, find_library(None))
}

fn loader(library: PathBuf) -> impl Fn(&VariantFile) -> Result<Box<dyn Backend>, BackendError> {
    let python = PythonSettings { program: "python3".into(), timeout: STAGE_TIMEOUT_DEFAULT, threads: 1 };
    file_loader(library, ExecutionSettings::on_cpu(1), python)
}

fn quick() -> MeasureOptions {
    MeasureOptions {
        batches: vec![1, 4, 32],
        point: PointRule { repeats_min: 2, repeats_max: 3, time_max: Duration::ZERO, ..PointRule::default() },
        ..MeasureOptions::default()
    }
}

fn accuracy(measured: &Measured, key: &str) -> f64 {
    let path = measured.path_accuracy.iter().find(|p| p.key() == key);
    path.unwrap_or_else(|| panic!("{key} is a path")).accuracy
}

#[test]
fn paths_fan_out_and_tensors_are_as_the_example_says() {
    let Some(library) = library() else { return };
    let (mut seen, mut total) = (Vec::new(), 0);
    let measured = profile_pipeline(
        &digits(&["find-s", "find-m"], &["read-s", "read-m"]),
        &loader(library),
        &|_, _| Ok(None),
        &quick(),
        &mut |progress| {
            seen.push(progress.done);
            total = progress.total;
        },
    )
    .expect("the example can be profiled");
    assert_eq!(seen, (1..=total).collect::<Vec<_>>(), "every step is reported");

    // The table in the example's README, measured by another program; the last digit may differ between machines.
    let paths = [
        ("find:find-s>read:read-s", 0.640),
        ("find:find-s>read:read-m", 0.755),
        ("find:find-m>read:read-s", 0.776),
        ("find:find-m>read:read-m", 0.891),
    ];
    assert_eq!(measured.path_accuracy.len(), paths.len());
    for (key, told) in paths {
        assert!((accuracy(&measured, key) - told).abs() < 0.005, "{key}: {} and {told}", accuracy(&measured, key));
    }
    assert_eq!(measured.examples, 400);
    let [find, read] = &measured.tasks[..] else { panic!("two tasks") };
    let best = Some(accuracy(&measured, "find:find-m>read:read-m"));
    assert_eq!(find.variants[1].accuracy, best, "of the best path through it");
    assert_eq!(read.variants[0].accuracy, Some(accuracy(&measured, "find:find-m>read:read-s")));
    for (variant, fanout) in find.variants.iter().zip([2.88, 3.04]) {
        let counts = &variant.fanout_counts["read"];
        assert!((counts.mean() - fanout).abs() < 0.01 && variant.fanout == Some(counts.mean()), "{counts:?}");
        assert!((counts.0.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-9, "{counts:?}");
        assert!(counts.0[0].0 == 0 && counts.0[0].1 > 0.05, "35 of the 400 canvases are empty: {counts:?}");
    }
    assert!(read.variants.iter().all(|v| v.fanout_counts.is_empty() && v.fanout == Some(1.0)));
    assert_eq!(find.outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["crops", "centers", "parent"]);
    assert_eq!(
        (read.inputs[0].shape.as_slice(), read.inputs[1].shape.as_slice()),
        ([-1, 16, 16].as_slice(), [-1, 2].as_slice())
    );
    for variant in measured.tasks.iter().flat_map(|t| &t.variants) {
        assert_eq!(variant.rows.iter().map(|r| r.batch).collect::<Vec<_>>(), [1, 4, 32]);
        assert!(variant.rows.is_sorted_by(|a, b| a.latency_ms <= b.latency_ms && a.p99_ms <= b.p99_ms), "{variant:?}");
        assert!(
            variant.rows.iter().all(|r| 0.0 < r.latency_ms && r.latency_ms <= r.p99_ms && r.repeats >= 2),
            "{variant:?}"
        );
        assert!(variant.load_ms > 0.0 && variant.memory_mib.is_none(), "{variant:?}");
    }
}

#[test]
fn the_options_multiple_and_examples_take_effect() {
    let Some(library) = library() else { return };
    let load = loader(library);
    let run = |multiple, examples_max| {
        let options = MeasureOptions { multiple, examples_max, ..quick() };
        profile_pipeline(&digits(&["find-s"], &["read-s"]), &load, &|_, _| Ok(None), &options, &mut |_| {})
            .expect("a profile")
    };
    let (plain, stretched) = (run(1.0, 10), run(1_000.0, 10));
    assert_eq!(plain.examples, 10);
    assert_eq!(plain.path_accuracy, stretched.path_accuracy);
    for (a, b) in plain.tasks.iter().zip(&stretched.tasks) {
        let (a, b) = (a.variants[0].rows[0].latency_ms, b.variants[0].rows[0].latency_ms);
        assert!(b > 20.0 * a, "{b} is a thousand times {a}, noise aside");
    }
}

#[test]
fn mismatches_are_refused_with_their_place() {
    let Some(library) = library() else { return };
    let load = loader(library);
    let refused = |change: &dyn Fn(&mut PipelineFiles), said: &str| {
        let mut files = digits(&["find-s"], &["read-s"]);
        change(&mut files);
        let error = profile_pipeline(&files, &load, &|_, _| Ok(None), &quick(), &mut |_| {}).expect_err(said);
        let text = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        assert!(text.contains(said), "{text} should say {said:?}");
    };
    refused(
        &|f| f.tasks[0].variants[0].file = PathBuf::from("/nowhere.onnx"),
        "variant find-s of task find: /nowhere.onnx",
    );
    refused(
        &|f| {
            let find = f.tasks[0].variants[0].clone();
            f.tasks[1].variants.push(find);
        },
        "stand in for each other",
    );
    refused(&|f| f.edges[0].map = strings(&[("image", "crops")]), "task read: no edge into it has input center in its map");
    refused(&|f| f.edges[0].map = strings(&[("image", "crop"), ("center", "centers")]), "not there");
    refused(&|f| f.edges[0].map = strings(&[("image", "centers"), ("center", "centers")]), "does not fit");
    let refused_set = |change: &dyn Fn(&mut ValidationFiles), expected: &str| {
        refused(&|f| f.validation.as_mut().map_or((), change), expected);
    };
    refused_set(&|v| v.inputs.clear(), "lacks input image");
    refused_set(&|v| v.inputs.insert("x".to_owned(), PathBuf::new()).map_or((), drop), "input x, which the root has not");
    refused_set(&|v| v.labels = Some(PathBuf::from("/nowhere.json")), "/nowhere.json");
    refused_set(&|v| v.inputs = strings(&[("image", "/nowhere.npy")]), "/nowhere.npy");
    let rule = |value: &str, at: &str| {
        MatchRule::Value(ValueRule { value: value.to_owned(), at: Some(at.to_owned()), within: Some(4.0), top: None })
    };
    refused_set(&|v| v.matching = rule("digit", "position"), "task read has no output digit");
    refused_set(&|v| v.matching = rule("label", "label"), "label has 1 numbers a row, the labels are at 2");
}
