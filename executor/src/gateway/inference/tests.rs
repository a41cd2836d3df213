use super::*;
use crate::causes::describe;

struct Raw(&'static [u8]);

impl Elements for Raw {
    fn bytes(self, _: Datatype, _: usize) -> Result<Bytes, ElementsError> {
        Ok(Bytes::from_static(self.0))
    }
}

fn specs() -> Vec<TensorSignature> {
    let spec = |name: &str, datatype, shape: &[i64]| TensorSignature { name: name.into(), datatype, shape: shape.to_vec() };
    vec![spec("x", Datatype::Uint8, &[-1, 2]), spec("t", Datatype::Bytes, &[-1]), spec("b", Datatype::Bool, &[-1, -1])]
}

fn given(name: &str, datatype: &str, shape: &[i64], data: &'static [u8]) -> UncheckedInput<Raw> {
    UncheckedInput { name: name.into(), datatype: datatype.into(), shape: shape.to_vec(), elements: Raw(data) }
}

fn valid() -> [UncheckedInput<Raw>; 3] {
    [given("b", "BOOL", &[1, 1], &[1]), given("t", "BYTES", &[1], &[1, 0, 0, 0, 65]), given("x", "UINT8", &[1, 2], &[1, 2])]
}

#[test]
fn inputs_come_in_the_order_of_the_pipeline() {
    let tensors = inputs(valid().into(), &specs()).expect("valid");
    assert_eq!(tensors.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["x", "t", "b"]);
}

#[test]
fn each_wrong_input_is_named() {
    let cases = [
        (given("y", "UINT8", &[1, 2], &[1, 2]), "expected x, t, b"),
        (given("x", "INT8", &[1, 2], &[1, 2]), "x is INT8: expected UINT8"),
        (given("x", "UINT8", &[1, -2], &[1, 2]), "expected UINT8 of shape [-1, 2]"),
        (given("x", "UINT8", &[-1, 2], &[1, 2]), "has shape [-1, 2]"),
        (given("x", "UINT8", &[1, 2], &[1]), "1 bytes: expected 2"),
        (given("x", "UINT8", &[2, 2], &[1, 2, 3, 4]), "has 1 rows: expected 2"),
        (given("b", "BOOL", &[i64::MAX, i64::MAX], &[1]), "too large"),
        (given("t", "BYTES", &[1], &[9, 0, 0, 0, 65]), "within an element"),
        (given("t", "BYTES", &[1], &[0, 0, 0, 0, 0, 0, 0, 0]), "2 elements: expected 1"),
        (given("b", "BOOL", &[1, 1], &[2]), "0 or 1"),
    ];
    for (wrong, expected) in cases {
        let mut all: Vec<_> = valid().into_iter().filter(|g| g.name != wrong.name).collect();
        all.push(wrong);
        let error = describe(&inputs(all, &specs()).expect_err(expected));
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let missing = inputs(valid().into_iter().skip(1).collect(), &specs()).expect_err("no b").to_string();
    assert!(missing.contains("b is missing: expected BOOL"), "{missing}");
    let twice = inputs(valid().into_iter().chain(valid()).collect(), &specs()).expect_err("twice");
    assert!(twice.to_string().contains("twice"), "{twice}");
}

#[test]
fn rows_are_bounded_though_they_have_no_bytes() {
    let spec = TensorSignature { name: "e".into(), datatype: Datatype::Uint8, shape: vec![-1, 0] };
    let rows = |n: usize| inputs(vec![given("e", "UINT8", &[n as i64, 0], &[])], std::slice::from_ref(&spec));
    assert_eq!(rows(ROWS_MAX).expect("as many as may be")[0].rows(), ROWS_MAX);
    assert!(rows(ROWS_MAX + 1).expect_err("one more").to_string().contains("at most 65536"));
    assert!(rows(0).expect_err("none").to_string().contains("no rows"));
}

#[test]
fn local_backends_refuse_bytes_that_are_not_utf8() {
    let texts = |elements: &[&[u8]]| {
        let data = elements.iter().flat_map(|e| [&(e.len() as u32).to_le_bytes(), *e].concat()).collect();
        vec![Tensor { name: "t".into(), datatype: Datatype::Bytes, shape: vec![elements.len()], data }]
    };
    check_texts(&texts(&["zwölf".as_bytes(), b""]), BackendKind::Local).expect("texts");
    for wrong in [&b"\xff"[..], b"a\0b", b"\xc3"] {
        let error = describe(&check_texts(&texts(&[b"a", wrong]), BackendKind::Local).expect_err("no text"));
        assert!(error.contains("input t: data: element 1") && error.contains("UTF-8"), "{error}");
        check_texts(&texts(&[wrong]), BackendKind::Remote).expect("any bytes");
    }
}

#[test]
fn a_tensor_is_no_larger_than_a_body() {
    let spec = TensorSignature { name: "e".into(), datatype: Datatype::Fp64, shape: vec![-1, -1] };
    let columns = (BODY_BYTES_MAX / 8 + 1) as i64;
    let error = inputs(vec![given("e", "FP64", &[1, columns], &[])], &[spec]).expect_err("too large");
    assert!(error.to_string().contains("expected at most 67108864 bytes"), "{error}");
}

#[test]
fn parameters_are_read_by_their_names() {
    let mut settings = RequestParameters::default();
    let mut set = |name: &str, value: Parameter| settings.set(name, &value);
    assert_eq!(set("timeout", Parameter::Whole(1_500)), Ok(()));
    assert_eq!(set("priority", Parameter::Whole(1)), Ok(()));
    assert_eq!(set("mine", Parameter::Real(0.5)), Ok(()));
    for (name, wrong, expected) in [
        ("timeout", Parameter::Whole(-1), "parameter timeout is -1"),
        ("timeout", Parameter::Text("1s".into()), "microseconds"),
        ("priority", Parameter::Real(1.5), "priority is 1.5"),
        ("binary_data_output", Parameter::Whole(1), "true or false"),
    ] {
        let error = set(name, wrong).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(settings, RequestParameters { timeout_ns: Some(1_500_000), priority: 1, ..RequestParameters::default() });
}

#[test]
fn needs_and_levels_follow_from_the_parameters() {
    let mut settings = RequestParameters::default();
    assert_eq!(settings.terms(Some(7)), RequestTerms { timeout_ns: Some(7), ..RequestTerms::default() });
    let mut set = |name: &str, value: Parameter| settings.set(name, &value);
    for wrong in [Parameter::Real(1.5), Parameter::Whole(2), Parameter::Bool(true), Parameter::Text("high".into())] {
        let error = set("accuracy_min", wrong).expect_err("no part").to_string();
        assert!(error.contains("expected a part from 0 to 1"), "{error}");
    }
    let mut refused = |value: Parameter| set("latency_max_us", value).expect_err("no time").to_string();
    assert!(refused(Parameter::Whole(0)).contains("above 0"));
    assert!(refused(Parameter::Real(0.5)).contains("microseconds"));
    for value in [Parameter::Real(0.9), Parameter::Text("0.9".into())] {
        assert_eq!(set("accuracy_min", value), Ok(()));
    }
    assert_eq!(set("latency_max_us", Parameter::Whole(20)), Ok(()));
    assert_eq!(set("priority", Parameter::Whole(i128::from(u64::MAX))), Ok(()));
    let needs = RequestNeeds { accuracy_ppm_min: 900_000, latency_ns_max: 20_000, ..RequestNeeds::default() };
    let least = LEVEL_OFFLINE - 1;
    assert_eq!(settings.terms(None), RequestTerms { level: least, needs: Some(needs), ..RequestTerms::default() });
    assert_eq!(settings.set("offline", &Parameter::Bool(true)), Ok(()));
    assert_eq!(settings.terms(None).level, LEVEL_OFFLINE, "whatever its priority");
}

#[test]
fn prices_and_names_are_needs_too() {
    let mut settings = RequestParameters::default();
    let refused = |name: &str, value: Parameter| {
        RequestParameters::default().set(name, &value).expect_err("neither price nor names").to_string()
    };
    for wrong in [Parameter::Real(-0.5), Parameter::Real(f64::INFINITY), Parameter::Text("x".into()), Parameter::Bool(true)]
    {
        assert!(refused("cost_max", wrong).contains("the price of 1,000 queries"));
    }
    let many = vec!["v"; VARIANT_NAMES_MAX + 1].join(",");
    for wrong in
        [Parameter::Whole(1), Parameter::Text("a,,b".into()), Parameter::Text(String::new()), Parameter::Text(many)]
    {
        assert!(refused("variants", wrong).contains("separated by commas"));
    }
    assert_eq!(settings.set("cost_max", &Parameter::Text("0.0025".into())), Ok(()));
    let needs = RequestNeeds { price_nano_max: 2_500, ..RequestNeeds::default() };
    assert_eq!(settings.terms(None).needs, Some(needs), "a query costs 2.5 millionths");
    let mut settings = RequestParameters::default();
    assert_eq!(settings.set("variants", &Parameter::Text("read:small, find-l".into())), Ok(()));
    let terms = settings.terms(None);
    assert_eq!((terms.needs, terms.variants), (Some(RequestNeeds::default()), vec!["read:small".into(), "find-l".into()]));
}

#[test]
fn outputs_are_picked_in_the_order_asked_for() {
    let wanted = |name: &str, form| RequestedOutput { name: name.into(), form };
    let specs: Vec<_> = specs().into_iter().map(|s| (s.name.clone(), s)).collect();
    assert!(check_wanted(&[wanted("t", None), wanted("x", None)], &specs).is_ok());
    let twice = check_wanted(&[wanted("t", None), wanted("t", None)], &specs).expect_err("twice");
    assert!(twice.to_string().contains("twice"), "{twice}");
    let unknown = check_wanted(&[wanted("z", None)], &specs).expect_err("none");
    assert!(unknown.to_string().contains("expected x, t, b"), "{unknown}");
    let all = inputs(valid().into(), &self::specs()).expect("valid");
    let picked = select(all, &[wanted("t", Some(ElementForm::Typed)), wanted("x", None)], ElementForm::Raw).expect("there");
    let picked: Vec<_> = picked.iter().map(|s| (s.tensor.name.as_str(), s.form)).collect();
    assert_eq!(picked, [("t", ElementForm::Typed), ("x", ElementForm::Raw)]);
}
