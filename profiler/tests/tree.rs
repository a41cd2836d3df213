//! The convention holds for a tree of variants that are plain functions, without a runtime.

use apportion_domain::transform::{CastStep, EdgeGlue, TaskGlue, Transform};
use apportion_domain::{Share, VariantExecution, VariantRuntime};
use apportion_profiler::{
    Backend, BackendError, CommandRule, Datatype, EdgeFiles, GivenShape, MatchRule, MeasureOptions, Measured,
    PipelineFiles, PointRule, ProfileError, ProfilePoint, Signature, TaskFiles, Tensor, TensorSignature, ValidationFiles,
    ValueRule, VariantFile, profile_pipeline,
};
use std::time::Duration;

fn spec(name: &str) -> TensorSignature {
    TensorSignature { name: name.to_owned(), datatype: Datatype::Int64, shape: vec![-1] }
}

fn tensor(name: &str, numbers: &[i64]) -> Tensor {
    let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), datatype: Datatype::Int64, shape: vec![numbers.len()], data: data.into() }
}

fn numbers(tensor: &Tensor) -> Vec<i64> {
    tensor.data.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c)).collect()
}

/// A variant, by the name of its file.
struct Function {
    name: String,
    signature: Signature,
}

impl Backend for Function {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let n = numbers(&inputs[0]);
        let repeat = |times: &dyn Fn(i64) -> i64| {
            let rows: Vec<(usize, i64)> =
                n.iter().enumerate().flat_map(|(i, &x)| (0..times(x)).map(move |k| (i, x * 10 + k))).collect();
            let parents: Vec<i64> = rows.iter().map(|(i, _)| *i as i64).collect();
            vec![tensor("y", &rows.iter().map(|(_, y)| *y).collect::<Vec<_>>()), tensor("parent", &parents)]
        };
        Ok(match self.name.as_str() {
            "digits" => repeat(&|x| x), // x makes 10x, 10x + 1, .. : x of them
            "two" => repeat(&|_| 2),    // every x makes 10x and 10x + 1
            "none" => repeat(&|_| 0),
            "same" => vec![tensor("y", &n)],
            "slow" => {
                std::thread::sleep(Duration::from_millis(5));
                vec![tensor("y", &n)]
            }
            // The first number of each row.
            "open" | "slow-open" => {
                if self.name == "slow-open" {
                    std::thread::sleep(Duration::from_millis(5));
                }
                vec![tensor("y", &n.chunks(inputs[0].shape[1]).map(|row| row[0]).collect::<Vec<_>>())]
            }
            "odd" => vec![tensor("y", &n.iter().map(|x| x | 1).collect::<Vec<_>>())],
            // As wide as the first query of the batch says.
            "wide" => {
                let width = if n.first() == Some(&0) { 1 } else { 2 };
                vec![Tensor { shape: vec![n.len(), width], ..tensor("y", &n.repeat(width)) }]
            }
            "short" => vec![tensor("y", &n[..n.len() - 1])],
            "astray" => vec![tensor("y", &n), tensor("parent", &vec![n.len() as i64; n.len()])],
            "fails" => return Err(BackendError::Run("out of paper".to_owned())),
            other => unreachable!("{other}"),
        })
    }
}

fn load(file: &VariantFile) -> Result<Box<dyn Backend>, BackendError> {
    let name = file.file.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    let outputs: &[&str] =
        if ["digits", "two", "none", "astray"].contains(&name.as_str()) { &["y", "parent"] } else { &["y"] };
    let mut signature = Signature { inputs: vec![spec("x")], outputs: outputs.iter().map(|n| spec(n)).collect() };
    if name == "wide" {
        signature.outputs[0].shape = vec![-1, -1];
    }
    if name == "open" || name == "slow-open" {
        signature.inputs[0].shape = vec![-1, -1];
    }
    Ok(Box::new(Function { name, signature }))
}

