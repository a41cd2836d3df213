//! Who issues certificates where there is no control plane? Measurements and tests.

use super::shared::AgentCertificates;
use apportion_certificates::{AgentSubject, FleetAuthority, IssueError, NewAuthority, SigningRequest, ValidityPeriod};
use apportion_protocol::v1;
use std::time::{Duration, SystemTime};

/// How much earlier than now a certificate begins.
const BEGINS_EARLIER: Duration = Duration::from_secs(3_600);

/// A fleet with an authority of its own, in this process.
#[derive(Debug)]
pub struct LocalAuthority {
    parts: NewAuthority,
    authority: FleetAuthority,
}

impl LocalAuthority {
    /// Makes the authority. `label` is a text that no other fleet has.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new(label: &str) -> Result<Self, IssueError> {
        let parts = FleetAuthority::generate(label, period(BEGINS_EARLIER))?;
        let authority = FleetAuthority::open(&parts.certificate, &parts.key)?;
        Ok(Self { parts, authority })
    }

    /// The certificate of the authority, as DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.parts.certificate
    }

    /// A certificate for the agent with this number that counts for `life` from now on, or has ended if that is zero.
    ///
    /// # Errors
    /// If the request is malformed.
    pub fn issue(&self, request: &[u8], number: u64, life: Duration) -> Result<v1::IssuedCertificate, IssueError> {
        let name = format!("agent {number}");
        let agent =
            AgentSubject { number, row: "0", name: &name, data_address: "", serial: u128::from(number).to_be_bytes() };
        let certificate = self.authority.issue(&SigningRequest::read(request)?, agent, period(life))?;
        Ok(v1::IssuedCertificate {
            agent: number,
            certificate: certificate.to_vec(),
            authorities: vec![self.parts.certificate.clone()],
            life_ms: life.as_millis() as u64,
            come_again: false,
        })
    }

    /// Gives an agent with this number a certificate of an hour.
    ///
    /// # Errors
    /// If none can be made.
    ///
    /// # Panics
    /// Never: the certificate is for the key that has just asked.
    pub fn certify(&self, certificates: &AgentCertificates, number: u64) -> Result<(), IssueError> {
        let issued = self.issue(&certificates.request(), number, BEGINS_EARLIER)?;
        certificates.take(&issued).expect("it is for the key of this request");
        Ok(())
    }
}

/// From before now until `life` from now; with a life of zero it has just ended.
fn period(life: Duration) -> ValidityPeriod {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let until_s = if life.is_zero() { now_s.saturating_sub(1) } else { now_s + life.as_secs().max(1) };
    ValidityPeriod { from_s: now_s.saturating_sub(BEGINS_EARLIER.as_secs()), until_s }
}
