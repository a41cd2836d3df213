//! How does this agent prove itself to the others, and how are its links protected?

use crate::certificates::AgentCertificates;
use apportion_certificates::LinkTls;
use apportion_node::greeting::LinkKeyring;
use apportion_protocol::v1::target::Links;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a link without TLS is accepted after the target has begun to ask for TLS: other agents hear of it a moment
/// later.
pub const SWITCH_MAX: Duration = Duration::from_secs(30);

/// How the links of a fleet are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkProtection {
    /// By the greeting alone.
    #[default]
    Plain,
    /// By TLS 1.3 with the certificates of both agents; the greeting follows.
    Tls,
}

impl From<Links> for LinkProtection {
    fn from(links: Links) -> Self {
        match links {
            Links::Plain => Self::Plain,
            Links::Tls => Self::Tls,
        }
    }
}

/// The keys of this agent's links. Clones share them: the loop sets them, and connections read them when they begin.
#[derive(Clone, Debug, Default)]
pub struct LinkKeys(Arc<SharedLinkKeys>);

#[derive(Debug, Default)]
struct SharedLinkKeys {
    keyring: Mutex<Arc<LinkKeyring>>,
    protection: watch::Sender<LinkProtection>,
    /// Until then links without TLS are accepted, although the target asks for TLS.
    plain_until: Mutex<Option<Instant>>,
    certificates: AgentCertificates,
}

impl LinkKeys {
    /// No keys yet. Links with TLS show these certificates.
    #[must_use]
    pub fn new(certificates: AgentCertificates) -> Self {
        Self(Arc::new(SharedLinkKeys { certificates, ..SharedLinkKeys::default() }))
    }

    /// What a new target says of links: its keys, from the next greeting on, and their protection. Connections that are up
    /// stay up if the protection stays; else links are dialled again. A first target changes nothing that was up.
    pub fn follow_target(&self, protection: LinkProtection, keyring: LinkKeyring) {
        self.protect(protection);
        *self.0.keyring.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
    }

    /// The keys in force.
    #[must_use]
    pub fn current(&self) -> Arc<LinkKeyring> {
        self.0.keyring.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn protect(&self, protection: LinkProtection) {
        let had_target = self.current().own() != 0;
        let is_new = *self.0.protection.borrow() != protection;
        if is_new {
            let until = (had_target && protection == LinkProtection::Tls).then(|| Instant::now() + SWITCH_MAX);
            *self.0.plain_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
            self.0.protection.send_replace(protection);
        }
    }

    /// The protection of links that are dialled now.
    #[must_use]
    pub fn protection(&self) -> LinkProtection {
        *self.0.protection.borrow()
    }

    /// Waits until links are protected in another way than this.
    pub(super) async fn protected_otherwise(&self, than: LinkProtection) {
        let mut protection = self.0.protection.subscribe();
        // The sender is a field of `self`, so it cannot be gone.
        let _changed = protection.wait_for(|protection| *protection != than).await;
    }

    /// Whether a link without TLS is accepted now.
    pub(super) fn accepts_plain(&self, now: Instant) -> bool {
        let until = *self.0.plain_until.lock().unwrap_or_else(PoisonError::into_inner);
        self.protection() == LinkProtection::Plain || until.is_some_and(|until| now < until)
    }

    /// The certificate of the agent with this number, which is this one; none if it has none that counts.
    pub(super) fn tls(&self, own: u64) -> Option<LinkTls> {
        self.0.certificates.link(own)
    }

    /// The certificates of this agent.
    #[must_use]
    pub fn certificates(&self) -> &AgentCertificates {
        &self.0.certificates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_protocol::v1;

    fn keyring() -> LinkKeyring {
        LinkKeyring::of_target(&v1::Target::default(), 7)
    }

    #[test]
    fn plain_links_are_accepted_for_a_while_after_a_switch() {
        let keys = LinkKeys::default();
        let now = Instant::now();
        keys.follow_target(LinkProtection::Plain, keyring());
        assert!(keys.accepts_plain(now) && keys.protection() == LinkProtection::Plain);
        keys.follow_target(LinkProtection::Tls, keyring());
        assert!(keys.accepts_plain(now) && !keys.accepts_plain(Instant::now() + SWITCH_MAX));
        // The same target comes again: the time does not begin again.
        keys.follow_target(LinkProtection::Tls, keyring());
        assert!(!keys.accepts_plain(now + SWITCH_MAX + Duration::from_secs(1)));
        keys.follow_target(LinkProtection::Plain, keyring());
        assert!(keys.accepts_plain(now + 2 * SWITCH_MAX));
    }

    #[test]
    fn a_first_target_with_tls_accepts_no_plain_link() {
        let keys = LinkKeys::default();
        keys.follow_target(LinkProtection::Tls, keyring());
        assert!(!keys.accepts_plain(Instant::now()));
    }

    #[tokio::test]
    async fn another_protection_is_heard_of() {
        let keys = LinkKeys::default();
        let waiting = keys.protected_otherwise(LinkProtection::Plain);
        keys.follow_target(LinkProtection::Tls, keyring());
        waiting.await;
        keys.protected_otherwise(LinkProtection::Plain).await;
    }
}
