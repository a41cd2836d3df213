//! How long does a certificate count, and how is it kept?

use apportion_certificates::{LinkTls, TrustError};
use apportion_protocol::v1;
use bytes::{Buf, BufMut};
use prost::Message;
use std::time::{Duration, Instant, SystemTime};

/// Longest life of a certificate that is believed.
const LIFE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// Authorities that count: the newest and the one before it.
const AUTHORITIES_MAX: usize = 2;

/// Why an agent does not take a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateTakeError {
    /// It has asked for none.
    #[error("a certificate came that nobody has asked for")]
    NoKey,
    /// The certificate is of another key, or malformed.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// A certificate with its key.
pub(super) struct HeldCertificate {
    issued: v1::IssuedCertificate,
    key: Vec<u8>,
    tls: LinkTls,
    /// By the clock of the machine, for the next start.
    issued_at: SystemTime,
    received_at: Instant,
    life: Duration,
}

impl HeldCertificate {
    /// A certificate that was issued at this moment, which is not later than now.
    pub(super) fn new(
        mut issued: v1::IssuedCertificate,
        key: Vec<u8>,
        issued_at: SystemTime,
    ) -> Result<Self, CertificateTakeError> {
        issued.authorities.truncate(AUTHORITIES_MAX);
        let tls = LinkTls::new(&issued.certificate, &key, &issued.authorities)?;
        let age = SystemTime::now().duration_since(issued_at).unwrap_or_default();
        let life = Duration::from_millis(issued.life_ms).min(LIFE_MAX).saturating_sub(age);
        Ok(Self { issued, key, tls, issued_at, received_at: Instant::now(), life })
    }

    pub(super) fn number(&self) -> u64 {
        self.issued.agent
    }

    pub(super) fn key(&self) -> &Vec<u8> {
        &self.key
    }

    pub(super) fn tls(&self) -> &LinkTls {
        &self.tls
    }

    pub(super) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// How long it counts since then.
    pub(super) fn life(&self) -> Duration {
        self.life
    }

    /// Whether its life is not over.
    pub(super) fn counts(&self) -> bool {
        self.received_at.elapsed() < self.life
    }

    /// As if it had been here for this much longer.
    #[cfg(test)]
    pub(super) fn has_lived(&mut self, longer: Duration) {
        self.received_at = self.received_at.checked_sub(longer).expect("the machine runs for longer");
    }

    /// The moment in seconds since 1970, the key, and the message; each of the two after its length.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        let issued_at = self.issued_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        into.put_u64(issued_at.as_secs());
        for part in [&self.key, &self.issued.encode_to_vec()] {
            into.put_u32(part.len() as u32);
            into.put_slice(part);
        }
    }

    /// The first certificate of these bytes, and the rest; none if they are malformed. One that was issued after `now` by
    /// the clock of the machine counts as issued now.
    pub(super) fn decode(mut bytes: &[u8], now: SystemTime) -> Option<(Self, &[u8])> {
        let issued_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(bytes.try_get_u64().ok()?))?;
        let key = part(&mut bytes)?.to_vec();
        let issued = v1::IssuedCertificate::decode(part(&mut bytes)?).ok()?;
        Some((Self::new(issued, key, issued_at.min(now)).ok()?, bytes))
    }
}

/// The bytes after their length.
fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = bytes.try_get_u32().ok()? as usize;
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}