/// A folder with a file for every variant, the inputs 0 1 2 3 and the labels.
struct Set {
    folder: tempfile::TempDir,
}

impl Set {
    fn new(labels: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut npy = b"\x93NUMPY\x01\x00\x40\x00".to_vec();
        npy.extend(format!("{:64}", "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }").bytes());
        npy.extend([0_i64, 1, 2, 3].iter().flat_map(|n| n.to_le_bytes()));
        std::fs::write(folder.path().join("x.npy"), npy).expect("written");
        std::fs::write(folder.path().join("labels.json"), labels).expect("written");
        Self { folder }
    }

    /// `tasks`: `name variant variant ..`; `edges`: `from to`.
    fn files(&self, tasks: &[&str], edges: &[&str]) -> PipelineFiles {
        let variant = |name: &str| {
            let file = self.folder.path().join(name);
            std::fs::write(&file, "weights").expect("written");
            let execution = VariantExecution::default();
            VariantFile { name: name.to_owned(), file, runtime: VariantRuntime::Onnx, execution }
        };
        let task = |text: &&str| {
            let (name, variants) = text.split_once(' ').expect("a name and variants");
            let variants = variants.split(' ').map(variant).collect();
            TaskFiles { name: name.to_owned(), variants, ..TaskFiles::default() }
        };
        let edge = |text: &&str| {
            let (from, to) = text.split_once(' ').expect("two tasks");
            let map = [("x".to_owned(), "y".to_owned())].into();
            EdgeFiles { from: from.to_owned(), to: to.to_owned(), map }
        };
        let inputs = [("x".to_owned(), self.folder.path().join("x.npy"))].into();
        let labels = Some(self.folder.path().join("labels.json"));
        let matching = MatchRule::Value(ValueRule { value: "y".to_owned(), ..ValueRule::default() });
        let validation = Some(ValidationFiles { inputs, labels, matching });
        PipelineFiles { tasks: tasks.iter().map(task).collect(), edges: edges.iter().map(edge).collect(), validation }
    }

    fn profile(&self, tasks: &[&str], edges: &[&str]) -> Result<Measured, ProfileError> {
        self.profile_files(&self.files(tasks, edges))
    }

    fn profile_files(&self, files: &PipelineFiles) -> Result<Measured, ProfileError> {
        let options = quick();
        let rows = |_: &VariantFile, batch: &[Tensor]| Ok(Some(batch[0].rows() as f64));
        profile_pipeline(files, &load, &rows, &options, &mut |_| {})
    }
}

/// Two batch sizes, each timed as shortly as possible.
fn quick() -> MeasureOptions {
    MeasureOptions {
        batches: vec![1, 8],
        point: PointRule { repeats_min: 1, time_max: Duration::ZERO, ..PointRule::default() },
        ..MeasureOptions::default()
    }
}

/// What `digits` then `same` should find: x of them for x.
const LABELS: &str =
    r#"[[], [{"value": 10}], [{"value": 20}, {"value": 21}], [{"value": 30}, {"value": 31}, {"value": 32}]]"#;

#[test]
fn every_combination_down_to_a_sink_is_a_path() {
    let set = Set::new(LABELS);
    let measured =
        set.profile(&["cut digits two", "left same odd", "right same"], &["cut left", "cut right"]).expect("a tree");
    let paths: Vec<(String, f64)> = measured.path_accuracy.iter().map(|p| (p.key(), p.accuracy)).collect();
    // Of the 6 labels `digits` gives all, `odd` keeps 21 and 31 of them; `two` gives 10, 20, 21, 30, 31, odd 21 and 31.
    let expected = [
        ("cut:digits>left:same", 1.0),
        ("cut:digits>left:odd", 2.0 / 6.0),
        ("cut:digits>right:same", 1.0),
        ("cut:two>left:same", 5.0 / 6.0),
        ("cut:two>left:odd", 2.0 / 6.0),
        ("cut:two>right:same", 5.0 / 6.0),
    ];
    assert_eq!(paths, expected.map(|(key, accuracy)| (key.to_owned(), accuracy)));
    let cut = &measured.tasks[0].variants;
    assert_eq!(cut[0].fanout_counts["right"].0, [(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.25)]);
    assert_eq!(cut[0].fanout_counts["left"], cut[0].fanout_counts["right"]);
    assert_eq!((cut[0].fanout, cut[1].fanout), (Some(1.5), Some(2.0)));
    assert_eq!(cut[1].fanout_counts["left"].0, [(2, 1.0)]);
    assert_eq!((cut[0].accuracy, cut[1].accuracy), (Some(1.0), Some(5.0 / 6.0)));
    assert_eq!(cut[0].memory_mib, Some(8.0), "it is asked for with the largest batch");
}

