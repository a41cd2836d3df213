//! Which certificates do the agents of a fleet have?
//!
//! Example: agent 7 makes a key and sends a request. The service's authority signs a certificate for it. The certificate is
//! valid for `agent-7.agents.apportion.internal`, for the row of the agent in the service's database, and for the host of
//! its address. The other agents check the first name, the service checks the first two.
//!
//! What belongs here: making, signing and checking these certificates, and the settings of TLS for links between agents.
//! What never does: sockets, files, the clock, and the choice which agent gets a certificate. The commonest addition is a
//! name in the certificate: one line in [`FleetAuthority::issue`], and the check that reads it.

mod authority;
mod error;
mod links;
mod names;
mod request;
mod trust;

pub use authority::{AgentSubject, FleetAuthority, NewAuthority, ValidityPeriod};
pub use error::{IssueError, REQUEST_BYTES_MAX, TrustError};
pub use links::LinkTls;
pub use names::{agent_name, link_name, row_name};
pub use request::{AgentKey, SigningRequest};
pub use trust::{AgentTrust, is_named};
