//! What does a client make of a server that is slow, large, elsewhere or no Prometheus?

use apportion_prometheus::limits::{ANSWER_BYTES_MAX, QUERY_BYTES_MAX};
use apportion_prometheus::{BearerToken, PrometheusClient, PrometheusServer, QueryError, QueryFailure, SampleAge};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The length of the longest answer that the tests wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most requests that a server of the tests remembers.
const REQUESTS_MAX: usize = 16;

/// A server that gives each connection the same bytes. Returns its URL and the requests that it gets.
async fn server(answer: Vec<u8>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut head, mut buffer) = (Vec::new(), [0; 4_096]);
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(n) => head.extend_from_slice(&buffer[..n]),
                }
            }
            let _full = sender.try_send(String::from_utf8_lossy(&head).into_owned());
            // The client may have gone after a part.
            let _sent = stream.write_all(&answer).await;
            if answer.is_empty() {
                tokio::time::sleep(PATIENCE).await;
            }
        }
    });
    (url, receiver)
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

fn client(url: &str, timeout: Duration) -> PrometheusClient {
    let token = Some(BearerToken::parse("secret-1").expect("a token"));
    let server = PrometheusServer { url: url.to_owned(), token, authorities: None, timeout };
    PrometheusClient::new(server).expect("a client")
}

async fn refused(answer: Vec<u8>) -> QueryError {
    let (url, _requests) = server(answer).await;
    let asked = client(&url, PATIENCE).read_one("up", SampleAge::Any).await;
    asked.expect_err("no usable answer")
}

const SEVEN: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[100,"7"]}]}}"#;

#[tokio::test]
async fn a_query_travels_whole_with_its_token() {
    let (url, mut requests) = server(http("200 OK", "", SEVEN)).await;
    let reading = client(&format!("{url}/prefix/"), PATIENCE).read_one("a{b=\"c d\"} + 1 & 2", SampleAge::Any).await;
    assert_eq!(reading.expect("a number").samples.value, 7.0);
    let head = requests.recv().await.expect("a request");
    assert!(
        head.starts_with("GET /prefix/api/v1/query?query=a%7Bb%3D%22c%20d%22%7D%20%2B%201%20%26%202 HTTP/1.1"),
        "{head}"
    );
    assert!(head.contains("authorization: Bearer secret-1\r\n"), "{head}");
}

#[tokio::test]
async fn refusals_have_status_and_reason() {
    let body = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    let cases = [
        (http("400 Bad Request", "", body), "status 400: bad_data: parse error", false),
        (http("401 Unauthorized", "", "who are you?"), "status 401: who are you?", false),
        (http("503 Service Unavailable", "", ""), "status 503", true),
        (http("429 Too Many Requests", "", ""), "status 429", true),
        (http("302 Found", "location: http://10.0.0.9/login\r\n", ""), "redirects to http://10.0.0.9/login", false),
        (http("200 OK", "", "<html>"), "line 1 column 1: <html>", false),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "cannot be reached", true),
    ];
    for (answer, expected, is_temporary) in cases {
        let error = refused(answer).await;
        let said = error.to_string();
        assert!(said.starts_with("up: http://127.0.0.1:") && said.contains(expected), "{said} has no {expected}");
        assert_eq!(error.failure.is_temporary(), is_temporary, "{said}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_not_read() {
    let honest = http("200 OK", "", &" ".repeat(ANSWER_BYTES_MAX + 1));
    assert!(matches!(refused(honest).await.failure, QueryFailure::TooLong));
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
    let endless = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(64));
    assert!(matches!(refused(endless.into_bytes()).await.failure, QueryFailure::TooLong));
}

#[tokio::test]
async fn a_silent_server_meets_the_time_limit() {
    let (url, _requests) = server(Vec::new()).await;
    let error = client(&url, Duration::from_millis(200)).read_one("up", SampleAge::Any).await.expect_err("silence");
    assert!(matches!(error.failure, QueryFailure::TimeOut(_)), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let error = client(&url, PATIENCE).read_one("up", SampleAge::Any).await.expect_err("nobody");
    assert!(matches!(error.failure, QueryFailure::Unreachable { .. }) && error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn queries_have_a_length() {
    for query in [String::new(), " ".to_owned(), "x".repeat(QUERY_BYTES_MAX + 1)] {
        let error = client("http://127.0.0.1:9", PATIENCE).read_one(&query, SampleAge::Any).await.expect_err("no query");
        assert!(matches!(error.failure, QueryFailure::QueryLength(_)), "{error}");
    }
}

#[tokio::test]
async fn old_samples_are_stale() {
    // The same answer for the query and for the moment of its newest sample: 93 s before the evaluation.
    let (url, _requests) = server(http("200 OK", "", SEVEN)).await;
    let read = |limit| {
        let client = client(&url, PATIENCE);
        async move { client.read_one("sum(rate(a[1m]))", SampleAge::AtMostSeconds(limit)).await }
    };
    assert_eq!(read(93.0).await.expect("young enough").age_s, Some(93.0));
    let said = read(92.0).await.expect_err("too old").to_string();
    assert!(said.contains("the newest sample of a is 93 s old: expected at most 92 s"), "{said}");
}
