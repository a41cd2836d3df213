//! Which certificates does the agent show, and when does it ask for the next one?

use super::held::{CertificateTakeError, HeldCertificate};
use apportion_certificates::{AgentKey, IssueError, LinkTls};
use apportion_protocol::v1;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::sign::CertifiedKey;

/// Certificates that are kept: an agent that gets another number serves under the last one until it obeys a new target.
pub const CERTIFICATES_MAX: usize = 2;
/// Keys of requests that have no certificate yet.
const ASKED_MAX: usize = 2;
/// Longest and shortest pause between two requests for the next certificate.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(60);
const ASK_AGAIN_MIN: Duration = Duration::from_millis(100);

/// The certificates of this agent. Clones share them.
#[derive(Clone, Default)]
pub struct AgentCertificates(Arc<Mutex<CertificateState>>);

#[derive(Default)]
struct CertificateState {
    /// The keys of the last requests, the newest first.
    asked: VecDeque<Vec<u8>>,
    asked_at: Option<Instant>,
    /// The newest first, one for each number.
    held: Vec<HeldCertificate>,
    /// The control plane refuses the newest one.
    is_refused: bool,
}

impl fmt::Debug for AgentCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentCertificates({})", self.lock().held.len())
    }
}

impl AgentCertificates {
    fn lock(&self) -> MutexGuard<'_, CertificateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request for a certificate of a new key; empty if no key can be made.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let made = || {
            let key = AgentKey::generate()?;
            Ok::<_, IssueError>((key.request()?, key.secret().to_vec()))
        };
        let mut state = self.lock();
        state.asked_at = Some(Instant::now());
        match made() {
            Ok((request, key)) => {
                state.asked.push_front(key);
                state.asked.truncate(ASKED_MAX);
                request
            }
            Err(error) => {
                tracing::error!(%error, "the agent asks for no certificate");
                Vec::new()
            }
        }
    }

    /// Takes a certificate for one of the keys here.
    ///
    /// # Errors
    /// [`CertificateTakeError`] by cause. The certificates here stay as they are.
    pub fn take(&self, issued: &v1::IssuedCertificate) -> Result<(), CertificateTakeError> {
        let mut state = self.lock();
        let keys = state.asked.iter().chain(state.held.iter().map(HeldCertificate::key));
        let mut refused = CertificateTakeError::NoKey;
        for key in keys.cloned().collect::<Vec<_>>() {
            match HeldCertificate::new(issued.clone(), key, SystemTime::now()) {
                Ok(held) => {
                    state.put(held);
                    return Ok(());
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// When the next certificate is to be asked for; none without a certificate.
    #[must_use]
    pub fn next_request_at(&self) -> Option<Instant> {
        let state = self.lock();
        let newest = state.held.first()?;
        let due = newest.received_at() + newest.life() / 2;
        let pause = (newest.life() / 20).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX);
        let again = state.asked_at.filter(|asked| *asked >= due).map(|asked| asked + pause);
        Some(again.unwrap_or(due))
    }

    /// The certificate of this number for links, while it counts.
    #[must_use]
    pub fn link(&self, number: u64) -> Option<LinkTls> {
        let state = self.lock();
        let of_number = state.held.iter().find(|held| held.number() == number && held.counts());
        of_number.map(|held| held.tls().clone())
    }

    /// Shows the newest certificate to the control plane no more: it was refused.
    pub fn forget_newest(&self) {
        self.lock().is_refused = true;
    }

    fn shown(&self) -> Option<Arc<CertifiedKey>> {
        let state = self.lock();
        let newest = state.held.first().filter(|held| held.counts() && !state.is_refused);
        newest.map(|held| held.tls().shown())
    }

    /// All certificates with their keys, to be kept for the next start. They are secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.lock().held.iter().for_each(|held| held.encode(&mut bytes));
        bytes
    }

    /// Reads what [`Self::encode`] has written. Certificates that count no more are left out, and so is all that follows a
    /// malformed one.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Self {
        let this = Self::default();
        while let Some((held, rest)) = HeldCertificate::decode(bytes, SystemTime::now()) {
            bytes = rest;
            let mut state = this.lock();
            if held.counts() && state.held.len() < CERTIFICATES_MAX {
                state.held.push(held);
            }
        }
        this
    }
}

impl CertificateState {
    fn put(&mut self, held: HeldCertificate) {
        self.asked.retain(|key| key != held.key());
        self.held.retain(|other| other.number() != held.number());
        self.held.insert(0, held);
        self.held.truncate(CERTIFICATES_MAX);
        self.is_refused = false;
    }
}

/// The control plane is shown the newest certificate.
impl ResolvesClientCert for AgentCertificates {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.shown()
    }

    fn has_certs(&self) -> bool {
        self.shown().is_some()
    }
}

#[cfg(test)]
mod tests;
