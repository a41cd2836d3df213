//! Which options of `apportion profile` fit a server, and which fit this machine?

use super::program::{Folder, apportion, assert_refused, code, stderr};

const PIPELINE: &str = "name: p\nslo_ms: 100\ntasks:\n- name: t\n  variants:\n  - {name: v, accuracy: 0.9}\n";
/// Nobody listens there.
const REMOTE: &str = "remote=http://127.0.0.1:1";

#[test]
fn options_of_this_machine_are_refused_with_a_server() {
    let folder = Folder::new();
    let file = folder.file("p.yaml", PIPELINE);
    let options = [
        ["--clock", "processor"],
        ["--provider", "cuda"],
        ["--device", "1"],
        ["--onnxruntime", "x.so"],
        ["--share", "0.5"],
    ];
    for option in options {
        let args = [&["profile", &file, "--backend", REMOTE][..], &option].concat();
        assert_refused(&args, &format!("{}: an option of this machine: expected no such option", option[0]));
    }
    let validated = format!("{PIPELINE}validation: {{inputs: {{x: x.npy}}, labels: l.json, match: {{value: y}}}}\n");
    let validated = folder.file("validated.yaml", &validated);
    let refused = "--shape: x: expected a pipeline without a validation set, or --backend remote=http://host:port";
    assert_refused(&["profile", &validated, "--shape", "x=3,4"], refused);
    let several = ["profile", "p", "--server", "http://127.0.0.1:1", "--shape", "x=3", "--shape", "x=4"];
    assert_refused(&several, "--shape: several shapes of the input x: expected one shape without a share");
    assert_refused(&["profile", &file, "--shape", "x=3@2"], "a share of the queries above 0 and at most 1 as ids=128@0.9");
    assert_refused(&["profile", &file, "--backend", "remote=gpu"], "expected a URL such as http://10.0.0.4:7070");
    let continuous = folder.file("continuous.yaml", &PIPELINE.replace("name: t\n", "name: t\n  kind: continuous\n"));
    let refused = "/tasks/0/kind: \"continuous\": expected \"batch\": with --backend remote";
    assert_refused(&["profile", &continuous, "--backend", REMOTE], refused);
}

#[test]
fn a_server_that_is_away_ends_with_1() {
    let folder = Folder::new();
    let (file, out) = (folder.file("p.yaml", PIPELINE), folder.path("out.json"));
    let ended = apportion(&["profile", &file, "--backend", REMOTE, "--out", &out]);
    assert_eq!(code(&ended), 1, "{}", stderr(&ended));
    assert!(stderr(&ended).contains("http://127.0.0.1:1: GET /v2: "), "{}", stderr(&ended));
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn accuracies_are_asked_for_before_anything_is_measured() {
    let folder = Folder::new();
    let file = folder.file("p.yaml", &PIPELINE.replace(", accuracy: 0.9", ""));
    for backend in [REMOTE, "onnx"] {
        let args = ["profile", &file, "--backend", backend, "--register", "http://127.0.0.1:1"];
        assert_refused(&args, "/tasks/0/variants/0/accuracy: nothing: expected a number from 0 to 1");
    }
    // A file needs none.
    let without = apportion(&["profile", &file]);
    assert!(stderr(&without).contains("names no validation set"), "{}", stderr(&without));
    assert!(stderr(&without).contains("/tasks/0/variants/0/model: nothing"), "{}", stderr(&without));
}

#[test]
fn a_service_that_is_away_ends_the_command_before_it_measures() {
    let folder = Folder::new();
    let file = folder.file("p.yaml", PIPELINE);
    let ended = apportion(&["profile", &file, "--backend", REMOTE, "--register", "http://127.0.0.1:2"]);
    assert_eq!(code(&ended), 1, "{}", stderr(&ended));
    assert!(stderr(&ended).contains("--register http://127.0.0.1:2: talking to the service"), "{}", stderr(&ended));
}

#[test]
fn options_of_this_machine_are_refused_with_agents() {
    const SERVER: &str = "http://127.0.0.1:1";
    let options =
        [["--out", "p.json"], ["--clock", "processor"], ["--backend", REMOTE], ["--register", SERVER], ["--share", "0.5"]];
    for option in options {
        let args = [&["profile", "p", "--server", SERVER][..], &option].concat();
        assert_refused(&args, "cannot be used with");
    }
    assert_refused(&["profile", "p.yaml", "--variant", "t"], "--server");
    let ended = apportion(&["profile", "p", "--server", SERVER]);
    assert_eq!(code(&ended), 1, "{}", stderr(&ended));
    assert!(stderr(&ended).contains(SERVER), "{}", stderr(&ended));
}

#[test]
fn shares_are_measured_by_the_clock_of_the_wall() {
    let folder = Folder::new();
    let file = folder.file("p.yaml", &PIPELINE.replace("accuracy: 0.9", "accuracy: 0.9, model: v.onnx"));
    for wrong in ["1", "0.3", "0.5,1", "half"] {
        assert_refused(&["profile", &file, "--share", wrong], "expected 0.5, 0.25 or 0.125");
    }
    let refused = "--clock: processor: expected wall: --share measures how long a batch waits for neighbours";
    assert_refused(&["profile", &file, "--share", "0.5,0.25", "--clock", "processor"], refused);
}
