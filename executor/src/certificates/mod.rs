//! Which certificates does this agent have?
//!
//! The agent makes a key for each request, and the key stays here. The control plane sends the certificate. Links and the
//! control stream show it, and the agent asks for the next one when half of its life is over.

mod held;
mod local;
mod shared;

pub use held::CertificateTakeError;
pub use local::LocalAuthority;
pub use shared::{AgentCertificates, CERTIFICATES_MAX};
