//! How does a command send one request over HTTP, with TLS or without?

use anyhow::{Context, Error, bail};
use apportion_tls::{client_tls, no_authorities};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use std::path::Path;
use std::time::Duration;

/// A request with its body.
pub type HttpRequest = http::Request<Full<Bytes>>;

/// The whole answer to a request.
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl HttpAnswer {
    /// The body as text. Bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An answer that is read as it comes.
pub struct HttpStream {
    /// Its status.
    pub status: StatusCode,
    body: UnsyncBoxBody<Bytes, Error>,
    silence_max: Duration,
}

impl HttpStream {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// If the connection is lost, or the server is silent for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = tokio::time::timeout(self.silence_max, self.body.frame()).await;
            let Some(frame) = frame.context("the server is silent")?.transpose()? else { return Ok(None) };
            // Trailers are no data.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The rest as text. Bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// As [`Self::chunk`].
    pub async fn text(mut self) -> Result<String, Error> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

/// Sends requests to one server.
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl HttpClient {
    /// A client of the server at this URL. It trusts the authorities of the file, or those of this machine if the URL is
    /// https, or else nobody.
    ///
    /// # Errors
    /// If there is no authority for an https server.
    pub fn new(url: &str, cacert: Option<&Path>) -> Result<Self, Error> {
        let is_secure = url.starts_with("https:") || cacert.is_some();
        let tls = if is_secure { client_tls(cacert)? } else { no_authorities()? };
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Sends a request. The answer is read as it comes; a pause of its bytes may take so long.
    ///
    /// # Errors
    /// If the server cannot be reached, is not trusted, or does not begin to answer in this time.
    pub async fn open(&self, request: HttpRequest, silence_max: Duration) -> Result<HttpStream, Error> {
        let scheme = request.uri().scheme_str().unwrap_or_default().to_owned();
        match tokio::time::timeout(silence_max, self.client.request(request)).await {
            Ok(Ok(answer)) => {
                let status = answer.status();
                let body = answer.into_body().map_err(Error::from).boxed_unsync();
                Ok(HttpStream { status, body, silence_max })
            }
            Ok(Err(error)) => Err(with_advice(error.into(), &scheme)),
            Err(_) => bail!("there is no answer after {} s", silence_max.as_secs()),
        }
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// If the server cannot be reached, is not trusted, or has not answered in this time.
    pub async fn send(&self, request: HttpRequest, time_max: Duration) -> Result<HttpAnswer, Error> {
        let scheme = request.uri().scheme_str().unwrap_or_default().to_owned();
        let answered = async {
            let (head, body) = self.client.request(request).await?.into_parts();
            let body = body.collect().await.context("reading the service's answer")?.to_bytes();
            Ok::<_, Error>(HttpAnswer { status: head.status, headers: head.headers, body })
        };
        match tokio::time::timeout(time_max, answered).await {
            Ok(answer) => answer.map_err(|error| with_advice(error, &scheme)),
            Err(_) => bail!("there is no answer after {} s", time_max.as_secs()),
        }
    }
}

/// Adds the advice that helps against a failure of TLS, or of a connection.
fn with_advice(error: Error, scheme: &str) -> Error {
    let causes = format!("{error:#}");
    if causes.contains("invalid peer certificate") {
        return error.context("its certificate is not trusted (--cacert names the file of its authority)");
    }
    if scheme == "https" && causes.contains("corrupt message") {
        return error.context("it answers without TLS: expected http://");
    }
    if causes.contains("Connection refused") {
        return error.context("nobody listens there (`apportion serve` starts a service)");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_connections_have_an_advice() {
        let of = |text: &'static str, scheme| format!("{:#}", with_advice(Error::msg(text), scheme));
        assert!(of("invalid peer certificate: UnknownIssuer", "https").contains("--cacert"));
        assert!(of("received corrupt message of type InvalidContentType", "https").contains("expected http://"));
        assert!(of("tcp connect error: Connection refused (os error 111)", "http").contains("`apportion serve`"));
        assert_eq!(of("connection reset", "https"), "connection reset");
    }

    #[test]
    fn an_authority_that_is_no_file_is_named() {
        let refused = HttpClient::new("https://localhost", Some("/none.pem".as_ref())).err().expect("no such file");
        assert!(format!("{refused:#}").contains("/none.pem"), "{refused:#}");
        assert!(HttpClient::new("http://localhost", None).is_ok(), "nobody is trusted there");
    }
}
