//! How much memory would a gRPC message take when it is decoded?
//!
//! In a message of the protocol, two bytes can become an input of more than a hundred bytes. So the length of the message
//! says little.
//!
//! The scan follows protobuf's wire format (<https://protobuf.dev/programming-guides/encoding>) and allocates nothing. It
//! refuses everything that it does not understand, so the decoder never sees bytes that were not counted.

use super::BODY_BYTES_MAX;
use super::error::ScanError;
use super::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};

/// Most memory of all parts of a request but its tensors' elements, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;
/// Most memory of elements that come one by one in `contents`, in bytes; raw ones are as large as the message.
pub const TYPED_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Largest message that is no request for inference, in bytes.
pub const PLAIN_BYTES_MAX: usize = 64 * 1024;

/// What an input, an output, and an entry of a map or list take beside their contents.
const INPUT_BYTES: usize = size_of::<InferInputTensor>();
const OUTPUT_BYTES: usize = size_of::<InferRequestedOutputTensor>();
const PARAMETER_BYTES: usize = 128;
const RAW_BYTES: usize = size_of::<bytes::Bytes>();
const TEXT_BYTES: usize = size_of::<Vec<u8>>() + 8;

/// What stands in a field.
enum Value<'a> {
    Number,
    Bytes(&'a [u8]),
}

/// A number of the wire format, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Tells `see` each field of a message: its number and what stands there.
fn walk<'a>(mut bytes: &'a [u8], mut see: impl FnMut(u64, Value<'a>) -> Result<(), ScanError>) -> Result<(), ScanError> {
    let broken = || ScanError::Malformed;
    while !bytes.is_empty() {
        let (key, rest) = varint(bytes).ok_or_else(broken)?;
        let (value, rest) = match key & 7 {
            0 => (Value::Number, varint(rest).ok_or_else(broken)?.1),
            1 => (Value::Number, rest.get(8..).ok_or_else(broken)?),
            2 => {
                let (length, rest) = varint(rest).ok_or_else(broken)?;
                let length = usize::try_from(length).map_err(|_| broken())?;
                let (value, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
                (Value::Bytes(value), rest)
            }
            5 => (Value::Number, rest.get(4..).ok_or_else(broken)?),
            _ => return Err(broken()),
        };
        see(key >> 3, value)?;
        bytes = rest;
    }
    Ok(())
}

/// Numbers that are packed into one field.
fn packed(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b & 0x80 == 0).count()
}

/// What a request takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// All but the elements.
    pub envelope: usize,
    /// Elements of `contents`.
    pub typed: usize,
}

impl RequestSize {
    fn part(&mut self, bytes: usize) -> Result<(), ScanError> {
        self.envelope = self.envelope.saturating_add(bytes);
        match self.envelope <= ENVELOPE_BYTES_MAX {
            true => Ok(()),
            false => Err(ScanError::Envelope { bytes_max: ENVELOPE_BYTES_MAX }),
        }
    }

    fn elements(&mut self, bytes: usize) -> Result<(), ScanError> {
        self.typed = self.typed.saturating_add(bytes);
        match self.typed <= TYPED_BYTES_MAX {
            true => Ok(()),
            false => Err(ScanError::Elements { bytes_max: TYPED_BYTES_MAX }),
        }
    }

    fn named(&mut self, value: &Value<'_>, own: usize) -> Result<(), ScanError> {
        self.part(own + if let Value::Bytes(bytes) = value { bytes.len() } else { 0 })
    }

    fn input(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        walk(bytes, |field, value| match (field, value) {
            (3, Value::Bytes(dims)) => self.part(packed(dims) * size_of::<i64>()),
            (3, Value::Number) => self.part(size_of::<i64>()),
            (4, value) => self.named(&value, PARAMETER_BYTES),
            (5, Value::Bytes(contents)) => self.contents(contents),
            (_, value) => self.named(&value, 0),
        })
    }

    fn contents(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        walk(bytes, |field, value| {
            let (width, is_fixed) = match field {
                1 => (1, false),
                2 | 4 => (4, false),
                3 | 5 => (8, false),
                6 => (4, true),
                7 => (8, true),
                8 => return self.elements(TEXT_BYTES + if let Value::Bytes(text) = value { text.len() } else { 0 }),
                _ => return self.named(&value, 0),
            };
            match value {
                Value::Number => self.elements(width),
                Value::Bytes(all) if is_fixed => self.elements(all.len()),
                Value::Bytes(all) => self.elements(packed(all) * width),
            }
        })
    }
}

/// What a `ModelInferRequest` takes.
///
/// # Errors
/// [`ScanError`] if a part of it is too large, or it is malformed.
pub fn request(bytes: &[u8]) -> Result<RequestSize, ScanError> {
    let mut taken = RequestSize::default();
    walk(bytes, |field, value| match (field, value) {
        (4, value) => taken.named(&value, PARAMETER_BYTES),
        (5, Value::Bytes(input)) => taken.part(INPUT_BYTES).and_then(|()| taken.input(input)),
        (6, value) => taken.named(&value, OUTPUT_BYTES),
        (7, Value::Bytes(_)) => taken.part(RAW_BYTES),
        (_, value) => taken.named(&value, 0),
    })?;
    Ok(taken)
}

#[cfg(test)]
mod tests;
