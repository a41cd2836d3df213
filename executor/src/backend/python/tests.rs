use super::*;
use apportion_node::tensor::{Datatype, int64s};

/// A stage that does what the first number of its batch says.
const STAGE: &str = r#"
import os, sys, time
import numpy as np

INPUTS = {"x": ("FP32", [-1, 2]), "name": ("BYTES", [-1])}
OUTPUTS = {"y": ("FP32", [-1, 2]), "said": ("BYTES", [-1]), "parent": ("INT64", [-1])}
starts = []


def run(inputs):
    print("this is no answer")
    x, what = inputs["x"], inputs["x"][0, 0] if len(inputs["x"]) else 0
    assert not x.flags.writeable
    if what == -1:
        raise ValueError("a negative number")
    if what == -2:
        os._exit(7)
    if what == -3:
        time.sleep(600)
    if what == -4:
        return {"y": x.astype("f8"), "said": inputs["name"], "parent": np.arange(len(x))}
    if what == -5:
        return {"y": np.zeros((1, 3), "f4"), "said": ["a"], "parent": np.arange(1)}
    if what == -6:
        return {"y": np.zeros((1 << 26, 2), "f4"), "said": [], "parent": np.arange(0)}
    if what == -7:
        text = repr({name: os.environ.get(name) for name in ("APPORTION_TOKEN", "OMP_NUM_THREADS")})
        return {"y": x, "said": [text] * len(x), "parent": np.arange(len(x))}
    count = x[:, 1].astype("i8")
    rows = np.repeat(np.arange(len(x)), count)
    return {"y": x[rows] * 2, "said": [name + b"!" for name in inputs["name"][rows]], "parent": rows}
"#;

fn settings(program: PathBuf) -> PythonSettings {
    PythonSettings { program, timeout: Duration::from_secs(5), threads: 3 }
}

struct Stage {
    backend: PythonBackend,
    _folder: tempfile::TempDir,
}

/// A stage with this text; none where there is no Python with NumPy.
fn stage(text: &str) -> Option<Result<Stage, BackendError>> {
    let python = apportion_needs::clients()?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("stage");
    std::fs::write(&file, text).expect("written");
    let started = PythonBackend::start(settings(python), &file);
    Some(started.map(|backend| Stage { backend, _folder: folder }))
}

fn batch(rows: &[[f32; 2]], names: &[&str]) -> [Tensor; 2] {
    let x: Vec<u8> = rows.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    let name: Vec<u8> = names.iter().flat_map(|n| [&(n.len() as u32).to_le_bytes()[..], n.as_bytes()].concat()).collect();
    [
        Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![rows.len(), 2], data: x.into() },
        Tensor { name: "name".into(), datatype: Datatype::Bytes, shape: vec![names.len()], data: name.into() },
    ]
}

fn one(what: f32) -> [Tensor; 2] {
    batch(&[[what, 1.0]], &["a"])
}

#[test]
fn rows_go_in_and_rows_with_their_parents_come_out() {
    let Some(stage) = stage(STAGE) else { return };
    let mut backend = stage.unwrap_or_else(|e| panic!("{e}")).backend;
    let names: Vec<&str> = backend.signature().outputs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["y", "said", "parent"]);
    for _ in 0..3 {
        let made = backend.run(&batch(&[[1.5, 2.0], [4.0, 0.0], [0.5, 1.0]], &["a", "b", "c"])).expect("a batch");
        assert_eq!(int64s(&made[2]), Some(vec![0, 0, 2]));
        let y: Vec<u8> = [3.0_f32, 4.0, 3.0, 4.0, 1.0, 2.0].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!((made[0].shape.as_slice(), &made[0].data[..]), ([3, 2].as_slice(), y.as_slice()));
        let said: Vec<_> = apportion_node::tensor::texts(&made[1].data).flatten().collect();
        assert_eq!(said, [b"a!", b"a!", b"c!"]);
    }
    let none = backend.run(&batch(&[], &[])).expect("an empty batch is a batch");
    assert!(none.iter().all(|tensor| tensor.rows() == 0));
    // A batch larger than all before.
    let rows = vec![[1.0, 1.0]; 300_000];
    let made = backend.run(&batch(&rows, &vec!["a"; rows.len()])).expect("a large batch");
    assert_eq!(made[0].rows(), rows.len());
}

