//! Do the decoders survive the fuzzer's corpus (`executor/fuzz/corpus.tar.gz`), as it is and mutated?

#[path = "../fuzz/src/entrances.rs"]
mod entrances;

use apportion_executor::frames::Cutter;
use apportion_executor::gateway::proto::model_infer_request::InferInputTensor;
use apportion_executor::gateway::proto::{InferTensorContents, ModelInferRequest};
use apportion_executor::tensor::{Datatype, Tensor};
use apportion_executor::trace::TraceContext;
use apportion_executor::wire::{
    self, Announced, Credit, CreditReturn, JoinInputs, JoinPart, Message, PartEnd, PendingReplica, ReplicaLoad,
    RoutedQuery, Scope,
};
use apportion_protocol::v1;
use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Inputs by name, as `http/seed-json`.
type Corpus = BTreeMap<String, Vec<u8>>;

fn archive() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus.tar.gz")
}

fn read_corpus() -> Corpus {
    let file = File::open(archive()).expect("the archive");
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("a whole entry");
        (name, bytes)
    };
    archive.entries().expect("a tar archive").map(read).collect()
}

/// Writes the archive with sorted names and without times, so that equal inputs make equal bytes.
fn write_corpus(corpus: &Corpus) {
    let file = File::create(archive()).expect("the archive");
    let mut builder = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    for (name, bytes) in corpus {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &bytes[..]).expect("an entry");
    }
    builder.into_inner().and_then(GzEncoder::finish).expect("the archive's end");
}

fn inputs(folder: &str) -> Vec<Vec<u8>> {
    let of_folder = |name: &str| name.split_once('/').is_some_and(|(first, _)| first == folder);
    let all: Vec<_> = read_corpus().into_iter().filter(|(name, _)| of_folder(name)).map(|(_, bytes)| bytes).collect();
    assert!(!all.is_empty(), "{folder} is empty");
    all
}

/// Each file as it is, and with some bytes changed, doubled or cut.
fn replay(name: &str, enter: fn(&[u8])) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let corpus = inputs(name);
    for bytes in &corpus {
        enter(bytes);
    }
    for round in 0..5_000 {
        let mut bytes = corpus[round % corpus.len()].clone();
        for _ in 0..1 + draw(4) {
            let at = draw(bytes.len());
            match draw(4) {
                0 if !bytes.is_empty() => bytes[at] = draw(256) as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, draw(256) as u8),
                _ => {
                    let other = &corpus[draw(corpus.len())];
                    bytes.extend_from_slice(&other[draw(other.len())..]);
                }
            }
        }
        enter(&bytes);
    }
}

#[test]
fn requests_over_http() {
    replay("http", entrances::http);
}

#[test]
fn requests_over_grpc() {
    replay("grpc", entrances::grpc);
}

#[test]
fn messages_between_agents() {
    replay("frames", entrances::frames);
}

