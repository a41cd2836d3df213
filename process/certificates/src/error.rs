//! Why is there no certificate, and why is one refused? No message repeats a key or a certificate.

/// Largest request, in bytes. One with an elliptic key has some hundred.
pub const REQUEST_BYTES_MAX: usize = 4 * 1024;

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The authority is malformed.
    #[error("the fleet's authority cannot be read")]
    Authority(#[source] rcgen::Error),
    /// The request is too small or too large to be read.
    #[error("{0} bytes: expected a certificate request of 1 to {REQUEST_BYTES_MAX} bytes")]
    RequestBytes(usize),
    /// The request is malformed, or its signature is wrong.
    #[error("expected a certificate request (PKCS #10 as DER) that its own key has signed")]
    Request(#[source] rcgen::Error),
    /// The certificate would begin or end at a moment that cannot be written.
    #[error("{0} seconds since 1970: expected a moment that a certificate can name")]
    Moment(u64),
    /// The library refuses to make it.
    #[error("a key or a certificate cannot be made")]
    Make(#[source] rcgen::Error),
}

/// Why a certificate does not count.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is no authority to check it by.
    #[error("there is no certificate of an authority")]
    NoAuthority,
    /// A certificate of an authority is malformed.
    #[error("expected certificates of authorities")]
    Authority(#[source] rustls::Error),
    /// It is expired, of another authority, or malformed.
    #[error("{0}")]
    Certificate(rustls::Error),
    /// The certificate and its key do not fit, or the library refuses its own settings.
    #[error("TLS cannot be set up with this certificate")]
    Settings(#[source] rustls::Error),
}
