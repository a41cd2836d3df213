//! Compressed bodies over HTTP, `gzip` and `deflate` (RFC 9110, section 8.4.1), as Triton and its clients have them.

use super::refusal::{Cause, Refusal};
use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, CONTENT_ENCODING, ContentEncoding, Encoding, Header};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{self, Read, Write};

/// Answers that are shorter go as they are: they fit into a packet.
pub const COMPRESSED_BYTES_MIN: usize = 1_400;
/// Answers that are longer are compressed where nobody waits for the thread.
const QUICK_BYTES_MAX: usize = 64 * 1024;

/// The body as it was before the client compressed it, if it did; it may then have so many bytes.
///
/// # Errors
/// A refusal if it is compressed in another way, is damaged or is too large.
pub fn decoded(request: &HttpRequest, body: Bytes, bytes_max: usize) -> Result<Bytes, Refusal> {
    let Some(encoding) = request.headers().get(CONTENT_ENCODING) else { return Ok(body) };
    let name = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    let decoded = match name.as_str() {
        "identity" => return Ok(body),
        "gzip" | "x-gzip" => all(GzDecoder::new(&*body), bytes_max),
        "deflate" => all(ZlibDecoder::new(&*body), bytes_max),
        _ => {
            let error = format!("Content-Encoding: {name}: expected gzip, deflate or a body that is not compressed");
            return Err(Refusal { cause: Cause::Unreadable, error, reason: None });
        }
    };
    let decoded =
        decoded.map_err(|e| Refusal::invalid(format!("the body is not what Content-Encoding: {name} says: {e}")))?;
    if decoded.len() > bytes_max {
        let error = format!("the body is too large: expected at most {bytes_max} bytes when it is decompressed");
        return Err(Refusal { cause: Cause::TooLarge, error, reason: None });
    }
    Ok(decoded.into())
}

/// All there is, but for at most one byte more than may be.
fn all(decoder: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder.take(bytes_max as u64 + 1).read_to_end(&mut decoded)?;
    Ok(decoded)
}

/// An answer's body as the client would like it best, and the name of that.
pub async fn encoded(request: &HttpRequest, body: Vec<u8>) -> (Vec<u8>, Option<ContentEncoding>) {
    let Some(encoding) = wanted(request).filter(|_| body.len() >= COMPRESSED_BYTES_MIN) else { return (body, None) };
    let is_quick = body.len() <= QUICK_BYTES_MAX;
    let run = move || compressed(&body, encoding).map_or((body, None), |compressed| (compressed, Some(encoding)));
    if is_quick {
        return run();
    }
    // A pool that has ended belongs to a server that has: nobody is there to read this.
    actix_web::rt::task::spawn_blocking(run).await.unwrap_or_default()
}

fn wanted(request: &HttpRequest) -> Option<ContentEncoding> {
    let accepted = AcceptEncoding::parse(request).ok()?;
    let offered = [Encoding::identity(), Encoding::gzip(), Encoding::deflate()];
    match accepted.negotiate(offered.iter())? {
        Encoding::Known(known @ (ContentEncoding::Gzip | ContentEncoding::Deflate)) => Some(known),
        _ => None,
    }
}

/// Quickly rather than well: tensors of numbers do not shrink much either way.
fn compressed(body: &[u8], encoding: ContentEncoding) -> io::Result<Vec<u8>> {
    if encoding == ContentEncoding::Gzip {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body)?;
        encoder.finish()
    } else {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body)?;
        encoder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    const TEXT: &[u8] = b"the same again, the same again, the same again";

    fn asked(encoding: &str) -> HttpRequest {
        TestRequest::default().insert_header(("content-encoding", encoding)).to_http_request()
    }

    #[test]
    fn bodies_are_decompressed_up_to_a_bound() {
        for (name, encoding) in [("gzip", ContentEncoding::Gzip), ("Deflate", ContentEncoding::Deflate)] {
            let sent = Bytes::from(compressed(TEXT, encoding).expect("memory"));
            assert!(sent.len() < TEXT.len());
            assert_eq!(decoded(&asked(name), sent.clone(), TEXT.len()), Ok(Bytes::from_static(TEXT)));
            let refused = decoded(&asked(name), sent.clone(), TEXT.len() - 1).expect_err("too large");
            assert_eq!(refused.cause, Cause::TooLarge);
            let refused = decoded(&asked(name), sent.slice(..sent.len() / 2), 1_000).expect_err("damaged");
            assert!(refused.cause == Cause::Invalid && refused.error.contains("Content-Encoding"), "{refused:?}");
        }
        let refused = decoded(&asked("br"), Bytes::from_static(TEXT), 1_000).expect_err("not read here");
        assert!(refused.cause == Cause::Unreadable && refused.error.contains("expected gzip"), "{refused:?}");
        assert_eq!(decoded(&asked("identity"), Bytes::from_static(TEXT), 1), Ok(Bytes::from_static(TEXT)));
    }

    #[tokio::test]
    async fn answers_are_compressed_for_those_who_like_that() {
        let body = TEXT.repeat(COMPRESSED_BYTES_MIN.div_ceil(TEXT.len()));
        let accepting = |text| TestRequest::default().insert_header(("accept-encoding", text)).to_http_request();
        for (text, encoding) in [("gzip", ContentEncoding::Gzip), ("deflate;q=1, gzip;q=0.5", ContentEncoding::Deflate)] {
            let (sent, named) = encoded(&accepting(text), body.clone()).await;
            assert_eq!(named, Some(encoding), "{text}");
            assert_eq!(decoded(&asked(encoding.as_str()), sent.into(), body.len()), Ok(body.clone().into()));
        }
        for text in ["identity", "br", "gzip;q=0", ""] {
            assert_eq!(encoded(&accepting(text), body.clone()).await, (body.clone(), None), "{text}");
        }
        let plain = TestRequest::default().to_http_request();
        assert_eq!(encoded(&plain, body.clone()).await, (body.clone(), None), "who does not ask");
        assert_eq!(encoded(&accepting("gzip"), TEXT.to_vec()).await, (TEXT.to_vec(), None), "a short one");
    }
}