#[test]
fn latencies_need_no_validation_set() {
    let set = Set::new(LABELS);
    let files = PipelineFiles { validation: None, ..set.files(&["cut digits two", "right same odd"], &["cut right"]) };
    let measured = set.profile_files(&files).expect("a chain");
    assert_eq!((measured.path_accuracy.len(), measured.examples), (0, 0));
    for variant in measured.tasks.iter().flat_map(|task| &task.variants) {
        assert_eq!(variant.rows.iter().map(|row| row.batch).collect::<Vec<_>>(), [1, 8], "{variant:?}");
        assert_eq!((variant.accuracy, variant.fanout, variant.fanout_counts.len()), (None, None, 0), "{variant:?}");
        assert_eq!(variant.memory_mib, Some(8.0), "it is asked for with the largest batch");
    }
    assert_eq!(measured.tasks[1].inputs, [spec("x")]);
}

#[test]
fn shares_are_timed_beside_copies() {
    let set = Set::new(LABELS);
    let files = PipelineFiles { validation: None, ..set.files(&["cut slow fails"], &[]) };
    let [half, quarter] = [0.5, 0.25].map(|value| Share::new(value).expect("a share"));
    let loads = std::cell::RefCell::new(Vec::new());
    let counted = |file: &VariantFile| {
        loads.borrow_mut().push(file.name.clone());
        load(file)
    };
    let options = MeasureOptions { shares: vec![half, quarter], processors: Some(1), ..quick() };
    let (mut done, mut total) = (Vec::new(), 0);
    let mut profile = |files: &PipelineFiles| {
        profile_pipeline(files, &counted, &|_, _| Ok(None), &options, &mut |progress| {
            done.push(progress.done);
            total = progress.total;
        })
    };
    let only = |name: &str| {
        let mut files = files.clone();
        files.tasks[0].variants.retain(|variant| variant.name == name);
        files
    };
    let measured = profile(&only("slow")).expect("a variant");
    let variant = &measured.tasks[0].variants[0];
    assert_eq!(variant.shares.iter().map(|of| of.share).collect::<Vec<_>>(), [half, quarter]);
    for rows in variant.shares.iter().map(|of| &of.rows) {
        assert_eq!(rows.iter().map(|row| row.batch).collect::<Vec<_>>(), [1, 8]);
        assert!(rows.iter().all(|row| row.interference >= Some(1.0) && row.latency_ms >= 5.0), "{rows:?}");
    }
    assert!(variant.rows.iter().all(|row| row.interference.is_none()), "a whole device has no neighbours");
    assert_eq!(loads.borrow().len(), 3 + 2 + 4, "three loads are timed, and each share has its copies");
    let refused = profile(&only("fails")).expect_err("it fails alone");
    assert!(matches!(&refused, ProfileError::Variant { variant, .. } if variant == "fails"), "{refused}");
    assert_eq!((&done[..4], total), (&[1, 2, 3, 4][..], 4), "loaded, timed, and timed on two shares");
}

