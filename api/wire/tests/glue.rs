//! Transforms and Python stages in pipeline files: what is read, what is refused, and where.

use apportion_domain::transform::{PictureFit, Transform};
use apportion_domain::{Provider, VariantExecution, VariantRuntime};
use apportion_wire::{ProfileSet, read_pipeline_spec, read_profile_set};

const SIGNS: &str = "
name: signs
slo_ms: 300
tasks:
  - name: detect
    inputs: [{name: photo, datatype: UINT8, shape: [-1, -1, -1, 3]}]
    before:
      - resize: {of: photo, to: image, size: [64, 64], layout: hwc}
      - transpose: {of: image, axes: [3, 1, 2]}
      - normalise: {of: image, scale: 0.5, mean: [0.1, 0.2, 0.3], axis: 1}
    after: [{nms: {iou: 0.5}}]
    variants: [{name: d, model: d.onnx}]
  - name: read
    after: [{decode_text: {of: scores, to: text, alphabet: ab}}, {keep: {tensors: [text]}}]
    variants: [{name: r, model: r.onnx, threads: 2, provider: cpu}, {name: own, python: own.py}]
edges:
  - from: detect
    to: read
    map: {x: patch}
    transform:
      - crop: {boxes: boxes, of: photo, to: patch, size: [8, 16], boxes_in: [64, 64], fit: contain, layout: hwc}
      - normalise: {of: patch}
";

