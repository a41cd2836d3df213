//! Do ONNX files become a valid pipeline file, and is each property that will not work named with its cure?

use apportion_import::{DraftedPipeline, GraphFile, draft_of, read_graph};
use apportion_wire::read_pipeline_spec;

/// A field of a protocol-buffer message with bytes.
fn bytes(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(content);
    out
}

/// A field with a number below 128.
fn number(tag: u8, value: u8) -> Vec<u8> {
    vec![tag << 3, value]
}

const FP32: u8 = 1;
const INT64: u8 = 7;
const BOOL: u8 = 9;
const BF16: u8 = 16;

/// A tensor: sizes are numbers below 128, names, or empty for any size.
fn tensor(name: &str, elements: u8, shape: &[&str]) -> Vec<u8> {
    let dimension = |size: &&str| {
        let field = match size.parse::<u8>() {
            Ok(size) => number(1, size),
            Err(_) if size.is_empty() => Vec::new(),
            Err(_) => bytes(2, size.as_bytes()),
        };
        bytes(1, &field)
    };
    let shape: Vec<u8> = shape.iter().flat_map(dimension).collect();
    let kind = [number(1, elements), bytes(2, &shape)].concat();
    [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &kind))].concat()
}

/// A model with these inputs and outputs, and a weight that is listed among the inputs too.
fn model(inputs: &[Vec<u8>], outputs: &[Vec<u8>]) -> Vec<u8> {
    let weight = bytes(5, &bytes(8, b"weight"));
    let listed = bytes(11, &tensor("weight", FP32, &["3"]));
    let inputs: Vec<u8> = inputs.iter().flat_map(|i| bytes(11, i)).collect();
    let outputs: Vec<u8> = outputs.iter().flat_map(|o| bytes(12, o)).collect();
    bytes(7, &[weight, listed, inputs, outputs].concat())
}

fn file(path: &str, model: &[u8]) -> GraphFile {
    GraphFile { path: path.into(), task: None, header: read_graph(path, model).expect("a model") }
}

fn draft(files: &[GraphFile]) -> DraftedPipeline {
    let draft = draft_of("p", files).expect("a draft");
    read_pipeline_spec("p.yaml", &draft.yaml).unwrap_or_else(|e| panic!("{e}\n{}", draft.yaml));
    draft
}

/// What will not work, and the notes.
fn told(draft: &DraftedPipeline) -> Vec<String> {
    draft.remarks.iter().map(|remark| format!("{remark}")).collect()
}

#[test]
fn a_detector_and_a_reader_are_a_chain_with_a_map() {
    let find = |path| {
        let outputs = [tensor("crops", FP32, &["found", "3", "28"]), tensor("centers", FP32, &["found", "2"])];
        file(path, &model(&[tensor("image", FP32, &["batch", "3", "96"])], &outputs))
    };
    let inputs = [tensor("image", FP32, &["n", "3", "28"]), tensor("center", FP32, &["n", "2"])];
    let read = file("read.onnx", &model(&inputs, &[tensor("label", INT64, &["n"])]));
    let made = draft(&[find("find-s.onnx"), find("find-l.onnx"), read]);
    assert_eq!(told(&made), [""; 0]);
    let spec = read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline");
    let variants: Vec<Vec<&str>> =
        spec.tasks.iter().map(|t| t.variants.iter().map(|v| v.name.as_str()).collect()).collect();
    assert_eq!(variants, [vec!["find-s", "find-l"], vec!["read"]]);
    assert_eq!(spec.tasks[0].name, "find");
    let map: Vec<(&str, &str)> = spec.edges[0].map.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(map, [("center", "centers"), ("image", "crops")]);
    assert!(made.yaml.contains("slo_ms: 500   # decide: within how many milliseconds"), "{}", made.yaml);
    // 3 x 96 elements of a request, and 3 x 28 + 2 of a query of `read`, with four bytes each
    assert_eq!((spec.ingress_kib_per_query, spec.edges[0].kib_per_query), (Some(1.125), Some(0.336)));
}

