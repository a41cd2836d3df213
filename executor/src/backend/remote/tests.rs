mod find;

use super::*;

fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSignature {
    TensorSignature { name: name.into(), datatype, shape: shape.into() }
}

fn there(name: &str, datatype: &str, shape: &[i64]) -> Described {
    Described { name: name.into(), datatype: datatype.into(), shape: shape.into() }
}

#[test]
fn tensors_that_differ_from_the_plan_are_refused_by_name() {
    let planned = [spec("x", Datatype::Fp32, &[-1, 2])];
    let check = |found: Vec<Described>| {
        compare(TensorDirection::Input, &planned, &found).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(check(vec![there("x", "FP32", &[-1, 2])]), "");
    assert_eq!(check(vec![there("x", "FP32", &[8, -1])]), "", "open sizes fit all");
    for (found, said) in [
        (vec![there("y", "FP32", &[-1, 2])], "it has no input x: it has y"),
        (vec![there("x", "FP64", &[-1, 2])], "its input x is FP64: the plan has FP32"),
        (vec![there("x", "FP32", &[-1, 3])], "its input x has the shape [-1, 3]: the plan has [-1, 2]"),
        (vec![there("x", "FP32", &[-1, 2]), there("z", "BOOL", &[-1])], "it needs the input z"),
    ] {
        assert!(check(found).starts_with(said), "{said}");
    }
    let more = [there("x", "FP32", &[-1, 2]), there("z", "BOOL", &[-1])];
    assert_eq!(compare(TensorDirection::Output, &planned, &more), Ok(()), "outputs that nobody wants do no harm");
}

#[test]
fn json_and_binary_answers_are_read() {
    let specs = [spec("s", Datatype::Int32, &[-1])];
    let read = |json: &str, tail: &[u8], header: bool| {
        let body: Bytes = [json.as_bytes(), tail].concat().into();
        let length = header.then(|| json.len().to_string());
        outputs(&body, length.as_deref(), &specs)
    };
    let two: Bytes = vec![1, 0, 0, 0, 2, 0, 0, 0].into();
    let good = [Tensor { name: "s".into(), datatype: Datatype::Int32, shape: vec![2], data: two.clone() }];
    let other = r#"{"name":"other","datatype":"BOOL","shape":[1],"data":[true]}"#;
    let s = |rest: &str| format!(r#"{{"outputs":[{other},{{"name":"s","datatype":"INT32","shape":[2],{rest}}}]}}"#);
    let bytes = r#""parameters":{"binary_data_size":8}"#;
    assert_eq!(read(&s(r#""data":[1,2]"#), &[], false).expect("JSON"), good);
    assert_eq!(read(&s(bytes), &two, true).expect("bytes"), good);
    for (answer, said) in [
        (read(&s(bytes), &two[..7], true), "7 bytes are left"),
        (read(&s(r#""data":[1,2,3]"#), &[], false), "its output s"),
        (read(&s(r#""data":[1]"#), &[], false), "its output s does not hold"),
        (read(r#"{"outputs":[]}"#, &[], false), "its answer has no output s"),
        (read("<html>", &[], false), "its answer: expected value"),
        (read(&s(r#""parameters":{}"#), &[], false), "expected either data or binary_data_size"),
    ] {
        let error = answer.expect_err(said).to_string();
        assert!(error.contains(said), "{error}: expected {said}");
    }
    assert!(outputs(&two, Some("9"), &specs).is_err(), "the JSON cannot be longer than the body");
}
