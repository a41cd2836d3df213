//! Answers that are usable, and answers that a wrong query or a hostile server gives.

use super::*;

fn vector_of(result: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#)
}

fn refusal(body: &str) -> String {
    let read = read_samples(body.as_bytes()).and_then(only_sample);
    read.expect_err(&body.chars().take(200).collect::<String>()).to_string()
}

#[test]
fn one_series_and_a_scalar_are_numbers() {
    let one = vector_of(r#"[{"metric":{"model":"find"},"value":[1700000000.5,"61.25"]}]"#);
    let sample = only_sample(read_samples(one.as_bytes()).expect("an answer")).expect("one series");
    assert_eq!((sample.evaluated_at_s, sample.value), (1_700_000_000.5, 61.25));
    assert_eq!(sample.labels["model"], "find");
    let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[17,"1e+03"]},"infos":["x"]}"#;
    assert_eq!(read_samples(scalar.as_bytes()).expect("an answer")[0].value, 1_000.0);
}

#[test]
fn zero_is_a_number_and_nothing_is_none() {
    let zero = vector_of(r#"[{"metric":{},"value":[1,"0"]}]"#);
    assert_eq!(read_samples(zero.as_bytes()).expect("an answer")[0].value, 0.0);
    assert!(refusal(&vector_of("[]")).starts_with("/data/result: no series: expected one series: is its name right"));
}

#[test]
fn several_series_are_refused_by_name() {
    let two = vector_of(r#"[{"metric":{"a":"1"},"value":[1,"2"]},{"metric":{"a":"2"},"value":[1,"3"]}]"#);
    let said = refusal(&two);
    assert!(said.contains(r#"2 series, such as {a="1"} and {a="2"}"#), "{said}");
}

#[test]
fn wrong_parts_are_refused_at_their_place() {
    let value = |text: &str| vector_of(&format!(r#"[{{"metric":{{}},"value":[1,{text}]}}]"#));
    let cases = [
        (value("\"NaN\""), "/data/result/0/value/1: \"NaN\""),
        (value("\"+Inf\""), "/data/result/0/value/1: \"+Inf\""),
        (value("\"-1\""), "/data/result/0/value/1: \"-1\""),
        (value("\"1e999\""), "/data/result/0/value/1: \"1e999\""),
        (value("\"\""), "/data/result/0/value/1: \"\""),
        (value("5"), "/data/result/0/value/1: 5"),
        (value("null"), "/data/result/0/value/1: null"),
        (vector_of(r#"[{"metric":{},"value":["1","2"]}]"#), "/data/result/0/value/0: \"1\": expected unix seconds"),
        (vector_of(r#"[{"metric":{},"value":[1]}]"#), "/data/result/0/value: [1]"),
        (vector_of(r#"[{"metric":{"a":7},"value":[1,"2"]}]"#), "/data/result/0/metric/a: 7: expected a text"),
        (vector_of(r#"[{"metric":{},"histogram":[1,{}]}]"#), "/data/result/0/histogram"),
        (vector_of("[7]"), "/data/result/0/metric: null"),
        (vector_of("{}"), "/data/result: {}: expected a list"),
        (r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.into(), "/data/resultType: \"matrix\""),
        (r#"{"status":"success"}"#.into(), "/data/resultType: null"),
        (r#"{"status":"error","error":"x"}"#.into(), "/status: \"error\""),
        (r#"{"status":"success","warnings":["one store is away"]}"#.into(), "/warnings/0: \"one store is away\""),
        ("[]".into(), "/status: null"),
        ("<html>Sign in</html>".into(), "line 1 column 1: <html>Sign in</html>"),
        (String::new(), "expected the JSON of Prometheus' HTTP API"),
    ];
    for (body, expected) in cases {
        let said = refusal(&body);
        assert!(said.contains(expected), "{body}: {said} has no {expected}");
    }
}

#[test]
fn hostile_answers_are_errors_of_one_short_line() {
    let many: Vec<_> = (0..=SERIES_MAX).map(|n| format!(r#"{{"metric":{{"n":"{n}"}},"value":[1,"1"]}}"#)).collect();
    let bodies = [
        "[".repeat(100_000),
        format!(r#"{{"status":"{}"}}"#, "x".repeat(100_000)),
        "{\"status\":\"\\u001b[2J\\r\\n\"}".to_owned(),
        "\u{1b}[31mred\u{7}".to_owned(),
        vector_of(&format!("[{}]", many.join(","))),
        vector_of(&format!(r#"[{{"metric":{{}},"value":[1,"{}"]}}]"#, "9".repeat(100_000))),
    ];
    for body in bodies {
        let said = refusal(&body);
        assert!(said.chars().count() < 500 && !said.chars().any(char::is_control), "{said:?}");
    }
    assert!(read_samples(&[0xff, 0xfe, 0x00]).is_err());
}

#[test]
fn a_refusal_is_in_prometheus_own_words() {
    let body = br#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unclosed"}"#;
    assert_eq!(read_refusal(body), "bad_data: 1:5: parse error: unclosed");
    assert_eq!(read_refusal(b"<h1>\nno</h1>"), "<h1> no</h1>");
}
