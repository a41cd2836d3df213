//! How many requests and messages were refused, by bound?
//!
//! All ways in share these counts. The metric `apportion_bounds_refused_total` shows them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a client or another agent ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// Connections of clients, all of them or of one address.
    Connections,
    /// A connection that said nothing.
    Handshake,
    /// A body that came too slowly.
    SlowBody,
    /// Bytes of bodies that are being read, all of them or of one address.
    OpenBytes,
    /// A body or message that is too large.
    BodyBytes,
    /// A body or message that became too large when it was decompressed.
    Inflated,
    /// A message with too many parts.
    Parts,
    /// Connections of other agents.
    PeerConnections,
    /// Connections of other agents that have not greeted yet.
    PeerHalfOpen,
    /// A greeting that is too slow, of another version, or of no agent.
    PeerGreeting,
    /// A greeting for another agent, or of an agent that the target does not name.
    PeerNumber,
    /// A greeting without the key of the two agents, or a replayed one.
    PeerProof,
    /// A link whose TLS did not begin, or with the certificate of another agent.
    PeerCertificate,
    /// A link without TLS, where the target asks for it.
    PeerPlain,
    /// A message between agents that is too large for its kind, or none at all.
    PeerMessage,
    /// A message that speaks for another agent than its connection has proven.
    PeerClaim,
    /// A steering whose numbers jump, or that adds a replica of an unknown group.
    PeerSteering,
    /// A measurement that nobody can have made.
    PeerMeasured,
}

impl ReachedLimit {
    /// All of them, in the order of their declaration.
    pub const ALL: [ReachedLimit; 18] = [
        Self::Connections,
        Self::Handshake,
        Self::SlowBody,
        Self::OpenBytes,
        Self::BodyBytes,
        Self::Inflated,
        Self::Parts,
        Self::PeerConnections,
        Self::PeerHalfOpen,
        Self::PeerGreeting,
        Self::PeerNumber,
        Self::PeerProof,
        Self::PeerCertificate,
        Self::PeerPlain,
        Self::PeerMessage,
        Self::PeerClaim,
        Self::PeerSteering,
        Self::PeerMeasured,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Handshake => "handshake",
            Self::SlowBody => "slow_body",
            Self::OpenBytes => "open_bytes",
            Self::BodyBytes => "body_bytes",
            Self::Inflated => "inflated",
            Self::Parts => "parts",
            Self::PeerConnections => "peer_connections",
            Self::PeerHalfOpen => "peer_half_open",
            Self::PeerGreeting => "peer_greeting",
            Self::PeerNumber => "peer_number",
            Self::PeerProof => "peer_proof",
            Self::PeerCertificate => "peer_certificate",
            Self::PeerPlain => "peer_plain",
            Self::PeerMessage => "peer_message",
            Self::PeerClaim => "peer_claim",
            Self::PeerSteering => "peer_steering",
            Self::PeerMeasured => "peer_measured",
        }
    }

    /// One more was refused.
    pub fn count(self) {
        COUNTS[self as usize].fetch_add(1, Relaxed);
    }

    /// How many were refused since the process began.
    #[must_use]
    pub fn counted(self) -> u64 {
        COUNTS[self as usize].load(Relaxed)
    }
}

static COUNTS: [AtomicU64; ReachedLimit::ALL.len()] = [const { AtomicU64::new(0) }; ReachedLimit::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_has_its_own_name() {
        let names: std::collections::BTreeSet<&str> = ReachedLimit::ALL.iter().map(|b| b.name()).collect();
        assert_eq!(names.len(), ReachedLimit::ALL.len());
        assert!(ReachedLimit::ALL.iter().enumerate().all(|(at, bound)| *bound as usize == at));
    }
}