#[test]
fn sizes_are_left_out_where_the_files_do_not_say_them() {
    let size = |input: Vec<u8>| {
        let made = draft(&[file("m.onnx", &model(&[input], &[tensor("y", FP32, &["batch", "2"])]))]);
        read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline").ingress_kib_per_query
    };
    assert_eq!(size(tensor("x", FP32, &["batch", "64", "16"])), Some(4.0));
    assert_eq!(size(tensor("x", INT64, &["batch", "64", "16"])), Some(8.0));
    assert_eq!(size(tensor("x", FP32, &["batch", "64", "width"])), None);
    assert_eq!(size(tensor("x", FP32, &["batch", "0"])), None);
}

#[test]
fn each_property_that_will_not_work_has_a_cure() {
    let output = [tensor("y", FP32, &["batch", "2"])];
    let one = |input: Vec<u8>| told(&draft(&[file("m.onnx", &model(&[input], &output))]));
    let fixed = one(tensor("x", FP32, &["1", "3"]));
    let expected = "will not work: m.onnx, input x FP32 [1, 3]: the first axis is always 1, so rows of several requests cannot be \
                    one batch. Export it again with a dynamic first axis, for example `dynamic_axes={\"x\": {0: \"batch\"}}` of \
                    torch.onnx.export. Without its source, try `update_inputs_outputs_dims` of `onnx.tools.update_model_dims` on \
                    the file";
    assert_eq!(fixed, [expected]);
    let inner = one(tensor("x", FP32, &["batch", "3", "height", ""]));
    assert_eq!(inner.len(), 1);
    let expected = "note: m.onnx, input x FP32 [batch, 3, height, ?]: axis 2 (height) and axis 3 may have any size; only rows of \
                    one shape are one batch. Make one size of it by `resize`, `crop`, `pad` or `tokenise`, in `before` of the task \
                    or `transform` of an edge; else profile with examples of the sizes that you expect, or with \
                    `--shape x=3,SIZE,SIZE`";
    assert_eq!(inner[0], expected, "the tool that fixes sizes finds no axis without a name");
    let scalar = one(tensor("sr", INT64, &[]));
    assert!(
        scalar[0].contains("a single number without an axis for the rows") && scalar[0].contains("constant"),
        "{scalar:?}"
    );
    let kind = one(tensor("x", BF16, &["batch", "3"]));
    assert!(kind[0].contains("elements that requests cannot carry"), "{kind:?}");
}

#[test]
fn inputs_with_the_same_open_axes_have_one_note() {
    let text = |name| tensor(name, INT64, &["batch", "length"]);
    let inputs = [text("ids"), tensor("image", FP32, &["batch", "3", "height", "width"]), text("mask")];
    let said = told(&draft(&[file("m.onnx", &model(&inputs, &[tensor("y", FP32, &["batch", "2"])]))]));
    assert_eq!(said.len(), 2, "{said:?}");
    let place =
        "note: m.onnx, inputs ids INT64 [batch, length], mask INT64 [batch, length]: axis 1 (length) may have any size";
    assert!(said[0].starts_with(place) && said[0].ends_with("`--shape ids=SIZE --shape mask=SIZE`"), "{}", said[0]);
    let fixed = "--dim_param height --dim_value SIZE m.onnx fixed.onnx`, then width; else profile";
    assert!(said[1].contains(fixed), "{}", said[1]);
}

#[test]
fn a_state_is_told_from_a_fixed_batch() {
    let inputs = [tensor("input", FP32, &["batch", "64"]), tensor("state", FP32, &["2", "batch", "64"])];
    let outputs = [tensor("output", FP32, &["batch", "1"]), tensor("stateN", FP32, &["2", "batch", "64"])];
    let state = told(&draft(&[file("vad.onnx", &model(&inputs, &outputs))]));
    assert_eq!(state.len(), 1, "{state:?}");
    assert!(
        state[0].contains("input state FP32 [2, batch, 64]: this is a state that the caller gets as \"stateN\""),
        "{state:?}"
    );
    let inputs = [tensor("input", FP32, &["n", "64"]), tensor("h0", FP32, &["1", "1", "9"])];
    let outputs = [tensor("output", FP32, &["n"]), tensor("hn", FP32, &["1", "?", "9"])];
    let hidden = told(&draft(&[file("lstm.onnx", &model(&inputs, &outputs))]));
    assert!(hidden.len() == 1 && hidden[0].contains("the caller gets as \"hn\""), "{hidden:?}");
    let inputs = [tensor("x", FP32, &["batch", "64"]), tensor("steps", FP32, &["9", "batch"])];
    let moved = told(&draft(&[file("m.onnx", &model(&inputs, &[tensor("y", FP32, &["batch"])]))]));
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert!(moved[0].contains("its rows are on axis 1") && moved[0].contains("Transpose"), "{moved:?}");
}

