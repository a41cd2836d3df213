//! A variant is found on a server by its name. The answers are those of Triton 2.51.

use super::super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// An answer of a server: the request, the status, and the body.
type Canned = (&'static str, u16, &'static str);

const SERVER: Canned = (
    "GET /v2 ",
    200,
    r#"{"name":"triton","version":"2.51.0","extensions":["model_configuration","binary_tensor_data","statistics"]}"#,
);
const READY: Canned = ("GET /v2/models/large/ready ", 200, "");
const LARGE: Canned = (
    "GET /v2/models/large ",
    200,
    r#"{"name":"large","versions":["1"],"platform":"python","inputs":[{"name":"x","datatype":"FP32","shape":[-1,64]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}"#,
);
const INDEX: Canned = (
    "POST /v2/repository/index ",
    200,
    r#"[{"name":"broken","version":"1","state":"UNAVAILABLE","reason":"Internal: no weights\n\nAt: 1/model.py"},
        {"name":"large","version":"1","state":"READY"}]"#,
);
const NOT_READY: &str = r#"{"error":"Model version not ready"}"#;

/// Starts a server with these answers, and 404 for every other request. Returns its URL.
fn server(answers: Vec<Canned>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(&stream, &answers);
        }
    });
    url
}

fn serve(stream: &TcpStream, answers: &[Canned]) {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request).expect("a request");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    reader.read_exact(&mut vec![0; length]).expect("a body");
    let known = answers.iter().find(|(asked, ..)| request.starts_with(asked));
    let (status, body) = known.map_or((404, "{}"), |(_, status, body)| (*status, *body));
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut stream = stream;
    // The client may have gone.
    let _sent = stream.write_all(format!("{head}{body}").as_bytes());
}

/// The error of a search for `variant`, with its cause.
fn refused(variant: &str, answers: Vec<Canned>) -> String {
    let error = RemoteBackend::find(&server(answers), variant).err().expect("refused");
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

#[test]
fn a_variant_is_found_with_its_tensors_and_largest_batch() {
    let config = ("GET /v2/models/large/config ", 200, r#"{"name":"large","max_batch_size":8,"backend":"python"}"#);
    let stats = (
        "GET /v2/models/large/stats ",
        200,
        r#"{"model_stats":[{"inference_count":3,"inference_stats":{"success":{"count":2},"queue":{"ns":4000000}}}]}"#,
    );
    let found = RemoteBackend::find(&server(vec![SERVER, READY, LARGE, config, stats]), "large").expect("found");
    assert_eq!(found.batch_max(), Some(8));
    let shapes: Vec<&[i64]> =
        found.signature().inputs.iter().chain(&found.signature().outputs).map(|t| t.shape.as_slice()).collect();
    assert_eq!(shapes, [&[-1, 64], &[-1, 1]]);
    let seen = found.statistics().expect("an answer").expect("it counts");
    assert_eq!((seen.rows, seen.queue_ms()), (3, Some(2.0)));
}

#[test]
fn a_server_without_extensions_bounds_and_counts_nothing() {
    let plain = ("GET /v2 ", 200, r#"{"name":"other","version":"1"}"#);
    let found = RemoteBackend::find(&server(vec![plain, READY, LARGE]), "large").expect("found");
    assert_eq!((found.batch_max(), found.statistics().expect("nothing is asked")), (None, None));
    let secret = ("GET /v2/models/large/stats ", 403, r#"{"error":"This API is restricted"}"#);
    let config = ("GET /v2/models/large/config ", 200, r#"{"max_batch_size":0}"#);
    let found = RemoteBackend::find(&server(vec![SERVER, READY, LARGE, config, secret]), "large").expect("found");
    assert_eq!(found.batch_max(), None, "0 is no bound");
    assert_eq!(found.statistics().expect("a refusal is no failure"), None);
}

#[test]
fn a_variant_that_is_not_there_is_refused_by_name() {
    let not_ready = |name: &'static str| (name, 400, NOT_READY);
    let unknown = refused("larg", vec![SERVER, not_ready("GET /v2/models/larg/ready "), INDEX]);
    assert!(unknown.ends_with("there is no model \"larg\": expected one of broken, large"), "{unknown}");
    let broken = refused("broken", vec![SERVER, not_ready("GET /v2/models/broken/ready "), INDEX]);
    assert!(broken.ends_with("model \"broken\" is not ready: UNAVAILABLE: Internal: no weights"), "{broken}");
    let no_index = refused("larg", vec![SERVER, not_ready("GET /v2/models/larg/ready ")]);
    assert!(no_index.ends_with("is not ready: it answered 400 Bad Request: Model version not ready"), "{no_index}");
}

#[test]
fn a_server_of_another_kind_is_refused() {
    for (answers, said) in [
        (vec![], "GET /v2: it answered 404 Not Found"),
        (vec![("GET /v2 ", 200, "<html>")], "GET /v2: expected value at line 1"),
    ] {
        let error = refused("large", answers);
        assert!(error.contains(said) && error.contains("a server of the Open Inference Protocol"), "{error}");
    }
    let away = RemoteBackend::find("http://127.0.0.1:1", "large").err().expect("nobody listens").to_string();
    assert!(away.starts_with("http://127.0.0.1:1: GET /v2: ") && away.contains("refused"), "{away}");
}

#[test]
fn tensors_without_rows_are_refused_with_the_cure() {
    let fixed = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,64]}],"outputs":[]}"#;
    let kind = r#"{"inputs":[{"name":"x","datatype":"FP8","shape":[-1]}],"outputs":[]}"#;
    let none = r#"{"inputs":[],"outputs":[]}"#;
    for (metadata, said) in [
        (fixed, "its tensor x has the shape [1, 64]: expected -1 first"),
        (kind, "its tensor x is FP8: expected a datatype"),
        (none, "it has no input or no output"),
    ] {
        let error = refused("large", vec![SERVER, READY, ("GET /v2/models/large ", 200, metadata)]);
        assert!(error.contains(said), "{error}");
    }
}
