use super::super::inference::inputs;
use super::*;
use crate::causes::describe;
use apportion_node::tensor::{Tensor, TensorSignature};
use proptest::prelude::*;
use serde_json::Value;

fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSignature {
    TensorSignature { name: name.into(), datatype, shape: shape.to_vec() }
}

fn body(json: &str, tail: &[u8]) -> (Bytes, String) {
    ([json.as_bytes(), tail].concat().into(), json.len().to_string())
}

fn refused(json: &str, tail: &[u8]) -> String {
    let (body, length) = body(json, tail);
    read(&body, Some(&length)).err().map_or_else(|| panic!("not refused: {json}"), |e| describe(&e))
}

#[test]
fn json_and_binary_inputs_are_mixed_in_their_order() {
    let json = r#"{"id": "a", "parameters": {"timeout": 5, "binary_data_output": true},
        "inputs": [{"name": "x", "datatype": "UINT8", "shape": [1, 2], "parameters": {"binary_data_size": 2}},
                   {"name": "y", "datatype": "FP32", "shape": [1], "data": [0.5]},
                   {"name": "z", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": 2}}],
        "outputs": [{"name": "o", "parameters": {"binary_data": false}}, {"name": "p"}]}"#;
    let (body, length) = body(json, &[1, 2, 3, 4]);
    let request = read(&body, Some(&length)).expect("valid");
    assert_eq!(request.id.as_deref(), Some("a"));
    assert_eq!(
        request.settings,
        RequestParameters { timeout_ns: Some(5_000), form: ElementForm::Raw, ..RequestParameters::default() }
    );
    assert_eq!(request.outputs.iter().map(|o| o.form).collect::<Vec<_>>(), [Some(ElementForm::Typed), None]);
    let specs = [spec("z", Datatype::Bf16, &[-1]), spec("x", Datatype::Uint8, &[-1, 2]), spec("y", Datatype::Fp32, &[-1])];
    let tensors = inputs(request.inputs, &specs).expect("valid");
    let data: Vec<&[u8]> = tensors.iter().map(|t| &t.data[..]).collect();
    assert_eq!(data, [&[3, 4][..], &[1, 2], &0.5_f32.to_le_bytes()]);
}

#[test]
fn what_is_wrong_is_named_with_what_is_expected() {
    let with = |inner: &str| format!(r#"{{"inputs": [{{"name": "x", "datatype": "UINT8", "shape": [2]{inner}}}]}}"#);
    let sized = |size: &str| with(&format!(r#", "parameters": {{"binary_data_size": {size}}}"#));
    assert!(refused(&sized("3"), &[1, 2]).contains("binary_data_size is 3: only 2 bytes"));
    assert!(refused(&sized("1"), &[1, 2]).contains("1 bytes follow"));
    assert!(refused(&sized("-1"), &[]).contains("is -1: expected bytes"));
    assert!(refused(&sized("\"2\""), &[]).contains("expected bytes"));
    assert!(refused(&sized("[2]"), &[]).contains("expected a boolean, a number or a string"));
    assert!(refused(&with(""), &[]).contains("input x: no data"));
    assert!(refused(&with(r#", "parameters": {"binary_data_size": 2}, "data": [1, 2]"#), &[1, 2]).contains("both"));
    assert!(refused(&with(r#", "parameters": {"shared_memory_region": "r"}"#), &[]).contains("shared_memory_region"));
    assert!(
        refused(r#"{"inputs": [{"name": "x", "datatype": "UINT8", "shape": [1.5]}]}"#, &[]).contains("/inputs/0/shape/0")
    );
    assert!(refused(r#"{"inputs": [], "id": 7}"#, &[]).contains("/id"));
    assert!(refused(&format!(r#"{{"inputs": [], "id": "{}"}}"#, "i".repeat(ID_BYTES_MAX + 1)), &[]).contains("/id: 1025"));
    assert!(refused(r#"{"inputs": [], "parameters": {"timeout": "soon"}}"#, &[]).contains("microseconds"));
    let classes = r#"{"inputs": [], "outputs": [{"name": "o", "parameters": {"classification": 3}}]}"#;
    assert!(refused(classes, &[]).contains("output o: parameter classification"));
    assert!(refused("{}", &[]).contains("inputs"));
    let sized = Bytes::from(sized("2"));
    let refused = |header: Option<&str>| describe(&read(&sized, header).err().expect("no length"));
    assert!(refused(None).contains(HEADER_LENGTH));
    for length in ["x", "-1", "99999", "", "18446744073709551616"] {
        assert!(refused(Some(length)).contains(HEADER_LENGTH), "{length}");
    }
}

#[test]
fn outputs_without_a_json_form_are_refused_early() {
    let specs = [("h".to_string(), spec("h", Datatype::Fp16, &[-1])), ("y".to_string(), spec("y", Datatype::Fp32, &[-1]))];
    let want = |name: &str, form| vec![RequestedOutput { name: name.into(), form }];
    let error = check_forms(&[], ElementForm::Typed, &specs).expect_err("all as JSON");
    assert!(error.to_string().contains("output h is FP16"), "{error}");
    assert!(check_forms(&want("h", Some(ElementForm::Typed)), ElementForm::Raw, &specs).is_err());
    assert_eq!(check_forms(&[], ElementForm::Raw, &specs), Ok(()));
    assert_eq!(check_forms(&want("h", Some(ElementForm::Raw)), ElementForm::Typed, &specs), Ok(()));
    assert_eq!(check_forms(&want("y", None), ElementForm::Typed, &specs), Ok(()));
}

/// An answer as a client reads it: name, and the bytes or the JSON of each output.
fn client(body: &[u8], length: Option<usize>) -> Vec<(String, Result<Vec<u8>, Value>)> {
    let (json, mut tail) = body.split_at(length.unwrap_or(body.len()));
    let json: Value = serde_json::from_slice(json).expect("JSON");
    let mut all = Vec::new();
    for output in json["outputs"].as_array().expect("outputs") {
        let name = output["name"].as_str().expect("a name").to_string();
        if let Some(size) = output["parameters"]["binary_data_size"].as_u64() {
            let (mine, rest) = tail.split_at(size as usize);
            tail = rest;
            all.push((name, Ok(mine.to_vec())));
        } else {
            all.push((name, Err(output["data"].clone())));
        }
    }
    assert!(tail.is_empty());
    all
}

#[test]
fn an_answer_is_read_by_the_protocols_rules() {
    let output = |name: &str, datatype, data: &[u8], form| {
        let (name, data) = (name.into(), Bytes::copy_from_slice(data));
        AnswerOutput { tensor: Tensor { name, datatype, shape: vec![1], data }, form }
    };
    let outputs = [
        output("a\"b", Datatype::Uint16, &[1, 0], ElementForm::Typed),
        output("h", Datatype::Fp16, &[7, 8], ElementForm::Raw),
        output("t", Datatype::Bytes, &[1, 0, 0, 0, 9], ElementForm::Raw),
    ];
    let head =
        AnswerHead { name: "p", version: "3", id: Some("i\"d"), outcome: "ok", latency_us: 5, dropped: 0, chosen: None };
    let (body, length) = write(&head, &outputs).expect("written");
    let read = client(&body, length);
    assert_eq!(read[0], ("a\"b".into(), Err(json!([1]))));
    assert_eq!(read[1..], [("h".into(), Ok(vec![7, 8])), ("t".into(), Ok(vec![1, 0, 0, 0, 9]))]);
    let about: Value = serde_json::from_slice(&body[..length.expect("binary")]).expect("JSON");
    assert_eq!((&about["id"], &about["model_version"]), (&json!("i\"d"), &json!("3")));
    let (body, length) = write(&head, &outputs[..1]).expect("written");
    assert_eq!((client(&body, length).len(), length), (1, None));
    let error = write(&head, &[AnswerOutput { form: ElementForm::Typed, ..outputs[1].clone() }]).expect_err("FP16");
    assert!(error.to_string().contains("binary"), "{error}");
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                                   length in "[0-9]{0,3}") {
        let _either = read(&bytes.into(), Some(&length));
    }

    #[test]
    fn a_damaged_request_is_no_panic(at in 0usize..400, value in any::<u8>(), keep in 0usize..400, length in 0usize..400) {
        let json = r#"{"id": "a", "parameters": {"timeout": 5, "binary_data_output": true},
            "inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 10}},
                       {"name": "y", "datatype": "FP32", "shape": [2, 1], "data": [[0.5], [1]]}],
            "outputs": [{"name": "o", "parameters": {"binary_data": false}}]}"#;
        let (body, true_length) = body(json, &[1, 0, 0, 0, 65, 1, 0, 0, 0, 66]);
        let mut bytes = body.to_vec();
        let len = bytes.len();
        bytes[at % len] = value;
        bytes.truncate(keep.max(1));
        let specs = [spec("x", Datatype::Bytes, &[-1]), spec("y", Datatype::Fp32, &[-1, 1])];
        for length in [true_length, length.to_string()] {
            let bytes = Bytes::from(bytes.clone());
            if let Ok(request) = read(&bytes, Some(&length)) {
                let _either = inputs(request.inputs, &specs);
            }
        }
    }

    #[test]
    fn what_is_sent_as_bytes_is_what_arrives(data in proptest::collection::vec(any::<u8>(), 0..64)) {
        let json = json!({"inputs": [{"name": "x", "datatype": "UINT8", "shape": [data.len()],
            "parameters": {"binary_data_size": data.len()}}]}).to_string();
        let (body, length) = body(&json, &data);
        let request = read(&body, Some(&length)).expect("valid");
        let read = inputs(request.inputs, &[spec("x", Datatype::Uint8, &[-1])]);
        prop_assert_eq!(read.is_ok(), !data.is_empty());
        if let Ok(tensors) = read {
            prop_assert_eq!(&tensors[0].data[..], &data[..]);
        }
    }
}
