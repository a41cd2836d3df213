//! Requests that are made to cost much: an agent's memory stays flat, and other clients do not notice.

use crate::support::control::{Control, TOKEN};
use crate::support::until;
use bytes::{Buf, BufMut, Bytes};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// What an agent's memory may grow by at its highest, in KiB. Before there were bounds, one of these bombs took 3.8 GB.
const GROWTH_KIB_MAX: u64 = 256 * 1024;
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// The agent's own program, which plays profiles back.
struct Program {
    child: Child,
    _control: Control,
    http: String,
    grpc: String,
    _folder: tempfile::TempDir,
}

impl Program {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let control = Control::start(&[]).await;
        let mut child = Command::new(env!("CARGO_BIN_EXE_apportion-agent"))
            .args(["--join", &control.url, "--name", "a1", "--backend", "emulated"])
            .arg("--state-dir")
            .arg(folder.path())
            .env("APPORTION_TOKEN", TOKEN)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let register = until("it registers", || control.heard("a1").registers.last().cloned()).await;
        let pipeline = crate::support::rows::pipeline(1, "rows", "FP32", &[-1], Duration::from_millis(1));
        control.send(crate::support::rows::target(&register.data_address, vec![pipeline]));
        control.applied("a1", 1).await;
        let (http, grpc) = (register.ingress_http, register.ingress_grpc);
        let this = Self { child, _control: control, http, grpc, _folder: folder };
        this.served().await;
        this
    }

    /// A request of a client that means well.
    async fn served(&self) {
        assert_eq!(ask(&reqwest::Client::new(), &self.http).await, 200);
    }

    /// Most memory that it ever had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("Linux");
        line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
    }

    async fn metric(&self, bound: &str) -> u64 {
        let url = format!("http://{}/metrics", self.http);
        let text = reqwest::get(&url).await.expect("an answer").text().await.expect("text");
        let name = format!("apportion_bounds_refused_total{{bound=\"{bound}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("the metric")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

async fn ask(client: &reqwest::Client, http: &str) -> u16 {
    let body = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]});
    let answer = client.post(format!("http://{http}/v2/models/rows/infer")).json(&body).send().await;
    answer.expect("an answer").status().as_u16()
}

/// Asks on while `other` goes on, and fails if one request does.
async fn beside<T>(program: &Program, other: impl Future<Output = T>) -> T {
    let (http, stop) = (program.http.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let asking = tokio::spawn(async move {
        let (client, mut served) = (reqwest::Client::new(), 0);
        while !stopped.load(Relaxed) {
            assert_eq!(ask(&client, &http).await, 200);
            served += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        served
    });
    let done = other.await;
    stop.store(true, Relaxed);
    assert!(asking.await.expect("each request is served") > 0);
    done
}

/// Sends bytes as they are for a message, and reads no answer.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        from.advance(from.remaining());
        Ok(Some(()))
    }
}