/// Requests and messages that are valid, for the fuzzer to begin with. They are part of the corpus, so this fails when a
/// format has changed; `UPDATE_CORPUS=1` writes them anew.
#[test]
fn the_corpus_begins_with_valid_ones() {
    let mut corpus = read_corpus();
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        corpus.extend(seeds());
        write_corpus(&corpus);
        corpus = read_corpus();
    }
    for (name, bytes) in seeds() {
        assert_eq!(corpus.get(&name), Some(&bytes), "{name} has changed: UPDATE_CORPUS=1");
    }
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let http = |header: &str, body: &[u8]| [&[header.len() as u8], header.as_bytes(), body].concat();
    let all = concat!(
        r#"{"id":"q","parameters":{"timeout":5000},"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[[1,-2.5],[3e2,4]]},"#,
        r#"{"name":"n","datatype":"INT64","shape":[2],"data":[1,-9007199254740993]},"#,
        r#"{"name":"t","datatype":"BYTES","shape":[2,1],"data":["a","\u00e9"]},"#,
        r#"{"name":"b","datatype":"BOOL","shape":[2,1],"data":[true,false]}],"outputs":[{"name":"y"}]}"#
    );
    let head = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#;
    let binary = [head.as_bytes(), &1.0_f32.to_le_bytes(), &2.0_f32.to_le_bytes()].concat();
    let mut seeds = vec![
        ("http/seed-json".to_owned(), http("", all.as_bytes())),
        ("http/seed-binary".to_owned(), http(&head.len().to_string(), &binary)),
    ];
    let input = |shape: &[i64], contents| InferInputTensor {
        name: "x".into(),
        datatype: "FP32".into(),
        shape: shape.to_vec(),
        contents,
        ..Default::default()
    };
    let typed = InferTensorContents { fp32_contents: vec![1.0, 2.0], ..Default::default() };
    let request =
        ModelInferRequest { model_name: "p".into(), inputs: vec![input(&[1, 2], Some(typed))], ..Default::default() };
    seeds.push(("grpc/seed-typed".to_owned(), request.encode_to_vec()));
    let raw: Bytes = [1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat().into();
    let request = ModelInferRequest { inputs: vec![input(&[1, 2], None)], raw_input_contents: vec![raw], ..request };
    seeds.push(("grpc/seed-raw".to_owned(), request.encode_to_vec()));
    for (at, message) in messages().iter().enumerate() {
        let mut cutter = Cutter::default();
        cutter.take(wire::encode(message));
        let mut burst = cutter.burst();
        let bytes = burst.copy_to_bytes(burst.remaining());
        seeds.push((format!("frames/seed-{at}"), [&[7], &bytes[..]].concat()));
    }
    seeds
}

/// A query with this input.
fn query(tensor: Tensor) -> RoutedQuery {
    let scope = Scope { join: "c".into(), fork: "a".into(), agent: 1, replica: 2, credit: Credit::WHOLE, row: 0 };
    RoutedQuery {
        pipeline: "p".into(),
        task: "b".into(),
        replica: 2,
        origin: 1,
        request: 7,
        row: 0,
        credit: Credit::WHOLE,
        budget_ns: -5,
        hops: 1,
        attempt: 0,
        group: 2,
        behind_ns: 3,
        level: 100,
        apart: 12,
        pins: vec![2],
        trace: Some(TraceContext { id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, parent: 0xb7ad_6b71_6920_3331 }),
        scopes: vec![scope],
        inputs: vec![tensor],
    }
}

fn messages() -> Vec<Message> {
    let tensor = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data: vec![0; 8].into() };
    let replica = Announced { replica: 1, group: 2, pipeline: "p".into(), task: "a".into(), accuracy_ppm: 900_000 };
    let part = |end| Message::Return(CreditReturn { request: 7, row: 1, attempt: 0, credit: Credit::WHOLE, end });
    let query = query(tensor.clone());
    let brought = JoinInputs { row: 0, order: 1, inputs: vec![tensor.clone()] };
    let meets = JoinPart {
        pipeline: "p".into(),
        origin: 1,
        request: 7,
        row: 0,
        attempt: 0,
        join: "c".into(),
        fork: "a".into(),
        parent: "b".into(),
        scope: Credit::WHOLE,
        ended: vec![Credit::WHOLE],
        brought: vec![brought],
    };
    vec![
        Message::Part(meets),
        Message::Ready {
            agent: 3,
            replicas: vec![replica],
            coming: vec![PendingReplica { replica: 4, is_blocked: true }],
            yielding: vec![5],
            loads: vec![(1, ReplicaLoad { queued: 1, ..ReplicaLoad::default() })],
            failed: vec![6],
        },
        Message::Query { from: 1, hop: 9, query },
        Message::Taken { hop: 9 },
        part(PartEnd::Leaf { task: "b".into(), outputs: vec![tensor] }),
        Message::Cancel { origin: 1, request: 7 },
        Message::Ping { from: 1, number: 7 },
        Message::Pong { from: 2, number: 7 },
        Message::Measured(v1::Measured { pipeline: "p".into(), ..Default::default() }),
        Message::Steering(v1::Steering { pipeline: "p".into(), ..Default::default() }),
        part(PartEnd::Dropped("deadline".into())),
        part(PartEnd::Failed("out of memory".into())),
        part(PartEnd::NotReady("no replica of task b is ready".into())),
        part(PartEnd::Harmful("an index out of range".into())),
    ]
}
