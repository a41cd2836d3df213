//! Requests per second of the ways in, beside servers of the same libraries that read the request and answer at once.

use super::pair::{FEW, FEW_NUMBERS, Pair};
use super::{BenchError, Figure, plain};
use crate::gateway::json::HEADER_LENGTH;
use crate::gateway::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use crate::gateway::proto::model_infer_request::InferInputTensor;
use crate::gateway::proto::{ModelInferRequest, ModelInferResponse};
use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Clients, each with one connection and one request at a time.
const CLIENTS: usize = 32;
const AIM: &str = "0.6 of plain";

/// JSON, binary tensors and gRPC.
pub(super) fn measure(pair: &Pair, each: Duration) -> Result<Vec<Figure>, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let figure = |what: &str, agents, plain| Figure { what: what.into(), unit: "requests/s", agents, plain, aim: AIM };
        let mut figures = Vec::new();
        let binary = binary_request(FEW, ("FP32", FEW_NUMBERS), &few_bytes());
        for (what, request) in [("HTTP, JSON", json_request()), ("HTTP, binary tensors", binary)] {
            let answer = exchange(&mut TcpStream::connect(pair.http).await?, &request).await?;
            let server = plain::Http::start(answer)?;
            let plain = http(server.address, &request, each).await?;
            let agents = http(pair.http, &request, each).await?;
            figures.push(figure(&format!("{what}: ingress (plain: actix that answers at once)"), agents, Some(plain)));
        }
        let answer = call(&mut connect(pair.grpc).await?, &grpc_request()).await?;
        let server = plain::Grpc::start(answer)?;
        let plain = grpc(server.address, each).await?;
        let agents = grpc(pair.grpc, each).await?;
        figures.push(figure("gRPC: ingress (plain: tonic that answers at once)", agents, Some(plain)));
        Ok(figures)
    })
}

fn post(pipeline: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST /v2/models/{pipeline}/infer HTTP/1.1\r\nHost: bench\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn json_request() -> Vec<u8> {
    let data: Vec<f64> = (0..FEW_NUMBERS).map(|i| i as f64 + 0.5).collect();
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, FEW_NUMBERS], "data": data});
    post(FEW, "Content-Type: application/json\r\n", json!({"inputs": [input]}).to_string().as_bytes())
}

fn few_bytes() -> Vec<u8> {
    (0..FEW_NUMBERS).flat_map(|i| (i as f32 + 0.5).to_le_bytes()).collect()
}

/// A request with one row of a tensor `x` as bytes.
fn binary_request(pipeline: &str, (datatype, count): (&str, usize), data: &[u8]) -> Vec<u8> {
    let parameters = json!({"binary_data_size": data.len()});
    let input = json!({"name": "x", "datatype": datatype, "shape": [1, count], "parameters": parameters});
    let json = json!({"inputs": [input], "parameters": {"binary_data_output": true}}).to_string();
    let headers = format!("Content-Type: application/octet-stream\r\n{HEADER_LENGTH}: {}\r\n", json.len());
    post(pipeline, &headers, &[json.as_bytes(), data].concat())
}

/// Answers per second to requests over HTTP with a tensor of this many bytes.
pub(super) fn binary_rate(pair: &Pair, pipeline: &str, bytes: usize, each: Duration) -> Result<f64, BenchError> {
    let request = binary_request(pipeline, ("UINT8", bytes), &vec![0; bytes]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(http(pair.http, &request, each))
}

fn grpc_request() -> ModelInferRequest {
    let input = InferInputTensor {
        name: "x".into(),
        datatype: "FP32".into(),
        shape: vec![1, FEW_NUMBERS as i64],
        ..Default::default()
    };
    let raw = vec![Bytes::from(few_bytes())];
    ModelInferRequest { model_name: FEW.into(), inputs: vec![input], raw_input_contents: raw, ..Default::default() }
}

/// Answers per second over HTTP.
async fn http(address: SocketAddr, request: &[u8], each: Duration) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let client = || async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut answered = 0u64;
        while begun.elapsed() < each {
            exchange(&mut stream, request).await?;
            answered += 1;
        }
        Ok::<_, BenchError>(answered)
    };
    let answered: u64 = try_join_all((0..CLIENTS).map(|_| client())).await?.iter().sum();
    Ok(answered as f64 / begun.elapsed().as_secs_f64())
}

/// Sends a request and gives the answer's head and body.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<plain::CannedAnswer, BenchError> {
    stream.write_all(request).await?;
    let broken = |what: &str| BenchError::Agents(format!("the ingress answered {what}"));
    let mut bytes = Vec::with_capacity(1_024);
    let (head, body) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken("nothing"));
        }
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break (at, at + 4);
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    if !text.starts_with("HTTP/1.1 200") {
        return Err(broken(&text));
    }
    let header = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length: usize = header("content-length").and_then(|n| n.parse().ok()).ok_or_else(|| broken("without a length"))?;
    while bytes.len() < body + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(broken("a part only"));
        }
    }
    Ok(plain::CannedAnswer {
        content_type: header("content-type").unwrap_or_default(),
        json_length: header(HEADER_LENGTH),
        body: bytes.split_off(body).into(),
    })
}

type Client = GrpcInferenceServiceClient<tonic::transport::Channel>;

async fn connect(address: SocketAddr) -> Result<Client, BenchError> {
    let client = GrpcInferenceServiceClient::connect(format!("http://{address}")).await;
    client.map_err(|e| BenchError::Agents(format!("gRPC at {address}: {e}")))
}

async fn call(client: &mut Client, request: &ModelInferRequest) -> Result<ModelInferResponse, BenchError> {
    let answer = client.model_infer(request.clone()).await;
    answer.map(tonic::Response::into_inner).map_err(|e| BenchError::Agents(format!("gRPC: {e}")))
}

/// Answers per second over gRPC.
async fn grpc(address: SocketAddr, each: Duration) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let client = || async {
        let (mut client, request) = (connect(address).await?, grpc_request());
        let mut answered = 0u64;
        while begun.elapsed() < each {
            call(&mut client, &request).await?;
            answered += 1;
        }
        Ok::<_, BenchError>(answered)
    };
    let answered: u64 = try_join_all((0..CLIENTS).map(|_| client())).await?.iter().sum();
    Ok(answered as f64 / begun.elapsed().as_secs_f64())
}
