//! How do agents prove who they are, and how are their connections to each other protected?

use crate::decide::authorities::CERTIFICATE_LIFE_S_MAX;
use std::time::Duration;

/// Shortest life of an agent's certificate. A shorter one would be over before the next one comes.
const CERTIFICATE_LIFE_MIN: Duration = Duration::from_secs(1);

/// Whether agents prove themselves by certificates, beside the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentCertificateRule {
    /// They get none and are asked for none.
    Off,
    /// They get one. A stream may show it, and is refused if it shows a wrong one.
    #[default]
    Accept,
    /// A stream without one gets one, and no target.
    Require,
}

/// How connections between agents are protected.
///
/// The keyed greeting proves the sender in both cases. Encryption takes each byte of a tensor twice through a cipher, and
/// through some copies more. On the network of one rack that can be the bottleneck. So it is the operator's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinksSetting {
    /// Not encrypted.
    #[default]
    Plain,
    /// TLS 1.3 with the certificates of both agents.
    Tls,
}

/// The settings about agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentSecurity {
    /// Whether they have certificates.
    pub certificates: AgentCertificateRule,
    /// How long a certificate counts.
    pub certificate_life: Duration,
    /// How their connections are protected.
    pub links: LinksSetting,
}

impl Default for AgentSecurity {
    /// Certificates of a day, which are accepted.
    fn default() -> Self {
        let certificate_life = Duration::from_secs(24 * 3_600);
        Self { certificates: AgentCertificateRule::default(), certificate_life, links: LinksSetting::default() }
    }
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentSecurityError {
    /// A certificate can be shown only where there is TLS.
    #[error("--agent-certificates require: expected --agents-tls beside it, because a certificate is shown in TLS")]
    NeedsTls,
    /// Agents without certificates cannot use TLS between them.
    #[error("--links tls: expected --agent-certificates accept or require beside it")]
    NeedsCertificates,
    /// The life is out of its bounds.
    #[error("certificates of agents that count for {0:?}: expected 1 s to {CERTIFICATE_LIFE_S_MAX} s")]
    Life(Duration),
}

impl AgentSecurity {
    /// Whether the settings fit each other and the port at which agents join.
    ///
    /// # Errors
    /// [`AgentSecurityError`] by cause.
    pub fn check(&self, agents_port: AgentsPort) -> Result<(), AgentSecurityError> {
        let longest = Duration::from_secs(CERTIFICATE_LIFE_S_MAX.unsigned_abs());
        if !(CERTIFICATE_LIFE_MIN..=longest).contains(&self.certificate_life) {
            return Err(AgentSecurityError::Life(self.certificate_life));
        }
        match (self.certificates, self.links, agents_port) {
            (AgentCertificateRule::Require, _, AgentsPort::Plain) => Err(AgentSecurityError::NeedsTls),
            (AgentCertificateRule::Off, LinksSetting::Tls, _) => Err(AgentSecurityError::NeedsCertificates),
            _ => Ok(()),
        }
    }
}

/// Whether the agents' port has TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentsPort {
    /// It has none.
    Plain,
    /// It has.
    Tls,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let of = |certificates, links, port| {
            AgentSecurity { certificates, links, ..AgentSecurity::default() }.check(port).map_err(|error| error.to_string())
        };
        assert_eq!(AgentSecurity::default().check(AgentsPort::Plain), Ok(()));
        assert_eq!(of(AgentCertificateRule::Require, LinksSetting::Tls, AgentsPort::Tls), Ok(()));
        assert_eq!(of(AgentCertificateRule::Off, LinksSetting::Plain, AgentsPort::Plain), Ok(()));
        let refused = of(AgentCertificateRule::Require, LinksSetting::Plain, AgentsPort::Plain).expect_err("no TLS");
        assert!(refused.contains("--agents-tls"), "{refused}");
        let refused = of(AgentCertificateRule::Off, LinksSetting::Tls, AgentsPort::Tls).expect_err("no certificates");
        assert!(refused.contains("accept or require"), "{refused}");
    }

    #[test]
    fn lives_of_certificates_are_bounded() {
        let of = |seconds: u64| {
            let certificate_life = Duration::from_secs(seconds);
            AgentSecurity { certificate_life, ..AgentSecurity::default() }.check(AgentsPort::Plain)
        };
        assert!(of(1).is_ok() && of(7 * 24 * 3_600).is_ok());
        for seconds in [0, 7 * 24 * 3_600 + 1] {
            assert_eq!(of(seconds), Err(AgentSecurityError::Life(Duration::from_secs(seconds))));
        }
    }
}
