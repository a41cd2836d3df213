//! By which certificate is a server known, and which servers does a client trust?
//!
//! What belongs here: reading PEM files for rustls, reading them again when they change, and connections that begin TLS.
//! A port may ask its clients for certificates ([`ServerTls::open_asking`]), and its server checks them later.
//! What never does: listening, HTTP, and the choice which port has TLS. The commonest addition is a field of [`TlsFiles`],
//! with its error.

mod asked;
mod authorities;
mod files;
mod renewal;
mod stream;

pub use authorities::{AuthoritiesError, client_tls, no_authorities};
pub use files::{ApplicationProtocol, TlsFiles, TlsFilesError};
pub use renewal::{LOOK_AT_FILES_EVERY, Renewal, ServerTls};
pub use stream::ServerStream;