#[test]
fn outputs_without_rows_first_are_named() {
    let input = [tensor("x", FP32, &["batch", "3"])];
    let said = |outputs: &[Vec<u8>]| told(&draft(&[file("m.onnx", &model(&input, outputs))]));
    let layers = said(&[tensor("y", FP32, &["batch", "2"]), tensor("layers", FP32, &["6", "batch", "9"])]);
    let expected = "will not work: m.onnx, output layers FP32 [6, batch, 9]: its rows are on axis 1";
    assert!(layers.len() == 1 && layers[0].starts_with(expected), "{layers:?}");
    assert!(layers[0].contains("Transpose at the output"), "{layers:?}");
    let fixed = said(&[tensor("y", FP32, &["1", "2"])]);
    assert!(fixed.len() == 1 && fixed[0].starts_with("note: m.onnx, output y FP32 [1, 2]: its first axis"), "{fixed:?}");
    let parent = tensor("parent", INT64, &["found"]);
    assert_eq!(said(&[tensor("y", FP32, &["1", "2"]), parent]), [""; 0], "rows are those of `parent`");
}

/// The inputs and outputs of a decoder that agents can run.
fn decoder() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let cache = ["batch", "4", "8"];
    let inputs = vec![tensor("length", FP32, &["batch", "1"]), tensor("past.cache", FP32, &cache)];
    let answer = tensor("answer", FP32, &["batch", "1"]);
    (inputs, vec![answer, tensor("present.cache", FP32, &cache), tensor("done", BOOL, &["batch", "1"])])
}

#[test]
fn a_decoder_with_named_state_is_a_continuous_task() {
    let encoder = model(&[tensor("question", FP32, &["n", "4"])], &[tensor("length", FP32, &["n", "1"])]);
    let (inputs, outputs) = decoder();
    let made = draft(&[file("encode.onnx", &encoder), file("generate.onnx", &model(&inputs, &outputs))]);
    assert_eq!(told(&made), [""; 0]);
    let spec = read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline");
    assert_eq!(spec.tasks.iter().map(|t| t.kind.as_deref()).collect::<Vec<_>>(), [None, Some("continuous")]);
    let map: Vec<(&str, &str)> = spec.edges[0].map.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(map, [("length", "length")], "state comes from no other task");
    assert!(made.yaml.contains("# in: length FP32 [batch, 1]\n"), "{}", made.yaml);
    assert!(made.yaml.contains("# out: answer FP32 [batch, 1]\n"), "{}", made.yaml);
}

/// What is changed in a decoder: its inputs and outputs.
type DecoderChange = fn(&mut Vec<Vec<u8>>, &mut Vec<Vec<u8>>);

#[test]
fn state_of_another_form_is_named_with_its_cure() {
    let cases: [(DecoderChange, &str, &str); 8] = [
        (|_, o| drop(o.remove(1)), "no output present.cache is this state after the step", "Add the output present.cache"),
        (
            |_, o| o[1] = tensor("present.cache", FP32, &["batch", "5", "8"]),
            "the state after the step is present.cache FP32 [batch, 5, 8]",
            "Give present.cache the datatype and shape of the input",
        ),
        (
            |i, o| {
                (i[1], o[1]) = (tensor("past.cache", FP32, &["2", "batch"]), tensor("present.cache", FP32, &["2", "batch"]))
            },
            "input past.cache FP32 [2, batch]: its first axis is always 2",
            "Put the batch first, with any size, by a Transpose",
        ),
        (
            |i, o| {
                (i[1], o[1]) = (tensor("past.cache", FP32, &["batch", "t"]), tensor("present.cache", FP32, &["batch", "t"]))
            },
            "its axis 1 may have any size",
            "give the state room for the longest answer",
        ),
        (
            |_, o| o.push(tensor("present.more", FP32, &["batch", "1"])),
            "output present.more FP32 [batch, 1]: no input past.more takes this state to the next step",
            "Add the input past.more",
        ),
        (|_, o| drop(o.remove(2)), "no output says when a query has ended", "Add an output `done`: BOOL [batch]"),
        (
            |_, o| o[2] = tensor("done", INT64, &["batch", "1"]),
            "output done INT64 [batch, 1]: it does not say for each row",
            "Add an output `done`: BOOL [batch]",
        ),
        (|i, _| drop(i.remove(0)), "a query brings nothing: all inputs are state", "Give it an input beyond the state"),
    ];
    for (change, found, cure) in cases {
        let (mut inputs, mut outputs) = decoder();
        change(&mut inputs, &mut outputs);
        let said = told(&draft(&[file("generate.onnx", &model(&inputs, &outputs))]));
        assert_eq!(said.len(), 1, "{said:?}");
        let is_told =
            said[0].starts_with("will not work: generate.onnx") && said[0].contains(found) && said[0].contains(cure);
        assert!(is_told, "{said:?} should say {found:?} and {cure:?}");
    }
}