const PROFILE: &str = r#"{"rows": [], "tasks": [
  {"name": "detect",
   "inputs": [{"name": "photo", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}],
   "outputs": [{"name": "read.patch", "datatype": "FP32", "shape": [-1, 8, 16, 3]},
               {"name": "parent", "datatype": "INT64", "shape": [-1]}],
   "model_inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 64, 64]}],
   "model_outputs": [{"name": "boxes", "datatype": "FP32", "shape": [-1, -1, 4]},
                     {"name": "scores", "datatype": "FP32", "shape": [-1, -1, 80]}]},
  {"name": "read",
   "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 8, 16, 3]}],
   "outputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
   "model_inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 8, 16, 3]}],
   "model_outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 4, 3]}]}]}"#;

fn profile(change: impl FnOnce(String) -> String) -> ProfileSet {
    read_profile_set("profile.json", &change(PROFILE.to_owned())).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn transforms_are_read_with_their_defaults() {
    let spec = read_pipeline_spec("p.yaml", SIGNS).unwrap_or_else(|e| panic!("{e}"));
    let glues = spec.glue();
    assert_eq!(glues[0].before.iter().map(Transform::name).collect::<Vec<_>>(), ["resize", "transpose", "normalise"]);
    let edge = &glues[0].edges[0];
    assert_eq!((edge.to.as_str(), edge.outputs.as_slice()), ("read", ["patch".to_owned()].as_slice()));
    let Transform::Crop(crop) = &edge.steps[0] else { panic!("a crop: {edge:?}") };
    assert_eq!((crop.size.height, crop.size.width, crop.fit), (8, 16, PictureFit::Contain));
    let Transform::Normalise(normalise) = &edge.steps[1] else { panic!("a normalise: {edge:?}") };
    assert_eq!((normalise.to.as_str(), normalise.scale, normalise.std.as_slice()), ("patch", 1.0, [1.0].as_slice()));
    let Transform::Nms(nms) = &glues[0].after[0] else { panic!("an nms") };
    assert_eq!((nms.boxes.as_str(), nms.iou, nms.keep_max), ("boxes", 0.5, 100));
    assert_eq!(spec.exported_map(&spec.edges[0])["x"], "read.patch");
    let runtimes: Vec<_> = spec.tasks[1].variants.iter().map(|v| v.file_runtime()).collect();
    assert_eq!(runtimes, [VariantRuntime::Onnx, VariantRuntime::Python]);
    let asked: Vec<_> = spec.tasks[1].variants.iter().map(|v| v.execution()).collect();
    let execution = VariantExecution { threads: Some(2), provider: Some(Provider::Cpu) };
    assert_eq!(asked, [execution, VariantExecution::default()]);
    // Written and read again it is the same.
    let text = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(read_pipeline_spec("p.json", &text).unwrap_or_else(|e| panic!("{e}")), spec);
}

#[test]
fn refused_transforms_are_named_by_their_pointers() {
    let refused = |from: &str, to: &str| {
        assert!(SIGNS.contains(from), "{from}");
        read_pipeline_spec("p.yaml", &SIGNS.replace(from, to)).expect_err(to).to_string()
    };
    let cases = [
        ("alphabet: ab", "blank: 0", "/tasks/1/after/0/decode_text/alphabet: missing"),
        ("alphabet: ab", "alphabet: ab, blank: 9", "/tasks/1/after/0/decode_text/blank: 9: expected a class from 0 to 2"),
        ("size: [64, 64]", "size: [64]", "/tasks/0/before/0/resize/size: [64]: expected height and width"),
        ("size: [64, 64]", "size: [64, 9999]", "each from 1 to 4096"),
        ("axes: [3, 1, 2]", "axes: [3, 1, 1]", "/tasks/0/before/1/transpose/axes"),
        ("axis: 1}", "axis: 0}", "/tasks/0/before/2/normalise/axis"),
        ("{nms: {iou: 0.5}}", "{}", "/tasks/0/after/0: an object of 0 keys"),
        ("{nms: {iou: 0.5}}", "{nms: {}, keep: {tensors: [boxes]}}", "/tasks/0/after/0: an object of 2 keys"),
        ("{nms: {iou: 0.5}}", "{nmx: {iou: 0.5}}", "unknown key \"nmx\""),
        ("fit: contain", "fit: contian", "\"contain\""),
        ("    inputs: [{name: photo, datatype: UINT8, shape: [-1, -1, -1, 3]}]\n", "", "/tasks/0/inputs: missing"),
        ("resize: {of: photo, to: image, size: [64, 64], layout: hwc}", "nms: {}", "makes rows: expected it in `after`"),
        ("python: own.py", "python: own.py, model: own.onnx", "/tasks/1/variants/1/python"),
        ("python: own.py", "python: own.py, runtime: onnx", "/tasks/1/variants/1/runtime"),
        ("python: own.py", "python: own.py, provider: cpu", "/tasks/1/variants/1/provider: \"cpu\": expected no provider"),
        ("threads: 2", "threads: 0", "/tasks/1/variants/0/threads: 0: expected a whole number from 1 to 1024"),
        ("threads: 2", "threads: 1025", "/tasks/1/variants/0/threads: 1025"),
        ("provider: cpu", "provider: cpus", "/tasks/1/variants/0/provider"),
    ];
    for (from, to, said) in cases {
        let error = refused(from, to);
        assert!(error.contains(said), "{to}: {error} should say {said}");
    }
}

#[test]
fn a_list_in_a_file_must_be_read_before_it_is_sent() {
    let text = SIGNS.replace("alphabet: ab", "alphabet_file: keys.txt");
    let spec = read_pipeline_spec("p.yaml", &text).unwrap_or_else(|e| panic!("a file on disk may name one: {e}"));
    let refused = spec.check_lists().expect_err("the service cannot read it").to_string();
    assert!(refused.contains("/tasks/1/after/0/decode_text/alphabet_file: \"keys.txt\": expected alphabet"), "{refused}");
    let whole = read_pipeline_spec("p.yaml", SIGNS).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(whole.check_lists(), Ok(()));
    let planned = whole.without_registered_keys();
    assert!(planned.glue().iter().all(|glue| glue.is_empty()));
    assert!(planned.tasks.iter().flat_map(|t| &t.variants).all(|v| v.python.is_none() && v.model.is_none()));
    let mut asked = planned.tasks.iter().flat_map(|t| &t.variants).map(|v| v.execution());
    assert!(asked.all(|asked| asked == VariantExecution::default()));
}

#[test]
fn the_whole_chain_is_checked_against_the_variants() {
    let spec = read_pipeline_spec("p.yaml", SIGNS).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(spec.check_glue(&profile(|text| text)), Ok(()));
    let cases = [
        // A variant takes smaller pictures than `before` makes.
        ("[-1, 3, 64, 64]", "[-1, 3, 32, 32]", "makes image as FP32 [rows, 3, 64, 64]: expected FP32 [rows, 3, 32"),
        // Its boxes have five numbers.
        ("[-1, -1, 4]", "[-1, -1, 5]", "`after`: transform 1 (nms): boxes is FP32 [rows, any, 5]: expected FP32"),
        // The reader knows more classes than the alphabet and the blank.
        ("[-1, 4, 3]", "[-1, 4, 9]", "(decode_text): scores is FP32 [rows, 4, 9]: expected FP32 [rows, places, 3]"),
        // The profile is older than the transforms.
        ("\"read.patch\", \"datatype\": \"FP32\"", "\"read.patch\", \"datatype\": \"UINT8\"", "profile the pipeline again"),
        // The child takes other pictures.
        (
            "\"inputs\": [{\"name\": \"x\", \"datatype\": \"FP32\", \"shape\": [-1, 8, 16, 3]}]",
            "\"inputs\": [{\"name\": \"x\", \"datatype\": \"FP32\", \"shape\": [-1, 8, 16, 1]}]",
            "/edges/0/map/x: read.patch as FP32 [rows, 8, 16, 3]: expected FP32 [rows, 8, 16, 1]",
        ),
    ];
    for (from, to, said) in cases {
        assert!(PROFILE.contains(from), "{from}");
        let refused = spec.check_glue(&profile(|text| text.replacen(from, to, 1))).expect_err(said);
        let text: Vec<String> = refused.0.iter().map(ToString::to_string).collect();
        assert!(text.iter().any(|line| line.contains(said)), "{text:?} should say {said}");
    }
    let plain = SIGNS.replace("before:", "min_replicas: 1\n    x:");
    assert!(read_pipeline_spec("p.yaml", &plain).is_err(), "keys of tasks are checked");
}

const RAG: &str = "
name: rag
slo_ms: 1500
tasks:
  - name: encode
    inputs: [{name: question, datatype: UINT8, shape: [-1, 4]}]
    before: [{normalise: {of: question, scale: 0.5}}]
    variants: [{name: e, model: e.onnx}]
  - name: generate
    kind: continuous
    outputs: [{name: answer, datatype: FP32, shape: [-1, 1]}]
    variants: [{name: small, model: small.onnx}]
  - name: speak
    variants: [{name: s, python: s.py}]
edges:
  - {from: encode, to: generate}
  - {from: generate, to: speak}
";

#[test]
fn a_continuous_task_takes_nothing_that_needs_whole_batches() {
    read_pipeline_spec("p.yaml", RAG).unwrap_or_else(|e| panic!("the batch tasks beside it may: {e}"));
    let scale = "[{normalise: {of: x, scale: 2}}]";
    let cases = [
        (
            "kind: continuous",
            format!("kind: continuous\n    after: {scale}"),
            "/tasks/1/after: a list of 1 at the continuous task \"generate\": expected none",
        ),
        (
            "kind: continuous",
            format!("kind: continuous\n    inputs: [{{name: x, datatype: FP32, shape: [-1, 1]}}]\n    before: {scale}"),
            "/tasks/1/before: a list of 1 at the continuous task \"generate\": expected none",
        ),
        (
            "{from: generate, to: speak}",
            format!("{{from: generate, to: speak, map: {{x: x}}, transform: {scale}}}"),
            "/edges/1/transform: a list of 1 at the continuous task \"generate\": expected none",
        ),
        (
            "model: small.onnx",
            "python: small.py".to_owned(),
            "/tasks/1/variants/0/python: \"small.py\" of the continuous task \"generate\": expected an ONNX file with state",
        ),
        (
            "model: small.onnx",
            "runtime: python".to_owned(),
            "/tasks/1/variants/0/runtime: \"python\" of the continuous task \"generate\": expected an ONNX file with state",
        ),
        (
            "name: answer",
            "name: parent".to_owned(),
            "/tasks/1/outputs/0/name: \"parent\" of the continuous task \"generate\": expected another name",
        ),
        (
            "model: small.onnx",
            "profile: [{hardware: h, batch: 1, latency_ms: 1, measured: {software: another server}}]".to_owned(),
            "/tasks/1/variants/0/profile/0/measured/software: \"another server\" of the continuous task \"generate\": \
             expected latencies of slots",
        ),
    ];
    for (from, to, said) in &cases {
        assert!(RAG.contains(from), "{from}");
        let error = read_pipeline_spec("p.yaml", &RAG.replace(from, to)).expect_err(said).to_string();
        assert!(error.contains(said) && error.contains("p.yaml"), "{error} should say {said}");
    }
    // In batches all of that may be.
    let batches = RAG.replace("kind: continuous", "kind: batch").replace("model: small.onnx", "python: small.py");
    read_pipeline_spec("p.yaml", &batches).unwrap_or_else(|e| panic!("{e}"));
}