#[test]
fn joins_are_timed_without_a_validation_set() {
    let set = Set::new(LABELS);
    let mut files = set.files(&["a same", "b same", "c odd", "d same"], &["a b", "a c", "b d", "c d"]);
    let refused = set.profile_files(&files).expect_err("examples run along trees").to_string();
    assert!(refused.contains("task d has several parents, and a validation set runs along trees only"), "{refused}");
    files.validation = None;
    // The second edge delays the queries of the first, and brings nothing.
    files.edges[3].map.clear();
    let measured = set.profile_files(&files).expect("one root");
    assert!(measured.tasks.iter().flat_map(|task| &task.variants).all(|variant| variant.rows.len() == 2), "{measured:?}");
    files.edges[2].map.clear();
    let refused = set.profile_files(&files).expect_err("nothing brings x").to_string();
    assert!(refused.contains("task d: no edge into it has input x in its map"), "{refused}");
}

/// The files with this rule in the place of labels.
fn without_labels(files: PipelineFiles, matching: MatchRule) -> PipelineFiles {
    let validation = files.validation.map(|set| ValidationFiles { labels: None, matching, ..set });
    PipelineFiles { validation, ..files }
}

#[test]
fn a_cosine_compares_with_the_largest_files() {
    let set = Set::new(LABELS);
    let files = set.files(&["a odd same", "b odd same"], &["a b"]);
    for task in ["same", "odd"] {
        // `same` is the largest, and the order of the runs does not matter.
        let size = if task == "same" { 100 } else { 10 };
        std::fs::write(set.folder.path().join(task), "w".repeat(size)).expect("written");
    }
    let files = without_labels(files, MatchRule::Cosine("y".to_owned()));
    let measured = set.profile_files(&files).expect("a chain");
    let accuracy = |key: &str| {
        measured.path_accuracy.iter().find(|path| path.key() == key).unwrap_or_else(|| panic!("{key}")).accuracy
    };
    // Of 0 1 2 3, `odd` makes 1 1 3 3: each number but 0 has the same sign, and 0 has no direction.
    assert_eq!(accuracy("a:same>b:same"), 1.0);
    assert_eq!(accuracy("a:odd>b:same"), 0.75);
    assert_eq!(accuracy("a:same>b:odd"), 0.75);
    assert_eq!((measured.examples, measured.path_accuracy.len()), (4, 4));
}

#[test]
fn a_program_judges_without_labels() {
    let set = Set::new(LABELS);
    let rule = |command: &str| {
        MatchRule::Command(CommandRule {
            command: ["sh", "-c", command].map(str::to_owned).to_vec(),
            outputs: vec!["y".to_owned()],
            folder: set.folder.path().to_owned(),
            time_max: Duration::from_secs(600),
        })
    };
    // The share of even answers, of which `odd` has none: each example is a line with one number.
    let even = r#"grep -cE '"data":\[[0-9]*[02468]\]' > count; echo "0.$(cat count)""#;
    let files = |command: &str| without_labels(set.files(&["a odd same"], &[]), rule(command));
    let measured = set.profile_files(&files(even)).expect("judged");
    let paths: Vec<(String, f64)> = measured.path_accuracy.iter().map(|path| (path.key(), path.accuracy)).collect();
    assert_eq!(paths, [("a:odd".to_owned(), 0.0), ("a:same".to_owned(), 0.2)]);
    let refused = set.profile_files(&files("exit 4")).expect_err("it fails").to_string();
    let said = "variant odd of task a: the command sh -c exit 4 ended with exit status: 4: expected 0";
    assert!(refused.starts_with(said), "{refused}");
}

#[test]
fn open_sizes_are_asked_for_where_inputs_are_drawn() {
    let set = Set::new(LABELS);
    let files = PipelineFiles { validation: None, ..set.files(&["a open"], &[]) };
    let mut options = quick();
    let profile = |options: &MeasureOptions| profile_pipeline(&files, &load, &|_, _| Ok(None), options, &mut |_| {});
    let refused = profile(&options).expect_err("an open size");
    assert!(matches!(&refused, ProfileError::Inputs { task, .. } if task == "a"), "{refused}");
    let why = std::error::Error::source(&refused).expect("a reason").to_string();
    assert!(why.contains("so give all with --shape x=SIZE"), "{why}");
    options.shapes = vec![GivenShape { sizes: [("x".to_owned(), vec![3])].into(), share: None }];
    assert_eq!(profile(&options).expect("a profile").tasks[0].variants[0].rows.len(), 2);
}

