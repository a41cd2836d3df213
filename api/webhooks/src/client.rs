//! How is one message posted?

use crate::limits::{ANSWER_TIME_MAX, CAUSES_CHARS_MAX, HEAD_BYTES_MAX, RETRY_AFTER_BYTES_MAX};
use crate::receiver::{CheckedResolver, ReceiverUrl};
use crate::secret::WebhookSecret;
use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::Arc;

/// The media type of a CloudEvent in structured mode.
const CLOUD_EVENT: &str = "application/cloudevents+json";

/// A message with the identity that all its attempts share.
#[derive(Clone, Copy, Debug)]
pub struct WebhookMessage<'a> {
    /// Its identity, without a period: receivers know repeated messages by it.
    pub id: &'a str,
    /// When it is sent, in seconds since 1970.
    pub timestamp_s: i64,
    /// Its body: a CloudEvent as JSON.
    pub body: &'a str,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverAnswer {
    /// Its status.
    pub status: u16,
    /// Its `Retry-After`, as it was sent.
    pub retry_after: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryFailure {
    /// None came in time.
    #[error("no answer within {} s", ANSWER_TIME_MAX.as_secs())]
    TimeOut,
    /// The receiver could not be reached, or did not speak HTTP.
    #[error("{0}")]
    Unreachable(String),
    /// The request could not be made.
    #[error("the request cannot be made: {0}")]
    Request(http::Error),
}

/// Posts messages. Each one has a connection of its own, so a receiver that moved is found again.
#[derive(Clone, Debug)]
pub struct ReceiverClient(Client<HttpsConnector<HttpConnector<CheckedResolver>>, Full<Bytes>>);

impl ReceiverClient {
    /// A client that trusts the authorities of this machine. It reads their files.
    ///
    /// # Errors
    /// If this build of the TLS library has no version of TLS.
    pub fn new() -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = versions.with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new_with_resolver(CheckedResolver);
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(0).retry_canceled_requests(false).http1_max_buf_size(HEAD_BYTES_MAX);
        Ok(Self(builder.build(https)))
    }

    /// Posts a message once. Any status is an answer; a redirect is not followed.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(
        &self,
        receiver: &ReceiverUrl,
        secret: &WebhookSecret,
        message: WebhookMessage<'_>,
    ) -> Result<ReceiverAnswer, DeliveryFailure> {
        let WebhookMessage { id, timestamp_s, body } = message;
        let request = Request::post(receiver.0.clone())
            .header(CONTENT_TYPE, CLOUD_EVENT)
            .header(USER_AGENT, "apportion")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp_s.to_string())
            .header("webhook-signature", secret.sign(id, timestamp_s, body.as_bytes()))
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(DeliveryFailure::Request)?;
        let answered = tokio::time::timeout(ANSWER_TIME_MAX, self.0.request(request)).await;
        let response = answered.map_err(|_| DeliveryFailure::TimeOut)?.map_err(|error| unreachable(&error))?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.filter(|text| text.len() <= RETRY_AFTER_BYTES_MAX).map(str::to_owned);
        Ok(ReceiverAnswer { status: response.status().as_u16(), retry_after })
    }
}

/// The causes of a failure, in one line.
fn unreachable(error: &(dyn Error + 'static)) -> DeliveryFailure {
    let causes = std::iter::successors(Some(error), |cause| (**cause).source()).map(ToString::to_string);
    let line = causes.collect::<Vec<_>>().join(": ");
    DeliveryFailure::Unreachable(line.chars().filter(|c| !c.is_control()).take(CAUSES_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers one request with these bytes; the client's result, and the request.
    async fn exchange(answer: String) -> (Result<ReceiverAnswer, DeliveryFailure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/events", listener.local_addr().expect("an address"));
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut said = Vec::new();
            while !said.ends_with(b"{\"a\":1}") {
                assert!(stream.read_buf(&mut said).await.expect("bytes") > 0, "the request breaks off");
            }
            // A client that has read enough may be gone.
            let _sent = stream.write_all(answer.as_bytes()).await;
            String::from_utf8(said).expect("text")
        };
        let secret = WebhookSecret::from_bytes(vec![1; 32]).expect("a secret");
        let client = ReceiverClient::new().expect("a client");
        let receiver = ReceiverUrl::parse(&url).expect("a receiver");
        let message = WebhookMessage { id: "1-7", timestamp_s: 5, body: "{\"a\":1}" };
        tokio::join!(client.post(&receiver, &secret, message), server)
    }

    #[tokio::test]
    async fn a_message_has_its_headers() {
        let (answer, said) = exchange("HTTP/1.1 204 No Content\r\n\r\n".to_owned()).await;
        assert_eq!(answer.expect("an answer"), ReceiverAnswer { status: 204, retry_after: None });
        assert!(said.starts_with("POST /events HTTP/1.1\r\n"), "{said}");
        for header in ["content-type: application/cloudevents+json", "webhook-id: 1-7", "webhook-timestamp: 5"] {
            assert!(said.contains(&format!("\r\n{header}\r\n")), "{said}");
        }
        assert!(said.contains("\r\nwebhook-signature: v1,"), "{said}");
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\nretry-after: 7\r\n\r\n";
        let (answer, _) = exchange(answer.to_owned()).await;
        let expected = ReceiverAnswer { status: 307, retry_after: Some("7".to_owned()) };
        assert_eq!(answer.expect("an answer"), expected);
    }

    #[tokio::test]
    async fn a_body_without_end_is_not_read() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\nx";
        let (answer, _) = exchange(answer.to_owned()).await;
        assert_eq!(answer.expect("an answer").status, 200);
    }

    #[tokio::test]
    async fn a_long_head_is_a_failure() {
        let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(4 * HEAD_BYTES_MAX));
        let (answer, _) = exchange(head).await;
        assert!(matches!(answer, Err(DeliveryFailure::Unreachable(_))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_closed_port_is_a_failure_with_its_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        drop(listener);
        let secret = WebhookSecret::from_bytes(vec![1; 32]).expect("a secret");
        let message = WebhookMessage { id: "1-7", timestamp_s: 5, body: "{}" };
        let client = ReceiverClient::new().expect("a client");
        let failed = client.post(&ReceiverUrl::parse(&url).expect("a receiver"), &secret, message).await;
        let said = failed.expect_err("nobody listens").to_string();
        assert!(said.contains("refused"), "{said}");
    }
}
