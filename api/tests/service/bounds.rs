//! Bombs and slow senders are refused, cost little, and disturb no other client.

use crate::support::agent::{attach, register, try_attach};
use crate::support::{PATIENCE, Service, service};
use apportion_api::act::connections::GUEST_TIME;
use apportion_protocol::v1::{FileRequest, control_client::ControlClient};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MIB: usize = 1024 * 1024;

/// Sends a head, then single bytes with pauses, until the service ends the connection; returns its answer.
async fn trickled(s: &Service, head: &str, byte: &[u8]) -> String {
    let mut stream = TcpStream::connect(s.running.http()).await.expect("the service");
    stream.write_all(head.as_bytes()).await.expect("room");
    let (mut reader, mut writer) = stream.into_split();
    let byte = byte.to_vec();
    let sending = tokio::spawn(async move {
        while writer.write_all(&byte).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, reader.read_to_end(&mut said)).await;
    sending.abort();
    let _reset = read.expect("a slow sender loses its connection");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_lose_their_connections() {
    let s = service().await;
    let head = |line: &str, rest: &str| {
        format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{rest}\r\n")
    };
    let heads = [
        head("PUT /v1/hardware/t4", "content-length: 100000\r\n"),
        head("PUT /v1/hardware/t4", "transfer-encoding: chunked\r\n"),
        // The body of a request for a missing resource is not read.
        head("PUT /nothing", "transfer-encoding: chunked\r\n"),
        head(&format!("PUT /v1/files/{}", "ab".repeat(32)), "content-length: 100000\r\n"),
        "GET /livez HTTP/1.1\r\nx: ".to_string(),
    ];
    let [length, chunked, nothing, file, no_head] = &heads;
    let chunk = b"1\r\n \r\n".as_slice();
    let (length, chunked, nothing, file, no_head) = tokio::join!(
        trickled(&s, length, b" "),
        trickled(&s, chunked, chunk),
        trickled(&s, nothing, chunk),
        trickled(&s, file, b" "),
        trickled(&s, no_head, b"x"),
    );
    for said in [&length, &chunked, &file] {
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("application/problem+json"), "{said}");
    }
    assert!(nothing.starts_with("HTTP/1.1 404 "), "{nothing}");
    assert!(no_head.starts_with("HTTP/1.1 408 "), "{no_head}");
    let left = std::fs::read_dir(s.dir.path().join("files")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left of what did not arrive");
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_one_request_in_its_time() {
    let s = service().await;
    // The framework would not time a second head that is sent slowly.
    let said = trickled(&s, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nx: ", b"x").await;
    assert!(said.starts_with("HTTP/1.1 200 ") && said.to_lowercase().contains("connection: close"), "{said}");
    s.running.stop().await;
}

/// Sends a JSON text; returns status and detail.
async fn put_json(s: &Service, text: String) -> (u16, String) {
    let request = s.client.put(format!("{}/v1/pipelines/digits", s.base)).header("content-type", "application/json");
    let response = request.body(text).send().await.expect("an answer");
    let status = response.status().as_u16();
    let problem: serde_json::Value = response.json().await.expect("a problem document");
    (status, problem["detail"].as_str().unwrap_or_default().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_bounded_in_depth_and_values() {
    let s = service().await;
    let (status, detail) = put_json(&s, "[".repeat(8 * MIB)).await;
    assert!(status == 400 && detail.contains("recursion limit"), "{status} {detail}");
    let (status, detail) = put_json(&s, "{\"a\":".repeat(100_000)).await;
    assert!(status == 400 && detail.contains("recursion limit"), "{status} {detail}");
    let (status, detail) = put_json(&s, format!("[{}0]", "0,".repeat(7 * MIB))).await;
    assert!(status == 413 && detail.contains("fewer values"), "{status} {detail}");
    let (status, detail) = put_json(&s, r#"{"name": "a\u0000b"}"#.into()).await;
    assert!(status == 422 && detail.contains("U+0000"), "{status} {detail}");
    s.running.stop().await;
}

/// The peak memory of this process since [`forget_peak`].
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("our own process");
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_leave_memory_flat_and_others_unharmed() {
    const BOMBS: usize = 8;
    /// The texts of the bombs, in the client and in the service, and the memory for parsing them.
    const GROWTH_BYTES_MAX: usize = (2 * BOMBS * 14 + 400) * MIB;
    let s = service().await;
    // Each is 14 MB of text, and would be a tree of more than a gigabyte.
    let bomb = format!("[{}0]", r#"{"":0},"#.repeat(2 * MIB));
    s.get("/livez").await;
    forget_peak();
    let before = peak_bytes();
    let bombs = futures::future::join_all((0..BOMBS).map(|_| put_json(&s, bomb.clone())));
    let others = async {
        for i in 0..50 {
            assert_eq!(s.put(&format!("/v1/hardware/h{i}"), &json!({"price_per_hour": 1.0})).await.0, 201);
        }
    };
    let (bombs, ()) = tokio::join!(bombs, others);
    assert!(bombs.iter().all(|(status, _)| [413, 503].contains(status)), "{bombs:?}");
    let growth = peak_bytes().saturating_sub(before);
    eprintln!("memory grew by {} MiB", growth / MIB);
    assert!(growth < GROWTH_BYTES_MAX, "{} MiB", growth / MIB);
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_cannot_send_large_messages() {
    let s = service().await;
    let mut agent = attach(&s, register(&s, "good")).await;
    agent.welcome().await;
    let beat = agent.report();
    let mut large = register(&s, "bomb");
    large.token = "t".repeat(60 * MIB);
    // A decoded message would get a refusal.
    assert!(try_attach(&s, large).await.is_none(), "the connection is ended before the message is whole");
    let agents = s.get("/v1/agents").await.1;
    assert!(agents.as_array().is_some_and(|a| a.len() == 1 && a[0]["state"] == "live"), "{agents}");
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_without_a_token_are_disconnected() {
    let s = service().await;
    let mut agent = attach(&s, register(&s, "good")).await;
    agent.welcome().await;
    let beat = agent.report();
    let more = apportion_api::act::connections::GUESTS_MAX + 20;
    let mut silent = Vec::with_capacity(more);
    for _ in 0..more {
        silent.push(TcpStream::connect(s.running.grpc()).await.expect("the agents' port"));
    }
    // Guests beyond the bound are disconnected at once, the others when their time is over.
    let ends = silent.iter_mut().map(|stream| async {
        let mut said = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.is_ok()
    });
    assert!(futures::future::join_all(ends).await.into_iter().all(|ended| ended), "all are hung up on");
    let mut late = attach(&s, register(&s, "late")).await;
    late.welcome().await;
    let agents = s.get("/v1/agents").await.1;
    assert!(agents.as_array().is_some_and(|a| a.iter().all(|a| a["state"] == "live")), "{agents}");
    beat.abort();
    s.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_may_take_longer_than_a_guest_may_stay() {
    let s = service().await;
    // More than all buffers between the disk and a client that does not read.
    let bytes = vec![7; 64 * MIB];
    let sha256: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let stored = s.client.put(format!("{}/v1/files/{sha256}", s.base)).body(bytes.clone()).send().await;
    assert_eq!(stored.expect("an answer").status(), 201);
    let mut client = ControlClient::connect(format!("http://{}", s.running.grpc())).await.expect("the agents' port");
    let request = FileRequest { token: s.running.token().into(), sha256, offset: 0 };
    let mut chunks = client.fetch(request).await.expect("a stream").into_inner();
    let mut received = chunks.message().await.expect("a chunk").expect("a chunk").data.len();
    tokio::time::sleep(GUEST_TIME + Duration::from_secs(1)).await;
    while let Some(chunk) = chunks.message().await.expect("the connection stays") {
        received += chunk.data.len();
    }
    assert_eq!(received, bytes.len());
    s.running.stop().await;
}
