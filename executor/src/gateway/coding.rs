//! How are compressed HTTP bodies read and written? `gzip` and `deflate` (RFC 9110, section 8.4.1), as Triton and its
//! clients use them.

use super::refusal::{GatewayRefusal, RefusalCause};
use crate::refused::ReachedLimit;
use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, CONTENT_ENCODING, ContentEncoding, Encoding, Header};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{self, Read, Write};

/// Answers that are shorter go as they are: they fit into a packet.
pub const COMPRESSED_BYTES_MIN: usize = 1_400;
/// Longer answers are compressed on a thread of their own pool, so that other requests do not wait.
const QUICK_BYTES_MAX: usize = 64 * 1024;

/// A compressed body may always become this many bytes.
pub const INFLATED_BYTES_FREE: usize = 4 * 1024 * 1024;
/// Beyond them, it may become this many times its own size. A larger one would cost more work here than at its sender.
pub const INFLATED_RATIO_MAX: usize = 64;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, which is called `deflate`.
    Zlib,
}

/// Why a body could not be decompressed.
#[derive(Debug)]
pub enum DecompressionError {
    /// It is damaged.
    Damaged(io::Error),
    /// It becomes too large; what is expected, in words.
    TooLarge(String),
}

/// The body without its compression. It may have `bytes_max` bytes, and no more than [`INFLATED_RATIO_MAX`] allows.
///
/// # Errors
/// [`DecompressionError`].
pub fn inflate(body: &[u8], packed: BodyEncoding, bytes_max: usize) -> Result<Vec<u8>, DecompressionError> {
    let most = bytes_max.min(INFLATED_BYTES_FREE + INFLATED_RATIO_MAX * body.len());
    let decoded = match packed {
        BodyEncoding::Gzip => all(GzDecoder::new(body), most),
        BodyEncoding::Zlib => all(ZlibDecoder::new(body), most),
    };
    let decoded = decoded.map_err(DecompressionError::Damaged)?;
    if decoded.len() <= most {
        return Ok(decoded);
    }
    ReachedLimit::Inflated.count();
    let given = body.len();
    Err(DecompressionError::TooLarge(match most == bytes_max {
        true => format!("the body is too large: expected at most {bytes_max} bytes when it is decompressed"),
        false => format!(
            "the body of {given} bytes is too large when it is decompressed: expected at most {most} bytes, which are \
             {INFLATED_BYTES_FREE} and {INFLATED_RATIO_MAX} times its own; send it as it is"
        ),
    }))
}

/// The body without the client's compression, if it has one. It may have `bytes_max` bytes.
///
/// # Errors
/// A refusal if it is compressed in another way, is damaged or is too large.
pub fn decoded(request: &HttpRequest, body: Bytes, bytes_max: usize) -> Result<Bytes, GatewayRefusal> {
    let Some(encoding) = request.headers().get(CONTENT_ENCODING) else { return Ok(body) };
    let name = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    let packed = match name.as_str() {
        "identity" => return Ok(body),
        "gzip" | "x-gzip" => BodyEncoding::Gzip,
        "deflate" => BodyEncoding::Zlib,
        _ => {
            let error = format!("Content-Encoding: {name}: expected gzip, deflate or a body that is not compressed");
            return Err(GatewayRefusal { cause: RefusalCause::Unreadable, error, reason: None });
        }
    };
    inflate(&body, packed, bytes_max).map(Bytes::from).map_err(|error| match error {
        DecompressionError::Damaged(e) => {
            GatewayRefusal::invalid(format!("the body is not what Content-Encoding: {name} says: {e}"))
        }
        DecompressionError::TooLarge(error) => GatewayRefusal { cause: RefusalCause::TooLarge, error, reason: None },
    })
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
            assert_eq!(refused.cause, RefusalCause::TooLarge);
            let refused = decoded(&asked(name), sent.slice(..sent.len() / 2), 1_000).expect_err("damaged");
            assert!(refused.cause == RefusalCause::Invalid && refused.error.contains("Content-Encoding"), "{refused:?}");
        }
        let refused = decoded(&asked("br"), Bytes::from_static(TEXT), 1_000).expect_err("not read here");
        assert!(refused.cause == RefusalCause::Unreadable && refused.error.contains("expected gzip"), "{refused:?}");
        assert_eq!(decoded(&asked("identity"), Bytes::from_static(TEXT), 1), Ok(Bytes::from_static(TEXT)));
    }

    #[test]
    fn a_body_that_grows_too_much_is_refused() {
        let zeros = vec![0; 16 * INFLATED_BYTES_FREE];
        let sent = compressed(&zeros, ContentEncoding::Gzip).expect("memory");
        assert!(sent.len() * INFLATED_RATIO_MAX < zeros.len());
        let refused = inflate(&sent, BodyEncoding::Gzip, usize::MAX).expect_err("a bomb");
        assert!(matches!(refused, DecompressionError::TooLarge(e) if e.contains("64 times its own")));
        let few = compressed(&zeros[..INFLATED_BYTES_FREE], ContentEncoding::Gzip).expect("memory");
        assert_eq!(inflate(&few, BodyEncoding::Gzip, usize::MAX).expect("not so many").len(), INFLATED_BYTES_FREE);
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