#[test]
fn a_fault_fails_its_batch_and_no_other() {
    let Some(stage) = stage(STAGE) else { return };
    let mut stage = stage.unwrap_or_else(|e| panic!("{e}"));
    let cases = [
        (-1.0, "ValueError: a negative number"),
        (-4.0, "output y is float64: expected float32"),
        (-5.0, "output y has the shape [-1, 2] (-1 is any), not [1, 3]"),
        (-6.0, "the outputs have"),
    ];
    for (what, said) in cases {
        let error = stage.backend.run(&one(what)).expect_err(said);
        assert!(error.is_of_batch() && error.to_string().contains(said), "{error} should say {said}");
        assert!(stage.backend.process.is_some(), "the process lives on");
        stage.backend.run(&one(1.0)).expect("a good batch");
    }
    let wrong = stage.backend.run(&one(1.0)[..1]).expect_err("an input lacks");
    assert!(matches!(wrong, BackendError::Input(_)), "{wrong}");
}

#[test]
fn a_dead_process_is_started_again_with_pauses() {
    let Some(stage) = stage(STAGE) else { return };
    let mut stage = stage.unwrap_or_else(|e| panic!("{e}"));
    for _ in 0..2 {
        let error = stage.backend.run(&one(-2.0)).expect_err("it ends");
        assert!(error.is_of_batch() && error.to_string().contains("exit status: 7"), "{error}");
        assert!(stage.backend.process.is_none());
        stage.backend.run(&one(1.0)).expect("it was started again");
    }
    // Without a good batch between them the pauses grow, until batches fail at once.
    let mut away = None;
    for _ in 0..20 {
        let error = stage.backend.run(&one(-2.0)).expect_err("it ends");
        if !error.is_of_batch() {
            away = Some(error.to_string());
            break;
        }
    }
    let away = away.expect("a pause longer than a batch waits");
    assert!(away.contains("its process died") && away.contains("next start in"), "{away}");
    assert_eq!([0, 1, 2, 3, 40].map(pause), [0, 0, 100, 200, 10_000].map(Duration::from_millis));
}

#[test]
fn a_slow_batch_ends_its_process() {
    let Some(stage) = stage(STAGE) else { return };
    let mut stage = stage.unwrap_or_else(|e| panic!("{e}"));
    stage.backend.settings.timeout = Duration::from_millis(300);
    // The running process has the bound with which it was started.
    stage.backend.note_death();
    let error = stage.backend.run(&one(-3.0)).expect_err("it sleeps").to_string();
    assert!(error.contains("no answer in 0.3 s"), "{error}");
    assert!(stage.backend.process.is_none());
}

#[test]
fn secrets_of_the_agent_are_not_passed_on() {
    let Some(stage) = stage(STAGE) else { return };
    let mut stage = stage.unwrap_or_else(|e| panic!("{e}"));
    let made = stage.backend.run(&one(-7.0)).expect("a batch");
    let said = String::from_utf8_lossy(&made[1].data).into_owned();
    assert!(said.contains("'APPORTION_TOKEN': None") && said.contains("'OMP_NUM_THREADS': '3'"), "{said}");
}

#[test]
fn the_process_ends_with_the_stage() {
    let Some(stage) = stage(STAGE) else { return };
    let stage = stage.unwrap_or_else(|e| panic!("{e}"));
    let process = stage.backend.process.as_ref().expect("it runs").process_id();
    let is_there = || Path::new(&format!("/proc/{process}")).exists();
    assert!(is_there());
    drop(stage);
    assert!(!is_there(), "it was waited for");
}

#[test]
fn files_that_are_no_stages_are_refused() {
    let cases = [
        ("x = ", "SyntaxError"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("INPUTS = {}", "it has no function run"),
        ("def run(inputs):\n    return {}\n", "it has no INPUTS"),
        ("def run(i): pass\nINPUTS = {'x': ('F32', [-1])}\nOUTPUTS = INPUTS", "x is F32: expected BYTES or one of"),
        ("def run(i): pass\nINPUTS = {'x': ('FP32', [2])}\nOUTPUTS = INPUTS", "x is FP32 [2]"),
        ("import os\nos._exit(3)", "its process has ended: exit status: 3"),
    ];
    for (text, said) in cases {
        let Some(started) = stage(text) else { return };
        let error = started.err().unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(error.contains(said), "{error} should say {said}");
    }
    let missing = PythonBackend::start(settings("/no/python".into()), Path::new("stage")).err().expect("no such program");
    assert!(missing.to_string().contains("/no/python cannot be started"), "{missing}");
}