#[test]
fn the_cure_of_other_names_is_a_continuous_task() {
    let inputs = [tensor("token", INT64, &["n", "1"]), tensor("past_key_values.0.key", FP32, &["n", "4"])];
    let outputs = [tensor("logits", FP32, &["n", "9"]), tensor("present.0.key", FP32, &["n", "4"])];
    let said = told(&draft(&[file("llm.onnx", &model(&inputs, &outputs))]));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("rename the two to past.0.key and present.0.key, put the rows on their first axis"),
        "{said:?}"
    );
    assert!(said[0].contains("then the task is continuous"), "{said:?}");
}

#[test]
fn each_state_is_told_with_its_own_output() {
    let state = |name: String| tensor(&name, FP32, &["n", "4"]);
    let mut inputs = vec![tensor("token", INT64, &["n", "1"]), state("encoder_hidden_states".into())];
    let mut outputs = vec![tensor("logits", FP32, &["n", "9"])];
    for layer in 0..2 {
        for kind in ["key", "value"] {
            inputs.push(state(format!("past_key_values.{layer}.{kind}")));
            outputs.push(state(format!("present.{layer}.{kind}")));
        }
    }
    let said = told(&draft(&[file("llm.onnx", &model(&inputs, &outputs))]));
    assert_eq!(said.len(), 1, "{said:?}");
    let expected = "will not work: llm.onnx, inputs past_key_values.0.key FP32 [n, 4], past_key_values.0.value FP32 [n, 4], \
                    past_key_values.1.key FP32 [n, 4] and 1 more: these are states that the caller gets as \"present.0.key\", \
                    \"present.0.value\", \"present.1.key\" and 1 more and sends again;";
    assert!(said[0].starts_with(expected), "{}", said[0]);
    assert!(said[0].contains("rename each with its output, the first two to past.0.key and present.0.key"), "{}", said[0]);
    let other = [tensor("token", INT64, &["n", "1"]), state("past_key_values.0.value".into())];
    let said = told(&draft(&[file("llm.onnx", &model(&other, &outputs))]));
    assert!(said[0].contains("rename the two to past.0.value and present.0.value"), "{said:?}");
}

#[test]
fn inputs_that_nothing_feeds_are_named() {
    let det = file("det.onnx", &model(&[tensor("x", FP32, &["b", "3", "64"])], &[tensor("map", FP32, &["b", "1", "64"])]));
    let rec = file("rec.onnx", &model(&[tensor("x", FP32, &["b", "3", "48", "99"])], &[tensor("text", FP32, &["b", "7"])]));
    let made = draft(&[det, rec]);
    let said = told(&made);
    let expected = "will not work: edge det -> rec, input x FP32 [b, 3, 48, 99]: no single output of det fits; there are map FP32 \
                    [b, 1, 64]. Complete the map";
    assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
    assert!(!said[0].contains("TASK=FILE"), "they take other pictures: {said:?}");
    assert!(made.yaml.contains("# decide: which output of det is the input x"), "{}", made.yaml);
}