/// The shapes of the only variant of a task: the size of `x`, the share, and the measured batch sizes.
fn shapes_of(measured: &Measured, task: usize) -> Vec<(Vec<usize>, f64, Vec<u32>)> {
    let variant = &measured.tasks[task].variants[0];
    let batches = |points: &[ProfilePoint]| points.iter().map(|point| point.batch).collect::<Vec<u32>>();
    assert_eq!(batches(&variant.rows), [1, 8], "all shapes together");
    variant.by_shape.iter().map(|of| (of.shape["x"].clone(), of.share, batches(&of.points))).collect()
}

/// A share of the queries whose `x` has this size.
fn shape(size: usize, share: f64) -> GivenShape {
    GivenShape { sizes: [("x".to_owned(), vec![size])].into(), share: Some(share) }
}

#[test]
fn shares_are_timed_with_each_shape() {
    let set = Set::new(LABELS);
    let files = PipelineFiles { validation: None, ..set.files(&["a slow-open"], &[]) };
    let half = Share::new(0.5).expect("a share");
    let options = MeasureOptions { shapes: vec![shape(3, 0.75), shape(5, 0.25)], shares: vec![half], ..quick() };
    let measured = profile_pipeline(&files, &load, &|_, _| Ok(None), &options, &mut |_| {}).expect("a profile");
    let [of_half] = &measured.tasks[0].variants[0].shares[..] else { panic!("one share") };
    let shapes: Vec<(Vec<usize>, f64)> = of_half.by_shape.iter().map(|of| (of.shape["x"].clone(), of.share)).collect();
    assert_eq!((of_half.share, shapes), (half, vec![(vec![3], 0.75), (vec![5], 0.25)]));
    for (at, row) in of_half.rows.iter().enumerate() {
        let factors: Vec<f64> = of_half.by_shape.iter().filter_map(|of| of.points[at].interference).collect();
        let [least, most] = [f64::min, f64::max].map(|of| factors.iter().copied().reduce(of).expect("neighbours ran"));
        let factor = row.interference.expect("neighbours ran");
        assert!(factors.len() == 2 && least >= 1.0, "{factors:?}");
        assert!(least - 1e-6 <= factor && factor <= most + 1e-6, "{factor} of all shapes, of each {factors:?}");
    }
    assert_eq!(of_half.rows.iter().map(|row| row.batch).collect::<Vec<_>>(), [1, 8]);
}

#[test]
fn each_given_shape_is_measured() {
    let set = Set::new(LABELS);
    let files = PipelineFiles { validation: None, ..set.files(&["a open"], &[]) };
    let profile = |shapes: Vec<GivenShape>| {
        profile_pipeline(&files, &load, &|_, _| Ok(None), &MeasureOptions { shapes, ..quick() }, &mut |_| {})
    };
    let measured = profile(vec![shape(3, 0.75), shape(5, 0.25)]).expect("a profile");
    assert_eq!(shapes_of(&measured, 0), [(vec![3], 0.75, vec![1, 8]), (vec![5], 0.25, vec![1, 8])]);
    assert!(shapes_of(&profile(vec![shape(3, 1.0)]).expect("a profile"), 0).is_empty(), "one shape is no mixture");
    let refused = profile(vec![shape(3, 0.75), shape(5, 0.5)]).expect_err("more than all queries");
    assert!(matches!(&refused, ProfileError::Shapes { task, .. } if task == "a"), "{refused}");
}

