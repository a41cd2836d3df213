//! Which bounds do bodies have between the socket and the handlers?
//!
//! A body must keep coming. If a body was not read to its end, its connection is closed.

use actix_web::HttpMessage;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use futures::Stream;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest pause within a body.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time for a body of any size.
const GRACE: Duration = Duration::from_secs(10);
/// After the grace, the mean rate of the whole body must be at least this.
const BYTES_PER_S_MIN: u64 = 16 * 1024;

/// A request's body from the socket, and whether its end was read.
struct Source {
    payload: RefCell<Payload>,
    ended: Cell<bool>,
}

/// A body with its deadline.
struct Timed {
    source: Rc<Source>,
    begin: Instant,
    bytes: u64,
    deadline: Pin<Box<Sleep>>,
}

impl Timed {
    fn new(source: Rc<Source>) -> Self {
        let begin = Instant::now();
        Self { source, begin, bytes: 0, deadline: Box::pin(sleep_until(begin + GRACE.min(PAUSE_MAX))) }
    }

    /// When the next chunk must be there.
    fn next_deadline(&self, now: Instant) -> Instant {
        let earned = Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_S_MIN as f64);
        (now + PAUSE_MAX).min(self.begin + GRACE + earned)
    }
}

impl Stream for Timed {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut *self.source.payload.borrow_mut()).poll_next(cx);
        match polled {
            Poll::Ready(Some(Ok(chunk))) => {
                self.bytes += chunk.len() as u64;
                let deadline = self.next_deadline(Instant::now());
                self.deadline.as_mut().reset(deadline);
                Poll::Ready(Some(Ok(chunk)))
            }
            Poll::Ready(None) => {
                self.source.ended.set(true);
                Poll::Ready(None)
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => self.deadline.as_mut().poll(cx).map(|()| {
                let (bytes, s) = (self.bytes, self.begin.elapsed().as_secs());
                let expected = format!(
                    "{bytes} bytes in {s} s: expected no pause above {} s and {BYTES_PER_S_MIN} bytes per second",
                    PAUSE_MAX.as_secs()
                );
                Some(Err(PayloadError::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, expected))))
            }),
        }
    }
}

/// A response that keeps the rest of its request's body. The server sees that a rest is left, and ends the connection after
/// the response. Otherwise it would read on for as long as the client sends.
struct Keeping {
    body: BoxBody,
    _source: Rc<Source>,
}

impl MessageBody for Keeping {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

/// Gives every body its deadline.
///
/// # Errors
/// The handler's.
pub async fn bodies_keep_coming(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let payload = request.take_payload();
    if matches!(payload, Payload::None) {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let source = Rc::new(Source { payload: RefCell::new(payload), ended: Cell::new(false) });
    request.set_payload(Payload::Stream { payload: Box::pin(Timed::new(source.clone())) });
    let response = next.call(request).await?.map_into_boxed_body();
    if source.ended.get() {
        return Ok(response);
    }
    Ok(response.map_body(|_, body| BoxBody::new(Keeping { body, _source: source })))
}
