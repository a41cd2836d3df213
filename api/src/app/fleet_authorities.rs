//! Which authorities does this process know, how do they certify agents, and which certificates do they accept?

use super::counts::{self, Count};
use crate::decide::authorities::{AuthorityTimes, signing_authority};
use crate::store::Time;
use crate::store::agents::AgentIdentityRow;
use crate::store::authorities::AuthorityRow;
use apportion_certificates::{
    AgentSubject, AgentTrust, FleetAuthority, IssueError, SigningRequest, TrustError, ValidityPeriod, agent_name, is_named,
    row_name,
};
use std::time::Duration;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use uuid::Uuid;

/// How much earlier than now a certificate begins. So agents whose clocks are late by less take it.
const CLOCK_LATE_MAX: Duration = Duration::from_secs(3_600);

/// Why the stored authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityReadError {
    /// The one that signs is malformed.
    #[error(transparent)]
    Signer(#[from] IssueError),
    /// One of them cannot be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Why a certificate that an agent has shown is refused.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRefusal {
    /// It is expired, malformed, or of another authority.
    #[error("the agent's certificate does not count: {0}")]
    Untrusted(TrustError),
    /// It is of another agent.
    #[error("the certificate is of another agent than number {0}, which this one is by its name")]
    OtherAgent(i64),
    /// Its agent is not there any more.
    #[error("the certificate is of an agent that was deleted, or had another name")]
    Revoked,
}

impl CertificateRefusal {
    /// The count of such refusals.
    #[must_use]
    pub fn count(&self) -> &'static Count {
        match self {
            Self::Untrusted(_) => &counts::UNTRUSTED_CERTIFICATES,
            Self::OtherAgent(_) => &counts::OTHER_CERTIFICATES,
            Self::Revoked => &counts::REVOKED_CERTIFICATES,
        }
    }
}

/// An agent that gets certificates.
#[derive(Clone, Debug)]
pub struct CertifiedAgent {
    /// Its row.
    pub identity: AgentIdentityRow,
    /// Its name.
    pub name: String,
    /// `host:port` where other agents reach it.
    pub data_address: String,
    /// Its last request.
    pub request: SigningRequest,
}

/// The newest two authorities.
#[derive(Debug)]
pub struct FleetAuthorities {
    /// The number of the one that signs.
    signing: i64,
    signer: FleetAuthority,
    trust: AgentTrust,
    /// Numbers and certificates, the newest first.
    known: Vec<(i64, Vec<u8>)>,
}

impl FleetAuthorities {
    /// Reads rows, the newest first; none without a row.
    ///
    /// # Errors
    /// If one is malformed.
    pub fn read(rows: &[AuthorityRow], at: Time) -> Result<Option<Self>, AuthorityReadError> {
        let Some(signing) = signing_row(rows, at) else { return Ok(None) };
        let signer = FleetAuthority::open(&signing.certificate, &signing.key)?;
        let trust = AgentTrust::new(rows.iter().map(|row| row.certificate.as_slice()))?;
        let known = rows.iter().map(|row| (row.number, row.certificate.clone())).collect();
        Ok(Some(Self { signing: signing.number, signer, trust, known }))
    }

    /// Whether these rows would give the same.
    #[must_use]
    pub fn is_of(&self, rows: &[AuthorityRow], at: Time) -> bool {
        let numbers = self.known.iter().map(|(number, _)| *number);
        signing_row(rows, at).is_some_and(|row| row.number == self.signing) && numbers.eq(rows.iter().map(|row| row.number))
    }

    /// The certificates of the authorities, the newest first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Vec<u8>> {
        self.known.iter().map(|(_, certificate)| certificate.clone()).collect()
    }

    /// A certificate that counts from now on for this long.
    ///
    /// # Errors
    /// If the library refuses.
    pub fn issue(&self, agent: &CertifiedAgent, life: Duration, at: Time) -> Result<Vec<u8>, IssueError> {
        let now_s = seconds(at);
        let validity = ValidityPeriod {
            from_s: now_s.saturating_sub(CLOCK_LATE_MAX.as_secs()),
            until_s: now_s.saturating_add(life.as_secs()),
        };
        let subject = AgentSubject {
            number: agent.identity.number.unsigned_abs(),
            row: &agent.identity.identity.simple().to_string(),
            name: &agent.name,
            data_address: &agent.data_address,
            serial: Uuid::new_v4().into_bytes(),
        };
        Ok(self.signer.issue(&agent.request, subject, validity)?.to_vec())
    }

    /// Whether an authority has issued the certificate, and it counts now.
    ///
    /// # Errors
    /// [`CertificateRefusal::Untrusted`].
    pub fn check_issuer(&self, certificate: &CertificateDer<'_>, at: Time) -> Result<(), CertificateRefusal> {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds(at)));
        self.trust.check(certificate, at).map_err(CertificateRefusal::Untrusted)
    }

    /// Whether the certificate is that of this agent, whose row was found by its name.
    ///
    /// # Errors
    /// [`CertificateRefusal`] by cause.
    pub fn check(
        &self,
        certificate: &CertificateDer<'_>,
        agent: Option<&AgentIdentityRow>,
        at: Time,
    ) -> Result<(), CertificateRefusal> {
        self.check_issuer(certificate, at)?;
        let AgentIdentityRow { number, identity } = agent.ok_or(CertificateRefusal::Revoked)?;
        if !is_named(certificate, &agent_name(number.unsigned_abs())) {
            return Err(CertificateRefusal::OtherAgent(*number));
        }
        match is_named(certificate, &row_name(&identity.simple().to_string())) {
            true => Ok(()),
            false => Err(CertificateRefusal::Revoked),
        }
    }
}