async fn call(program: &Program, message: Bytes, packed: Option<CompressionEncoding>) -> Status {
    let channel = Channel::from_shared(format!("http://{}", program.grpc)).expect("an address").connect().await;
    let mut client = tonic::client::Grpc::new(channel.expect("connects"));
    if let Some(encoding) = packed {
        client = client.send_compressed(encoding);
    }
    client.ready().await.expect("a service");
    client.unary(tonic::Request::new(message), INFER.parse().expect("a path"), Raw).await.expect_err("a bomb")
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_million_empty_inputs_leave_memory_flat() {
    let program = Program::start().await;
    let before = program.peak_kib();
    let inputs = Bytes::from([0x2a, 0x00].repeat(30_000_000));
    let packed = beside(&program, call(&program, inputs.clone(), Some(CompressionEncoding::Gzip))).await;
    assert!(packed.code() == Code::InvalidArgument && packed.message().contains("decompressed"), "{packed}");
    // The same as it is, and so little of it that it may grow.
    let plain = beside(&program, call(&program, inputs.clone(), None)).await;
    assert!(plain.code() == Code::InvalidArgument && plain.message().contains("fewer inputs"), "{plain}");
    let few = beside(&program, call(&program, inputs.slice(..4_000_000), Some(CompressionEncoding::Deflate))).await;
    assert!(few.code() == Code::InvalidArgument && few.message().contains("fewer inputs"), "{few}");
    let grown = program.peak_kib() - before;
    eprintln!("{before} KiB at the highest before, {grown} KiB more");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more");
    assert!(program.metric("inflated").await >= 1 && program.metric("parts").await >= 2);
    program.served().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_becomes_much_more_in_memory_is_refused() {
    let program = Program::start().await;
    let before = program.peak_kib();
    let list = |count: usize| "0,".repeat(count) + "0";
    let bombs = [
        (format!(r#"{{"parameters": {{"a": [{}]}}, "inputs": []}}"#, list(10_000_000)), "a boolean, a number or a string"),
        (
            format!(r#"{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [{}], "data": []}}]}}"#, list(5_000_000)),
            "more than 16 elements",
        ),
        (
            format!(r#"{{"inputs": [], "outputs": [{}{{"name":""}}]}}"#, r#"{"name":""},"#.repeat(1_000_000)),
            "more than 1024",
        ),
    ];
    for (body, expected) in bombs {
        let url = format!("http://{}/v2/models/rows/infer", program.http);
        let answer = beside(&program, reqwest::Client::new().post(url).body(body).send()).await.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("text"));
        assert!(status == 400 && text.contains(expected), "{status} {text}");
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&vec![b' '; 60_000_000]).expect("memory");
    let packed = packed.finish().expect("memory");
    let request = reqwest::Client::new().post(format!("http://{}/v2/models/rows/infer", program.http));
    let answer = beside(&program, request.header("content-encoding", "gzip").body(packed).send()).await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 413);
    let grown = program.peak_kib() - before;
    eprintln!("{before} KiB at the highest before, {grown} KiB more");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more");
    program.served().await;
}

/// What a client of HTTP/2 says first, and the beginning of a call whose message does not go on.
fn half_a_call() -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    // POST, http, then literals: path (4), authority (1), content-type (31), and a name of their own.
    let headers = [
        vec![0x83, 0x86, 0x04],
        text(INFER),
        vec![0x01],
        text("a"),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let message = [0, 0, 0, 4, 0, 1, 2, 3];
    [preface, frame(4, 0, 0, &[]), frame(1, 4, 1, &headers.concat()), frame(0, 0, 1, &message)].concat()
}

/// Writes a byte now and then until the other end has had enough: it answers, and then hangs up.
async fn trickle(address: &str, begin: &[u8], with: Option<u8>) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.expect("connects");
    let (mut from, mut to) = stream.into_split();
    to.write_all(begin).await.expect("the beginning");
    let trickling = tokio::spawn(async move {
        while let Some(byte) = with {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if to.write_all(&[byte]).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    });
    let mut said = Vec::new();
    let ended = tokio::time::timeout(crate::support::PATIENCE, from.read_to_end(&mut said)).await;
    trickling.abort();
    assert!(ended.is_ok(), "{address}: the connection is held for ever; it said {:?}", String::from_utf8_lossy(&said));
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_lose_their_places() {
    let program = Program::start().await;
    let head = "POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let sized = format!("{head}Content-Length: 1000\r\n\r\n{{");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n3e8\r\n");
    let slow = async {
        let of_http =
            [trickle(&program.http, sized.as_bytes(), Some(b' ')), trickle(&program.http, chunked.as_bytes(), Some(b' '))];
        let silent = trickle(&program.grpc, b"", None);
        let header = trickle(&program.http, b"POST /v2", None);
        // What the server says first over HTTP/2 are its settings.
        let (of_http, _settings, header) = tokio::join!(futures::future::join_all(of_http), silent, header);
        for said in of_http {
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(said.starts_with("HTTP/1.1 408") && said.contains("comes too slowly"), "{said}");
        }
        assert!(String::from_utf8_lossy(&header).starts_with("HTTP/1.1 408"));
    };
    beside(&program, slow).await;
    assert!(program.metric("slow_body").await >= 2 && program.metric("handshake").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_call_over_grpc_is_ended() {
    let program = Program::start().await;
    let mut stream = TcpStream::connect(&program.grpc).await.expect("connects");
    stream.write_all(&half_a_call()).await.expect("half a call");
    let ended = async {
        // Frames until one of the call: its headers, which say that it is over.
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("frames");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            stream.read_exact(&mut payload).await.expect("its payload");
            if u32::from_be_bytes([head[5], head[6], head[7], head[8]]) == 1 && matches!(head[3], 1 | 3) {
                return;
            }
        }
    };
    beside(&program, tokio::time::timeout(crate::support::PATIENCE, ended)).await.expect("it is told that it was too slow");
    assert!(program.metric("slow_body").await >= 1);
}