#[test]
fn one_output_is_not_two_inputs() {
    let tokens = |name| tensor(name, INT64, &["n", "8"]);
    let texts = file("t.onnx", &model(&[tensor("x", FP32, &["n", "9"])], &[tokens("ids")]));
    let maps = |inputs: &[Vec<u8>]| {
        let bert = file("b.onnx", &model(inputs, &[tensor("y", FP32, &["n", "2"])]));
        let made = draft(&[texts.clone(), bert]);
        let spec = read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline");
        (spec.edges[0].map.keys().cloned().collect::<Vec<String>>(), told(&made).len())
    };
    assert_eq!(maps(&[tokens("numbers")]), (vec!["numbers".to_owned()], 0));
    assert_eq!(maps(&[tokens("ids"), tokens("mask")]), (vec!["ids".to_owned()], 1), "the mask is to be decided");
    assert_eq!(maps(&[tokens("numbers"), tokens("mask")]), (vec![], 2));
}

#[test]
fn files_that_take_the_same_may_be_variants() {
    let one = |path, output| file(path, &model(&[tensor("x", FP32, &["b", "3"])], &[tensor(output, FP32, &["b", "9"])]));
    let said = told(&draft(&[one("small.onnx", "dense0"), one("large.onnx", "dense1")]));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("they are variants of one task: name it, `TASK=FILE` for each"), "{said:?}");
}

#[test]
fn variants_of_other_shapes_are_named() {
    let one = |path, size| file(path, &model(&[tensor("x", FP32, &["b", size])], &[tensor("y", FP32, &["b", "9"])]));
    let said = told(&draft(&[one("a-1.onnx", "32"), one("a-2.onnx", "64")]));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("input x FP32 [b, 32] of one is x FP32 [b, 64] of the other"), "{said:?}");
    let named = |task: &str, file: GraphFile| GraphFile { task: Some(task.into()), ..file };
    let said = told(&draft(&[named("one", one("a-1.onnx", "9")), named("two", one("a-2.onnx", "9"))]));
    assert_eq!(said, [""; 0], "named tasks are no variants of each other");
    let twice = draft_of("p", &[one("x/a.onnx", "32"), one("y/a.onnx", "32")]).expect_err("one name").to_string();
    assert!(twice.contains("two files with the name \"a\""), "{twice}");
}

#[test]
fn names_of_any_kind_stay_within_the_yaml() {
    let odd =
        file("we ird\n- x: [.onnx", &model(&[tensor("a: #\n", FP32, &["b", "9"])], &[tensor("true", FP32, &["b", "9"])]));
    let next = file("y.onnx", &model(&[tensor("no", FP32, &["b", "9"])], &[tensor("z", FP32, &["b", "9"])]));
    let made = draft(&[odd, next]);
    let spec = read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline");
    assert_eq!(spec.tasks[0].variants[0].name, "we ird\n- x- [");
    assert_eq!(spec.edges[0].map.get("no").map(String::as_str), Some("true"));
}

#[test]
fn a_file_that_is_no_model_is_refused() {
    let refused = |bytes: &[u8]| read_graph("f.onnx", bytes).expect_err("no model").to_string();
    assert!(refused(b"").starts_with("f.onnx: no graph: expected a model in ONNX format"));
    assert!(refused(b"<html>").starts_with("f.onnx: "), "{}", refused(b"<html>"));
    assert!(refused(&bytes(7, b"")).contains("a graph with 0 inputs and 0 outputs: expected at least one of each"));
    let whole = model(&[tensor("x", FP32, &["b"])], &[tensor("y", FP32, &["b"])]);
    for end in 0..whole.len() {
        // Every beginning of a file is refused or read, and never a panic.
        let _ = read_graph("f.onnx", &whole[..end]);
    }
}

#[test]
fn the_models_of_the_example_are_its_pipeline() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/models");
    let names = ["find-s", "find-m", "find-l", "read-s", "read-m", "read-l"];
    let graph = |name: &&str| {
        let path = folder.join(format!("{name}.onnx"));
        file(&format!("{name}.onnx"), &std::fs::read(&path).expect("a model of the repository"))
    };
    let made = draft(&names.iter().map(graph).collect::<Vec<_>>());
    let spec = read_pipeline_spec("p.yaml", &made.yaml).expect("a pipeline");
    assert_eq!(
        spec.tasks.iter().map(|t| (t.name.as_str(), t.variants.len())).collect::<Vec<_>>(),
        [("find", 3), ("read", 3)]
    );
    let map: Vec<(&str, &str)> = spec.edges[0].map.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(map, [("center", "centers"), ("image", "crops")]);
    assert!(made.remarks.iter().all(|remark| remark.works), "{:?}", told(&made));
}