#[test]
fn queries_of_the_validation_set_have_their_own_shapes() {
    // The first half of the 16 queries of `c` begins with 0, so `c` makes rows of one number; then rows of two.
    let measured =
        Set::new(LABELS).profile(&["a two", "b two", "c wide", "d open"], &["a b", "b c", "c d"]).expect("a chain");
    assert_eq!(shapes_of(&measured, 3), [(vec![1], 0.5, vec![1, 8]), (vec![2], 0.5, vec![1, 8])]);
    assert!(shapes_of(&measured, 2).is_empty(), "its queries have one shape");
    assert_eq!(measured.tasks[2].variants[0].fanout_counts["d"].0, [(1, 1.0)]);
    assert_eq!(measured.path_accuracy.len(), 1, "the answers of both shapes are judged together");
}

/// A NumPy file of whole numbers with this shape, all of them `number`.
fn npy(shape: [usize; 2], number: i64) -> Vec<u8> {
    let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({}, {}), }}", shape[0], shape[1]);
    let mut npy = b"\x93NUMPY\x01\x00\x50\x00".to_vec();
    npy.extend(format!("{header:80}").bytes());
    npy.extend((0..shape[0] * shape[1]).flat_map(|_| number.to_le_bytes()));
    npy
}

#[test]
fn a_folder_of_arrays_has_examples_of_several_shapes() {
    let set = Set::new(r#"[[{"value": 7}], [{"value": 8}], [{"value": 8}], [{"value": 9}]]"#);
    let mut files = set.files(&["a open"], &[]);
    let folder = set.folder.path().join("recordings");
    std::fs::create_dir(&folder).expect("a folder");
    for (name, bytes) in [("1.npy", npy([1, 3], 7)), ("2.npy", npy([2, 5], 8)), ("3.npy", npy([1, 3], 9))] {
        std::fs::write(folder.join(name), bytes).expect("written");
    }
    std::fs::write(folder.join("about.txt"), "no array").expect("written");
    files.validation.as_mut().expect("a set").inputs = [("x".to_owned(), folder.clone())].into();
    let measured = set.profile_files(&files).expect("a profile");
    assert_eq!(shapes_of(&measured, 0), [(vec![3], 0.5, vec![1, 8]), (vec![5], 0.5, vec![1, 8])]);
    assert_eq!((measured.examples, measured.path_accuracy[0].accuracy), (4, 1.0), "each example keeps its label");

    let first = MeasureOptions { examples_max: 1, ..quick() };
    let measured = profile_pipeline(&files, &load, &|_, _| Ok(None), &first, &mut |_| {}).expect("a profile");
    assert!((measured.examples, shapes_of(&measured, 0).len()) == (1, 0), "the first example alone");

    for name in ["1.npy", "2.npy", "3.npy"] {
        std::fs::remove_file(folder.join(name)).expect("removed");
    }
    let refused = set.profile_files(&files).expect_err("an empty folder").to_string();
    assert!(refused.contains("recordings: it has 0 files with the ending .npy: expected 1 to 4096"), "{refused}");
    for count in 1..=17 {
        std::fs::write(folder.join(format!("{count:02}.npy")), npy([1, count], 7)).expect("written");
    }
    let labels = format!("[{}]", [r#"[{"value": 7}]"#; 17].join(","));
    std::fs::write(set.folder.path().join("labels.json"), labels).expect("written");
    let refused = set.profile_files(&files).expect_err("17 shapes");
    let why = std::error::Error::source(&refused).expect("a reason").to_string();
    assert!(why.starts_with("they have 17 shapes: expected at most 16; pad the inputs to a bucket of lengths"), "{why}");
}

#[test]
fn rows_keep_their_example_through_fan_outs() {
    let labels = r#"[[], [{"value": 100}], [{"value": 200}, {"value": 211}], [{"value": 321}, {"value": 100}]]"#;
    let measured = Set::new(labels).profile(&["a digits", "b two", "c same"], &["a b", "b c"]).expect("a chain");
    assert_eq!(measured.path_accuracy[0].accuracy, 4.0 / 5.0, "100 stems from 1, so it is not found in 3");
    assert_eq!(measured.tasks[1].variants[0].fanout_counts["c"].0, [(2, 1.0)]);
}

#[test]
fn variants_that_break_the_convention_are_named() {
    let set = Set::new(LABELS);
    let cases: [(&[&str], &[&str], &str); 6] = [
        (
            &["a two", "b two", "c wide"],
            &["a b", "b c"],
            "variant wide of task c: output y has rows of several shapes: expected one shape for all batches",
        ),
        (&["a short"], &[], "variant short of task a: output y has 3 rows where 4 are"),
        (&["a astray", "b same"], &["a b"], "variant astray of task a: output parent is 4 in a batch of 4"),
        (&["a none", "b same"], &["a b"], "no query of the validation set reaches task b"),
        (
            &["a same two"],
            &[],
            "variant two of task a: its outputs are y (INT64 [rows]), parent (INT64 [rows]), and those of same are y (INT64 [rows])",
        ),
        (&["a fails"], &[], "variant fails of task a"),
    ];
    for (tasks, edges, said) in cases {
        let error = set.profile(tasks, edges).expect_err(said).to_string();
        assert!(error.contains(said), "{error} should say {said:?}");
    }
}

/// An edge `a -> b` with transforms from the outputs of `a`, of which `b` takes `taken`.
fn with_edge(set: &Set, steps: Vec<Transform>, taken: &str) -> PipelineFiles {
    let mut files = set.files(&["a digits", "b same"], &["a b"]);
    let edge = EdgeGlue { to: "b".to_owned(), steps, outputs: vec![taken.to_owned()] };
    files.edges[0].map = [("x".to_owned(), edge.exported(taken))].into();
    files.tasks[0].glue = TaskGlue { edges: vec![edge], ..TaskGlue::default() }.into();
    files
}

fn cast(to: &str, datatype: Datatype) -> Transform {
    Transform::Cast(CastStep { of: "y".to_owned(), to: to.to_owned(), datatype })
}

#[test]
fn transforms_are_measured_with_their_task() {
    let set = Set::new(LABELS);
    // All numbers fit into eight bits.
    let there = cast("small", Datatype::Uint8);
    let back = Transform::Cast(CastStep { of: "small".to_owned(), to: "z".to_owned(), datatype: Datatype::Int64 });
    let measured = set.profile_files(&with_edge(&set, vec![there, back], "z")).expect("a chain");
    assert_eq!(measured.path_accuracy[0].accuracy, 1.0);
    let [a, b] = &measured.tasks[..] else { panic!("two tasks") };
    assert_eq!(a.outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["b.z", "parent"]);
    let model = a.model.as_ref().expect("its own tensors");
    assert_eq!(model.outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["y", "parent"]);
    assert!(b.model.is_none(), "it has no transforms");
    assert_eq!(a.variants[0].fanout_counts["b"].mean(), 1.5);
    assert_eq!(a.variants[0].memory_mib, Some(8.0));
}

#[test]
fn transforms_that_do_not_fit_are_named_with_their_edge() {
    let set = Set::new(LABELS);
    let refused = |steps, taken: &str| set.profile_files(&with_edge(&set, steps, taken)).expect_err("refused").to_string();
    let gone = Transform::Cast(CastStep { of: "w".to_owned(), to: "w".to_owned(), datatype: Datatype::Fp32 });
    let said = refused(vec![cast("z", Datatype::Fp32), gone], "z");
    let expected = "task a, edge to b: transform 2 (cast): there is no tensor w: expected one of x, y, z";
    assert!(said.contains(expected), "{said}");
    let said = refused(vec![cast("z", Datatype::Fp32)], "z");
    assert!(said.contains("the output b.z (FP32 [rows]) does not fit the input x (INT64 [rows])"), "{said}");
    assert!(said.contains("add a `transform` to the edge"), "{said}");
}
