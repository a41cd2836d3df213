//! Do ONNX files become a pipeline file, and does the exit code say whether it works as it is?

use super::program::{Folder, apportion, assert_refused, code, example, stderr, stdout};

#[test]
fn the_example_becomes_a_pipeline_file() {
    let folder = Folder::new();
    let out = folder.path("pipeline.yaml");
    let models = ["find-s", "find-l", "read-s"].map(|name| example(&format!("digits/models/{name}.onnx")));
    let args = ["init", &models[0], &models[1], &models[2], "--name", "digits", "--out", &out];
    let made = apportion(&args);
    assert_eq!(code(&made), 0, "{}{}", stdout(&made), stderr(&made));
    assert!(!stdout(&made).contains("will not work"), "{}", stdout(&made));
    let yaml = std::fs::read_to_string(&out).expect("written");
    assert!(yaml.contains("name: digits") && yaml.contains("map: {image: crops, center: centers}"), "{yaml}");
    assert_refused(&args, "pipeline.yaml: a file is there: expected no file");
}

#[test]
fn tasks_that_do_not_fit_end_with_4() {
    let folder = Folder::new();
    let out = folder.path("pipeline.yaml");
    let model = |name: &str| example(&format!("digits/models/{name}.onnx"));
    let made = apportion(&["init", &model("read-s"), &model("find-s"), "--out", &out]);
    assert_eq!(code(&made), 4, "{}", stderr(&made));
    assert!(stdout(&made).contains("will not work: edge read-s -> find-s, input image"), "{}", stdout(&made));
    assert!(
        std::fs::read_to_string(&out).expect("written").contains("# decide: which output of read-s is the input image")
    );
    let text = folder.file("text.onnx", "<html>");
    assert_refused(&["init", &text, "--out", &folder.path("none.yaml")], "expected a model in ONNX format");
    assert_refused(&["init", &folder.path("none.onnx"), "--out", &folder.path("none.yaml")], "none.onnx: cannot be read");
}
