//! What does `apportion variants` refuse, and which files does it leave alone?

use super::program::{Folder, apportion, assert_refused, code, example, stderr, stdout};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn other_threads_and_providers_need_no_python() {
    let model = example("digits/models/read-s.onnx");
    let args = ["--precision", "fp32,int8", "--threads", "1,2", "--provider", "cuda", "--python", "/none/python3"];
    let made = apportion(&[&["variants", &model][..], &args].concat());
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    assert_eq!(stdout(&made), format!("variants:\n  - {{name: read-s-cuda, model: {model}, provider: cuda}}\n"));
    assert!(stderr(&made).contains("left out: int8 on cuda"), "{}", stderr(&made));
    let made = apportion(&["variants", &model, "--precision", "fp32", "--threads", "1,2"]);
    let entry = |threads| format!("  - {{name: read-s-{threads}t, model: {model}, threads: {threads}}}\n");
    assert_eq!(stdout(&made), format!("variants:\n{}{}", entry(1), entry(2)), "{}", stderr(&made));
}

#[test]
fn wrong_arguments_are_refused() {
    let model = example("digits/models/read-s.onnx");
    let cases: [(&[&str], &str); 6] = [
        (&["--precision", "fp8"], "invalid value 'fp8'"),
        (&["--threads", "0"], "0 is not in 1..=1024"),
        (&["--provider", "rocm"], "expected one of cpu, cuda, tensorrt"),
        (&["--precision", "int8", "--provider", "cuda"], "--precision: int8 alone, for providers of GPUs"),
        (&["--python", "/none/python3"], "/none/python3 -m pip install onnx onnxruntime"),
        (&["--precision", "fp16", "--python", "false"], "expected a model that ONNX Runtime's converter to fp16 can read"),
    ];
    for (args, said) in cases {
        let folder = Folder::new();
        let out = folder.path("made");
        assert_refused(&[&["variants", &model, "--out", &out][..], args].concat(), said);
        let left = std::fs::read_dir(&out).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{args:?} leaves files");
    }
    let threads = (1..=65).map(|threads| threads.to_string()).collect::<Vec<_>>().join(",");
    assert_refused(&["variants", &model, "--precision", "fp32", "--threads", &threads], "65 variants: expected at most 64");
    let folder = Folder::new();
    assert_refused(&["variants", &folder.file("text.onnx", "<html>")], "expected a model in ONNX format");
}

#[test]
fn a_python_without_packages_is_told_what_it_lacks() {
    let folder = Folder::new();
    let python = folder.file("python", "#!/bin/sh\necho \"No module named 'onnx'\" >&2\nexit 3\n");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("can be run");
    let (model, out) = (example("digits/models/read-s.onnx"), folder.path("made"));
    let args = ["variants", &model, "--python", &python, "--out", &out];
    assert_refused(&args, "No module named 'onnx': expected a Python 3 with the packages onnx onnxruntime");
    let kept = folder.path("made/read-s-fp16.onnx");
    std::fs::write(&kept, "mine").expect("written");
    assert_refused(&args, "read-s-fp16.onnx: a file is there: expected no file");
    assert_eq!(std::fs::read_to_string(&kept).expect("still there"), "mine");
}
