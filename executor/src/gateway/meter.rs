//! Do the bodies of gRPC calls keep their bounds on their way to the service?
//!
//! The length of each message is bounded, it must come in time, it needs room while it comes, and its decompressed size
//! is bounded. tonic gathers and decodes messages; of these bounds it knows only the first.

use super::bodies::{OpenBody, Pace};
use super::coding::{BodyEncoding, inflate};
use super::refusal::{GatewayRefusal, RefusalCause};
use crate::refused::ReachedLimit;
use crate::shares::ClientShares;
use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;

/// Bytes before each message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
/// The headers that say how messages are compressed, and how answers may be.
const ENCODING: &str = "grpc-encoding";
const ACCEPTED: &str = "grpc-accept-encoding";

/// Largest messages, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MessageSizes {
    /// Of a request for inference.
    pub infer: usize,
    /// Of any other.
    pub other: usize,
}

/// A service whose calls' bodies are metered.
#[derive(Clone)]
pub struct MeteredService<S> {
    inner: S,
    bytes: Arc<ClientShares>,
    sizes: MessageSizes,
}

impl<S> MeteredService<S> {
    /// Meters the bodies of this service's calls.
    pub fn new(inner: S, bytes: Arc<ClientShares>, sizes: MessageSizes) -> Self {
        Self { inner, bytes, sizes }
    }
}

impl<S: NamedService> NamedService for MeteredService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for MeteredService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let (mut head, body) = request.into_parts();
        let packed = match head.headers.get(ENCODING).map(http::HeaderValue::as_bytes) {
            Some(b"gzip") => Some(BodyEncoding::Gzip),
            Some(b"deflate") => Some(BodyEncoding::Zlib),
            _ => None,
        };
        if packed.is_some() {
            // What reaches tonic is decompressed already.
            head.headers.remove(ENCODING);
        } else {
            // Answers are compressed if the request was: all clients say that they would take it so, few gain by it.
            head.headers.remove(ACCEPTED);
        }
        let path = head.uri.path();
        let is_stream = path.ends_with("/ModelStreamInfer");
        let message_max = if is_stream || path.ends_with("/ModelInfer") { self.sizes.infer } else { self.sizes.other };
        let address = head.extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |a| a.ip());
        let reading = OpenBody::begin(&self.bytes, address);
        // A call that is one message has to bring it; a stream may say nothing for as long as it likes.
        let pace = (!is_stream).then(Pace::begin);
        let meter = Meter {
            inner: body,
            packed,
            message_max,
            is_stream,
            reading,
            head: [0; HEAD_BYTES],
            head_len: 0,
            left: 0,
            gathered: None,
            came: Bytes::new(),
            is_whole: false,
            pace,
            timer: None,
        };
        self.inner.call(http::Request::from_parts(head, Body::new(meter)))
    }
}

struct Meter {
    inner: Body,
    packed: Option<BodyEncoding>,
    message_max: usize,
    is_stream: bool,
    reading: OpenBody,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Bytes of the message that are still to come.
    left: usize,
    /// What has come of a compressed message.
    gathered: Option<BytesMut>,
    /// What has come and was not looked at.
    came: Bytes,
    /// The last piece that was passed on ended a message.
    is_whole: bool,
    pace: Option<Pace>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Meter {
    /// The next piece of what has come; none if more must come.
    fn piece(&mut self) -> Result<Option<Bytes>, Status> {
        if self.left == 0 {
            let count = (HEAD_BYTES - self.head_len).min(self.came.len());
            let pace = self.pace.get_or_insert_with(Pace::begin);
            pace.came(count);
            let part = self.came.split_to(count);
            self.head[self.head_len..self.head_len + count].copy_from_slice(&part);
            self.head_len += count;
            if self.head_len < HEAD_BYTES {
                return Ok(None);
            }
            self.head_len = 0;
            return self.begin();
        }
        let piece = self.came.split_to(self.left.min(self.came.len()));
        if piece.is_empty() {
            return Ok(None);
        }
        self.left -= piece.len();
        if let Some(pace) = &mut self.pace {
            pace.came(piece.len());
        }
        if !self.reading.came(piece.len()) {
            ReachedLimit::OpenBytes.count();
            return Err(GatewayRefusal::full("too many bytes of requests are being read").into());
        }
        let Some(gathered) = &mut self.gathered else {
            self.is_whole = self.left == 0;
            return Ok(Some(piece));
        };
        gathered.extend_from_slice(&piece);
        if self.left > 0 {
            return Ok(None);
        }
        let gathered = self.gathered.take().unwrap_or_default();
        self.unpack(&gathered).map(Some)
    }

    /// A message begins.
    fn begin(&mut self) -> Result<Option<Bytes>, Status> {
        let [flag, length @ ..] = self.head;
        let (length, most) = (u32::from_be_bytes(length) as usize, self.message_max);
        if length > most {
            ReachedLimit::BodyBytes.count();
            return Err(Status::out_of_range(format!("the message has {length} bytes: expected at most {most}")));
        }
        self.left = length;
        if flag == 1 && self.packed.is_some() {
            if length == 0 {
                return self.unpack(&[]).map(Some);
            }
            self.gathered = Some(BytesMut::new());
            return Ok(None);
        }
        self.is_whole = length == 0;
        Ok(Some(Bytes::copy_from_slice(&self.head)))
    }

    /// The message that these bytes are when they are decompressed.
    fn unpack(&mut self, gathered: &[u8]) -> Result<Bytes, Status> {
        let packed = self.packed.unwrap_or(BodyEncoding::Gzip);
        let message = inflate(gathered, packed, self.message_max)?;
        let mut whole = BytesMut::with_capacity(HEAD_BYTES + message.len());
        whole.put_u8(0);
        whole.put_u32(message.len() as u32);
        whole.extend_from_slice(&message);
        self.is_whole = true;
        Ok(whole.freeze())
    }

    /// The message was passed on, and is tonic's now.
    fn end(&mut self) {
        self.is_whole = false;
        self.reading.clear();
        self.timer = None;
        // A call that is one message has to end now.
        self.pace = (!self.is_stream).then(Pace::begin);
    }

    /// Whether what must come has not come in time.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(pace) = &self.pace else { return false };
        let deadline = pace.deadline();
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl http_body::Body for Meter {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.is_whole {
            this.end();
        }
        loop {
            while !this.came.is_empty() {
                match this.piece() {
                    Ok(Some(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                    Ok(None) => {}
                    Err(status) => {
                        this.came.clear();
                        return Poll::Ready(Some(Err(status)));
                    }
                }
            }
            match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.came = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Pending if this.is_late(context) => {
                    ReachedLimit::SlowBody.count();
                    return Poll::Ready(Some(Err(GatewayRefusal::slow().into())));
                }
                other => return other,
            }
        }
    }
}

impl From<super::coding::DecompressionError> for Status {
    fn from(error: super::coding::DecompressionError) -> Self {
        match error {
            super::coding::DecompressionError::Damaged(e) => {
                GatewayRefusal::invalid(format!("the message is not what {ENCODING} says: {e}"))
            }
            super::coding::DecompressionError::TooLarge(error) => {
                GatewayRefusal { cause: RefusalCause::TooLarge, error, reason: None }
            }
        }
        .into()
    }
}