impl From<&AuthorityRow> for AuthorityTimes {
    fn from(row: &AuthorityRow) -> Self {
        Self { signs_from: row.signs_from, renew_at: row.renew_at, ends_at: row.ends_at }
    }
}

fn signing_row(rows: &[AuthorityRow], at: Time) -> Option<&AuthorityRow> {
    let times: Vec<AuthorityTimes> = rows.iter().map(AuthorityTimes::from).collect();
    rows.get(signing_authority(&times, at)?)
}

/// Whole seconds since 1970.
fn seconds(at: Time) -> u64 {
    u64::try_from(at.timestamp()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_certificates::AgentKey;
    use chrono::TimeDelta;

    const LIFE: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> Time {
        chrono::DateTime::UNIX_EPOCH + TimeDelta::seconds(1_000_000_000 + seconds)
    }

    fn row(number: i64, signs_from: Time) -> AuthorityRow {
        let validity = ValidityPeriod { from_s: 0, until_s: 4_000_000_000 };
        let made = FleetAuthority::generate(&number.to_string(), validity).expect("an authority");
        let (certificate, key) = (made.certificate, made.key);
        AuthorityRow { number, certificate, key, signs_from, renew_at: at(1_000), ends_at: at(2_000) }
    }

    fn agent(number: i64, identity: u128) -> CertifiedAgent {
        let key = AgentKey::generate().expect("a key");
        CertifiedAgent {
            identity: AgentIdentityRow { number, identity: Uuid::from_u128(identity) },
            name: "one".into(),
            data_address: "127.0.0.1:2".into(),
            request: SigningRequest::read(&key.request().expect("a request")).expect("its own request"),
        }
    }

    fn read(rows: &[AuthorityRow], now: Time) -> FleetAuthorities {
        FleetAuthorities::read(rows, now).expect("well formed").expect("there is one")
    }

    #[test]
    fn each_wrong_certificate_has_its_reason() {
        let all = read(&[row(1, at(0))], at(0));
        let one = agent(7, 1);
        let issued = CertificateDer::from(all.issue(&one, LIFE, at(0)).expect("issued"));
        let check = |identity: Option<&AgentIdentityRow>, now: Time| all.check(&issued, identity, now);
        assert!(check(Some(&one.identity), at(0)).is_ok() && check(Some(&one.identity), at(60)).is_ok());
        assert!(matches!(check(Some(&one.identity), at(61)), Err(CertificateRefusal::Untrusted(_))));
        assert!(matches!(check(Some(&agent(8, 1).identity), at(0)), Err(CertificateRefusal::OtherAgent(8))));
        assert!(matches!(check(Some(&agent(7, 2).identity), at(0)), Err(CertificateRefusal::Revoked)));
        assert!(matches!(check(None, at(0)), Err(CertificateRefusal::Revoked)));
        let other = read(&[row(1, at(0))], at(0));
        assert!(matches!(other.check(&issued, Some(&one.identity), at(0)), Err(CertificateRefusal::Untrusted(_))));
    }

    #[test]
    fn the_old_authority_signs_until_the_new_one_is_known() {
        let rows = [row(2, at(100)), row(1, at(0))];
        let (before, after) = (read(&rows, at(99)), read(&rows, at(100)));
        assert!(before.is_of(&rows, at(99)) && !before.is_of(&rows, at(100)) && !before.is_of(&rows[1..], at(99)));
        assert_eq!(before.certificates(), [rows[0].certificate.clone(), rows[1].certificate.clone()]);
        let one = agent(7, 1);
        let issued = |by: &FleetAuthorities| CertificateDer::from(by.issue(&one, LIFE, at(100)).expect("issued"));
        let (old, new) = (read(&rows[1..], at(100)), read(&rows[..1], at(100)));
        assert!(
            old.check_issuer(&issued(&before), at(100)).is_ok() && new.check_issuer(&issued(&before), at(100)).is_err()
        );
        assert!(
            new.check_issuer(&issued(&after), at(100)).is_ok() && after.check_issuer(&issued(&before), at(100)).is_ok()
        );
        assert!(FleetAuthorities::read(&[], at(0)).expect("nothing is malformed").is_none());
        let broken = AuthorityRow { key: vec![1], ..rows[1].clone() };
        assert!(FleetAuthorities::read(&[broken], at(0)).is_err());
    }
}
