//! By which certificate is a server known, and which servers does a client trust?
//!
//! What belongs here: reading PEM files for rustls, and reading them again when they change. What never does: sockets, HTTP,
//! and the choice which port has TLS. The commonest addition is an argument of [`TlsFiles`], with its error.

mod authorities;
mod files;
mod renewal;

pub use authorities::{AuthoritiesError, client_tls};
pub use files::{ApplicationProtocol, TlsFiles, TlsFilesError};
pub use renewal::{LOOK_AT_FILES_EVERY, Renewal, ServerTls};
