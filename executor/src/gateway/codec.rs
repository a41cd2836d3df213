//! How are the messages of the gRPC service decoded? They are scanned first ([`super::prescan`]).

use super::error::ScanError;
use super::{prescan, proto};
use crate::refused::ReachedLimit;
use bytes::Buf;
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// A message that is looked over before it is decoded.
pub trait CheckedMessage {
    /// Whether it may be decoded.
    ///
    /// # Errors
    /// [`ScanError`] by cause.
    fn scan(bytes: &[u8]) -> Result<(), ScanError> {
        let _any = bytes;
        Ok(())
    }
}

impl CheckedMessage for proto::ModelInferRequest {
    fn scan(bytes: &[u8]) -> Result<(), ScanError> {
        prescan::request(bytes).map(|_| ())
    }
}

macro_rules! small {
    ($($message:ident),*) => {$(
        impl CheckedMessage for proto::$message {
            fn scan(bytes: &[u8]) -> Result<(), ScanError> {
                let (found, bytes_max) = (bytes.len(), prescan::PLAIN_BYTES_MAX);
                if found <= bytes_max { Ok(()) } else { Err(ScanError::Large { found, bytes_max }) }
            }
        }
    )*};
}
small!(ServerLiveRequest, ServerReadyRequest, ModelReadyRequest, ServerMetadataRequest, ModelMetadataRequest);
small!(ModelConfigRequest, ModelStatisticsRequest, RepositoryIndexRequest);

// What this process says itself, as a client of its own service reads it.
macro_rules! own {
    ($($message:ident),*) => {$(impl CheckedMessage for proto::$message {})*};
}
own!(ServerLiveResponse, ServerReadyResponse, ModelReadyResponse, ServerMetadataResponse, ModelMetadataResponse);
own!(ModelInferResponse, ModelStreamInferResponse, ModelConfigResponse, ModelStatisticsResponse, RepositoryIndexResponse);

/// Protobuf with a look before decoding.
#[derive(Clone, Copy, Debug)]
pub struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CheckedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + CheckedMessage + Send + 'static> Codec for CheckedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(PhantomData)
    }
}

/// Its decoder.
#[derive(Clone, Copy, Debug)]
pub struct CheckedDecoder<U>(PhantomData<U>);

impl<U: Message + Default + CheckedMessage> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The buffer lies in one piece, as tonic gathers it.
        if from.chunk().len() != from.remaining() {
            return Err(Status::internal("the message does not lie in one piece"));
        }
        U::scan(from.chunk()).map_err(|error| {
            ReachedLimit::Parts.count();
            Status::invalid_argument(error.to_string())
        })?;
        U::decode(from).map(Some).map_err(|error| Status::invalid_argument(format!("the message is none: {error}")))
    }
}
