//! The decoders, as a fuzzer enters them. Each takes any bytes; what it must keep is asserted.

use apportion_executor::frames::Joiner;
use apportion_executor::gateway::inference::{AnswerOutput, ElementForm};
use apportion_executor::gateway::json::{self, AnswerHead};
use apportion_executor::gateway::proto::ModelInferRequest;
use apportion_executor::gateway::{contents, inference, prescan};
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature, holds};
use apportion_executor::{unwire, wire};
use bytes::{Buf, Bytes, BytesMut};
use prost::Message as _;

/// Inputs of every kind.
fn specs() -> Vec<TensorSignature> {
    let spec = |name: &str, datatype: &str, shape: &[i64]| TensorSignature {
        name: name.into(),
        datatype: Datatype::from_name(datatype).expect("a datatype of the protocol"),
        shape: shape.to_vec(),
    };
    vec![spec("x", "FP32", &[-1, 2]), spec("n", "INT64", &[-1]), spec("t", "BYTES", &[-1, 1]), spec("b", "BOOL", &[-1, -1])]
}

fn check(tensors: &[Tensor]) {
    for tensor in tensors {
        assert_eq!(holds(&tensor.data, &tensor.shape, tensor.datatype), Ok(()), "{}", tensor.name);
        assert_eq!(tensor.rows(), tensors[0].rows());
        let rows: usize = tensor.each_row().iter().map(|row| row.data.len()).sum();
        assert_eq!(rows, tensor.data.len(), "rows make up the tensor");
    }
}

/// A request over HTTP: one byte with the length of the header's text (0: no header), then the text, then the body. It is
/// tried against all inputs and against the first alone.
pub fn http(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let Some((header, body)) = rest.split_at_checked(usize::from(length)) else { return };
    let header = if header.is_empty() { None } else { std::str::from_utf8(header).ok() };
    let body = Bytes::copy_from_slice(body);
    let specs = specs();
    for of in [&specs[..], &specs[..1]] {
        let Ok(request) = json::read(&body, header) else { return };
        let Ok(tensors) = inference::inputs(request.inputs, of) else { continue };
        check(&tensors);
        let head = AnswerHead {
            name: "p",
            version: "1",
            id: request.id.as_deref(),
            outcome: "ok",
            latency_us: 1,
            dropped: 0,
            chosen: None,
        };
        let form = if length % 2 == 0 { ElementForm::Raw } else { ElementForm::Typed };
        let outputs: Vec<AnswerOutput> = tensors.into_iter().map(|tensor| AnswerOutput { tensor, form }).collect();
        if let Ok((written, json)) = json::write(&head, &outputs) {
            assert!(json.is_none_or(|json| json <= written.len()));
        }
    }
}

/// A request over gRPC.
pub fn grpc(data: &[u8]) {
    let specs = specs();
    let Ok(taken) = prescan::request(data) else { return };
    assert!(taken.envelope <= prescan::ENVELOPE_BYTES_MAX && taken.typed <= prescan::TYPED_BYTES_MAX);
    for of in [&specs[..], &specs[..1]] {
        let Ok(message) = ModelInferRequest::decode(data) else { return };
        let Ok(request) = contents::read(message) else { return };
        let form = request.form;
        let Ok(tensors) = inference::inputs(request.inputs, of) else { continue };
        check(&tensors);
        let count = tensors.len();
        let (written, raws) = contents::write(tensors, form);
        assert_eq!(written.len(), count);
        assert!(raws.is_empty() || raws.len() == count);
    }
}

/// What comes on a connection between agents, in reads of 1 to 256 bytes; the first byte says how long. A message that was
/// understood is the same when it is written and read again.
pub fn frames(data: &[u8]) {
    let Some((&step, mut rest)) = data.split_first() else { return };
    let (mut joiner, mut buffer) = (Joiner::default(), BytesMut::new());
    while !rest.is_empty() {
        let length = rest.len().min(usize::from(step) + 1);
        buffer.extend_from_slice(&rest[..length]);
        rest.advance(length);
        loop {
            match joiner.take(&mut buffer) {
                Ok(Some(message)) => understand(&message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    understand(&Bytes::copy_from_slice(&data[1..]));
}

fn understand(message: &Bytes) {
    let written = |message| -> Vec<u8> { wire::encode(message).iter().flat_map(|piece| piece.to_vec()).collect() };
    let Ok(message) = unwire::decode(message.clone()) else { return };
    let first = written(&message);
    let again = unwire::decode(Bytes::from(first.clone())).expect("what was written can be read");
    assert_eq!(written(&again), first);
}
