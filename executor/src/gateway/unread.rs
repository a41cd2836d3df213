//! What happens to a body that nobody reads to its end?
//!
//! The server would go on to read it for as long as it trickles. A body that is kept until the answer is out makes the
//! server close the connection instead.

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse};
use actix_web::{HttpMessage, HttpResponse};
use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer, and what keeps the request's.
struct Unread {
    body: BoxBody,
    _payload: Payload,
}

impl MessageBody for Unread {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

/// An answer to a request whose body may not have been read to its end.
pub fn unread(answer: HttpResponse, payload: Payload) -> HttpResponse {
    answer.map_body(|_, body| BoxBody::new(Unread { body, _payload: payload }))
}

/// Calls a service; where `takes` says that its resource takes no body, whatever comes is not read.
pub fn call<S>(
    mut request: ServiceRequest,
    service: &S,
    takes: fn(&str) -> bool,
) -> impl Future<Output = Result<ServiceResponse, actix_web::Error>> + use<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = actix_web::Error>,
{
    let kept = (!takes(request.path())).then(|| request.take_payload());
    let answer = service.call(request);
    async move {
        let answer = answer.await?;
        Ok(match kept {
            Some(_payload) => answer.map_body(|_, body| BoxBody::new(Unread { body, _payload })),
            None => answer,
        })
    }
}
